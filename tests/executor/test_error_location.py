"""Errors inside a graph name the node, its inputs and the user's line."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule._devices import generators
from dpmodule.base import MXNetError, NodeError
from dpmodule.ops import registry
from dpmodule.ops.spec import arg

S = mx.sym


class _Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no gradient today")


@pytest.fixture
def failing_ops():
    """Declare one operator that fails in forward and one that fails in backward."""

    def forward(a, env, x):
        """Fail."""
        raise ValueError("cannot go on")

    def backward(a, env, x):
        """Double, without a gradient."""
        return _Failing.apply(x)

    registry.op("_test_fails", [arg("data")], infer=ops.get("relu").infer)(forward)
    registry.op("_test_fails_in_backward", [arg("data")], infer=ops.get("relu").infer)(backward)
    yield
    del registry._OPS["_test_fails"], registry._OPS["_test_fails_in_backward"]


def net(op):
    x = S.FullyConnected(S.Variable("x"), num_hidden=4, name="fc")
    y = getattr(S._internal, op)(x, name="bad")  # the line that is named
    return S.relu(y + 1, name="after")


def line_of(text):
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if text in line)


def check(caught, said):
    text = str(caught.value)
    assert f"'bad' made at {__file__}:{line_of('# the line that is named')}" in text
    assert "fc_output (2, 4)" in text
    assert said in text
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("is_train", [False, True])
def test_forward(failing_ops, is_train):
    executor = net("_test_fails").simple_bind(mx.cpu(), x=(2, 3))
    with pytest.raises(NodeError) as caught:
        executor.forward(is_train=is_train)
    check(caught, "_test_fails 'bad'")
    check(caught, "cannot go on")


def test_forward_under_a_monitor(failing_ops):
    executor = net("_test_fails").simple_bind(mx.cpu(), x=(2, 3))
    seen = []
    executor.set_monitor_callback(lambda name, array: seen.append(name))
    with pytest.raises(NodeError) as caught:
        executor.forward()
    check(caught, "cannot go on")
    assert seen == ["fc_output"]


def test_backward(failing_ops):
    executor = net("_test_fails_in_backward").simple_bind(mx.cpu(), x=(2, 3))
    executor.forward(is_train=True)
    with pytest.raises(NodeError) as caught:
        executor.backward(mx.nd.ones((2, 4)))
    check(caught, "(its gradient) failed on inputs fc_output (2, 4): no gradient today")
    with pytest.raises(NodeError):
        executor.backward(mx.nd.ones((2, 4)))


def test_the_gradient_of_a_cut_loss(monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("no memory today")

    executor = S.SoftmaxOutput(S.Variable("x"), name="softmax").simple_bind(mx.cpu(), x=(2, 3))
    executor.forward(is_train=True)
    monkeypatch.setattr("dpmodule.executor.backward._loss_gradient", fail)
    with pytest.raises(
        NodeError, match=r"softmax.*\(its gradient\) failed on inputs x \(2, 3\).*no memory today"
    ):
        executor.backward()


def test_backward_below_a_cut_loss(failing_ops):
    loss = S.SoftmaxOutput(net("_test_fails_in_backward"), name="softmax")
    executor = loss.simple_bind(mx.cpu(), x=(2, 3))
    executor.forward(is_train=True)
    with pytest.raises(NodeError) as caught:
        executor.backward()
    check(caught, "no gradient today")


def step(executor):
    executor.forward(is_train=True)
    executor.backward(mx.nd.ones((2, 4)))


def test_the_line_is_that_of_the_graph_that_ran_not_of_one_that_shares_its_program(failing_ops):
    def other(op):
        x = S.FullyConnected(S.Variable("x"), num_hidden=4, name="fc")
        y = getattr(S._internal, op)(x, name="bad")  # another line
        return S.relu(y + 1, name="after")

    for op in ("_test_fails", "_test_fails_in_backward"):
        executors = []
        for make in (other, net):
            with mx.name.NameManager():
                executors.append(make(op).simple_bind(mx.cpu(), x=(2, 3)))
        for executor, mark in zip(executors, ("# another line", "# the line that is named"), strict=True):
            with pytest.raises(NodeError, match=f"{line_of(mark)} "):
                step(executor)
        programs = [e.program(True) for e in executors]
        assert programs[0] is programs[1]


def test_locating_leaves_the_generator_alone(failing_ops):
    bad = S.Dropout(net("_test_fails_in_backward"), p=0.5)
    executor = bad.simple_bind(mx.cpu(), x=(2, 3))
    executor.forward(is_train=True)
    state = generators.get_state()["contexts"][mx.cpu()].clone()
    with pytest.raises(NodeError, match="bad"):
        executor.backward(mx.nd.ones((2, 4)))
    assert torch.equal(state, generators.get_state()["contexts"][mx.cpu()])


def test_an_operators_own_complaint_is_located():
    x = S.take(S.Variable("w"), S.Variable("i"), mode="raise", name="pick")
    executor = x.bind(mx.cpu(), [mx.nd.ones((3, 2)), mx.nd.array([7])])
    with pytest.raises(
        MXNetError, match=r"take 'pick' made at .*test_error_location.py:\d+.*inputs w \(3, 2\), i \(1,\)"
    ):
        executor.forward()


def test_what_a_monitor_raises_comes_through():
    def watch(name, array):
        raise KeyError(name)

    executor = S.relu(S.Variable("x"), name="r").simple_bind(mx.cpu(), x=(2,))
    executor.set_monitor_callback(watch)
    with pytest.raises(KeyError, match="r_output"):
        executor.forward()


def test_an_interrupt_comes_through_and_the_executor_stays_usable():
    def watch(name, array):
        raise KeyboardInterrupt

    executor = S.relu(S.Variable("x"), name="r").simple_bind(mx.cpu(), x=(2,))
    executor.set_monitor_callback(watch)
    before = torch.is_grad_enabled()
    with pytest.raises(KeyboardInterrupt):
        executor.forward(is_train=True)
    assert torch.is_grad_enabled() is before
    executor.set_monitor_callback(None)
    assert executor.forward(x=np.array([-1.0, 1.0]))[0].asnumpy().tolist() == [0, 1]
