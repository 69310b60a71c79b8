import numpy as np
import pytest

import dpmodule as mx
from dpmodule import executor
from helpers.switched import fired, results, same_with_and_without

S = mx.sym
NAME = "common_subexpressions"
SHAPE = {"x": (3, 4)}


X, W, B = S.Variable("x"), S.Variable("w"), S.Variable("b")


def shared_dense(name):
    return S.FullyConnected(X, W, B, num_hidden=3, name=name)


def bound(net, **shapes):
    one = net.simple_bind(mx.cpu(), **(shapes or SHAPE))
    for i, array in enumerate(one.arg_dict.values()):
        array[:] = mx.nd.array(np.random.RandomState(i).uniform(-1, 1, array.shape))
    return one


def test_gradients_of_what_becomes_one_add_up():
    left, right = S.tanh(X, name="left"), S.tanh(X, name="right")
    one = bound(left * right + left)
    t = np.tanh(one.arg_dict["x"].asnumpy())
    np.testing.assert_allclose(one.forward(is_train=True)[0].asnumpy(), t * t + t, rtol=1e-6)
    one.backward(mx.nd.ones((3, 4)))
    np.testing.assert_allclose(one.grad_dict["x"].asnumpy(), (2 * t + 1) * (1 - t * t), rtol=1e-4, atol=1e-6)
    assert one.program(True).low.fired[NAME] == 1
    assert one.program(True).source.count("tanh(x)") == 1


def chains():
    return S.sigmoid(S.tanh(X)) * S.sigmoid(S.tanh(X)) + S.square(X)


def blocked():
    return S.BlockGrad(S.tanh(X)) * S.tanh(X)


def two_heads():
    return S.Group([S.tanh(X), S.sin(S.tanh(X)), S.tanh(X)])


def splits():
    first, second = (S.SliceChannel(X, num_outputs=2, axis=1) for _ in range(2))
    return first[0] * second[1] + first[1]


@pytest.mark.parametrize(("make", "count"), [(chains, 2), (blocked, 1), (two_heads, 2), (splits, 1)])
@pytest.mark.parametrize("grad_req", ["write", "add", "null"])
@pytest.mark.parametrize("is_train", [True, False])
def test_results_are_those_without(make, count, grad_req, is_train):
    counts = same_with_and_without(
        make(), SHAPE, NAME, grad_req=grad_req, is_train=is_train, seeds=grad_req != "null"
    )
    assert counts[NAME] == count


def test_losses_on_equal_scores_stay_two_losses():
    net = S.Group([S.SoftmaxOutput(shared_dense(f"fc{i}"), name=f"loss{i}") for i in range(2)])
    counts = same_with_and_without(net, SHAPE, NAME)
    assert counts[NAME] == 1
    once = results(S.SoftmaxOutput(shared_dense("fc"), name="loss0"), SHAPE)[0]["first gradient of b"]
    assert np.abs(once).max() > 0.1


def test_an_output_that_is_merged_with_another_has_memory_of_its_own():
    one = bound(S.Group([S.tanh(X), S.tanh(X), S.Reshape(X, shape=(-1,)), S.Reshape(X, shape=(-1,))]))
    outputs = one.forward()
    before = [out.asnumpy() for out in outputs]
    for out in outputs[::2]:
        out[:] = 7
    np.testing.assert_array_equal(outputs[1].asnumpy(), before[1])
    np.testing.assert_array_equal(outputs[3].asnumpy(), before[3])
    assert one.program(False).low.fired[NAME] == 2


def test_numbers_that_are_equal_but_not_the_same_are_kept_apart():
    one = bound(S.Group([1 / (X * 0.0), 1 / (X * -0.0)]))
    one.arg_dict["x"][:] = 1
    plus, minus = (out.asnumpy() for out in one.forward())
    assert np.all(plus == np.inf)
    assert np.all(minus == -np.inf)


def test_random_numbers_are_drawn_for_each_reader():
    one = bound(
        S.Group([S.Dropout(X, p=0.5), S.Dropout(X, p=0.5), S.random.uniform(shape=(50,)) - 0.5]), x=(50, 4)
    )
    first, second, _ = one.forward(is_train=True)
    assert not np.array_equal(first.asnumpy(), second.asnumpy())
    assert NAME not in one.program(True).low.fired


def test_states_and_losses_are_not_merged():
    vectors = [S.Variable(name) for name in ("g", "b", "mean", "var")]
    norms = [S.BatchNorm(X, *vectors, fix_gamma=False, name=f"bn{i}") for i in range(2)]
    net = S.MakeLoss(S.tanh(norms[0])) + S.MakeLoss(S.tanh(norms[1]))
    assert NAME not in fired(net, SHAPE)
    assert NAME not in fired(S.MakeLoss(X) + S.MakeLoss(X), SHAPE)


def test_shapes_that_follow_from_readers_stay_apart():
    net = S.zeros((0, 4)) + X, S.zeros((0, 4)) + S.Variable("y")
    one = bound(S.Group(list(net)), x=(3, 4), y=(2, 4))
    assert [out.shape for out in one.forward()] == [(3, 4), (2, 4)]


class _Counted(mx.operator.CustomOp):
    calls = 0

    def forward(self, is_train, req, in_data, out_data, aux):
        _Counted.calls += 1
        self.assign(out_data[0], req[0], in_data[0] * _Counted.calls)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("counted_for_merging")
class _CountedProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, types):
        return _Counted()


def test_users_operators_run_as_often_as_they_stand_there():
    _Counted.calls = 0
    net = S.Custom(X, op_type="counted_for_merging") + S.Custom(X, op_type="counted_for_merging")
    bound(net).forward()
    assert _Counted.calls == 2


def test_the_variable_of_mxnet_switches_it_off(monkeypatch):
    net = S.exp(X) * S.exp(X)
    assert fired(net, SHAPE)[NAME] == 1
    monkeypatch.setenv("MXNET_ELIMINATE_COMMON_EXPR", "0")
    assert NAME not in fired(net, SHAPE)


def test_a_monitor_sees_both():
    one, seen = bound(S.tanh(X, name="left") + S.tanh(X, name="right")), []
    one.set_monitor_callback(lambda name, array: seen.append(name))
    one.forward()
    assert {"left_output", "right_output"} <= set(seen)


def test_graphs_on_several_contexts_are_left_alone():
    with mx.AttrScope(ctx_group="a"):
        left = S.tanh(X)
    with mx.AttrScope(ctx_group="b"):
        right = S.tanh(X)
    groups = {"a": mx.cpu(0), "b": mx.cpu(1)}
    one = (left + right).simple_bind(mx.cpu(), group2ctx=groups, x=(3, 4))
    assert NAME not in one.program(False).low.fired


def test_switched_off_by_name():
    with executor.disabled(NAME):
        assert NAME not in fired(chains(), SHAPE)
