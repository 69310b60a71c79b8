"""Outputs and gradients are memory of their own, whatever torch returns."""

import weakref
from contextlib import nullcontext
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.walk import walks

S = mx.sym


def storage(array):
    return array.tensor.untyped_storage().data_ptr()


def made(symbol, is_train, **shapes):
    executor = symbol.simple_bind(mx.cpu(), **shapes)
    for i, array in enumerate(executor.arg_arrays):
        array[:] = mx.nd.arange(array.size).reshape(array.shape) + i
    executor.forward(is_train=is_train)
    return executor


ALONE = "identity BlockGrad MakeLoss make_loss Flatten transpose add_n abs relu round SVMOutput LinearRegressionOutput"
PARTS = {
    "Reshape": {"shape": (-1,)},
    "SwapAxis": {"dim1": 0, "dim2": 1},
    "slice_axis": {"axis": 0, "begin": 0, "end": 1},
    "slice": {"begin": (0, 1), "end": (2, 3)},
    "SliceChannel": {"num_outputs": 2, "axis": 0},
    "expand_dims": {"axis": 0},
    "Cast": {"dtype": "float32"},
    "Dropout": {"p": 0.5},
    "broadcast_to": {"shape": (2, 3)},
    "tile": {"reps": (1, 1)},
    "repeat": {"repeats": 1},
    "Concat": {"dim": 0},
    "stack": {"axis": 0},
    "clip": {"a_min": -1e9, "a_max": 1e9},
}
VIEWS = {
    **{name: getattr(S, name) for name in ALONE.split()},
    **{name: partial(getattr(S, name), **attrs) for name, attrs in PARTS.items()},
    "variable": lambda x: x,
    "SliceChannel into one": lambda x: S.SliceChannel(x, num_outputs=1, axis=0),
    "split_v2": lambda x: S.split_v2(x, (1,)),
    "squeeze": lambda x: S.squeeze(S.expand_dims(x, axis=0), axis=0),
    "Dropout of nothing": lambda x: S.Dropout(x, p=0.0),
    "broadcast_axis": lambda x: S.broadcast_axis(S.sum(x, axis=0, keepdims=True), axis=0, size=2),
    "sum over nothing": lambda x: S.sum(S.expand_dims(x, axis=0), axis=0),
    "chain": lambda x: S.transpose(S.Reshape(S.identity(x), shape=(3, 2))),
    "UpSampling": lambda x: S.UpSampling(S.Reshape(x, shape=(1, 1, 2, 3)), scale=1, sample_type="nearest"),
}


@walks(product(sorted(VIEWS), [False, True]))
def test_outputs_share_memory_with_nothing(name, is_train):
    x = S.Variable("x")
    head = VIEWS[name](x)
    executor = made(S.Group([head, *head, VIEWS[name](x), S.identity(head[0])]), is_train, x=(2, 3))
    outputs = [storage(o) for o in executor.outputs]
    others = [*executor.arg_arrays, *executor.aux_arrays, *executor.grad_arrays]
    assert len(set(outputs)) == len(outputs)
    assert not {storage(a) for a in others if a is not None} & set(outputs)
    assert all(o.tensor.is_contiguous() and not o.tensor.requires_grad for o in executor.outputs)
    before = [a.asnumpy() for a in executor.arg_arrays]
    for out in executor.outputs:
        out[:] = -99
    assert all(np.array_equal(a.asnumpy(), b) for a, b in zip(executor.arg_arrays, before, strict=True))


def test_outputs_of_other_layouts_are_c_arrays_of_their_own():
    y = S.Variable("x") * 2
    conv = S.Convolution(y, kernel=(3, 3), num_filter=4, pad=(1, 1))
    for is_train in (False, True):
        executor = made(S.Group([S.Flatten(y), y, S.identity(y), conv]), is_train, x=(2, 3, 5, 5))
        assert len({storage(o) for o in executor.outputs}) == 4
        assert executor.outputs[3].tensor.is_contiguous()


def gradients(symbol, req, heads=None, stale=5.0, rounds=1, views=False, **arrays):
    """Bind, run, and return the executor; gradients start as `stale`."""
    executor = symbol.simple_bind(mx.cpu(), grad_req=req, **{k: np.shape(v) for k, v in arrays.items()})
    for key, value in arrays.items():
        executor.arg_dict[key][:] = mx.nd.array(value)
    for array in executor.grad_arrays:
        if array is not None:
            array[:] = stale
    kept = [g[0:1] for g in executor.grad_arrays if g is not None] if views else None
    for _ in range(rounds):
        executor.forward(is_train=True)
        executor.backward(heads)
    executor.kept = kept
    return executor


