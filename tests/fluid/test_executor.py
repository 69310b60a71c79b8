"""Executors: batches and files."""

from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import bow_net, prototxt, run, text_inputs, values, write_files

layers = fluid.layers
BATCH = {"words": [[1, 2], [30], []], "label": [[0], [1], [0]]}


@pytest.fixture
def net():
    found = bow_net(*text_inputs())
    fluid.optimizer.Adagrad(0.1).minimize(found[0])
    return found


def test_a_training_step_is_one_of_a_module(net):
    loss, accuracy, prediction = net
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    program = fluid.default_main_program()
    names = [each.name for each in program.all_parameters()]
    mod = mx.mod.Module(program.symbol, ["words", "label"], None)
    mod.bind(
        [mx.io.DataDesc("words", (3,), "int64", stype="ragged"), mx.io.DataDesc("label", (3, 1), "int64")]
    )
    mod.init_params(
        arg_params={name: mx.nd.array(value) for name, value in zip(names, values(*names))}, aux_params={}
    )
    mod.init_optimizer(None, "adagrad", {"learning_rate": 0.1, "eps": 1e-12, "rescale_grad": 1.0})
    words = mx.nd.ragged_array(BATCH["words"], dtype="int64")
    batch = mx.io.DataBatch([words, mx.nd.array(BATCH["label"], dtype="int64")], [])
    for _ in range(3):
        found = executor.run(program, BATCH, [loss, accuracy, "fc_0_weight@GRAD"])
        mod.forward_backward(batch)
        mod.update()
        expected = [each.asnumpy() for each in mod.get_outputs()]
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[2], mod.store.grad("fc_0_weight", 0).asnumpy())
    for name, value in zip(names, values(*names)):
        np.testing.assert_array_equal(value, mod.get_params()[0][name].asnumpy())


def test_fetches_of_every_kind(net):
    loss, _, prediction = net
    found = run(BATCH, [prediction, "label", loss.name, "fc_2_bias", "embedding_0_weight@GRAD"])
    assert [each.shape for each in found] == [(3, 2), (3, 1), (1,), (2,), (40, 8)]
    assert np.unique(np.nonzero(found[4].any(1))[0]).tolist() == [1, 2, 30]
    (words,) = run(BATCH, ["words"], return_numpy=False)
    assert words.tolist() == [[[word] for word in row] for row in BATCH["words"]]
    with pytest.raises(mx.base.DTypeError, match="return_numpy=False"):
        run(BATCH, ["words"])
    assert run(BATCH, []) == run(BATCH, None) == []


def test_batches_of_other_sizes(net):
    loss = net[0]
    for count in (3, 1, 3):
        batch = {name: value[:count] for name, value in BATCH.items()}
        assert np.isfinite(run(batch, loss)[0]).all()


def test_what_may_be_fed():
    words, label = text_inputs()
    pooled = layers.sequence_pool(words, "sum")
    total = layers.cast(pooled, "float32")
    tensor = fluid.create_lod_tensor(np.array([[1], [2], [30]]), [[2, 1, 0]])
    ways = [
        [[1, 2], [30], []],
        [np.array([1, 2]), np.array([[30]]), []],
        tensor,
        mx.nd.ragged_array([[1, 2], [30], []], dtype="int64"),
        mx.nd.ragged_array([[1, 2], [30], []], dtype="float32"),
        fluid.create_lod_tensor([[1, 2], [30], []], [[2, 1, 0]]),
    ]
    for way in ways:
        np.testing.assert_array_equal(run({"words": way}, [total])[0], [[3], [30], [0]])
    feeder = fluid.DataFeeder([words, "label"], fluid.CPUPlace())
    batch = feeder.feed([([1, 2], 0), ([30], 1)])
    np.testing.assert_array_equal(batch["label"], [[0], [1]])
    np.testing.assert_array_equal(run(batch, [total])[0], [[3], [30]])


