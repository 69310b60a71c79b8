"""Programs: names, guards, clones, and where parameters are."""

import copy
import threading

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from dpmodule.hogwild.program import TrainableProgram as Protocol
from helpers.fluid_programs import bow_net, run, text_inputs

layers = fluid.layers


def test_a_program_is_heads_an_optimizer_and_a_store():
    loss, _, _ = bow_net(*text_inputs())
    program = fluid.default_main_program()
    assert program.optimizer is None
    fluid.optimizer.Adagrad(0.1).minimize(loss)
    assert isinstance(program, Protocol)
    assert isinstance(program.symbol, mx.sym.Symbol)
    assert program.symbol.list_outputs() == ["mean_0_loss_output", "accuracy_0_end_output"]
    assert isinstance(program.optimizer, mx.optimizer.AdaGrad)
    assert program.symbol is program.symbol


def test_names_are_counted_for_each_startup_program():
    for _ in range(2):
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            bow_net(*text_inputs())
            names = [each.name for each in fluid.default_main_program().all_parameters()]
            assert names[:3] == ["embedding_0_weight", "fc_0_weight", "fc_0_bias"]


def test_programs_of_one_startup_program_have_other_names():
    x = layers.data("x", [3])
    first = layers.fc(x, 2)
    with fluid.program_guard(fluid.Program()):
        second = layers.fc(layers.data("x", [3]), 4)
    assert (first.name, second.name) == ("fc_0", "fc_1")


def test_names_counted_afresh_share_parameters():
    x = layers.data("x", [3])
    given = np.ones((2, 3), "float32")
    first = layers.fc(x, 2)
    other = fluid.Program()
    with fluid.program_guard(other), fluid.unique_name.guard():
        second = layers.fc(layers.data("x", [3]), 2)
        assert fluid.unique_name.generate("fc") == "fc_1"
    (found,) = run({"x": given}, [first])
    (same,) = fluid.Executor().run(other, {"x": given}, [second])
    np.testing.assert_array_equal(found, same)


def test_guards_hold_in_their_thread_only_and_end_with_errors():
    outer = fluid.default_main_program()
    seen = []

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
    assert (label.shape, label.lod_level, prediction.shape, prediction.dtype) == (
        (-1, 1),
        0,
        (-1, 2),
        "float32",
    )
    assert program.global_block().var(prediction.name) is prediction
    assert {words, label, loss, accuracy} <= set(program.list_vars())
    assert repr(prediction) == "<Variable fc_2: shape=(-1, 2), dtype=float32>"
    with pytest.raises(ValueError, match="did you mean accuracy_0"):
        program.var("acuracy_0")


def test_data_declared_again_is_the_same_variable():
    assert text_inputs() == text_inputs()


def test_a_clone_for_test_has_the_same_parameters_and_does_not_train():
    loss, accuracy, prediction = bow_net(*text_inputs())
    program = fluid.default_main_program()
    test = program.clone(for_test=True)
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    batch = {"words": [[1, 2], [30]], "label": [[0], [1]]}
    losses = [executor.run(test, batch, [loss])[0] for _ in range(2)]
    assert losses[0] == losses[1]
    assert executor.run(program, batch, [loss])[0] == losses[0]
    assert executor.run(test, batch, [loss])[0] < losses[0]
    assert test.optimizer is None
    assert program.clone().optimizer is program.optimizer


def test_a_startup_program_run_again_begins_anew():
    loss, _, _ = bow_net(*text_inputs())
    fluid.optimizer.Adam(0.05).minimize(loss)
    fluid.default_startup_program().random_seed = 7
    executor = fluid.Executor()
    batch = {"words": [[1, 2], [30]], "label": [[0], [1]]}

    def losses():
        executor.run(fluid.default_startup_program())
        return [float(executor.run(feed=batch, fetch_list=[loss])[0][0]) for _ in range(4)]

    first = losses()
    assert losses() == first
    assert first == sorted(first, reverse=True)


def test_parameters_before_the_startup_program():
    loss, _, _ = bow_net(*text_inputs())
    with pytest.raises(mx.base.StateError, match=r"embedding_0_weight.*startup program first"):
        fluid.Executor().run(feed={"words": [[1]], "label": [[0]]}, fetch_list=[loss])


def test_layers_added_after_training_train_too():
    loss, _, prediction = bow_net(*text_inputs())
    fluid.optimizer.Adam(0.05).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    batch = {"words": [[1, 2], [30]], "label": [[0], [1]]}
    before = [float(executor.run(feed=batch, fetch_list=[loss])[0][0]) for _ in range(3)]
    more = layers.reduce_sum(prediction)
    found = executor.run(feed=batch, fetch_list=[loss, more])
    assert found[0][0] < before[-1]
    assert found[1][0] == pytest.approx(2.0)


def test_initializers():
    x = layers.data("x", [200])
    initial = {
        "constant": fluid.initializer.Constant(0.25),
        "uniform": fluid.initializer.Uniform(1.0, 3.0),
        "normal": fluid.initializer.Normal(5.0, 0.5),
        "xavier": fluid.initializer.Xavier(),
        "msra": fluid.initializer.MSRA(uniform=False),
    }
    for name, one in initial.items():
        layers.fc(x, 100, param_attr=fluid.ParamAttr(name=name, initializer=one), bias_attr=False)
    executor = fluid.Executor()
    for _ in range(2):
        executor.run(fluid.default_startup_program())
    store = fluid.default_main_program().store
    found = {name: store.array(name, 0).asnumpy() for name in initial}
    assert (found["constant"] == 0.25).all()
    assert 1 <= found["uniform"].min() < 1.01
    assert 2.99 < found["uniform"].max() <= 3
    assert found["normal"].mean() == pytest.approx(5, abs=0.02)
    assert found["normal"].std() == pytest.approx(0.5, abs=0.02)
    assert np.abs(found["xavier"]).max() == pytest.approx((6 / 300) ** 0.5, rel=0.01)
    assert found["msra"].std() == pytest.approx((2 / 200) ** 0.5, rel=0.05)
    assert copy.deepcopy(initial["uniform"]) == initial["uniform"]
