"""What DyNet's own Python tests ask of its interface, in our words, on both engines."""

from __future__ import annotations

import gc
from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")


NUMBERS = np.arange(81)
SHAPES = [(81,), (3, 27), (3, 3, 9), (3, 3, 3, 3)]


@walks(product(SHAPES))
def test_inputs(shape):
    array = NUMBERS.reshape(shape)
    x = dy.inputTensor(array)
    assert x.dim() == (shape, 1)
    np.testing.assert_array_equal(x.npvalue(), array)
    assert dy.squared_norm(x).scalar_value() == (NUMBERS**2).sum()
    batch = dy.inputTensor(array, batched=True)
    assert batch.dim() == (shape[:-1] or (1,), shape[-1])
    np.testing.assert_array_equal(batch.npvalue().reshape(shape), array)
    assert dy.sum_batches(dy.squared_norm(batch)).scalar_value() == (NUMBERS**2).sum()
    listed = dy.inputTensor([np.asarray(part).transpose() for part in array.transpose()])
    assert listed.dim()[1] == shape[-1]
    np.testing.assert_array_equal(listed.npvalue().reshape(shape), array)
    with pytest.raises(TypeError):
        dy.inputTensor(batched=True)


def test_sparse_inputs():
    array = NUMBERS.reshape((3, 3, 3, 3))
    places = ([0, 0], [0, 1], [0, 2], [0, 0])
    x = dy.sparse_inputTensor(places, [array[0, 0, 0, 0], array[0, 1, 2, 0]], (3, 3, 3, 3), batched=True)
    assert x.dim() == ((3, 3, 3), 3)
    assert x.npvalue()[0, 1, 2, 0] == array[0, 1, 2, 0]
    assert x.npvalue()[1, 1, 1, 1] == 0


class Two:
    """Two parameters and two tables of ones, and a trainer."""

    def __init__(self):
        self.m = dy.ParameterCollection()
        one = dy.ConstInitializer(1)
        self.p1, self.p2 = (self.m.add_parameters((10, 10), init=one) for _ in "ab")
        self.lp1, self.lp2 = (self.m.add_lookup_parameters((10, 10), init=one) for _ in "ab")
        self.trainer = dy.SimpleSGDTrainer(self.m, learning_rate=0.1)
        self.trainer.set_clip_threshold(-1)

    def loss(self):
        a = dy.parameter(self.p1) * self.lp1[1]
        b = dy.parameter(self.p2) * self.lp2[1]
        return dy.dot_product(a, b) / 100


