"""Recording, gradients and functions of the user's. Expected values are formulas, or what MXNet 1.9.1 answered."""

import gc
import json
import threading
import weakref
from functools import reduce

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import MXNetError, StateError
from helpers.walk import walks

nd = mx.nd
ag = mx.autograd


def variable(values, **options):
    """Return an array with a gradient attached; a shape gives 1, 2, 3, ..."""
    if isinstance(values, tuple):
        values = np.arange(1, 1 + np.prod(values)).reshape(values)
    array = nd.array(values, dtype=options.pop("dtype", "float32"))
    array.attach_grad(**options)
    return array


def gradient(function, *arrays, head=None):
    """Record a function of arrays; return the gradient of the first as a list."""
    with ag.record():
        result = function(*arrays)
    result.backward(head)
    return arrays[0].grad.asnumpy().tolist()


def flags():
    return ag.is_recording(), ag.is_training()


def test_blocks_set_the_flags_and_put_them_back():
    with ag.record():
        assert flags() == (True, True)
        with ag.pause():
            assert flags() == (False, False)
        with ag.predict_mode():
            assert flags() == (True, False)
    with ag.record(train_mode=False), ag.train_mode():
        assert flags() == (True, True)
    with pytest.raises(KeyError), ag.record():
        raise KeyError
    block = ag.record()
    with block, block:
        assert ag.is_recording()
    with block:
        assert ag.is_recording()
    assert flags() == (False, False)


def test_flags_are_set_by_hand_and_belong_to_the_thread():
    seen = []
    assert (ag.set_recording(True), ag.set_training(True)) == (False, False)
    thread = threading.Thread(target=lambda: seen.append(flags()))
    thread.start()
    thread.join()
    assert (ag.set_recording(False), ag.set_training(False)) == (True, True)
    assert seen == [(False, False)]


VIEWS = {
    "row": (lambda x: x[1], [[0, 0, 0], [2, 2, 2]]),
    "reversed": (lambda x: x[:, ::-1] * nd.array([1, 2, 3]), [[6, 4, 2], [6, 4, 2]]),
    "list": (lambda x: x[[0, 1, 1]], [[2, 2, 2], [4, 4, 4]]),
    "mixed": (lambda x: x[:, [0, 2]], [[2, 0, 2], [2, 0, 2]]),
    "array": (lambda x: x[nd.array([1, 0], dtype="int32")], [[2, 2, 2], [2, 2, 2]]),
    "new axis": (lambda x: x[None, ..., 1], [[0, 2, 0], [0, 2, 0]]),
    "iteration": (lambda x: list(x)[1], [[0, 0, 0], [2, 2, 2]]),
    "reshape": (lambda x: x.reshape((3, 2)), [[2, 2, 2], [2, 2, 2]]),
    "T": (lambda x: nd.array(x.copy()).T, [[2, 2, 2], [2, 2, 2]]),
    "expand_dims": (lambda x: x.expand_dims(0, inplace=True), [[2, 2, 2], [2, 2, 2]]),
    "concatenate": (lambda x: nd.concatenate([x, x * 2], axis=1), [[6, 6, 6], [6, 6, 6]]),
    "astype": (lambda x: x.astype("float64"), [[2, 2, 2], [2, 2, 2]]),
    "context": (lambda x: x.as_in_context(mx.cpu(1)).copyto(mx.cpu(0)), [[2, 2, 2], [2, 2, 2]]),
    "numpy": (lambda x: np.float64(2) * x * np.int32(3) + np.ones(3, "f"), [[12, 12, 12], [12, 12, 12]]),
}


@walks(VIEWS.values())
def test_parts_and_copies_are_recorded(function, want):
    assert gradient(lambda x: function(x) * 2, variable((2, 3))) == want


def held(x):
    with ag.pause():
        kept = x * 5
    return x * kept + (x * x).detach()


HEAD = nd.array([5, 6, 7])