@pytest.mark.parametrize(
    ("feed", "error", "text"),
    [
        ({"words": [[1]]}, ValueError, "label is missing"),
        ({**BATCH, "lable": 1}, ValueError, "no data 'lable'; did you mean label"),
        ({**BATCH, "label": [0, 1, 0]}, ValueError, r"'label' has shape \(3,\)"),
        ({**BATCH, "label": [[0], [1]]}, ValueError, "different sizes"),
        ({**BATCH, "label": "zero"}, TypeError, "'label' is not an array"),
        (
            {**BATCH, "label": [[0], [0.5], [1]]},
            TypeError,
            "'label' is not an array of int64: it has fractions",
        ),
        ({**BATCH, "words": [[1], [0.5], []]}, TypeError, "it has fractions"),
        ({"words": [], "label": np.zeros((0, 1))}, ValueError, "is empty"),
        ({**BATCH, "words": 3}, TypeError, "list of sequences"),
        ({**BATCH, "words": [[1], ["a"], []]}, TypeError, "'words' is not an array"),
        (
            {**BATCH, "words": [[1], [40], []]},
            IndexError,
            "'words' has the value 40, but the table 'embedding_0_weight'",
        ),
        ({**BATCH, "words": [[1], [-1], []]}, IndexError, "value -1"),
        (3, ValueError, "expected a dict"),
    ],
)
def test_what_may_not_be_fed(net, feed, error, text):
    with pytest.raises(error, match=text) as raised:
        run(feed, [net[0]])
    assert isinstance(raised.value, mx.MXNetError)


def test_other_mistakes(net):
    with pytest.raises(ValueError, match="did you mean mean_0"):
        run(BATCH, ["mean_1"])
    with pytest.raises(ValueError, match="neither a variable"):
        run(BATCH, [3])
    with pytest.raises(ValueError, match="expected a Program"):
        fluid.Executor().run(net[0])
    with pytest.raises(ValueError, match="levels of lengths"):
        fluid.create_lod_tensor([[1]], [[1], [1]])
    with pytest.raises(ValueError, match="the sum of lengths is 2"):
        fluid.create_lod_tensor(np.zeros((3, 1)), [[1, 1]])
    with pytest.raises(ValueError, match="does not have 2 values"):
        fluid.DataFeeder(["words", "label"]).feed([(1,)])


# files


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


@pytest.fixture
def feed():
    found = fluid.DataFeedDesc(prototxt)
    found.set_batch_size(16)
    return found


@pytest.mark.parametrize("mode", ["auto", "serial"])
def test_files_train(net, files, feed, mode):
    loss, accuracy, _ = net
    with fluid.Executor(fluid.CPUPlace()) as executor:
        executor.run(fluid.default_startup_program())
        for _ in range(6):
            found = executor.run_from_files(None, feed, files, 2, [accuracy, "words", loss], mode=mode)
        assert (found.examples, found.workers) == (180, 2 if mode == "auto" else 1)
        assert found[0] > 0.9
        assert found[2] < 0.3
        assert len(found) == 3


def test_files_and_batches_train_the_same_parameters_and_states(net, files, feed):
    """A file of one batch is a step like any other."""
    loss = net[0]
    path = Path(files[0])
    lines = path.read_text().splitlines()[:16]
    split = [list(map(int, line.split())) for line in lines]
    batch = {"words": [each[1:-2] for each in split], "label": [[each[-1]] for each in split]}
    path.write_text("\n".join(lines))
    names = [each.name for each in fluid.default_main_program().all_parameters()]
    fluid.default_startup_program().random_seed = 3
    found = []
    for order in ("bbb", "bfb", "fbf"):
        with fluid.Executor() as executor:
            executor.run(fluid.default_startup_program())
            for step in order:
                if step == "b":
                    executor.run(feed=batch)
                else:
                    executor.run_from_files(None, feed, files[:1], 1, loss)
        found.append(values(*names))
    for other in found[1:]:
        for one, expected in zip(other, found[0]):
            np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)


