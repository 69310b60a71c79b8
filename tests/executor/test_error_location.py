"""Errors inside a graph name the node, its inputs and the user's line."""

import re

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import NodeError
from dpmodule.ops import registry
from dpmodule.ops.spec import arg

S = mx.sym
FORWARD, BACKWARD = "_test_fails", "_test_fails_in_backward"


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no gradient today")


def forward(a, env, x):
    """Fail."""
    raise ValueError("cannot go on")


def backward(a, env, x):
    """Double, without a gradient."""
    return Failing.apply(x)


@pytest.fixture(autouse=True)
def failing_ops():
    """Declare one operator that fails in forward and one that fails in backward."""
    for name, function in ((FORWARD, forward), (BACKWARD, backward)):
        registry.op(name, [arg("data")], infer=ops.get("relu").infer)(function)
    yield
    del registry._OPS[FORWARD], registry._OPS[BACKWARD]


def net(op, other=False):
    x, bad = S.FullyConnected(S.Variable("x"), num_hidden=4, name="fc"), getattr(S._internal, op)
    if other:
        return S.relu(bad(x, name="bad") + 1, name="after")  # another line
    return S.relu(bad(x, name="bad") + 1, name="after")  # the line that is named


def line_of(text):
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if text in line)


def bind(symbol, **shapes):
    return symbol.simple_bind(mx.cpu(), **(shapes or {"x": (2, 3)}))


def step(executor, is_train=True):
    executor.forward(is_train=is_train)
    executor.backward(mx.nd.ones((2, 4)))


def watched(executor):
    seen = []
    executor.set_monitor_callback(lambda name, array: seen.append(name))
    try:
        executor.forward()
    finally:
        assert seen == ["fc_output"]


OF_GRADIENT = "(its gradient) failed on inputs fc_output (2, 4): no gradient today"


THE_NODE = [
    (lambda: net(FORWARD), lambda executor: executor.forward(), f"{FORWARD} 'bad'"),
    (lambda: net(FORWARD), watched, "cannot go on"),
    (lambda: net(BACKWARD), step, OF_GRADIENT),
    (lambda: S.SoftmaxOutput(net(BACKWARD), name="softmax"), step, "no gradient today"),
]


@pytest.mark.parametrize(("make", "run", "said"), THE_NODE)
def test_the_node_is_named(make, run, said):
    executor = bind(make())
    for _ in range(2):
        with pytest.raises(NodeError, match=re.escape(said)) as caught:
            run(executor)
        assert f"'bad' made at {__file__}:{line_of('# the line that is named')}" in str(caught.value)
        assert "fc_output (2, 4)" in str(caught.value)
        assert isinstance(caught.value.__cause__, ValueError)


def test_the_gradient_of_a_cut_loss(monkeypatch):
    executor = bind(S.SoftmaxOutput(S.Variable("x"), name="softmax"))
    executor.forward(is_train=True)
    monkeypatch.setattr("dpmodule.executor.backward._loss_gradient", lambda *args, **kwargs: 1 / 0)
    said = r"softmax.*\(its gradient\) failed on inputs x \(2, 3\).*division by zero"
    with pytest.raises(NodeError, match=said):
        executor.backward()


def test_the_line_is_that_of_the_graph_that_ran_not_of_one_that_shares_its_program():
    for op in (FORWARD, BACKWARD):
        executors = []
        for other in (True, False):
            with mx.name.NameManager():
                executors.append(bind(net(op, other)))
        for executor, mark in zip(executors, ("# another line", "# the line that is named"), strict=True):
            with pytest.raises(NodeError, match=f"{line_of(mark)} "):
                step(executor)
        programs = [e.program(True) for e in executors]
        assert programs[0] is programs[1]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_what_a_monitor_raises_comes_through_and_the_executor_stays_usable(error):
    def watch(name, array):
        raise error(name)

    executor = bind(S.relu(S.Variable("x"), name="r"), x=(2,))
    executor.set_monitor_callback(watch)
    before = torch.is_grad_enabled()
    with pytest.raises(error, match="r_output"):
        executor.forward(is_train=True)
    assert torch.is_grad_enabled() is before
    executor.set_monitor_callback(None)
    assert executor.forward(x=np.array([-1.0, 1.0]))[0].asnumpy().tolist() == [0, 1]
