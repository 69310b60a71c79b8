"""Programs: names, guards, clones, and where parameters are."""

import copy
import threading

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError
from helpers.fluid_programs import bow_net, run, text_inputs, values

layers = fluid.layers
BATCH = {"words": [[1, 2], [30]], "label": [[0], [1]]}


def test_names_counted_afresh_share_parameters():
    x, given = layers.data("x", [3]), np.ones((2, 3), "float32")
    first, other = layers.fc(x, 2), fluid.Program()
    with fluid.program_guard(other), fluid.unique_name.guard():
        second = layers.fc(layers.data("x", [3]), 2)
        assert fluid.unique_name.generate("fc") == "fc_1"
    (found,) = run({"x": given}, [first])
    (same,) = fluid.Executor().run(other, {"x": given}, [second])
    np.testing.assert_array_equal(found, same)


def test_guards_hold_in_their_thread_only_and_end_with_errors():
    outer, seen = fluid.default_main_program(), []

    def fail():
        with fluid.program_guard(fluid.Program()):
            thread = threading.Thread(target=lambda: seen.append(fluid.default_main_program()))
            thread.start()
            thread.join()
            seen.append(fluid.default_main_program())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert fluid.default_main_program() is outer
    assert seen[0] is not seen[1]
    assert outer not in seen


def test_variables():
    words, label = text_inputs()
    loss, accuracy, prediction = bow_net(words, label)
    program = fluid.default_main_program()
    assert (words.name, words.shape, words.dtype, words.lod_level) == ("words", (-1, 1), "int64", 1)
    assert (label.shape, label.lod_level) == ((-1, 1), 0)
    assert program.global_block().var(prediction.name) is prediction
    assert {words, label, loss, accuracy} <= set(program.list_vars())
    assert text_inputs() == (words, label), "declared again"
    assert repr(prediction) == "<Variable fc_2: shape=(-1, 2), dtype=float32>"
    with pytest.raises(ValueError, match="did you mean accuracy_0"):
        program.var("acuracy_0")


def test_a_clone_for_test_has_the_same_parameters_and_does_not_train():
    loss, accuracy, prediction = bow_net(*text_inputs())
    program = fluid.default_main_program()
    test = program.clone(for_test=True)
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    losses = [executor.run(test, BATCH, [loss])[0] for _ in range(2)]
    assert (losses[0], executor.run(program, BATCH, [loss])[0]) == (losses[1], losses[0])
    assert executor.run(test, BATCH, [loss])[0] < losses[0]
    assert test.optimizer is None
    assert program.clone().optimizer is program.optimizer


def test_a_startup_program_run_again_begins_anew(trained):
    _, executor, losses = trained
    first = losses(4)
    executor.run(fluid.default_startup_program())
    assert losses(4) == first == sorted(first, reverse=True)


def test_parameters_before_the_startup_program():
    loss, _, _ = bow_net(*text_inputs())
    with pytest.raises(mx.base.StateError, match=r"embedding_0_weight.*startup program first"):
        fluid.Executor().run(feed={"words": [[1]], "label": [[0]]}, fetch_list=[loss])


def test_layers_added_after_training_train_too(trained):
    prediction, _, losses = trained
    before, found = losses(3), losses(1, layers.reduce_sum(prediction))
    assert found[0][0] < before[-1][0]
    assert found[0][1] == pytest.approx(2.0)


def test_initializers():
    initial = {
        "constant": (fluid.initializer.Constant(0.25), 0.25, 0.25, 0.0),
        "uniform": (fluid.initializer.Uniform(1.0, 3.0), 1.0, 3.0, 2 / 12**0.5),
        "normal": (fluid.initializer.Normal(5.0, 0.5), 2.0, 8.0, 0.5),
        "xavier": (fluid.initializer.Xavier(), -((6 / 300) ** 0.5), (6 / 300) ** 0.5, (2 / 300) ** 0.5),
        "msra": (fluid.initializer.MSRA(uniform=False), -0.6, 0.6, (2 / 200) ** 0.5),
    }
    for name, (one, *_) in initial.items():
        attr = fluid.ParamAttr(name=name, initializer=copy.deepcopy(one))
        layers.fc(layers.data("x", [200]), 100, param_attr=attr, bias_attr=False)
    fluid.Executor().run(fluid.default_startup_program())
    for name, found in zip(initial, values(*initial)):
        _, low, high, deviation = initial[name]
        assert low <= found.min() <= found.max() <= high, name
        assert found.mean() == pytest.approx((low + high) / 2, abs=0.02), name
        assert found.std() == pytest.approx(deviation, rel=0.05, abs=1e-7), name


