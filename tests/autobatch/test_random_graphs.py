"""Random graphs: batched as one by one, forward and backward, in one go and in several."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy

SIZE = 3


class Maker:
    """Makes one random graph, the same one from the same seed."""

    def __init__(self, model, seed):
        self.draw = np.random.RandomState(seed)
        self.m = model

    def leaf(self, dy):
        kind = self.draw.randint(6)
        if kind == 0:
            return dy.inputTensor(self.draw.uniform(-1, 1, SIZE))
        if kind == 1:
            return dy.inputTensor(self.draw.uniform(-1, 1, (SIZE, 2)), batched=True)
        if kind == 2:
            return dy.lookup_batch(self.m["table"], self.draw.randint(0, 6, 2).tolist())
        if kind == 3:
            return self.m["b"] + 0.0
        return self.m["table"][int(self.draw.randint(6))]

    def unary(self, dy, x):
        number = float(self.draw.uniform(0.2, 1.5))
        place = int(self.draw.randint(SIZE))
        options = [
            lambda: dy.tanh(x),
            lambda: dy.logistic(x),
            lambda: dy.rectify(x),
            lambda: x * number,
            lambda: x - number,
            lambda: dy.softmax(x),
            lambda: dy.concatenate([x[1:3], x[:1]]),
            lambda: self.m["W"] * x,
            lambda: self.m["V"] * x,
            lambda: dy.affine_transform([self.m["b"], self.m["W"], x]),
            lambda: dy.cmult(x, self.m["b"]),
            lambda: dy.cmult(x, dy.pick(x, place)),
            lambda: dy.layer_norm(x, self.m["b"], self.m["b"]),
            lambda: dy.nobackprop(x),
            lambda: dy.sparsemax(x),
            lambda: dy.reshape(dy.transpose(dy.reshape(x, (1, SIZE))), (SIZE,)),
            lambda: dy.pickneglogsoftmax(x, place) + x if x.dim()[1] == 1 else dy.sum_batches(x),
        ]
        return options[self.draw.randint(len(options))]()

    def joined(self, dy, xs):
        options = [
            lambda: xs[0] + xs[1],
            lambda: xs[0] - xs[1],
            lambda: dy.cmult(xs[0], xs[1]),
            lambda: dy.esum(xs),
            lambda: dy.average(xs),
            lambda: self.m["U"] * dy.concatenate(xs[:2]),
            lambda: dy.dot_product(xs[0], xs[1]) + xs[0],
            lambda: dy.concatenate_cols(xs[:2]) * dy.softmax(dy.concatenate([xs[0][:1], xs[1][1:2]])),
            lambda: dy.affine_transform([self.m["b"], self.m["W"], xs[0], self.m["V"], xs[1]]),
        ]
        return options[self.draw.randint(len(options))]()

    def make(self, dy, count):
        nodes = [self.leaf(dy) for _ in range(4)]
        lstm = self.m["lstm"].initial_state()
        for _ in range(count):
            what = self.draw.randint(10)
            if what < 2:
                nodes.append(self.leaf(dy))
            elif what < 6:
                nodes.append(self.unary(dy, nodes[self.draw.randint(len(nodes))]))
            elif what < 9:
                several = [nodes[self.draw.randint(len(nodes))] for _ in range(self.draw.randint(2, 7))]
                nodes.append(self.joined(dy, several))
            else:
                lstm = lstm.add_input(nodes[self.draw.randint(len(nodes))])
                nodes.append(lstm.output())
        return nodes


def model():
    m = dy.ParameterCollection()
    draw = np.random.RandomState(7)

    def parameter(*shape):
        return m.parameters_from_numpy(draw.uniform(-0.7, 0.7, shape))

    found = {
        "W": parameter(SIZE, SIZE),
        "V": parameter(SIZE, SIZE),
        "U": parameter(SIZE, 2 * SIZE),
        "b": parameter(SIZE),
    }
    found["table"] = m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (6, SIZE)))
    found["lstm"] = dy.VanillaLSTMBuilder(1, SIZE, SIZE, m)
    for p in found["lstm"].param_collection().parameters_list():
        p.set_value(draw.uniform(-0.5, 0.5, p.shape()))
    found["all"] = m
    return found


def run(m, seed, count, pieces, is_whole):
    dy.renew_cg()
    maker = Maker(m, seed)
    nodes = maker.make(dy, count)
    if pieces:
        for place in np.random.RandomState(seed).choice(len(nodes), 3):
            nodes[place].npvalue()
    loss = dy.esum([dy.sum_batches(dy.sum_elems(dy.tanh(x))) for x in (nodes if is_whole else nodes[-5:])])
    found = [loss.npvalue()]
    loss.backward(full=not is_whole)
    found += [x.npvalue() for x in nodes] + [x.gradient() for x in nodes if not isinstance(x, dy.Parameters)]
    for p in (*m["all"].parameters_list(), *m["all"].lookup_parameters_list()):
        found.append(p.grad_as_array())
    m["all"].reset_gradient()
    return found


def compare(seeds, dtype, tolerance, engine, count=24, is_whole=False):
    """Compare batched runs with one by one.

    The native engine differentiates all rows of one signature together, as DyNet does all nodes: zero times a NaN that
    the loss does not read is a NaN there, in one manner of running and not in the other.
    """
    dy.configure(dtype=dtype, autobatch=False, engine=engine)
    m = model()
    for seed in seeds:
        dy.configure(autobatch=False)
        wanted = run(m, seed, count, False, is_whole)
        dy.configure(autobatch=True)
        for pieces in (False, True):
            for one, other in zip(wanted, run(m, seed, count, pieces, is_whole)):
                if engine == "auto" and (np.isnan(one) != np.isnan(other)).any():
                    assert any(np.isnan(value).any() for value in wanted[1 : count + 5])
                    continue
                bound = tolerance * max(1.0, float(np.abs(one).max()))
                np.testing.assert_allclose(other, one, rtol=0, atol=bound, err_msg=f"seed {seed}")


@pytest.fixture(autouse=True)
def _back():
    yield
    dy.configure(dtype="float32", autobatch=False, engine="auto")


@pytest.mark.parametrize("part", range(4))
def test_float64(part):
    compare(range(50 * part, 50 * part + 50), "float64", 1e-12, "python")


@pytest.mark.parametrize("engine", ["python", "auto"])
def test_float32(engine):
    compare(range(1000, 1040), "float32", 1e-5, engine)


def test_a_loss_that_reads_every_node():
    """Gradients of what is read once are written, and not added to zeros."""
    compare(range(2000, 2060), "float64", 1e-12, "python", is_whole=True)


def test_one_operand_several_times():
    """The mean of one expression, alone in its batch, counts it as often as it is given."""
    for autobatch in (False, True):
        dy.configure(autobatch=autobatch)
        x = dy.inputTensor([1.0, 2.0]) + 0.0
        assert dy.average([x, x]).vec_value() == [1.0, 2.0]
        assert dy.esum([x] * 6).vec_value() == [6.0, 12.0]


@pytest.mark.parametrize("engine", ["python", "auto"])
@pytest.mark.parametrize("autobatch", [False, True])
def test_the_gradient_of_a_value_that_is_asked_for_and_used_again(engine, autobatch):
    """Fusion makes it vanish into the first loss, so that the second one reads a copy."""
    dy.configure(engine=engine, autobatch=autobatch)
    dy.renew_cg()
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([[0.5, -1.0], [2.0, 0.25]]))
    x = np.array([1.0, 2.0], dtype=np.float32)
    inner = w * dy.inputTensor(x)
    first = dy.sum_elems(dy.tanh(inner))
    first.value()
    second = dy.sum_elems(dy.square(inner))
    second.value()
    (first + second).backward(full=True)
    product = np.array([[0.5, -1.0], [2.0, 0.25]]) @ x
    wanted = 1 - np.tanh(product) ** 2 + 2 * product
    np.testing.assert_allclose(inner.gradient(), wanted, rtol=1e-5)
    np.testing.assert_allclose(w.grad_as_array(), np.outer(wanted, x), rtol=1e-5)


@pytest.mark.parametrize("engine", ["python", "auto"])
@pytest.mark.parametrize("autobatch", [False, True])
def test_what_the_loss_does_not_read_spoils_no_gradient(engine, autobatch):
    dy.configure(engine=engine, autobatch=autobatch)
    dy.renew_cg()
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([-1.0, 2.0]))
    bad = dy.log(w.expr()) + dy.sparsemax(dy.sqrt(w.expr()))
    loss = dy.sum_elems(dy.square(w.expr()))
    assert np.isnan(bad.npvalue()[0])
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), [-2.0, 4.0])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("dtype", "engine"), [("float64", "python"), ("float32", "auto")])
def test_ten_thousand(dtype, engine):
    compare(range(10_000), dtype, 1e-12 if dtype == "float64" else 1e-5, engine)
