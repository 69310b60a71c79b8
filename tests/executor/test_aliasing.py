"""Outputs and gradients are memory of their own, whatever torch returns."""

import weakref
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


VIEWS = {
    "variable": lambda x: x,
    "identity": S.identity,
    "BlockGrad": S.BlockGrad,
    "MakeLoss": S.MakeLoss,
    "make_loss": S.make_loss,
    "Flatten": S.Flatten,
    "Reshape": lambda x: S.Reshape(x, shape=(-1,)),
    "transpose": S.transpose,
    "SwapAxis": lambda x: S.SwapAxis(x, dim1=0, dim2=1),
    "slice_axis": lambda x: S.slice_axis(x, axis=0, begin=0, end=1),
    "slice": lambda x: S.slice(x, begin=(0, 1), end=(2, 3)),
    "SliceChannel": lambda x: S.SliceChannel(x, num_outputs=2, axis=0),
    "SliceChannel into one": lambda x: S.SliceChannel(x, num_outputs=1, axis=0),
    "split_v2": lambda x: S.split_v2(x, (1,)),
    "expand_dims": lambda x: S.expand_dims(x, axis=0),
    "squeeze": lambda x: S.squeeze(S.expand_dims(x, axis=0), axis=0),
    "Cast": lambda x: S.Cast(x, dtype="float32"),
    "Dropout": lambda x: S.Dropout(x, p=0.0),
    "Dropout in predict": lambda x: S.Dropout(x, p=0.5),
    "broadcast_to": lambda x: S.broadcast_to(x, shape=(2, 3)),
    "broadcast_axis": lambda x: S.broadcast_axis(S.sum(x, axis=0, keepdims=True), axis=0, size=2),
    "tile": lambda x: S.tile(x, reps=(1, 1)),
    "repeat": lambda x: S.repeat(x, repeats=1),
    "add_n": S.add_n,
    "Concat": lambda x: S.Concat(x, dim=0),
    "stack": lambda x: S.stack(x, axis=0),
    "clip": lambda x: S.clip(x, -1e9, 1e9),
    "abs": S.abs,
    "relu": S.relu,
    "round": S.round,
    "sum over nothing": lambda x: S.sum(S.expand_dims(x, axis=0), axis=0),
    "LinearRegressionOutput": lambda x: S.LinearRegressionOutput(x),
    "SVMOutput": lambda x: S.SVMOutput(x),
    "chain of views": lambda x: S.transpose(S.Reshape(S.identity(x), shape=(3, 2))),
    "UpSampling": lambda x: S.Flatten(
        S.UpSampling(S.Reshape(x, shape=(1, 1, 2, 3)), scale=1, sample_type="nearest")
    ),
}


@walks(product(sorted(VIEWS), [False, True]))
def test_outputs_share_memory_with_nothing(name, is_train):
    x = S.Variable("x")
    head = VIEWS[name](x)
    net = S.Group([head, *head, VIEWS[name](x), S.identity(head[0])])
    executor = made(net, is_train, x=(2, 3))
    outputs = [storage(o) for o in executor.outputs]
    others = {
        storage(a) for a in executor.arg_arrays + executor.aux_arrays + executor.grad_arrays if a is not None
    }
    assert len(set(outputs)) == len(outputs)
    assert not others & set(outputs)
    assert all(o.tensor.is_contiguous() and not o.tensor.requires_grad for o in executor.outputs)
    before = [a.asnumpy() for a in executor.arg_arrays]
    for out in executor.outputs:
        out[:] = -99
    assert all(np.array_equal(a.asnumpy(), b) for a, b in zip(executor.arg_arrays, before, strict=True))


def test_intermediate_values_that_are_heads_are_apart_from_their_views():
    y = S.Variable("x") * 2
    executor = made(S.Group([S.Flatten(y), y, S.transpose(y), S.identity(y)]), True, x=(2, 3))
    assert len({storage(o) for o in executor.outputs}) == 4


def test_outputs_are_laid_out_as_c_arrays_after_convolutions():
    net = S.Convolution(S.Variable("x"), kernel=(3, 3), num_filter=4, pad=(1, 1))
    for is_train in (False, True):
        executor = made(net, is_train, x=(2, 3, 5, 5))
        assert executor.outputs[0].tensor.is_contiguous()


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
SOURCES = {
    "a + b": (lambda a, b: a + b, (2, 3)),
    "a - b": (lambda a, b: a - b, (2, 3)),
    "a only": (lambda a, b: a, (2, 3)),
    "transpose": (lambda a, b: S.transpose(a), (3, 2)),
    "Concat": (lambda a, b: S.Concat(a, b, dim=0), (4, 3)),
    "Concat columns": (lambda a, b: S.Concat(a, b, dim=1), (2, 6)),
    "stack": (lambda a, b: S.stack(a, b), (2, 2, 3)),
    "sum": (lambda a, b: S.sum(a), (1,)),
    "sum over rows": (lambda a, b: S.sum(a + b, axis=0), (3,)),
    "mean": (lambda a, b: S.mean(a, axis=1), (2,)),
    "reshape": (lambda a, b: S.Reshape(a, shape=(3, 2)), (3, 2)),
    "slice": (lambda a, b: S.slice_axis(a, axis=0, begin=0, end=1), (1, 3)),
    "slice of all": (lambda a, b: S.slice_axis(a, axis=0, begin=0, end=2), (2, 3)),
    "a * b": (lambda a, b: a * b, (2, 3)),
    "a * a": (lambda a, b: a * a, (2, 3)),
    "dot": (lambda a, b: S.dot(a, b, transpose_b=True), (2, 2)),
    "broadcast": (lambda a, b: S.broadcast_add(a, S.sum(b, axis=0, keepdims=True)), (2, 3)),
}


