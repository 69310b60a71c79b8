"""Recording, gradients and functions of the user's. Expected values are formulas, or what MXNet 1.9.1 answered."""

import gc
import json
import threading
import weakref

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, MXNetError, ShapeError, StateError

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
    """Record a function of arrays; return the gradient of the first."""
    with ag.record():
        result = function(*arrays)
    result.backward(head)
    return arrays[0].grad.asnumpy()


# --- flags


def test_blocks_set_the_flags_and_put_them_back():
    with ag.record():
        assert (ag.is_recording(), ag.is_training()) == (True, True)
        with ag.pause():
            assert (ag.is_recording(), ag.is_training()) == (False, False)
        with ag.predict_mode():
            assert (ag.is_recording(), ag.is_training()) == (True, False)
    with ag.record(train_mode=False), ag.train_mode():
        assert (ag.is_recording(), ag.is_training()) == (True, True)
    with pytest.raises(KeyError), ag.record():
        raise KeyError
    assert (ag.is_recording(), ag.is_training()) == (False, False)


def test_a_block_can_be_entered_again():
    block = ag.record()
    with block, block:
        assert ag.is_recording()
    with block:
        assert ag.is_recording()
    assert not ag.is_recording()


def test_flags_are_set_by_hand_and_belong_to_the_thread():
    seen = []
    assert ag.set_recording(True) is False
    assert ag.set_training(True) is False
    thread = threading.Thread(target=lambda: seen.append((ag.is_recording(), ag.is_training())))
    thread.start()
    thread.join()
    assert ag.set_recording(False) is True
    assert ag.set_training(False) is True
    assert seen == [(False, False)]


def test_dropout_follows_the_training_flag():
    x = variable(np.ones((20, 20)))
    with ag.record():
        dropped = nd.Dropout(x)
        with ag.predict_mode():
            kept = nd.Dropout(x)
    assert set(np.unique(dropped.asnumpy())) == {0, 2}
    assert (kept.asnumpy() == 1).all()
    dropped.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), dropped.asnumpy())


# --- gradients of what is recorded