def test_files_feed_sequences_of_numbers_as_batches_do(tmp_path):
    """Words have weights; pooled weights are (N, 1), as a label is."""
    words, weights = text_inputs()[0], layers.data("weights", [1], lod_level=1)
    target = layers.data("target", [1])
    rows = layers.elementwise_mul(layers.embedding(words, [9, 2]), weights, axis=0)
    total = layers.sequence_pool(weights, "sum")
    loss = layers.mean(layers.square_error_cost(total, target))
    fit = layers.fc(layers.concat([layers.sequence_pool(rows, "sum"), total], axis=1), 1)
    fluid.optimizer.SGD(0.1).minimize(layers.sums([loss, layers.mean(layers.square_error_cost(fit, target))]))
    batch = {"words": [[1, 2], [3]], "weights": [[0.5, 1.0], [2.0]], "target": [[1.0], [2.5]]}
    path = tmp_path / "lines"
    path.write_text("2 1 2 2 0.5 1 1 1\n1 3 1 2 1 2.5\n")
    kinds = {"words": "uint64", "weights": "float", "target": "float"}
    slots = "".join(f'slots {{ name: "{k}" type: "{v}" is_used: true }}' for k, v in kinds.items())
    feed = fluid.DataFeedDesc(f"batch_size: 2 multi_slot_desc {{ {slots} }}")
    fluid.default_startup_program().random_seed = 3
    found = []
    for mode in ("batch", "serial"):
        with fluid.Executor() as executor:
            executor.run(fluid.default_startup_program())
            if mode == "batch":
                (first,) = executor.run(feed=batch, fetch_list=[loss])
            else:
                first = executor.run_from_files(None, feed, [str(path)], 1, [loss], mode=mode)
        assert first[0] == pytest.approx(((1.5 - 1) ** 2 + (2 - 2.5) ** 2) / 2)
        found.append(np.concatenate([each.ravel() for each in values("embedding_0_weight", "fc_0_weight")]))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_the_other_executors_take_programs_too(net, files, feed):
    accuracy = net[1]
    fluid.Executor().run(fluid.default_startup_program())
    program = fluid.default_main_program()
    before = values("fc_0_weight")[0]
    with fluid.AsyncExecutor(fluid.CPUPlace()) as executor:
        first = executor.run(program, feed, files, 1, [accuracy])
    with mx.AsyncExecutor() as executor:
        second = executor.run_from_files(program, feed, files, 1, ["accuracy_0"])
        assert "native" in str(executor.explain(program)) or mx.native.core is None
    assert second[0] > first[0]
    assert np.abs(values("fc_0_weight")[0] - before).max() > 1e-3


@pytest.mark.filterwarnings("error")
def test_explaining_a_program_warns_of_nothing(net, feed):
    fluid.Executor().run(fluid.default_startup_program())
    program = fluid.default_main_program()
    with mx.AsyncExecutor() as executor:
        assert executor.explain(program, feed).mode == "native" or mx.native.core is None
    assert program.optimizer.rescale_grad == 1.0


def test_mistakes_before_files_are_read(net, files, feed):
    executor = fluid.Executor()
    with pytest.raises(mx.base.StateError, match="startup program first"):
        executor.run_from_files(None, feed, files, 1, "mean_0")
    executor.run(fluid.default_startup_program())
    with pytest.raises(ValueError, match="no variable 'nothing'"):
        executor.run_from_files(None, feed, files, 1, ["nothing"])
    with pytest.raises(ValueError, match=r"'fc_2' has shape \(16, 2\)"):
        executor.run_from_files(None, feed, files, 1, ["fc_2"])
    with pytest.raises(mx.base.StateError, match="no optimizer"):
        executor.run_from_files(fluid.default_main_program().clone(for_test=True), feed, files, 1, [])
    with pytest.raises(ValueError, match="data_feed is 'data.prototxt'"):
        executor.run_from_files(None, "data.prototxt", files, 1, [])
    executor.close()
    executor.close()