@walks(
    (lambda x: x * 2, None, "int32", [2, 2, 2]),
    *[(lambda x: (x * x).astype("f4") * 2, None, kind, [4, 8, 12]) for kind in ("float16", "bfloat16")],
    (held, None, "float32", [5, 10, 15]),
    (lambda x: x, None, "float32", [1, 1, 1]),  # a variable is its own head
    (lambda x: x, HEAD, "float32", [5, 6, 7]),
    (lambda x: x * 2, HEAD.astype("float16"), "float32", [10, 12, 14]),
    (lambda x: x * 2 * nd.ones_like(x), None, "float32", [2, 2, 2]),
)  # fmt: skip
def test_gradients_of_all_types(function, head, dtype, want):
    x = variable((3,), dtype=dtype)
    assert gradient(function, x, head=head) == want
    assert x.grad.dtype == x.dtype


def test_requests():
    written, added, left = (variable((3,), grad_req=req) for req in ("write", "add", "null"))
    memory = written.grad
    for _ in range(2):
        gradient(lambda x: x * added * left, written)
    assert written.grad.asnumpy().tolist() == [1, 4, 9]
    assert added.grad.asnumpy().tolist() == [2, 8, 18]
    assert left.grad.asnumpy().tolist() == [0, 0, 0]
    assert written.grad is memory


def test_what_the_gradient_does_not_reach_is_zero_and_what_is_elsewhere_stays():
    x, blocked, elsewhere = variable((3,)), variable((3,)), variable((3,))
    blocked.grad[:] = elsewhere.grad[:] = 7
    gradient(lambda x: x * 2 + nd.BlockGrad(blocked), x)
    assert (blocked.grad.asnumpy() == 0).all()
    assert (elsewhere.grad.asnumpy() == 7).all()
    assert (blocked._fresh_grad, elsewhere._fresh_grad) == (True, False)


def test_attaching_inside_cuts_the_graph():
    x = variable((3,))
    with ag.record():
        y = x * 2
        y.attach_grad()
        z = y * 3
    z.backward()
    assert y.grad.asnumpy().tolist() == [3, 3, 3]
    assert x.grad.asnumpy().tolist() == [0, 0, 0]


# writing to arrays


def test_backward_reads_what_the_memory_holds_by_then():
    x, other = variable((3,)), nd.ones(3)
    with ag.record():
        y = x * x
        part = x[1:]
    x[:] = 10
    assert part.asnumpy().tolist() == [10, 10]  # a recorded view shares memory
    y.backward()
    assert x.grad.asnumpy().tolist() == [20, 20, 20]
    with ag.record():
        y = nd.exp(x * 0)
        z = y * y
    y[:] = 10
    z.backward(nd.ones(3) / 20)
    assert x.grad.asnumpy().tolist() == [0, 0, 0]
    with ag.record():
        y = x * other
    other += 4
    y += 1
    y.backward()
    assert x.grad.asnumpy().tolist() == [5, 5, 5]
    x.tensor = torch.full((3,), 4.0)  # a rebound array is followed
    assert gradient(lambda x: x * x, x) == [8, 8, 8]


@walks(
    lambda x: x.__iadd__(1),
    lambda x: x.__setitem__(1, 3),
    lambda x: x.__setitem__(slice(None), nd.ones(3)),
    lambda x: nd.relu(x, out=x),
    lambda x: nd.ones(3).copyto(x),
    lambda x: nd.sgd_update(x, x.grad, lr=0.1, out=x),
)
def test_arrays_of_a_graph_are_not_written_while_recording(write):
    x = variable((3,))
    with ag.record(), pytest.raises(StateError, match="already in a computational graph"):
        write(x)
    with ag.record():
        y = x * 1
        with pytest.raises(StateError, match=r"do it outside of autograd\.record"):
            y += 1
    assert x.asnumpy().tolist() == [1, 2, 3]


def test_parts_are_not_written_while_recording_but_numpy_arrays_are_copied_past_it():
    x, z, row = variable((3,)), nd.zeros((2, 3)), nd.zeros(3)
    with ag.record(), pytest.raises(MXNetError, match=r"Inplace operations \(\+=, -=, x\[:\]=, etc\)"):
        z[0] = x
    with ag.record(), pytest.raises(MXNetError, match="Inplace operations"):
        row += x
    with ag.record():
        x[:] = np.array([4, 5, 6])
        y = x * x
    y.backward()
    assert x.grad.asnumpy().tolist() == [8, 10, 12]


