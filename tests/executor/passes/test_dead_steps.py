import pytest

import dpmodule as mx
from dpmodule.executor.lowering import lower
from dpmodule.executor.passes.dead_steps import dead_steps
from helpers.switched import same_with_and_without

S = mx.sym
X, Y = S.Variable("x"), S.Variable("y")
INNER = S.square(X)


class Plain(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])


@mx.operator.register("plain_for_dropping")
class PlainProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, types):
        return Plain()


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    ("heads", "left"),
    [
        ((S.tanh(X), S.sigmoid(S.square(X))), ["tanh"]),
        ((S.tanh(INNER), S.sigmoid(INNER)), ["square", "tanh"]),
        ((S.tanh(Y), S.Dropout(S.square(X), p=0.5)), None),
        ((S.tanh(Y), S.random.normal(shape=(2,))), None),
        ((S.tanh(Y), S.BatchNorm(S.square(X))), None),
        ((S.tanh(Y), S.Custom(S.square(X), op_type="plain_for_dropping")), None),
        ((S.tanh(Y), S.contrib.foreach(lambda row, state: (row, state), S.square(X), [])[0]), None),
        ((S.tanh(Y), S.SoftmaxOutput(X * 2, S.argmax(S.square(X), axis=1), name="softmax"), S.sin(Y)), None),
    ],
    ids=["chain", "read", "dropout", "random", "states", "custom", "loop", "loss"],
)
def test_steps_that_nobody_reads_go_unless_they_have_an_effect(heads, left, recorded):
    """The last head is forgotten, as if a pass had replaced what it was read for."""
    low = lower(S.Group(list(heads)).graph, recorded)
    low.heads.pop()
    low.losses = [loss for loss in low.losses if loss.output < len(low.heads)]
    before = [step.name for step in low.steps]
    if left is None:
        left = [name for name in before if name != "sin"]
    assert dead_steps(low) == len(before) - len(left)
    assert [step.name for step in low.steps] == left
    assert dead_steps(low) == 0


def test_results_and_random_numbers_are_those_without():
    net = S.Dropout(S.tanh(X), p=0.5) + S.Dropout(S.tanh(X), p=0.5) * S.BatchNorm(X, name="bn")
    same_with_and_without(net, {"x": (6, 5)}, "dead_steps", seeds=True)
