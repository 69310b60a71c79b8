import dpmodule as mx
from dpmodule.executor.lowering import lower

S = mx.sym


def test_variables_come_first_arguments_before_states():
    low = lower(S.BatchNorm(S.Variable("x"), name="bn").graph, True)
    assert [low.names[i] for i in range(low.num_variables)] == [
        "x",
        "bn_gamma",
        "bn_beta",
        "bn_moving_mean",
        "bn_moving_var",
    ]
    assert (low.num_arguments, low.num_variables) == (3, 5)


def test_new_values_of_states_are_written_back_gamma_at_once():
    low = lower(S.BatchNorm(S.Variable("x"), name="bn").graph, True)
    assert [(low.names[slot], low.names[new], now) for slot, new, now in low.mutated] == [
        ("bn_gamma", "bn_gamma_new", True),
        ("bn_moving_mean", "bn_moving_mean_new", False),
        ("bn_moving_var", "bn_moving_var_new", False),
    ]


def test_only_a_terminal_loss_is_cut_and_only_for_backward():
    x = S.Variable("x")
    loss = S.SoftmaxOutput(x * 2, name="softmax")
    assert [(h.output, h.op.name) for h in lower(loss.graph, True).losses] == [(0, "SoftmaxOutput")]
    assert lower(loss.graph, False).losses == []
    assert lower((loss + 1).graph, True).losses == []
    assert lower(S.Group([loss, loss]).graph, True).losses == []
    step = lower(loss.graph, True).steps[-1]
    assert step.detach_first


def test_plain_torch_functions_are_called_directly():
    low = lower(S.tanh(S.Variable("x")).graph, True)
    assert not low.steps[0].takes_env
    assert low.steps[0].function.__name__ == "tanh"


def test_operators_that_need_their_shape_say_so():
    low = lower((S.zeros((0, 3)) + S.Variable("x")).graph, True)
    assert [s.needs_shapes for s in low.steps] == [True, False]