def test_parameters():
    two = Two()
    assert len(two.m.parameters_list()) == 2
    assert len(two.m.lookup_parameters_list()) == 2
    assert two.m.add_lookup_parameters((10, 5, 2)).shape() == (10, 5, 2)
    assert two.lp1.rows_as_array([5, 6, 9]).shape == (3, 10)
    assert two.lp1.row_grad_as_array(0).tolist() == [0] * 10
    p = two.m.add_parameters((2, 3), init=dy.ConstInitializer(1))
    p.set_value(np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(p.as_array(), np.arange(6).reshape(2, 3))
    assert len(two.lp1) == 10
    assert len(list(two.lp1)) == 10


def test_gradient_of_a_product():
    m = dy.ParameterCollection()
    p = m.parameters_from_numpy(np.arange(5))
    x = dy.inputTensor(np.arange(5).reshape((1, 5)))
    result = x * p
    result.forward()
    result.backward()
    np.testing.assert_allclose(p.grad_as_array(), np.arange(5))


def test_update():
    two = Two()
    loss = two.loss()
    assert loss.scalar_value() == 10
    loss.backward()
    ones = np.ones((10, 10))
    np.testing.assert_allclose(two.p1.grad_as_array(), 0.1 * ones, rtol=1e-6)
    np.testing.assert_allclose(two.lp1.grad_as_array()[1], ones[0], rtol=1e-6)
    two.trainer.update()
    np.testing.assert_allclose(two.p2.as_array(), 0.99 * ones, rtol=1e-6)
    np.testing.assert_allclose(two.lp2.as_array()[1], 0.9 * ones[0], rtol=1e-6)
    np.testing.assert_array_equal(two.p1.grad_as_array(), 0 * ones)


def test_set_updated():
    two = Two()
    two.p1.set_updated(False)
    two.lp2.set_updated(False)
    assert [x.is_updated() for x in (two.p1, two.p2, two.lp1, two.lp2)] == [False, True, True, False]
    two.loss().backward()
    two.trainer.update()
    np.testing.assert_array_equal(two.p1.as_array(), np.ones((10, 10)))
    np.testing.assert_array_equal(two.lp2.as_array(), np.ones((10, 10)))
    assert (two.p2.as_array() != 1).all()


def test_parameters_may_be_added_after_an_update():
    two = Two()
    for kind in (dy.SimpleSGDTrainer, dy.AdamTrainer):
        trainer = kind(two.m)
        for _ in range(20):
            p = two.m.add_parameters((1,))
            dy.renew_cg()
            x = dy.parameter(p)
            x.forward()
            x.backward()
            before = p.as_array()
            trainer.update()
            assert p.as_array() < before


def test_parameters_outlive_their_collection():
    p = dy.parameter(dy.ParameterCollection().add_parameters((1,), init=dy.ConstInitializer(1)))
    q = dy.parameter(dy.ParameterCollection().add_subcollection().add_parameters((1,), init=2.0))
    row = dy.ParameterCollection().add_lookup_parameters((3, 2), init=4.0)[1]
    rows = dy.lookup_batch(dy.ParameterCollection().add_lookup_parameters((3, 2), init=4.0), [0, 2])
    assert p.value() == 1
    gc.collect()
    assert p.value() == 1
    assert q.value() == 2
    assert row.vec_value() == [4, 4]
    assert rows.vec_value() == [4, 4, 4, 4]


def test_initializers():
    m = dy.ParameterCollection()
    for make in (m.add_parameters, m.add_lookup_parameters):
        assert (make((3, 5), init=0).as_array() == 0).all()
        assert np.abs(make((3, 5), init="uniform", scale=2.0).as_array()).max() <= 2
        make((3, 5), init="normal", mean=-1.0, std=2.5)
        bound = np.sqrt(6 / 8)
        assert np.abs(make((3, 5), init="glorot").as_array()).max() <= bound
        make((3, 5), init="he")
        assert (make((3, 5), init=dy.ConstInitializer(2.0)).as_array() == 2).all()
        array = np.arange(15.0).reshape(3, 5)
        np.testing.assert_array_equal(make(array.shape, init=array).as_array(), array)
    np.testing.assert_array_equal(m.add_parameters((5, 5), init="identity").as_array(), np.eye(5))
    saxe = m.add_parameters((4, 4), init=dy.SaxeInitializer()).as_array()
    np.testing.assert_allclose(saxe @ saxe.T, np.eye(4), atol=1e-5)
    table = m.lookup_parameters_from_numpy(np.arange(50).reshape(10, 5))
    np.testing.assert_array_equal(table.batch([8]).npvalue(), np.arange(40, 45))


def test_minibatches_of_rows():
    m = dy.ParameterCollection()
    p = m.add_lookup_parameters((2, 3))
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    p.init_from_array(values)
    x = dy.lookup_batch(p, [0, 1])
    np.testing.assert_array_equal(x.npvalue(), values.T)
    np.testing.assert_array_equal(dy.pick_batch_elem(x, 1).npvalue(), values[1])
    np.testing.assert_array_equal(dy.pick_batch_elems(x, [0]).npvalue(), values[0])
    np.testing.assert_array_equal(dy.pick_batch_elems(x, [0, 1]).npvalue(), values.T)
    parts = [dy.pick_batch_elem(x, 0), dy.pick_batch_elem(x, 1)]
    np.testing.assert_array_equal(dy.concatenate_to_batch(parts).npvalue(), values.T)


def test_slices():
    data = np.random.RandomState(0).uniform(size=(10, 10, 10)).astype(np.float32)
    for key in (
        np.s_[:1, :2, :3], np.s_[:, :, :3], np.s_[3:, :, :], np.s_[:, :, ::1], np.s_[:, :, ::3], np.s_[3:5, 1:3, 1:],
    ):  # fmt: skip
        np.testing.assert_array_equal(dy.inputTensor(data)[key].npvalue(), data[key])
    np.testing.assert_array_equal(dy.inputTensor(data, batched=True)[:1, :2, :3].npvalue(), data[:1, :2, :3])


def test_layer_norm():
    v = np.arange(10)
    y = dy.layer_norm(dy.inputTensor(v), dy.inputTensor(v), dy.inputTensor(v))
    total = dy.sum_elems(y)
    total.scalar_value()
    total.backward()
    np.testing.assert_allclose(y.npvalue(), v / v.std() * (v - v.mean()) + v, rtol=1e-5)


BUILDERS = ["SimpleRNNBuilder", "GRUBuilder", "VanillaLSTMBuilder", "CoupledLSTMBuilder", "FastLSTMBuilder"]


@walks(BUILDERS)
def test_builders(name):
    m = dy.ParameterCollection()
    builder = getattr(dy, name)(2, 10, 10, m)
    with pytest.raises(ValueError, match="stale"):
        builder.get_parameter_expressions()
    dy.renew_cg()
    state = builder.initial_state()
    for layer, expressions in zip(builder.get_parameters(), builder.get_parameter_expressions()):
        for parameter, expression in zip(layer, expressions):
            np.testing.assert_array_equal(expression.npvalue(), parameter.as_array())
    assert (state.h(), state.s(), state.prev(), state.output()) == ((), (), None, None)
    copy = type(builder).from_spec(builder.spec, m)
    assert copy.whoami() == name
    ones = [dy.ones(10) for _ in range(4)]
    if "LSTM" in name:
        builder.initial_state(ones).add_input(dy.ones(10)).output().npvalue()
        after = state.set_s(ones[:2])
        assert len(after.s()) == 4
        state.set_s(ones)
    else:
        builder.initial_state(ones[:2])
    given = state.set_h(ones[:2])
    zeros = [[0.0] * 10] * 2 if "LSTM" in name else []
    assert [each.vec_value() for each in given.s()] == [*zeros, [1.0] * 10, [1.0] * 10]
    after = given.add_input(dy.ones(10))
    again = builder.initial_state(list(given.s())).add_input(dy.ones(10))
    np.testing.assert_allclose(after.output().npvalue(), again.output().npvalue(), rtol=1e-6)
    assert len(after.h()) == 2
    assert after.prev().h()[0].vec_value() == [1.0] * 10
    for dropout in (0.3, 0.0):
        builder.set_dropout(dropout)
        builder.initial_state().add_inputs([dy.ones(10)] * 2)[-1].output().npvalue()


@walks(BUILDERS)
def test_bidirectional(name):
    m = dy.ParameterCollection()
    both = dy.BiRNNBuilder(2, 4, 6, m, getattr(dy, name))
    xs = [dy.inputTensor(np.full(4, float(i))) for i in range(3)]
    outputs = both.transduce(xs)
    states = both.add_inputs(xs)
    for y, (ahead, behind) in zip(outputs, states):
        assert y.dim() == ((6,), 1)
        joined = dy.concatenate([ahead.output(), behind.output()])
        np.testing.assert_allclose(y.npvalue(), joined.npvalue(), rtol=1e-6)


def test_softmax_layers(tmp_path):
    m = dy.ParameterCollection()
    x = dy.inputTensor(np.arange(3))
    standard = dy.StandardSoftmaxBuilder(3, 10, m, True)
    lines = [f"{i} {2 * i + k}\n" for i in range(5) for k in (0, 1)]
    name = tmp_path / "clusters.txt"
    name.write_text("".join(lines), encoding="utf-8")
    words = {str(i): i for i in range(10)}
    factored = dy.ClassFactoredSoftmaxBuilder(3, str(name), words, m, True)
    tree = tmp_path / "tree.txt"
    tree.write_text("".join(f"{i % 2} {i % 3} {i}\n" for i in range(10)), encoding="utf-8")
    deep = dy.HierarchicalSoftmaxBuilder(3, str(tree), words, m)
    for layer in (standard, factored, deep):
        logs = layer.full_log_distribution(x).npvalue()
        assert np.exp(logs).sum() == pytest.approx(1.0, rel=1e-5)
        for update in (True, False):
            assert layer.neg_log_softmax(x, 4, update=update).scalar_value() == pytest.approx(
                -logs[4], rel=1e-4
            )
        assert 0 <= layer.sample(x) < 10
        batch = dy.concatenate_to_batch([x, x * 2.0])
        losses = layer.neg_log_softmax_batch(batch, [4, 7])
        assert losses.npvalue()[0, 0] == pytest.approx(-logs[4], rel=1e-4)


def test_seed_programs_learn():
    m = dy.Model()
    trainer = dy.AdamTrainer(m, alpha=0.01)
    embeds = m.add_lookup_parameters((100, 10))
    builder = dy.VanillaLSTMBuilder(1, 10, 10, m)
    weights = m.add_parameters((3, 10))
    examples = [((1, 4, 5, 1), 1), ((42, 1), 2), ((56, 2, 17), 1)]

    def scores(sequence):
        return weights.expr() * builder.initial_state().transduce([embeds[i] for i in sequence])[-1]

    losses = []
    for _ in range(40):
        dy.renew_cg()
        loss = dy.esum([dy.pickneglogsoftmax(scores(s), label) for s, label in examples]) / 3
        losses.append(loss.npvalue()[0])
        loss.backward()
        trainer.update()
    assert losses[-1] < 0.7 * losses[0]
    dy.renew_cg()
    found = [dy.softmax(scores(s)) for s, _ in examples]
    dy.forward(found)
    assert [int(np.argmax(y.npvalue())) for y in found] == [1, 2, 1]


def test_arguments_by_name(setting):
    matrix = np.arange(1.0, 7.0).reshape(2, 3)
    x = dy.inputTensor(matrix)
    named = {
        "softmax": (dy.softmax(x, d=1), dy.softmax(x, 1)),
        "log_softmax": (dy.log_softmax(x=x), dy.log_softmax(x)),
        "pick": (dy.pick(x, dim=1, index=2), dy.pick(x, 2, 1)),
        "pick, left out": (dy.pick(x, dim=1), dy.pick(x, 0, 1)),
        "concatenate": (dy.concatenate([x, x], d=1), dy.concatenate([x, x], 1)),
        "sum_dim": (dy.sum_dim(x, d=[1]), dy.sum_dim(x, [1])),
        "moment_dim": (dy.moment_dim(x, b=False, r=3, d=[0, 1]), dy.moment_dim(x, [0, 1], 3, False)),
        "mean_dim": (dy.mean_dim(x, [0], False, n=4), dy.mean_dim(x, [0], False, 4)),
        "elu": (dy.elu(x - 3.0, alpha=2.0), dy.elu(x - 3.0, 2.0)),
        "constant": (dy.constant(val=2.0, dim=3), dy.constant(3, 2.0)),
    }
    for name, (given, expected) in named.items():
        np.testing.assert_array_equal(given.npvalue(), expected.npvalue(), err_msg=name)
    for wrong in ({"d": 1}, {"axis": 1}):
        with pytest.raises(TypeError):
            dy.softmax(x, 1, **wrong)
    with pytest.raises(TypeError):
        dy.moment_dim(x, d=[0], b=False)