@pytest.mark.parametrize("key", [slice(0, 3), Ellipsis, None, ()])
def test_whole_arrays_take_recorded_values(key):
    x, z = variable((3,)), nd.zeros(3)
    with ag.record():
        z[key] = x
        y = z * 2
    y.backward()
    assert z.asnumpy().tolist() == [1, 2, 3]
    assert x.grad.asnumpy().tolist() == [2, 2, 2]


def test_out_and_copyto_are_recorded_and_plain_inputs_may_be_written():
    x, z, w = variable((3,)), nd.ones(3), nd.zeros(3, dtype="float64")
    memory, factor = z.tensor.data_ptr(), nd.array([2, 2, 2])
    with ag.record():
        nd.elemwise_add(x, x, out=z)
        z.copyto(w)
        y = w * 3 + (x * factor).astype("float64")
        factor[:] = 5
        factor += 1
    y.backward()
    assert z.tensor.data_ptr() == memory
    assert x.grad.asnumpy().tolist() == [12, 12, 12]  # the factor at the time of the call to backward


def test_batch_statistics_are_written_by_backward():
    x, mean, var = variable((4, 2)), nd.zeros(2), nd.ones(2)
    rest = nd.ones(2), nd.zeros(2), mean, var

    def moved(means, variances=None):
        np.testing.assert_allclose(mean.asnumpy(), means, rtol=1e-6)
        assert variances is None or np.allclose(var.asnumpy(), variances, rtol=1e-6)

    with ag.record():
        y = nd.BatchNorm(x, *rest, fix_gamma=False)
    moved([0, 0])
    y.backward(retain_graph=True)
    moved([0.4, 0.5], [1.4, 1.4])
    y.backward()
    moved([0.76, 0.95])
    with ag.record(train_mode=False):
        y = nd.BatchNorm(x, *rest, fix_gamma=False)
    y.backward()
    moved([0.76, 0.95])
    mean[:], var[:] = 0, 1
    gradient(lambda x: nd.BatchNorm(x, *rest) + nd.BatchNorm(x, *rest), x)  # one after the other
    moved([0.76, 0.95])


@pytest.mark.parametrize(
    "below",
    [
        nd.BlockGrad,
        lambda loss: nd.BlockGrad(loss) + 1,
        lambda loss: nd.cast(nd.argmax(loss, axis=1), "int32"),
        lambda loss: nd.SliceChannel(loss > 0.5, num_outputs=2)[1],
    ],
)
def test_losses_below_operators_without_gradient_train(below):
    x, label = variable((2, 2)), nd.array([0, 1])
    alone = gradient(lambda x: nd.SoftmaxOutput(x, label), x)
    assert gradient(lambda x: below(nd.SoftmaxOutput(x, label)), x) == alone
    with ag.record():
        rest = below(nd.SoftmaxOutput(x, label))
    assert ag.grad(rest, [x])[0].asnumpy().tolist() == alone


def test_losses_below_operators_without_gradient_train_in_symbols():
    x, label = variable((2, 2)), nd.array([0, 1])
    net = mx.sym.BlockGrad(mx.sym.SoftmaxOutput(mx.sym.var("x"), mx.sym.var("label")))
    alone = gradient(lambda x: nd.SoftmaxOutput(x, label), x)
    assert gradient(lambda x: nd.CachedOp(net)(x, label), x) == alone


def test_states_above_an_operator_without_gradient_stay():
    x, mean = variable((4, 2)), nd.zeros(2)
    gradient(lambda x: nd.BatchNorm(nd.BlockGrad(x), nd.ones(2), nd.zeros(2), mean, nd.ones(2)) + x, x)
    assert mean.asnumpy().tolist() == [0, 0]


# the life of a graph