def check_apart(executor, heads=()):
    """No gradient shares memory with another, an argument, an output or a head gradient; all are C arrays."""
    grads = [g for g in executor.grad_arrays if g is not None]
    found = [storage(g) for g in grads]
    assert len(set(found)) == len(found)
    others = {storage(a) for a in (*executor.arg_arrays, *executor.outputs, *executor.aux_arrays, *heads)}
    assert not others & set(found)
    assert all(g.tensor.is_contiguous() for g in grads)
    assert all(g.tensor.untyped_storage().nbytes() == g.tensor.nbytes for g in grads)


A = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
SOURCES = {  # as symbols, and as torch computes it
    "a + b": (lambda a, b: a + b, lambda a, b: a + b),
    "a - b": (lambda a, b: a - b, lambda a, b: a - b),
    "a only": (lambda a, b: a, lambda a, b: a * 1),
    "transpose": (lambda a, b: S.transpose(a), lambda a, b: a.T),
    "Concat": (lambda a, b: S.Concat(a, b, dim=0), lambda a, b: torch.cat([a, b])),
    "Concat columns": (lambda a, b: S.Concat(a, b, dim=1), lambda a, b: torch.cat([a, b], 1)),
    "stack": (lambda a, b: S.stack(a, b), lambda a, b: torch.stack([a, b])),
    "sum": (lambda a, b: S.sum(a), lambda a, b: a.sum().reshape(1)),
    "sum over rows": (lambda a, b: S.sum(a + b, axis=0), lambda a, b: (a + b).sum(0)),
    "mean": (lambda a, b: S.mean(a, axis=1), lambda a, b: a.mean(1)),
    "reshape": (lambda a, b: S.Reshape(a, shape=(3, 2)), lambda a, b: a.reshape(3, 2)),
    "slice": (lambda a, b: S.slice_axis(a, axis=0, begin=0, end=1), lambda a, b: a[0:1]),
    "slice of all": (lambda a, b: S.slice_axis(a, axis=0, begin=0, end=2), lambda a, b: a * 1),
    "a * b": (lambda a, b: a * b, lambda a, b: a * b),
    "a * a": (lambda a, b: a * a, lambda a, b: a * a),
    "dot": (lambda a, b: S.dot(a, b, transpose_b=True), lambda a, b: a @ b.T),
    "broadcast": (
        lambda a, b: S.broadcast_add(a, S.sum(b, axis=0, keepdims=True)),
        lambda a, b: a + b.sum(0, keepdim=True),
    ),
}
REQUIREMENTS = [
    "write",
    "add",
    {"a": "write", "b": "add"},
    {"a": "add", "b": "null"},
    {"a": "null", "b": "write"},
]


@walks(product(sorted(SOURCES), REQUIREMENTS, [False, True]))
def test_gradients_are_right_and_apart(name, reqs, views):
    make, meant = SOURCES[name]
    leaves = {key: torch.tensor(A, dtype=torch.float32, requires_grad=True) for key in "ab"}
    wanted = meant(**leaves)
    head = torch.arange(1.0, 1 + wanted.numel()).reshape(wanted.shape)
    wanted.backward(head)
    heads, net = mx.nd.array(head.numpy()), make(S.Variable("a"), S.Variable("b"))
    given = dict.fromkeys(net.list_arguments(), A)
    reqs = dict.fromkeys(given, reqs) if isinstance(reqs, str) else {k: reqs[k] for k in given}
    executor = gradients(net, reqs, heads, rounds=2, views=views, **given)
    check_apart(executor, [heads])
    assert np.array_equal(heads.asnumpy(), head.numpy())
    for key, array in executor.grad_dict.items():
        if reqs[key] == "null":
            assert array is None
            continue
        want = leaves[key].grad.numpy()
        np.testing.assert_allclose(array.asnumpy(), 5 + 2 * want if reqs[key] == "add" else want, rtol=1e-5)
        if views:  # a view taken before backward sees the values
            assert np.array_equal(executor.kept.pop(0).asnumpy(), array.asnumpy()[0:1])