@pytest.fixture
def trained():
    """Loss, prediction and executor of a program with an optimizer, and a batch."""
    loss, _, prediction = bow_net(*text_inputs())
    fluid.optimizer.Adam(0.05).minimize(loss)
    fluid.default_startup_program().random_seed = 7
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())

    def losses(steps, *more):
        return [executor.run(feed=BATCH, fetch_list=[loss, *more]) for _ in range(steps)]

    return prediction, executor, losses


@pytest.mark.parametrize("kind", ["Uniform", "Normal", "TruncatedNormal"])
def test_initializers_by_random_numbers(kind):
    make = getattr(fluid.initializer, kind)
    mx.random.seed(4)
    more = (1.0, 3.0) if kind == "Uniform" else (1.0, 0.5)
    starts = [make(*more), make(*more), make(*more, 7), make(*more, 7)]
    made = [fluid.layers.create_parameter([50, 40], default_initializer=start) for start in starts]
    fluid.Executor().run(fluid.default_startup_program())
    found = values(*(each.name for each in made))
    assert (found[0] != found[1]).any()
    assert (found[0] != found[2]).any()
    np.testing.assert_array_equal(found[2], found[3])
    deviation = {"Uniform": 2 / 12**0.5, "Normal": 0.5, "TruncatedNormal": 0.5 * 0.8796}[kind]
    for one in found:
        assert one.mean() == pytest.approx(2.0 if kind == "Uniform" else 1.0, abs=0.05)
        assert one.std() == pytest.approx(deviation, rel=0.05)
        assert kind == "Normal" or abs(one - one.mean()).max() < 1.1


def test_variables_that_stop_the_gradient():
    x = layers.data("x", [3])
    hidden = layers.fc(x, 2, name="first")
    hidden.stop_gradient = True
    loss = layers.mean(layers.fc(hidden, 1, name="second"))
    weight = layers.create_parameter([1], name="third")
    weight.stop_gradient = True
    loss = loss + layers.reduce_sum(weight)
    hidden.stop_gradient = False
    loss = loss + layers.reduce_sum(hidden) * 0.0
    fluid.optimizer.SGD(0.1).minimize(loss)
    gradients = [f"{name}@GRAD" for name in ("first_weight", "second_weight", "third")]
    found = run({"x": np.ones((2, 3))}, [hidden, *gradients])
    assert [each.any() for each in found] == [True, False, True, False]
    assert [each.stop_gradient for each in (x, hidden, weight)] == [True, False, True]


@pytest.mark.parametrize(("name", "limit"), [("Xavier", (3 / 400) ** 0.5), ("MSRA", (6 / 400) ** 0.5)])
def test_vectors_have_their_length_as_numbers_of_inputs_and_outputs(name, limit):
    make = getattr(fluid.initializer, name)
    made = [layers.create_parameter([400], default_initializer=make(uniform)) for uniform in (True, False)]
    fluid.Executor().run(fluid.default_startup_program())
    even, normal = values(*(each.name for each in made))
    assert 0.95 * limit < abs(even).max() <= limit
    assert normal.std() == pytest.approx(limit / 3**0.5, rel=0.15)


def test_compiled_programs_run_on_one_place():
    compiled = fluid.CompiledProgram(fluid.default_main_program())
    assert compiled.with_data_parallel(places=fluid.cpu_places(2)) is compiled
    with pytest.raises(ArgumentError, match="got 2 places, expected one"):
        compiled.with_data_parallel(places=[fluid.CPUPlace()] * 2)
    with pytest.raises(ArgumentError, match="program is of type int, expected a Program"):
        fluid.CompiledProgram(3)
    with pytest.raises(ArgumentError, match="got 2 shapes, 1 dtypes and 2 lod_levels"):
        fluid.layers.py_reader(4, [[-1, 1], [-1, 1]], ["int64"])