def test_a_graph_is_differentiated_once_unless_retained():
    x = variable((2,), grad_req="add")
    with ag.record():
        y = nd.exp(x * 0)
        z = y * 3
    y.backward(retain_graph=True)
    y.backward()
    for freed, text in ((y, "retain_graph=True"), (z, "require gradients")):
        with pytest.raises(StateError, match=text):
            freed.backward()
    x = variable((2,))
    with ag.record():
        y = x * 2
    ag.backward([y, y])  # a head given twice counts twice
    assert x.grad.asnumpy().tolist() == [4, 4]


def test_graphs_go_with_their_arrays():
    x = variable((3,))
    with ag.record():
        y = nd.exp(x)
        node = weakref.ref(y.trace[1])
        z = y * 2
    del y
    assert node() is not None
    del z
    gc.collect()
    assert node() is None


def test_deep_graphs():
    assert gradient(lambda x: reduce(lambda y, _: y + 1, range(20000), x), variable((1,))) == [1]


def test_grad_returns_new_arrays_and_leaves_the_attached_ones():
    x, y = variable((3,)), variable((3,))
    with ag.record():
        z = x * y
    found = ag.grad(z, [x, y], head_grads=nd.array([1, 10, 100]))
    assert [each.asnumpy().tolist() for each in found] == [[1, 20, 300]] * 2
    assert x.grad.asnumpy().tolist() == [0, 0, 0]
    with pytest.raises(StateError):
        ag.grad(z, x)


SECOND = {
    "tan": (nd.tan, lambda x: 2 * np.tan(x) / np.cos(x) ** 2),
    "cbrt": (nd.cbrt, lambda x: -2 / (9 * x ** (5 / 3))),
    "rcbrt": (nd.rcbrt, lambda x: 4 / (9 * x ** (7 / 3))),
    "sigmoid": (nd.sigmoid, lambda x: (s := 1 / (1 + np.exp(-x))) * (1 - s) * (1 - 2 * s)),
    "softsign": (nd.softsign, lambda x: -2 / (1 + x) ** 3),
    **{f.__name__: (f, lambda x: 0 * x) for f in (nd.relu, nd.hard_sigmoid, nd.Dropout)},
}


@walks(SECOND.values())
def test_second_derivatives(function, want):
    values = np.array([0.15, 0.4, 0.55, 0.8])
    x = variable(values)
    with ag.record():
        first = ag.grad(function(x), x, create_graph=True)[0]
        second = ag.grad(first, x, create_graph=True)[0]
    np.testing.assert_allclose(second.asnumpy(), want(values), rtol=2e-4, atol=1e-5)


def test_a_gradient_in_a_graph_is_one_node_that_cannot_run():
    x = variable((1,))
    with ag.record():
        symbol = ag.get_symbol(ag.grad(x * x, x, create_graph=True)[0] * 3)
    assert [node["op"] for node in json.loads(symbol.tojson())["nodes"]].count("_backward") == 1
    with pytest.raises(MXNetError, match="cannot run again in a graph made by get_symbol"):
        symbol.eval(**{name: nd.ones(1) for name in symbol.list_arguments()})


def test_the_graph_as_a_symbol():
    x, z = variable((2, 3)), variable((2, 3))
    with ag.record():
        parts = nd.split(x * x + 2 * z, num_outputs=3, axis=1)
        y = nd.concat(parts[2], parts[0], dim=1)[1]
        plain = x * nd.ones((2, 3))
    symbol = ag.get_symbol(y)
    names = [ag.get_symbol(a).list_outputs()[0] for a in (x, z)]
    assert symbol.list_arguments() == names
    assert symbol.get_internals().list_outputs()[-1] == symbol.list_outputs()[0]
    found = symbol.eval(ctx=mx.cpu(), **dict(zip(names, (x, z), strict=True)))[0]
    np.testing.assert_array_equal(found.asnumpy(), y.asnumpy())
    assert len(ag.get_symbol(plain).list_arguments()) == 2