def test_a_users_gradient_array_is_written_never_replaced():
    a = mx.nd.array(A)
    mine = mx.nd.zeros((2, 3))
    numpy_view = mine.tensor.numpy()
    executor = (S.Variable("a") * 2).bind(mx.cpu(), [a], [mine])
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 3)))
    assert numpy_view.tolist() == (np.ones((2, 3)) * 2).tolist()


def test_a_gradient_is_adopted_without_a_copy_where_nobody_sees_it():
    executor = gradients(S.square(S.Variable("a")), "write", mx.nd.ones((2, 3)), a=A)
    handle = executor.grad_dict["a"]
    before = storage(handle)
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 3)))
    assert executor.grad_dict["a"] is handle
    assert storage(handle) != before
    pinned = handle.torch()
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 3)) * 2)
    assert storage(handle) == pinned.untyped_storage().data_ptr()
    assert pinned.tolist() == (4 * A).tolist()


def step(executor, value, **options):
    executor.forward(is_train=True, x=mx.nd.full((512, 1024), value))
    executor.backward(mx.nd.ones((512, 1024)), **options)


def test_a_large_gradient_is_given_up_before_the_next_one_is_there():
    executor = S.square(S.Variable("x")).simple_bind(mx.cpu(), x=(512, 1024))
    handle, seen = executor.grad_dict["x"], []
    step(executor, 1)
    old = weakref.ref(handle.tensor)
    executor.forward(is_train=True)
    assert old() is not None
    step(executor, 2, listener=lambda name, grad: seen.append((name, old())))
    assert seen == [("x", None)]
    assert (handle.asnumpy() == 4).all()
    pinned = handle.torch()
    step(executor, 3)
    assert (pinned == 6).all()


class Twice(mx.operator.CustomOp):
    broken = False

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        if Twice.broken:
            raise ArithmeticError("broken")
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


@mx.operator.register("twice_or_broken")
class TwiceProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Twice()


def test_a_large_gradient_is_zeros_where_the_next_one_cannot_be_computed(monkeypatch):
    net = S.square(S.Custom(S.Variable("x"), op_type="twice_or_broken"))
    executor = net.simple_bind(mx.cpu(), x=(512, 1024))
    for value in (1, 2, 3, 4):
        monkeypatch.setattr(Twice, "broken", value == 3)
        with pytest.raises(ArithmeticError, match="broken") if value == 3 else nullcontext():
            step(executor, value)
        assert (executor.grad_dict["x"].asnumpy() == (0 if value == 3 else 8 * value)).all()


@pytest.mark.parametrize(("req", "want"), [("write", 1), ("add", 2)])
def test_a_gradient_array_may_be_given_as_a_head_gradient(req, want):
    net = S.Variable("a") + S.Variable("b")
    executor = gradients(net, req, mx.nd.zeros((2,)), stale=1, a=[1, 1], b=[1, 1])
    for array in executor.grad_arrays:
        array[:] = 1
    executor.forward(is_train=True)
    executor.backward(executor.grad_dict["a"])
    assert [executor.grad_dict[key].asnumpy().tolist() for key in "ab"] == [[want] * 2] * 2


def test_convolution_gradients_are_c_arrays():
    net = S.Convolution(S.Variable("x"), kernel=(3, 3), num_filter=4)
    executor = gradients(net, "write", mx.nd.ones((2, 4, 3, 3)), x=np.ones((2, 3, 5, 5)))
    assert all(g.tensor.is_contiguous() for g in executor.grad_arrays)


def test_executors_of_one_pool_do_not_see_each_others_outputs():
    pool = {}
    net = S.FullyConnected(S.Variable("x"), num_hidden=2, name="fc")
    one, two = (net.simple_bind(mx.cpu(), x=(n, 3), shared_buffer=pool) for n in (4, 2))
    one.forward()
    two.forward()
    assert storage(one.outputs[0]) != storage(two.outputs[0])


def test_small_gradients_of_heavy_networks_stay_where_they_are():
    net = S.sum(S.broadcast_mul(S.square(S.Variable("x")), S.Variable("w")))
    executor, found = net.simple_bind(mx.cpu(), x=(2048, 1024), w=(1, 1024)), set()
    for value in (1, 2):
        executor.forward(is_train=True, x=mx.nd.full((2048, 1024), value), w=mx.nd.ones((1, 1024)))
        executor.backward(mx.nd.ones((1,)))
        assert (executor.grad_dict["w"].tensor.numpy() == 2048 * value**2).all()
        found.add(storage(executor.grad_dict["w"]))
    assert len(found) == 1
