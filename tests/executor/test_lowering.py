import dpmodule as mx
from dpmodule.executor.lowering import lower

S = mx.sym
X = S.Variable("x")


def test_variables_come_first_and_new_states_are_written_back_gamma_at_once():
    low = lower(S.BatchNorm(X, name="bn").graph, True)
    names = ["bn_gamma", "bn_moving_mean", "bn_moving_var"]
    variables = [low.names[i] for i in range(low.num_variables)]
    assert variables == ["x", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"]
    assert (low.num_arguments, low.num_variables) == (3, 5)
    mutated = [(low.names[slot], low.names[new], now) for slot, new, now in low.mutated]
    assert mutated == [(name, f"{name}_new", name == "bn_gamma") for name in names]


def test_plain_torch_functions_are_called_directly_and_shapes_given_where_they_are_needed():
    step = lower(S.tanh(X).graph, True).steps[0]
    assert (step.takes_env, step.function.__name__) == (False, "tanh")
    assert [s.needs_shapes for s in lower((S.zeros((0, 3)) + X).graph, True).steps] == [True, False]
