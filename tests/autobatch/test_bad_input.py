"""Wrong arguments: a typed error at the call, whichever engine computes; what fails leaves the graph usable."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy


@pytest.fixture(params=["python", "auto"], autouse=True)
def _engine(request):
    dy.configure(engine=request.param, autobatch=True)
    yield
    dy.configure(engine="auto", autobatch=False)


def vector():
    return dy.inputTensor([1.0, 2.0, 3.0])


def matrix():
    return dy.inputTensor(np.arange(12.0).reshape(3, 4))


NO_SUCH_DIMENSION = {
    "concatenate": lambda d: dy.concatenate([matrix(), matrix()], d),
    "concatenate_many": lambda d: dy.concatenate([dy.tanh(matrix()) for _ in range(6)], d),
    "pick": lambda d: dy.pick(matrix(), 1, d),
    "pick_batch": lambda d: dy.pick_batch(dy.inputTensor(np.ones((3, 2)), batched=True), [0, 1], d),
    "pick_range": lambda d: dy.pick_range(matrix(), 0, 2, d),
    "kmax_pooling": lambda d: dy.kmax_pooling(matrix(), 1, d),
    "softmax": lambda d: dy.softmax(matrix(), d),
    "sum_dim": lambda d: dy.sum_dim(matrix(), d),
    "std_dim": lambda d: dy.std_dim(matrix(), d, False),
    "max_dim": lambda d: dy.max_dim(matrix(), d),
    "cumsum": lambda d: dy.cumsum(matrix(), d),
    "transpose": lambda d: dy.transpose(matrix(), (0, d)),
    "dropout_dim": lambda d: dy.dropout_dim(matrix(), d, 0.5),
}


@pytest.mark.parametrize("dimension", [-1, -2, -3, 2**40])
@pytest.mark.parametrize("name", NO_SUCH_DIMENSION)
def test_dimensions_that_there_are_not(name, dimension):
    with pytest.raises(dy.ShapeError, match=r"\{3"):
        NO_SUCH_DIMENSION[name](dimension)


@pytest.mark.parametrize("count", [0, -1, -2, 5, 2**40])
@pytest.mark.parametrize("function", [dy.kmh_ngram, dy.fold_rows, dy.kmax_pooling])
def test_sizes_that_do_not_fit(function, count):
    with pytest.raises(dy.ShapeError, match=r"\{3,4\}"):
        function(matrix(), count)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dy.pick_batch(vector(), []),
        lambda: dy.pickneglogsoftmax_batch(vector(), []),
        lambda: dy.hinge_batch(vector(), []),
        lambda: dy.hinge_dim(matrix(), []),
        lambda: dy.log_softmax(vector(), []),
        lambda: dy.select_rows(matrix(), []),
        lambda: dy.select_cols(matrix(), []),
        lambda: dy.pick_batch_elems(vector(), []),
        lambda: dy.lookup_batch(dy.ParameterCollection().add_lookup_parameters((3, 2)), []),
    ],
)
def test_empty_lists(call):
    with pytest.raises(dy.EmptySequenceError):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: dy.pick(3, 0),
        lambda: dy.pick_batch([1, 2], [0]),
        lambda: dy.hinge(None, 0),
        lambda: dy.pickneglogsoftmax("scores", 0),
        lambda: dy.log_softmax([1.0, 2.0], [0]),
        lambda: dy.std_elems([vector()]),
        lambda: dy.mean_elems(torch.ones(3)),
        lambda: dy.lookup(3, 0),
        lambda: dy.lookup_batch("words", [0]),
        lambda: dy.forward([3]),
        lambda: dy.values([None]),
        lambda: dy.tanh(None),
        lambda: dy.esum([3]),
    ],
)
def test_what_is_no_expression(call):
    with pytest.raises(dy.ForeignValueError, match="no "):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: dy.noise(vector(), -1.0),
        lambda: dy.noise(vector(), float("nan")),
        lambda: dy.random_normal(3, 0.0, -1.0),
        lambda: dy.random_gumbel(3, 0.0, -1.0),
        lambda: dy.random_uniform(3, 2.0, 1.0),
        lambda: dy.random_uniform(3, float("nan"), 1.0),
        lambda: dy.random_normal(3, float("inf")),
        lambda: dy.dropout(vector(), float("nan")),
        lambda: dy.random_bernoulli(3, 1.5),
    ],
)
def test_distributions_that_cannot_be_drawn_from(call):
    with pytest.raises(dy.ArgumentError):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: dy.pick_batch(vector(), [1.5]),
        lambda: dy.pickneglogsoftmax_batch(vector(), ["1"]),
        lambda: dy.select_rows(matrix(), [0.5]),
        lambda: dy.lookup_batch(dy.ParameterCollection().add_lookup_parameters((3, 2)), [0.5]),
    ],
)
def test_indices_that_are_no_integers(call):
    with pytest.raises(TypeError):
        call()


def test_indices_of_numpy_and_torch():
    x = vector()
    for index in (np.int64(2), np.uint8(2), torch.tensor(2)):
        assert dy.pick_batch(x, [index]).value() == 3.0


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", "longdouble", "float16", "uint8", "bool"])
def test_arrays_of_any_layout(dtype):
    values = np.arange(6).reshape(2, 3) % 2
    array = values.astype(dtype)
    for given, wanted in ((array, values), (array[::-1, ::-1], values[::-1, ::-1]), (array.T, values.T)):
        given.flags.writeable = False
        np.testing.assert_array_equal(dy.inputTensor(given).npvalue(), wanted)
        np.testing.assert_array_equal(dy.inputTensor(given, batched=True).npvalue(), wanted)


def test_inputs_do_not_follow_their_arrays():
    array = np.ones(3, np.float32)
    x = dy.inputTensor(array)
    array[:] = 5
    assert x.vec_value() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("how", ["gradient", "recalculate"])
def test_a_pass_cut_by_a_checkpoint_is_computed_again(how):
    m = dy.ParameterCollection()
    b = m.parameters_from_numpy(np.array([0.1, 0.2, 0.3]))
    y = dy.tanh(b + 0.0)
    before = dy.sin(y)
    y.value()
    dy.cg_checkpoint()
    inner = dy.tanh(dy.tanh(b + 1.0) + before)
    loss = dy.sum_elems(inner)
    if how == "gradient":
        loss.backward()
        inner.gradient()  # the native engine computes everything once more, in one go
        y.gradient()
        m.reset_gradient()
    else:
        loss.value(recalculate=True)
    dy.cg_revert()
    dy.sum_elems(y).backward()
    wanted = 1 - np.tanh([0.1, 0.2, 0.3]) ** 2
    np.testing.assert_allclose(b.grad_as_array(), wanted, rtol=1e-5)
    np.testing.assert_allclose(y.gradient(), [1.0, 1.0, 1.0])


def test_an_input_set_and_taken_back_is_forgotten():
    dy.tanh(vector()).value()
    dy.cg_checkpoint()
    dy.vecInput(2).set([7.0, 8.0])
    dy.cg_revert()
    assert dy.vecInput(3).vec_value() == [0.0, 0.0, 0.0]


def test_an_operation_must_not_use_the_graph_that_runs_it():
    later: list[dy.Expression] = []

    def asks(x):
        dy.forward(later)
        return 2 * x

    outer = dy.wrap(asks, rows=True)(dy.sin(vector()))
    later.append(dy.tanh(vector()))
    with pytest.raises(RuntimeError, match="must not use it itself"):
        outer.npvalue()
    dy.renew_cg()
    assert vector().vec_value() == [1.0, 2.0, 3.0]


def test_a_failing_operation_runs_again():
    m = dy.ParameterCollection()
    b = m.parameters_from_numpy(np.array([0.1, 0.2, 0.3]))
    is_broken = [False]

    def fails(x):
        if is_broken[0]:
            raise KeyError("broken")
        return 2 * x

    before = dy.sin(b + 0.0)
    loss = dy.sum_elems(dy.wrap(fails, rows=True)(before))
    is_broken[0] = True
    for _ in range(2):
        with pytest.raises(KeyError, match="broken"):
            loss.value()
    is_broken[0] = False
    loss.backward()
    np.testing.assert_allclose(b.grad_as_array(), 2 * np.cos([0.1, 0.2, 0.3]), rtol=1e-5)
    engine = getattr(dy.cg(), "engine", None)
    if engine is not None:
        steps = sum(len(plan.steps) for plan in engine.plans)
        assert len(engine.records) == steps - 1, "all but the parameter, each once"