def torch_gradients(name, head):
    """The same by torch.autograd, written out."""
    a, b = (torch.tensor(A, dtype=torch.float32, requires_grad=True) for _ in range(2))
    meant = {
        "a + b": lambda: a + b,
        "a - b": lambda: a - b,
        "a only": lambda: a * 1,
        "transpose": lambda: a.T,
        "Concat": lambda: torch.cat([a, b]),
        "Concat columns": lambda: torch.cat([a, b], 1),
        "stack": lambda: torch.stack([a, b]),
        "sum": lambda: a.sum().reshape(1),
        "sum over rows": lambda: (a + b).sum(0),
        "mean": lambda: a.mean(1),
        "reshape": lambda: a.reshape(3, 2),
        "slice": lambda: a[0:1],
        "slice of all": lambda: a * 1,
        "a * b": lambda: a * b,
        "a * a": lambda: a * a,
        "dot": lambda: a @ b.T,
        "broadcast": lambda: a + b.sum(0, keepdim=True),
    }[name]()
    meant.backward(head)
    return [np.zeros_like(A) if t.grad is None else t.grad.numpy() for t in (a, b)]


REQUIREMENTS = [
    "write",
    "add",
    {"a": "write", "b": "add"},
    {"a": "add", "b": "null"},
    {"a": "null", "b": "write"},
]


@walks(product(sorted(SOURCES), REQUIREMENTS, [False, True]))
def test_gradients_are_right_and_apart(name, reqs, views):
    make, shape = SOURCES[name]
    head = torch.arange(1.0, 1 + int(np.prod(shape))).reshape(shape)
    heads = mx.nd.array(head.numpy())
    net = make(S.Variable("a"), S.Variable("b"))
    given = dict.fromkeys(net.list_arguments(), A)
    reqs = reqs if isinstance(reqs, str) else {k: v for k, v in reqs.items() if k in given}
    executor = gradients(net, reqs, heads, rounds=2, views=views, **given)
    check_apart(executor, [heads])
    assert np.array_equal(heads.asnumpy(), head.numpy())
    want = dict(zip("ab", torch_gradients(name, head), strict=True))
    at = 0
    for key, array in executor.grad_dict.items():
        req = reqs if isinstance(reqs, str) else reqs[key]
        if req == "null":
            assert array is None
            continue
        expected = 5 + 2 * want[key] if req == "add" else want[key]
        np.testing.assert_allclose(array.asnumpy(), expected, rtol=1e-5)
        if views:  # a view taken before backward sees the values
            assert np.array_equal(executor.kept[at].asnumpy(), array.asnumpy()[0:1])
            at += 1


def test_tied_weights_add_up():
    a, w = S.Variable("a"), S.Variable("w")
    net = S.FullyConnected(S.FullyConnected(a, w, num_hidden=2, no_bias=True), w, num_hidden=2, no_bias=True)
    x, m = np.array([[1.0, 2.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    heads = mx.nd.array([[1, 10]])
    for req in ("write", "add"):
        executor = gradients(net, req, heads, a=x, w=m)
        h = x @ m.T
        want = np.array([[1.0, 10.0]]).T @ h + (np.array([[1.0, 10.0]]) @ m).T @ x
        np.testing.assert_allclose(
            executor.grad_dict["w"].tensor.numpy(), want + (5 if req == "add" else 0), rtol=1e-6
        )
        check_apart(executor, [heads])


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


def test_a_large_gradient_is_zeros_where_the_next_one_cannot_be_computed():
    class Twice(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            if broken:
                raise ArithmeticError("broken")
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("twice_or_broken")
    class TwiceProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Twice()

    net = S.square(S.Custom(S.Variable("x"), op_type="twice_or_broken"))
    executor, broken = net.simple_bind(mx.cpu(), x=(512, 1024)), False
    handle = executor.grad_dict["x"]
    for value in (1, 2):
        step(executor, value)
        assert (handle.asnumpy() == 8 * value).all()
    broken = True
    with pytest.raises(ArithmeticError, match="broken"):
        step(executor, 3)
    assert not handle.asnumpy().any()
    broken = False
    step(executor, 4)
    assert (handle.asnumpy() == 32).all()


def test_a_gradient_array_may_be_given_as_a_head_gradient():
    for req, want in (("write", {"a": 1, "b": 1}), ("add", {"a": 2, "b": 2})):
        executor = gradients(
            S.Variable("a") + S.Variable("b"), req, mx.nd.zeros((2,)), stale=1, a=[1, 1], b=[1, 1]
        )
        executor.grad_dict["a"][:] = 1
        executor.grad_dict["b"][:] = 1
        executor.forward(is_train=True)
        executor.backward(executor.grad_dict["a"])
        for key, value in want.items():
            assert executor.grad_dict[key].asnumpy().tolist() == [value, value], req


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
