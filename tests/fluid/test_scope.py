"""Scopes: values of parameters of their own, read and set by name, in training and prediction."""

import numpy as np
import pytest

import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError, ShapeError, StateError

X = np.random.default_rng(0).standard_normal((16, 3)).astype("f4")
Y = X.sum(1, keepdims=True)


@pytest.fixture
def programs():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.layers.data("x", shape=[3])
        y = fluid.layers.data("y", shape=[1])
        out = fluid.layers.fc(x, size=1, param_attr="w", bias_attr="b")
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        fluid.optimizer.Adam(learning_rate=0.1).minimize(loss)
    return main, startup, out, loss


def value(scope, name):
    return np.array(scope.find_var(name).get_tensor())


def test_scopes_have_parameters_of_their_own(programs):
    main, startup, _, loss = programs
    scopes = fluid.Scope(), fluid.Scope()
    executor = fluid.Executor(fluid.CPUPlace())
    for scope in scopes:
        with fluid.scope_guard(scope):
            executor.run(startup)
            assert fluid.global_scope() is scope
            scope.find_var("w").get_tensor().set(np.zeros((1, 3), "f4"), fluid.CPUPlace())
    before = value(scopes[1], "w")
    with fluid.scope_guard(scopes[0]):
        losses = [executor.run(main, {"x": X, "y": Y}, [loss])[0] for _ in range(60)]
    assert losses[-1] < losses[0]
    assert (value(scopes[0], "w") != before).any()
    np.testing.assert_array_equal(value(scopes[1], "w"), before)
    # the other one trains from its own values, with its own states
    again = [executor.run(main, {"x": X, "y": Y}, [loss], scope=scopes[1])[0] for _ in range(60)]
    np.testing.assert_allclose(again, losses, rtol=1e-5)
    assert fluid.global_scope().find_var("w") is None
    with pytest.raises(
        StateError, match="b, w.*run the startup program first|w, b.*run the startup program first"
    ):
        executor.run(main, {"x": X, "y": Y}, [loss])


def test_a_saved_program_predicts_in_another_scope(programs, tmp_path):
    main, startup, out, loss = programs
    executor = fluid.Executor()
    training = fluid.Scope()
    with fluid.scope_guard(training):
        executor.run(startup)
        executor.run(main, {"x": X, "y": Y}, [loss])
        fluid.io.save_inference_model(str(tmp_path), ["x"], [out], executor, main)
        (wanted,) = executor.run(main.clone(for_test=True), {"x": X}, [out])
    inference = fluid.Scope()
    with fluid.scope_guard(inference):
        program, names, fetches = fluid.io.load_inference_model(str(tmp_path), executor)
        (found,) = executor.run(program, {names[0]: X}, fetches)
        assert inference.find_var("w").get_tensor().shape() == [1, 3]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert training.var("w").name == "w"


def test_what_cannot_be_is_an_error(programs):
    _, startup, _, _ = programs
    scope, executor = fluid.Scope(), fluid.Executor()
    executor.run(startup, scope=scope)
    assert scope.find_var("v") is None
    scope.var("v").get_tensor().set(np.zeros(2), fluid.CPUPlace())
    assert np.array(scope.find_var("v").get_tensor()).tolist() == [0.0, 0.0]
    with pytest.raises(ShapeError, match=r"w: set\(\) got shape \(3,\), expected \(1, 3\)"):
        scope.var("w").get_tensor().set(np.ones(3))
    with (
        pytest.raises(ArgumentError, match="scope_guard: scope is 3, expected a Scope"),
        fluid.scope_guard(3),
    ):
        pass
    with pytest.raises(ArgumentError, match="run: scope is 'x', expected a Scope or None"):
        executor.run(startup, scope="x")
    scope.drop_kids()


def test_the_last_of_several_startup_programs_counts():
    executor = fluid.Executor()
    with fluid.scope_guard(fluid.Scope()):
        programs = []  # alive, or the scope drops their values
        for start in (1.0, 2.0):
            main, startup = fluid.Program(), fluid.Program()
            with fluid.program_guard(main, startup):
                x = fluid.layers.data("x", shape=[3])
                fluid.layers.fc(
                    x, 1, param_attr=fluid.ParamAttr("w", fluid.initializer.Constant(start)), bias_attr=False
                )
            executor.run(startup)
            programs.append((main, startup))
            assert (value(fluid.global_scope(), "w") == start).all()
