"""Outputs and gradients are memory of their own, whatever torch returns."""

import weakref
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import NodeError
from helpers.walk import walks

S = mx.sym


def storage(array):
    return array.tensor.untyped_storage().data_ptr()


ALONE = "identity BlockGrad MakeLoss Flatten transpose add_n abs relu SVMOutput LinearRegressionOutput"
PARTS = {"Reshape": {"shape": (-1,)}, "slice_axis": {"axis": 0, "begin": 0, "end": 1}, "Dropout": {"p": 0.5}}
PARTS |= {"slice": {"begin": (0, 1), "end": (2, 3)}, "SliceChannel": {"num_outputs": 2, "axis": 0}}
PARTS |= {"Cast": {"dtype": "float32"}, "tile": {"reps": (1, 1)}, "Concat": {"dim": 0}}
PARTS |= {"clip": {"a_min": -1e9, "a_max": 1e9}}
VIEWS = {
    **{name: getattr(S, name) for name in ALONE.split()},
    **{name: partial(getattr(S, name), **attrs) for name, attrs in PARTS.items()},
    "variable": lambda x: x,
    "SliceChannel into one": lambda x: S.SliceChannel(x, num_outputs=1, axis=0),
    "split_v2": lambda x: S.split_v2(x, (1,)),
    "squeeze": lambda x: S.squeeze(S.expand_dims(x, axis=0), axis=0),
    "Dropout of nothing": lambda x: S.Dropout(x, p=0.0),
    "UpSampling": lambda x: S.UpSampling(S.Reshape(x, shape=(1, 1, 2, 3)), scale=1, sample_type="nearest"),
}


@walks(product(sorted(VIEWS), [False, True]))
def test_outputs_share_memory_with_nothing(name, is_train):
    x = S.Variable("x")
    head = VIEWS[name](x)
    executor = S.Group([head, *head, VIEWS[name](x), S.identity(head[0])]).simple_bind(mx.cpu(), x=(2, 3))
    for array in executor.arg_arrays:
        array[:] = mx.nd.arange(array.size).reshape(array.shape)
    executor.forward(is_train=is_train)
    outputs = [storage(o) for o in executor.outputs]
    others = [*executor.arg_arrays, *executor.grad_arrays]
    assert len(set(outputs)) == len(outputs)
    assert not {storage(a) for a in others if a is not None} & set(outputs)
    assert all(o.torch().is_contiguous() and not o.torch().requires_grad for o in executor.outputs)
    before = [a.asnumpy() for a in executor.arg_arrays]
    for out in executor.outputs:
        out[:] = -99
    assert all(np.array_equal(a.asnumpy(), b) for a, b in zip(executor.arg_arrays, before, strict=True))


@pytest.mark.parametrize(
    "view", [lambda o: o.reshape((-1,))[2:], lambda o: o[0], lambda o: o.torch(), np.asarray]
)
def test_writing_to_a_view_of_a_transposed_output_writes_to_the_output(view):
    executor = S.transpose(S.Variable("x")).bind(mx.cpu(), {"x": mx.nd.array(np.arange(6.0).reshape(3, 2))})
    out = executor.forward()[0]
    assert out.asnumpy().flags.c_contiguous
    assert out.asnumpy().tolist() == [[0, 2, 4], [1, 3, 5]]
    seen = view(out)
    assert isinstance(seen, mx.nd.NDArray) or np.asarray(seen).flags.c_contiguous
    seen[1:] = -1
    assert out.asnumpy().min() == -1


class Refuses(torch.nn.Module):
    def forward(self, x):
        if x.max() > 5:
            raise ValueError("too large")
        return x * 2


def test_outputs_of_a_run_that_fails_can_be_written():
    net = S.torch_module(Refuses(), S.Variable("x"))
    executor = net.simple_bind(mx.cpu(), grad_req="null", x=(200, 200))
    executor.forward(x=mx.nd.ones((200, 200)))
    with pytest.raises(NodeError, match="too large"):
        executor.forward(x=mx.nd.ones((200, 200)) * 9)
    executor.outputs[0][:] = 3
    assert executor.outputs[0].asnumpy().sum() == 120_000
    assert executor.forward(x=mx.nd.ones((200, 200)))[0].asnumpy().sum() == 80_000


