import pytest

import dpmodule as mx
from dpmodule.executor.lowering import lower
from dpmodule.executor.passes.dead_steps import dead_steps

S = mx.sym
X, Y = S.Variable("x"), S.Variable("y")
INNER = S.square(X)


STAY = [S.Dropout(S.square(X), p=0.5, mode="always"), S.random.normal(shape=(2,)), S.BatchNorm(S.square(X))]
STAY += [S.contrib.foreach(lambda row, state: (row, state), S.square(X), [])[0]]
ROWS = [
    *[((S.tanh(Y), net), None) for net in STAY],
    ((S.tanh(X), S.sigmoid(S.square(X))), ["tanh"]),
    ((S.tanh(Y), S.LeakyReLU(X, act_type="gelu")), ["tanh"]),
    ((S.tanh(INNER), S.sigmoid(INNER)), ["square", "tanh"]),
    ((S.tanh(Y), S.SoftmaxOutput(X * 2, S.argmax(S.square(X), axis=1), name="softmax"), S.sin(Y)), None),
]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(("heads", "left"), ROWS)
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


@pytest.mark.parametrize("net", [S.Dropout(X, p=0.5), S.LeakyReLU(X, act_type="rrelu")[0]])
def test_what_is_random_in_training_stays_in_training(net):
    for recorded in (True, False):
        low = lower(S.Group([S.tanh(Y), net]).graph, recorded)
        low.heads.pop()
        assert dead_steps(low) == (0 if recorded else 1)
