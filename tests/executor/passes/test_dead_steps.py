import pytest

import dpmodule as mx
from dpmodule.executor.lowering import lower
from dpmodule.executor.passes.dead_steps import dead_steps
from helpers.switched import same_with_and_without

S = mx.sym


def x():
    return S.Variable("x")


def without_the_last_head(*heads, recorded=True):
    """Lower a graph and forget its last head, as if a pass had replaced what it was read for."""
    low = lower(S.Group(list(heads)).graph, recorded)
    low.heads.pop()
    low.losses = [loss for loss in low.losses if loss.output < len(low.heads)]
    return low


@pytest.mark.parametrize("recorded", [True, False])
def test_a_chain_that_nobody_reads_is_dropped_whole(recorded):
    v = x()
    low = without_the_last_head(S.tanh(v), S.sigmoid(S.square(v)), recorded=recorded)
    assert dead_steps(low) == 2
    assert [step.name for step in low.steps] == ["tanh"]
    assert dead_steps(low) == 0


def test_what_something_alive_reads_stays():
    v = x()
    inner = S.square(v)
    low = without_the_last_head(S.tanh(inner), S.sigmoid(inner))
    assert dead_steps(low) == 1
    assert [step.name for step in low.steps] == ["square", "tanh"]


@pytest.mark.parametrize(
    "make",
    [
        lambda v: S.Dropout(v, p=0.5),
        lambda v: S.random.normal(shape=(2,)),
        lambda v: S.BatchNorm(v),
        lambda v: S.Custom(v, op_type="counted_for_dropping"),
        lambda v: S.contrib.foreach(lambda row, state: (row, state), v, [])[0],
    ],
    ids=["dropout", "normal", "states", "custom", "loop"],
)
def test_what_has_an_effect_stays_with_all_it_reads(make):
    low = without_the_last_head(S.tanh(S.Variable("y")), make(S.square(x())))
    steps = list(low.steps)
    assert dead_steps(low) == 0
    assert low.steps == steps


def test_losses_and_their_labels_stay():
    v = x()
    net = S.SoftmaxOutput(v * 2, S.argmax(S.square(v), axis=1), name="softmax")
    low = lower(net.graph, True)
    assert dead_steps(low) == 0
    assert len(low.steps) == 4


def test_results_and_random_numbers_are_those_without():
    v = S.Variable("x")
    net = S.Dropout(S.tanh(v), p=0.5) + S.Dropout(S.tanh(v), p=0.5) * S.BatchNorm(v, name="bn")
    same_with_and_without(net, {"x": (6, 5)}, "dead_steps", seeds=True)


class _Plain(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])


@mx.operator.register("counted_for_dropping")
class _PlainProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, types):
        return _Plain()