def test_a_second_backward_reads_the_same_large_outputs():
    net = S.SoftmaxOutput(S.FullyConnected(S.Variable("x"), num_hidden=300, name="fc"), name="softmax")
    executor = net.simple_bind(mx.cpu(), x=(200, 6))
    for array in executor.arg_arrays:
        array[:] = mx.nd.arange(array.size).reshape(array.shape) % 7
    executor.forward(is_train=True)
    found = []
    for _ in range(2):
        executor.backward()
        found.append(executor.grad_dict["fc_weight"].asnumpy())
    np.testing.assert_array_equal(*found)


VALUES = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
A, B = S.Variable("a"), S.Variable("b")
SOURCES = {  # with torch's gradients
    "a + b": (A + B, lambda a, b: a + b),
    "a only": (A, lambda a, b: a * 1),
    "Concat": (S.Concat(A, B, dim=0), lambda a, b: torch.cat([a, b])),
    "sum": (S.sum(A), lambda a, b: a.sum().reshape(1)),
    "slice": (S.slice_axis(A, axis=0, begin=0, end=1), lambda a, b: a[0:1]),
    "a * a": (A * A, lambda a, b: a * a),
    "dot": (S.dot(A, B, transpose_b=True), lambda a, b: a @ b.T),
}
REQUIREMENTS = ["write", "add", {"a": "write", "b": "add"}, {"a": "add", "b": "null"}]


@walks(product(sorted(SOURCES), REQUIREMENTS, [False, True]))
def test_gradients_are_right_and_apart(name, reqs, views):
    net, meant = SOURCES[name]
    leaves = {key: torch.tensor(VALUES, dtype=torch.float32, requires_grad=True) for key in "ab"}
    wanted = meant(**leaves)
    head = torch.arange(1.0, 1 + wanted.numel()).reshape(wanted.shape)
    wanted.backward(head)
    heads, names = mx.nd.array(head.numpy()), net.list_arguments()
    reqs = {key: reqs if isinstance(reqs, str) else reqs[key] for key in names}
    executor = net.simple_bind(mx.cpu(), grad_req=reqs, **dict.fromkeys(names, VALUES.shape))
    grads = {key: grad for key, grad in executor.grad_dict.items() if grad is not None}
    for key in names:
        executor.arg_dict[key][:] = VALUES
    for grad in grads.values():
        grad[:] = 5
    seen = {key: grad[0:1] for key, grad in grads.items() if views}
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward(heads)
    found = {storage(grad) for grad in grads.values()}
    assert len(found) == len(grads)
    assert not found & {storage(a) for a in (*executor.arg_arrays, *executor.outputs, heads)}
    for key, grad in grads.items():
        assert grad.tensor.is_contiguous()
        assert grad.tensor.untyped_storage().nbytes() == grad.tensor.nbytes
        want = leaves[key].grad.numpy()
        np.testing.assert_allclose(grad.asnumpy(), 5 + 2 * want if reqs[key] == "add" else want, rtol=1e-5)
        if views:  # a view taken before backward sees the values
            assert np.array_equal(seen[key].asnumpy(), grad.asnumpy()[0:1])


@pytest.mark.parametrize("req", ["write", "add"])
def test_a_gradient_may_be_the_head_gradient_of_others(req):
    executor = (A * 2 + B).simple_bind(mx.cpu(), grad_req=req, a=(2, 2), b=(2, 2))
    first, second = executor.grad_arrays
    first[:], second[:], pinned = 3, 5, first.torch()  # backward writes into its memory
    executor.forward(is_train=True)
    executor.backward([first])
    added = req == "add"
    assert (pinned == (9 if added else 6)).all()
    assert (second.asnumpy() == (8 if added else 3)).all()


@pytest.mark.parametrize("req", ["write", "add"])
def test_a_head_gradient_may_be_a_part_of_a_gradient(req):
    first, second = mx.nd.zeros((3,)), mx.nd.arange(6)
    heads = S.Group(
        [S.sum(B), S.identity(A)]
    )  # the gradients are one number for all of `b`, and the head gradient
    arrays = {"a": mx.nd.ones((3,)), "b": mx.nd.ones((6,))}
    executor = heads.bind(mx.cpu(), arrays, {"a": first, "b": second}, req)
    executor.forward(is_train=True)
    executor.backward([mx.nd.array([7]), second[3:]])
    assert first.asnumpy().tolist() == [3, 4, 5]
    assert second.asnumpy().tolist() == [7 + (value if req == "add" else 0) for value in range(6)]


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