@pytest.mark.parametrize("stype", ["csr", "row_sparse"])
@walks([lambda x: x * x, nd.sparse.sqrt, lambda x: nd.clip(x, -1, 1), lambda x: x > 0, lambda x: x + 0])
def test_recorded_results_are_stored_like_others(function, stype):
    plain = variable([[4, 1], [9, 2]])
    want = gradient(function, plain)
    x = plain.tostype(stype)
    x.attach_grad(stype="default")
    with ag.record():
        result = function(x)
    assert result.stype == function(plain.tostype(stype)).stype == stype
    result.backward()
    np.testing.assert_array_equal(result.asnumpy(), function(plain).asnumpy())
    assert x.grad.asnumpy().tolist() == want


@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_sparse_variables(stype):
    x = nd.ones((4, 5)).tostype(stype)
    x.attach_grad()
    assert x.grad.stype == stype
    found = gradient(lambda x: x * 2 + nd.sin(x), x, head=nd.ones((4, 5)).tostype(stype))
    np.testing.assert_allclose(found, np.full((4, 5), 2 + np.cos(1)), rtol=1e-6)


# functions of the user's


class Ratio(ag.Function):
    """Quotient and product of two arrays."""

    flags = None

    def forward(self, x, y):
        assert not ag.is_recording()
        self.save_for_backward(x, y)
        return x / y, x * y

    def backward(self, dm, dn):
        Ratio.flags = flags()
        x, y = self.saved_tensors
        return dm / y + dn * y, dn * x - dm * x / y / y


def test_function_with_several_inputs_and_outputs():
    x, y = variable((3,)), variable([2, 4, 8])
    a, b = np.array([1, 2, 3]), np.array([2, 4, 8])
    with ag.record():
        m, n = Ratio()(x, y)
        total = m * 2 + n
        again = Ratio()(x, y)[0]
        alone = Ratio()(x, nd.array(b))[0]  # of an array that is no variable
    total.backward()
    assert Ratio.flags == (False, True)
    np.testing.assert_allclose(x.grad.asnumpy(), 2 / b + b, rtol=1e-6)
    np.testing.assert_allclose(y.grad.asnumpy(), a - 2 * a / b / b, rtol=1e-6)
    again.backward(train_mode=False)
    assert Ratio.flags == (False, False)
    alone.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 1 / b, rtol=1e-6)


def test_function_without_recording_and_called_twice():
    call = Ratio()
    assert call(nd.ones(2), nd.ones(2))[0].asnumpy().tolist() == [1, 1]
    with pytest.raises(StateError, match="only be called once"):
        call(nd.ones(2), nd.ones(2))


class Returning(ag.Function):
    """A product whose backward returns what it is told."""

    def __init__(self, returned):
        super().__init__()
        self.returned = returned

    def forward(self, x, factor=1):
        return x * factor

    def backward(self, dy):
        if isinstance(self.returned, Exception):
            raise self.returned
        return self.returned


def test_function_may_leave_gradients_out():
    x, y = variable((3,)), variable((3,))
    y.grad[:] = 7
    gradient(lambda x: Returning((nd.ones(3) * 5, None))(x, y), x)
    assert x.grad.asnumpy().tolist() == [5, 5, 5]
    assert y.grad.asnumpy().tolist() == [0, 0, 0]
    assert Returning(None)(nd.ones(2), 3).asnumpy().tolist() == [3, 3]


class Trouble(Exception):
    """Raised by users' code in tests."""


class Broken(ag.Function):
    def forward(self, x):
        raise Trouble("deep down")


@pytest.mark.parametrize("make", [Broken, lambda: Returning(Trouble("deep down"))])
def test_users_exceptions_come_through(make):
    x = variable((3,))
    with pytest.raises(Trouble, match="deep down"):
        gradient(lambda x: make()(x), x)
    assert not ag.is_recording()
    assert x.grad.asnumpy().tolist() == [0, 0, 0]


@pytest.mark.gpu
def test_gradients_on_and_across_devices():
    x = variable((3,))
    assert gradient(lambda x: (x.as_in_context(mx.gpu(0)) * 2).as_in_context(mx.cpu()) * x, x) == [4, 8, 12]
    assert x.grad.context == mx.cpu()
