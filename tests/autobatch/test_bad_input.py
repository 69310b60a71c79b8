"""Wrong arguments: a typed error at the call, whichever engine computes; what fails leaves the graph usable."""

from __future__ import annotations

import copy
import pickle
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("engine")


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


@walks(product([-1, -2, -3, 2**40], NO_SUCH_DIMENSION))
def test_dimensions_that_there_are_not(dimension, name):
    with pytest.raises(dy.ShapeError, match=r"\{3"):
        NO_SUCH_DIMENSION[name](dimension)


@walks(product([0, -1, -2, 5, 2**40], [dy.kmh_ngram, dy.fold_rows, dy.kmax_pooling]))
def test_sizes_that_do_not_fit(count, function):
    with pytest.raises(dy.ShapeError, match=r"\{3,4\}"):
        function(matrix(), count)


@walks(
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
    ]
)
def test_empty_lists(call):
    with pytest.raises(dy.EmptySequenceError):
        call()


@walks(
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
    ]
)
def test_what_is_no_expression(call):
    with pytest.raises(dy.ForeignValueError, match="not a"):
        call()


@walks(
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
    ]
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
    with pytest.raises(dy.ForeignValueError, match="is not an integer"):
        call()


@pytest.mark.parametrize("index", [1.5, float("nan"), None, np.float32(0.5), torch.tensor(1.5)])
def test_what_is_neither_an_index_nor_a_list(index):
    for call in (
        lambda: dy.pick(vector(), index),
        lambda: dy.pickneglogsoftmax(vector(), index),
        lambda: dy.hinge(vector(), index),
        lambda: dy.one_hot(3, index),
        lambda: dy.sum_dim(matrix(), index),
    ):
        with pytest.raises(
            dy.ForeignValueError, match=r"is not an integer or a list of integers \(at .*test_bad_input"
        ):
            call()


def test_going_back_without_a_checkpoint():
    x = vector()
    for back in (dy.cg_revert, lambda: dy.cg().revert()):
        with pytest.raises(dy.StateError, match=r"cg_checkpoint\(\) first.*test_bad_input"):
            back()
        assert dy.tanh(x).npvalue().shape == (3,)
        dy.cg_checkpoint()
        dy.cg_revert()
    dy.cg_checkpoint()
    dy.renew_cg()
    with pytest.raises(dy.StateError):
        dy.cg_revert()


@pytest.mark.parametrize(
    "index", [2, 2.0, np.int64(2), np.uint8(2), np.float32(2), torch.tensor(2), np.array(2)]
)
def test_indices_of_any_kind(index):
    x = vector()
    table = dy.ParameterCollection().lookup_parameters_from_numpy(np.array([[1.0], [2.0], [3.0]]))
    assert dy.pick(x, index).value() == dy.pick_batch(x, [index]).value() == x[index].value() == 3.0
    assert table[index].value() == table.batch([index]).value() == 3.0
    assert dy.one_hot(3, index).vec_value() == [0.0, 0.0, 1.0]
    assert dy.pickneglogsoftmax(x, index).value() == dy.pickneglogsoftmax(x, 2).value()


@pytest.mark.parametrize("index", [1.5, "1", None, float("nan"), [[1]], slice(0, 2)])
def test_rows_that_are_no_integers(index):
    table = dy.ParameterCollection().add_lookup_parameters((3, 2))
    for call in (lambda: table[index], lambda: dy.lookup(table, index), lambda: table.row_as_array(index)):
        with pytest.raises(dy.ForeignValueError, match="is not an integer"):
            call()


@walks(product([dy.esum, dy.average, dy.concatenate, dy.emax, dy.affine_transform], [3, None]))
def test_what_is_no_list(function, given):
    with pytest.raises(dy.ForeignValueError, match="is not a list"):
        function(given)


@pytest.mark.parametrize("given", [[], [[1.0], [2.0, 3.0]], "abc", None, [1.0, "a"], {1: 2}])
def test_what_is_no_number(given):
    for function in (dy.inputTensor, dy.inputVector, dy.scalarInput, dy.vecInput(2).set):
        with pytest.raises((dy.ForeignValueError, dy.ShapeError)):
            function(given)


def test_tensors_of_torch_are_inputs():
    tensor = torch.tensor([1.0, 2.0], requires_grad=True)
    assert dy.inputTensor(tensor).vec_value() == dy.inputVector(tensor).vec_value() == [1.0, 2.0]
    assert dy.scalarInput(tensor[1]).value() == 2.0


@pytest.mark.parametrize("dim", [0, -1, 1.5, (2, 0), (2.5,), "3", None])
def test_sizes_that_are_no_sizes(dim):
    collection = dy.ParameterCollection()
    for function in (dy.zeros, dy.vecInput, collection.add_parameters, collection.add_lookup_parameters):
        with pytest.raises((dy.ShapeError, dy.ForeignValueError)):
            function(dim)


@pytest.mark.parametrize("count", [2, 4, 20])
def test_an_affine_map_without_the_last_factor(count):
    collection = dy.ParameterCollection()
    b, w = collection.add_parameters((3,)), collection.add_parameters((3, 3))
    operands = [b, *[w, vector()] * 10][:count]
    with pytest.raises(dy.ShapeError, match=r"affine_transform.*\{3\} \{3,3\}.*pairs"):
        dy.affine_transform(operands)