VIEWS = {
    "row": (lambda x: x[1], [[0, 0, 0], [2, 2, 2]]),
    "rows": (lambda x: x[0:1], [[2, 2, 2], [0, 0, 0]]),
    "columns": (lambda x: x[:, 1:], [[0, 2, 2], [0, 2, 2]]),
    "every second": (lambda x: x[:, ::2], [[2, 0, 2], [2, 0, 2]]),
    "reversed": (lambda x: x[:, ::-1] * nd.array([1, 2, 3]), [[6, 4, 2], [6, 4, 2]]),
    "list": (lambda x: x[[0, 1, 1]], [[2, 2, 2], [4, 4, 4]]),
    "two lists": (lambda x: x[[0, 1], [1, 1]], [[0, 2, 0], [0, 2, 0]]),
    "mixed": (lambda x: x[:, [0, 2]], [[2, 0, 2], [2, 0, 2]]),
    "array": (lambda x: x[nd.array([1, 0], dtype="int32")], [[2, 2, 2], [2, 2, 2]]),
    "new axis": (lambda x: x[None, ..., 1], [[0, 2, 0], [0, 2, 0]]),
    "iteration": (lambda x: list(x)[1], [[0, 0, 0], [2, 2, 2]]),
    "reshape": (lambda x: x.reshape((3, 2)), [[2, 2, 2], [2, 2, 2]]),
    "T": (lambda x: x.T, [[2, 2, 2], [2, 2, 2]]),
    "broadcast_to": (lambda x: x[0:1].broadcast_to((4, 3)), [[8, 8, 8], [0, 0, 0]]),
    "expand_dims": (lambda x: x.expand_dims(0, inplace=True), [[2, 2, 2], [2, 2, 2]]),
    "squeeze": (lambda x: x[0:1].squeeze(), [[2, 2, 2], [0, 0, 0]]),
    "flatten": (lambda x: x.flatten(), [[2, 2, 2], [2, 2, 2]]),
    "split_v2": (lambda x: nd.split_v2(x, 2)[0], [[2, 2, 2], [0, 0, 0]]),
    "slice_axis": (lambda x: x.slice_axis(axis=1, begin=1, end=2), [[0, 2, 0], [0, 2, 0]]),
    "moveaxis": (lambda x: nd.moveaxis(x, 0, 1), [[2, 2, 2], [2, 2, 2]]),
    "concatenate": (lambda x: nd.concatenate([x, x]), [[4, 4, 4], [4, 4, 4]]),
    "astype": (lambda x: x.astype("float64"), [[2, 2, 2], [2, 2, 2]]),
    "copy": (lambda x: x.copy(), [[2, 2, 2], [2, 2, 2]]),
    "array()": (lambda x: nd.array(x), [[2, 2, 2], [2, 2, 2]]),
    "context": (lambda x: x.as_in_context(mx.cpu(1)).copyto(mx.cpu(0)), [[2, 2, 2], [2, 2, 2]]),
    "maximum": (lambda x: nd.maximum(x, 3), [[0, 0, 2], [2, 2, 2]]),
    "one_hot": (lambda x: nd.one_hot(x[0], 4), [[0, 0, 0], [0, 0, 0]]),
    "comparison": (lambda x: x > 2, [[0, 0, 0], [0, 0, 0]]),
    "pick": (lambda x: nd.pick(x, nd.array([0, 2])), [[2, 0, 0], [0, 0, 2]]),
    "where": (lambda x: nd.where(x > 2, x * 2, x * 3), [[6, 6, 4], [4, 4, 4]]),
    "topk": (lambda x: nd.topk(x, k=2, ret_typ="both")[0], [[0, 2, 2], [0, 2, 2]]),
    "split": (lambda x: nd.split(x, num_outputs=3, axis=1)[2], [[0, 0, 2], [0, 0, 2]]),
    "numpy": (lambda x: np.float64(2) * x * np.int32(3) + np.ones(3, "f"), [[12, 12, 12], [12, 12, 12]]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_parts_and_copies_are_recorded(name):
    function, want = VIEWS[name]
    x = variable((2, 3))
    np.testing.assert_array_equal(gradient(lambda x: function(x) * 2, x), want)


def test_a_recorded_view_shares_memory():
    x = variable((2, 3))
    with ag.record():
        part = x[1]
    x[:] = 7
    assert (part.asnumpy() == 7).all()


def test_losses_ignore_what_follows():
    x = variable([[1.0, 2.0, 3.0]])
    with ag.record():
        y = nd.SoftmaxOutput(x, nd.array([1])) * 5
    y.backward(nd.ones((1, 3)) * 7)
    p = np.exp([1, 2, 3]) / np.exp([1, 2, 3]).sum()
    np.testing.assert_allclose(x.grad.asnumpy(), [p - [0, 1, 0]], rtol=1e-5)


def test_several_heads_each_with_a_gradient_or_ones():
    x = variable((3, 5))
    with ag.record():
        heads = nd.split(x, axis=0, num_outputs=3, squeeze_axis=True)
    ag.backward(heads, [None, nd.array([1, 2, 3, 4, 5]), nd.array([5, 4, 3, 2, 1])])
    want = [[1, 1, 1, 1, 1], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]
    np.testing.assert_array_equal(x.grad.asnumpy(), want)


def test_requests():
    written, added, left = variable((3,)), variable((3,), grad_req="add"), variable((3,), grad_req="null")
    memory = written.grad
    for _ in range(2):
        with ag.record():
            y = written * added * left
        y.backward()
    np.testing.assert_array_equal(written.grad.asnumpy(), [1, 4, 9])
    np.testing.assert_array_equal(added.grad.asnumpy(), [2, 8, 18])
    assert left.grad is None
    assert written.grad is memory


def test_what_the_gradient_does_not_reach_is_zero_and_what_is_elsewhere_stays():
    x, blocked, elsewhere = variable((3,)), variable((3,)), variable((3,))
    blocked.grad[:] = elsewhere.grad[:] = 7
    gradient(lambda x: x * 2 + nd.BlockGrad(blocked), x)
    assert (blocked.grad.asnumpy() == 0).all()
    assert blocked._fresh_grad
    assert (elsewhere.grad.asnumpy() == 7).all()
    assert not elsewhere._fresh_grad


def test_integers_get_gradients():
    x = variable((3,), dtype="int32")
    assert gradient(lambda x: x * 2, x).tolist() == [2, 2, 2]
    assert x.grad.dtype == np.int32


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_gradients_have_the_type_of_the_array(dtype):
    x = variable([1.5, 2, 3], dtype=dtype)
    assert gradient(lambda x: (x * x).astype("float32") * 2, x).tolist() == [6, 8, 12]
    assert x.grad.dtype == x.dtype


def test_pause_and_detach_cut():
    x = variable((3,))

    def function(x):
        with ag.pause():
            held = x * 5
        return x * held + (x * x).detach()

    assert gradient(function, x).tolist() == [5, 10, 15]


def test_attaching_inside_cuts_the_graph():
    x = variable((3,))
    with ag.record():
        y = x * 2
        y.attach_grad()
        z = y * 3
    z.backward()
    assert y.grad.asnumpy().tolist() == [3, 3, 3]
    assert x.grad.asnumpy().tolist() == [0, 0, 0]


def test_a_variable_is_its_own_head():
    x = variable((3,))
    x.backward()
    assert x.grad.asnumpy().tolist() == [1, 1, 1]
    x.backward(nd.array([5, 6, 7]))
    assert x.grad.asnumpy().tolist() == [5, 6, 7]


def test_training_loop_with_updates_in_place():
    w = variable((3,))
    for _ in range(3):
        with ag.record():
            y = (w * w).sum()
        y.backward()
        nd.sgd_update(w, w.grad, lr=0.1, out=w)
    w -= 0.1 * w.grad
    steps = np.array([1, 2, 3]) * 0.8**3
    np.testing.assert_allclose(w.asnumpy(), steps - 0.1 * 2 * np.array([1, 2, 3]) * 0.8**2, rtol=1e-6)


# --- writing to arrays


def test_backward_reads_what_the_memory_holds_by_then():
    x = variable((3,))
    with ag.record():
        y = x * x
    x[:] = 10
    y.backward()
    assert x.grad.asnumpy().tolist() == [20, 20, 20]
    with ag.record():
        y = nd.exp(x * 0)
        z = y * y
    y[:] = 10
    z.backward(nd.ones(3) / 20)
    np.testing.assert_array_equal(x.grad.asnumpy(), [0, 0, 0])
    other = nd.ones(3)
    with ag.record():
        y = x * other
    other += 4
    y += 1
    y.backward()
    assert x.grad.asnumpy().tolist() == [5, 5, 5]


def test_a_rebound_array_is_followed():
    x = variable((3,))
    x.tensor = torch.full((3,), 4.0)
    assert gradient(lambda x: x * x, x).tolist() == [8, 8, 8]


def _iadd(x):
    x += 1


@pytest.mark.parametrize(
    "write",
    [
        _iadd,
        lambda x: x.__setitem__(slice(None), 3),
        lambda x: x.__setitem__(1, 3),
        lambda x: x.__setitem__(slice(0, 2), np.ones(2)),
        lambda x: x.__setitem__(slice(None), nd.ones(3)),
        lambda x: nd.relu(x, out=x),
        lambda x: nd.ones(3).copyto(x),
        lambda x: nd.sgd_update(x, x.grad, lr=0.1, out=x),
    ],
)
def test_arrays_of_a_graph_are_not_written_while_recording(write):
    x = variable((3,))
    with ag.record(), pytest.raises(StateError, match="already in a computational graph"):
        write(x)
    with ag.record():
        y = x * 1
        with pytest.raises(StateError):
            _iadd(y)
    assert x.asnumpy().tolist() == [1, 2, 3]


def test_parts_are_not_written_while_recording():
    x, z = variable((3,)), nd.zeros((2, 3))
    with ag.record(), pytest.raises(MXNetError, match=r"Inplace operations \(\+=, -=, x\[:\]=, etc\)"):
        z[0] = x
    row = nd.zeros(3)
    with ag.record(), pytest.raises(MXNetError, match="Inplace operations"):
        row += x


def test_numpy_arrays_are_copied_past_the_recording():
    x = variable((3,))
    with ag.record():
        x[:] = np.array([4, 5, 6])
        y = x * x
    y.backward()
    assert x.grad.asnumpy().tolist() == [8, 10, 12]


@pytest.mark.parametrize("key", [slice(None), slice(0, 3), Ellipsis, None, ()])
def test_whole_arrays_take_recorded_values(key):
    x, z = variable((3,)), nd.zeros(3)
    with ag.record():
        z[key] = x
        y = z * 2
    y.backward()
    assert z.asnumpy().tolist() == [1, 2, 3]
    assert x.grad.asnumpy().tolist() == [2, 2, 2]


def test_out_and_copyto_are_recorded():
    x, z, w = variable((3,)), nd.zeros(3), nd.zeros(3, dtype="float64")
    memory = z.tensor.data_ptr()
    with ag.record():
        nd.elemwise_add(x, x, out=z)
        z.copyto(w)
        y = w * 3
    y.backward()
    assert z.tensor.data_ptr() == memory
    assert x.grad.asnumpy().tolist() == [6, 6, 6]


# --- states


def test_batch_statistics_are_written_by_backward():
    x = variable((4, 2))
    gamma, beta, mean, var = nd.ones(2), nd.zeros(2), nd.zeros(2), nd.ones(2)
    with ag.record():
        y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
    assert mean.asnumpy().tolist() == [0, 0]
    y.backward(retain_graph=True)
    np.testing.assert_allclose(mean.asnumpy(), [0.4, 0.5], rtol=1e-6)
    np.testing.assert_allclose(var.asnumpy(), [1.4, 1.4], rtol=1e-6)
    y.backward()
    np.testing.assert_allclose(mean.asnumpy(), [0.76, 0.95], rtol=1e-6)
    with ag.record(train_mode=False):
        y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
    y.backward()
    np.testing.assert_allclose(mean.asnumpy(), [0.76, 0.95], rtol=1e-6)


def test_statistics_of_two_calls_follow_each_other():
    x = variable((4, 2))
    mean, var = nd.zeros(2), nd.ones(2)
    rest = nd.ones(2), nd.zeros(2), mean, var
    with ag.record():
        y = nd.BatchNorm(x, *rest) + nd.BatchNorm(x, *rest)
    y.backward()
    np.testing.assert_allclose(mean.asnumpy(), [0.76, 0.95], rtol=1e-6)


# --- the life of a graph


def test_a_graph_is_differentiated_once_unless_retained():
    x = variable((2,), grad_req="add")
    with ag.record():
        y = x + 1
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.asnumpy().tolist() == [2, 2]
    with pytest.raises(StateError, match="retain_graph=True"):
        y.backward()


def test_heads_that_share_a_freed_graph():
    x = variable((3,))
    with ag.record():
        y = nd.exp(x)
        z = y * 3
    y.backward()
    with pytest.raises(StateError, match="require gradients"):
        z.backward()


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
    x = variable((1,))
    with ag.record():
        y = x
        for _ in range(20000):
            y = y + 1
    y.backward()
    assert x.grad.asnumpy().tolist() == [1]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: x.detach().backward(), StateError, "not in a computational graph"),
        (lambda x: (x * 2).backward(), StateError, "not in a computational graph"),
        (lambda x: ag.backward([x], [None, None]), ArgumentError, "1 heads and 2 head_grads"),
        (lambda x: ag.backward([3]), DTypeError, "heads holds int"),
        (lambda x: x.backward(nd.ones(4)), ShapeError, r"shape \(4,\)"),
        (lambda x: x.attach_grad("more"), ArgumentError, "'more', expected one of null, write, add"),
        (lambda x: x.attach_grad(stype="coo"), ArgumentError, "coo"),
        (lambda x: ag.mark_variables([x], []), ArgumentError, "1 variables, 0 gradients"),
        (lambda x: ag.mark_variables(x, nd.ones(4)), ShapeError, r"expected \(3,\)"),
        (lambda x: ag.grad(x, []), ArgumentError, "variables is empty"),
        (lambda x: ag.grad(x, [nd.ones(3)]), StateError, "does not require gradient"),
        (lambda x: ag.grad(x, [variable((3,))]), StateError, "unreachable"),
        (lambda x: ag.get_symbol(x.detach()), StateError, "no computational graph"),
        (lambda x: setattr(x.detach(), "_fresh_grad", True), StateError, "no gradient"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call(variable((3,)))


def test_nothing_requires_a_gradient():
    x = variable((3,), grad_req="null")
    with ag.record():
        y = x * 2
    with pytest.raises(StateError, match="no inputs in the computational graph"):
        y.backward()


# --- grad


def test_grad_returns_new_arrays_and_leaves_the_attached_ones():
    x, y = variable((3,)), variable((3,))
    with ag.record():
        z = x * y
    dx, dy = ag.grad(z, [x, y], head_grads=nd.array([1, 10, 100]))
    assert dx.asnumpy().tolist() == [1, 20, 300]
    assert dy.asnumpy().tolist() == [1, 20, 300]
    assert x.grad.asnumpy().tolist() == [0, 0, 0]
    with pytest.raises(StateError):
        ag.grad(z, x)


SECOND = {
    "sin": (nd.sin, lambda x: -np.sin(x)),
    "tan": (nd.tan, lambda x: 2 * np.tan(x) / np.cos(x) ** 2),
    "sinh": (nd.sinh, np.sinh),
    "tanh": (nd.tanh, lambda x: -2 * np.tanh(x) * (1 - np.tanh(x) ** 2)),
    "arcsin": (nd.arcsin, lambda x: x / (1 - x**2) ** 1.5),
    "arcsinh": (nd.arcsinh, lambda x: -x / (1 + x**2) ** 1.5),
    "arccosh": (lambda x: nd.arccosh(x + 1), lambda x: -(x + 1) / (x**2 + 2 * x) ** 1.5),
    "arctanh": (nd.arctanh, lambda x: 2 * x / (1 - x**2) ** 2),
    "log": (nd.log, lambda x: -1 / x**2),
    "log2": (nd.log2, lambda x: -1 / (x**2 * np.log(2))),
    "expm1": (nd.expm1, np.exp),
    "sqrt": (nd.sqrt, lambda x: -1 / (4 * x**1.5)),
    "rsqrt": (nd.rsqrt, lambda x: 3 / (4 * x**2.5)),
    "cbrt": (nd.cbrt, lambda x: -2 / (9 * x ** (5 / 3))),
    "rcbrt": (nd.rcbrt, lambda x: 4 / (9 * x ** (7 / 3))),
    "reciprocal": (nd.reciprocal, lambda x: 2 / x**3),
    "square": (nd.square, lambda x: 2 + 0 * x),
    "power": (lambda x: x**3, lambda x: 6 * x),
    "sigmoid": (nd.sigmoid, lambda x: (s := 1 / (1 + np.exp(-x))) * (1 - s) * (1 - 2 * s)),
    "softsign": (nd.softsign, lambda x: -2 / (1 + x) ** 3),
    "relu": (nd.relu, lambda x: 0 * x),
    "abs": (nd.abs, lambda x: 0 * x),
    "clip": (lambda x: nd.clip(x, 0.2, 0.6), lambda x: 0 * x),
    "radians": (nd.radians, lambda x: 0 * x),
    "hard_sigmoid": (nd.hard_sigmoid, lambda x: 0 * x),
    "dropout": (nd.Dropout, lambda x: 0 * x),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives(name):
    function, want = SECOND[name]
    values = np.array([0.15, 0.4, 0.55, 0.8])
    x = variable(values)
    with ag.record():
        first = ag.grad(function(x), x, create_graph=True)[0]
        second = ag.grad(first, x, create_graph=True)[0]
    np.testing.assert_allclose(second.asnumpy(), want(values), rtol=2e-4, atol=1e-5)


def test_derivatives_through_head_gradients_and_dense_layers():
    x, w = variable((2, 3)), variable((2, 3))
    head, other = nd.array([[1, 2], [3, 4]]), nd.array(np.arange(6).reshape(2, 3))
    with ag.record():
        y = nd.FullyConnected(x, w, num_hidden=2, no_bias=True)
        dx = ag.grad(y, x, head, create_graph=True)[0]
        dwdx = ag.grad(dx, w, other)[0]
    np.testing.assert_array_equal(dx.asnumpy(), head.asnumpy() @ w.asnumpy())
    np.testing.assert_array_equal(dwdx.asnumpy(), head.asnumpy().T @ other.asnumpy())


def test_a_head_given_twice_counts_twice():
    x = variable((2,))
    with ag.record():
        y = x * 2
    ag.backward([y, y])
    assert x.grad.asnumpy().tolist() == [4, 4]


def test_a_head_gradient_takes_the_type_of_its_head():
    for dtype in ("float64", "float16", "int32"):
        assert gradient(lambda x: x * 2, variable((2,)), head=nd.array([1, 3], dtype=dtype)).tolist() == [
            2,
            6,
        ]


def test_concatenate_is_recorded():
    found = gradient(lambda x: nd.concatenate([x, x * 2], axis=0), variable((1, 2)))
    assert found.tolist() == [[3, 3]]


def test_plain_inputs_may_be_written_in_place():
    x, factor = variable((2,)), nd.array([2, 3])
    with ag.record():
        y = x * factor
        factor[:] = 5
        factor += 1
    y.backward()
    assert factor.asnumpy().tolist() == [6, 6]


def test_a_gradient_in_a_graph_is_one_node_that_cannot_run():
    x = variable((1,))
    with ag.record():
        symbol = ag.get_symbol(ag.grad(x * x, x, create_graph=True)[0] * 3)
    assert [node["op"] for node in json.loads(symbol.tojson())["nodes"]].count("_backward") == 1
    with pytest.raises(MXNetError, match="cannot run again in a graph made by get_symbol"):
        symbol.eval(**{name: nd.ones(1) for name in symbol.list_arguments()})


# --- symbols


def test_the_graph_as_a_symbol():
    x, z = variable((2, 3)), variable((2, 3))
    with ag.record():
        parts = nd.split(x * x + 2 * z, num_outputs=3, axis=1)
        y = nd.concat(parts[2], parts[0], dim=1)[1]
    symbol = ag.get_symbol(y)
    names = [ag.get_symbol(a).list_outputs()[0] for a in (x, z)]
    assert symbol.list_arguments() == names
    assert symbol.get_internals().list_outputs()[-1] == symbol.list_outputs()[0]
    found = symbol.eval(ctx=mx.cpu(), **dict(zip(names, (x, z), strict=True)))[0]
    np.testing.assert_array_equal(found.asnumpy(), y.asnumpy())
    with ag.record():
        plain = x * nd.ones((2, 3))
    assert len(ag.get_symbol(plain).list_arguments()) == 2


# --- sparse gradients


@pytest.mark.parametrize("stype", ["default", "row_sparse", "csr"])
def test_sparse_variables(stype):
    x = nd.ones((4, 5)).tostype(stype)
    x.attach_grad()
    assert x.grad.stype == stype
    with ag.record():
        y = x * 2 + nd.sin(x)
    y.backward(nd.ones_like(y).tostype(stype))
    np.testing.assert_allclose(x.grad.asnumpy(), np.full((4, 5), 2 + np.cos(1)), rtol=1e-6)


def test_gradients_of_rows():
    w = nd.ones((100, 2))
    w.attach_grad("add", stype="row_sparse")
    csr = nd.sparse.csr_matrix(np.eye(2, 100, 5, "f"), dtype="float32")
    with ag.record():
        y = nd.Embedding(nd.array([3, 5, 5]), w, input_dim=100, output_dim=2, sparse_grad=True).sum()
    y.backward()
    with ag.record():
        y = (nd.dot(csr, w) * 3).sum()
    y.backward()
    assert w.grad.stype == "row_sparse"
    assert w.grad.indices.asnumpy().tolist() == [3, 5, 6]
    assert w.grad.data.asnumpy().tolist() == [[1, 1], [5, 5], [3, 3]]


# --- functions of the user's


class Ratio(ag.Function):
    """Quotient and product of two arrays."""

    flags = None

    def forward(self, x, y):
        assert not ag.is_recording()
        self.save_for_backward(x, y)
        return x / y, x * y

    def backward(self, dm, dn):
        Ratio.flags = ag.is_recording(), ag.is_training()
        x, y = self.saved_tensors
        return dm / y + dn * y, dn * x - dm * x / y / y


def test_function_with_several_inputs_and_outputs():
    x, y = variable((3,)), variable([2, 4, 8])
    with ag.record():
        m, n = Ratio()(x, y)
        total = m * 2 + n
    total.backward()
    assert Ratio.flags == (False, True)
    a, b = np.array([1, 2, 3]), np.array([2, 4, 8])
    np.testing.assert_allclose(x.grad.asnumpy(), 2 / b + b, rtol=1e-6)
    np.testing.assert_allclose(y.grad.asnumpy(), a - 2 * a / b / b, rtol=1e-6)
    with ag.record():
        m, n = Ratio()(x, y)
    m.backward(train_mode=False)
    assert Ratio.flags == (False, False)


def test_function_of_a_variable_and_an_array_that_is_none():
    x = variable((3,))
    with ag.record():
        Ratio()(x, nd.array([2, 4, 8]))[0].backward()
    np.testing.assert_allclose(x.grad.asnumpy(), [1 / 2, 1 / 4, 1 / 8], rtol=1e-6)


def test_function_without_recording_and_called_twice():
    call = Ratio()
    assert call(nd.ones(2), nd.ones(2))[0].asnumpy().tolist() == [1, 1]
    with pytest.raises(StateError, match="only be called once"):
        call(nd.ones(2), nd.ones(2))


def test_function_may_leave_gradients_out():
    class First(ag.Function):
        def forward(self, x, y):
            return x * y

        def backward(self, dy):
            return dy * 5, None

    x, y = variable((3,)), variable((3,))
    y.grad[:] = 7
    with ag.record():
        z = First()(x, y)
    z.backward()
    assert x.grad.asnumpy().tolist() == [5, 5, 5]
    assert y.grad.asnumpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (3, TypeError, "not iterable"),
        ([3], DTypeError, "Odd.backward returned int"),
        (nd.ones(4), ShapeError, r"Odd.backward returned shape \(4,\), expected \(3,\)"),
        ((nd.ones(3),) * 2, ArgumentError, "Odd.backward returned 2 gradients, expected 1"),
    ],
)
def test_function_returns_nonsense(returned, error, message):
    class Odd(ag.Function):
        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return returned

    x = variable((3,))
    with ag.record():
        y = Odd()(x)
    with pytest.raises(error, match=message):
        y.backward()


def test_function_takes_arrays_alone_while_recording():
    class Times(ag.Function):
        def forward(self, x, factor):
            return x * factor

    assert Times()(nd.ones(2), 3).asnumpy().tolist() == [3, 3]
    with ag.record(), pytest.raises(DTypeError, match="Times: input 1 is int 3, expected NDArray"):
        Times()(variable((2,)), 3)


class Trouble(Exception):
    """Raised by users' code in tests."""


@pytest.mark.parametrize("place", ["forward", "backward"])
def test_users_exceptions_come_through(place):
    class Broken(ag.Function):
        def forward(self, x):
            if place == "forward":
                raise Trouble("deep down")
            return x * 1

        def backward(self, dy):
            raise Trouble("deep down")

    x = variable((3,))
    with pytest.raises(Trouble, match="deep down"), ag.record():
        Broken()(x).backward()
    assert not ag.is_recording()
    assert x.grad.asnumpy().tolist() == [0, 0, 0]


def test_threads_record_apart():
    grads = {}

    def work(factor):
        x = variable((3,))
        for _ in range(20):
            with ag.record():
                y = x * factor
            y.backward()
        grads[factor] = x.grad.asnumpy().tolist()

    threads = [threading.Thread(target=work, args=(k,)) for k in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert grads == {k: [k] * 3 for k in (2, 3, 4)}


@pytest.mark.gpu
def test_gradients_on_and_across_devices():
    x = variable((3,))
    with ag.record():
        y = (x.as_in_context(mx.gpu(0)) * 2).as_in_context(mx.cpu()) * x
    y.backward()
    assert x.grad.asnumpy().tolist() == [4, 8, 12]
    assert x.grad.context == mx.cpu()


def test_errors_name_the_block_that_records():
    x = mx.nd.ones((2,))
    with pytest.raises(StateError, match=r"inside autograd\.record, from arrays with attach_grad"):
        x.backward()
    x.attach_grad()
    with mx.autograd.record(), pytest.raises(StateError, match=r"do it outside of autograd\.record"):
        x[:] = 2