def test_ranges_beyond_all_numbers():
    for start, stop in ((0, 2**40), (2**70, 2**71)):
        with pytest.raises(dy.ShapeError, match="PickRange"):
            dy.pick_range(vector(), start, stop)


@pytest.mark.parametrize(
    "given", [np.ones(3), torch.ones(3), np.ones((3, 3))], ids=["numpy", "torch", "matrix"]
)
def test_operators_on_arrays(given):
    parameter = dy.ParameterCollection().add_parameters((3,), init=1.0)
    for x in (vector(), parameter):
        for call in (
            lambda: x + given,  # noqa: B023
            lambda: given + x,  # noqa: B023
            lambda: x - given,  # noqa: B023
            lambda: given - x,  # noqa: B023
            lambda: x * given,  # noqa: B023
            lambda: given * x,  # noqa: B023
            lambda: given / x,  # noqa: B023
            lambda: x**given,  # noqa: B023
        ):
            with pytest.raises(dy.ForeignValueError, match=r"\(3, ?3?\).*inputTensor"):
                call()


@pytest.mark.parametrize("two", [np.float32(2), np.float64(2), np.int64(2), np.array(2.0), torch.tensor(2.0)])
def test_operators_on_numbers_of_numpy_and_torch(two):
    x = vector()
    for found, wanted in (
        (two * x, [2, 4, 6]),
        (x * two, [2, 4, 6]),
        (two + x, [3, 4, 5]),
        (two - x, [1, 0, -1]),
        (x - two, [-1, 0, 1]),
        (two / x, [2, 1, 2 / 3]),
        (x / two, [0.5, 1, 1.5]),
        (x**two, [1, 4, 9]),
        (two**x, [2, 4, 8]),
    ):
        np.testing.assert_allclose(found.npvalue(), wanted, rtol=1e-6)


def test_an_expression_is_no_array():
    x = vector()
    for call in (lambda: np.asarray(x), lambda: np.mean([x, x]), lambda: dy.inputTensor([x, x])):
        with pytest.raises(dy.ForeignValueError, match="npvalue"):
            call()
    assert dy.cg().size == 1, "nothing was picked from it"


DISTURBS = {
    "renew_cg": dy.renew_cg,
    "cg_checkpoint": dy.cg_checkpoint,
    "cg_revert": dy.cg_revert,
    "configure": lambda: dy.configure(autobatch=False),
}


@walks(product(DISTURBS, [True, False, None], ["call", "value"]))
def test_a_function_that_disturbs_the_graph_that_calls_it(what, rows, when):
    is_quiet = [when == "value"]

    def disturbs(x):
        if not is_quiet[0]:
            DISTURBS[what]()
        return 2 * x

    x = vector()
    function = dy.wrap(disturbs, rows=rows)
    if when == "value":
        y = function(x)
        is_quiet[0] = False
    with pytest.raises(dy.StateError, match=rf"{what} was called inside disturbs.*test_bad_input"):
        y.npvalue() if when == "value" else function(x)
    is_quiet[0] = True
    np.testing.assert_allclose(function(x).npvalue(), [2.0, 4.0, 6.0])
    dy.renew_cg()
    assert vector().vec_value() == [1.0, 2.0, 3.0]


def test_a_gradient_that_disturbs_the_graph():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            dy.renew_cg()
            return 2 * gradient

    p = dy.ParameterCollection().add_parameters((3,), init=1.0)
    loss = dy.sum_elems(dy.wrap(Doubled.apply, rows=True)(p * 1.0))
    with pytest.raises(dy.StateError, match="renew_cg was called inside apply"):
        loss.backward()
    assert loss.value() == 6.0


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


def test_a_parameter_taken_back_enters_again():
    p = dy.ParameterCollection().parameters_from_numpy(np.eye(3))
    for checkpoint, revert in ((dy.cg_checkpoint, dy.cg_revert), (dy.cg().checkpoint, dy.cg().revert)):
        dy.renew_cg()
        x = vector()
        checkpoint()
        dy.tanh(p * x).value()
        revert()
        vector(), vector(), vector()
        assert (p * x).vec_value() == [1.0, 2.0, 3.0]


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
    with pytest.raises(dy.StateError, match="must not use it"):
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


def test_expressions_and_parameters_are_not_copied():
    collection = dy.ParameterCollection()
    network = dy.VanillaLSTMBuilder(1, 3, 2, collection)
    parameter = collection.add_parameters((3,))
    table = collection.add_lookup_parameters((2, 3))
    for each in (vector(), vector() * 2.0, parameter, table, network.initial_state(), collection):
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(dy.ForeignValueError, match="cannot be copied or pickled"):
                copied(each)


def test_generators_in_place_of_lists():
    xs = [vector() * float(number) for number in range(6)]
    dy.forward(x for x in xs)
    assert dy.values(iter(xs))[2] == [2.0, 4.0, 6.0]
    assert dy.npvalues(x for x in xs)[1].tolist() == [1.0, 2.0, 3.0]
    assert dy.reshape(xs[0], (size for size in (1, 3))).dim() == ((1, 3), 1)
