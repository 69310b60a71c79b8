"""Executors: batches and files."""

from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from dpmodule.base import StateError
from helpers.fluid_programs import PROTOTXT, bow_net, run, text_inputs, values, write_files

layers = fluid.layers
BATCH = {"words": [[1, 2], [30], []], "label": [[0], [1], [0]]}


@pytest.fixture
def net():
    found = bow_net(*text_inputs())
    fluid.optimizer.Adagrad(0.1).minimize(found[0])
    return found


def started():
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor


def test_fetches_of_every_kind(net):
    loss, _, prediction = net
    found = run(BATCH, [prediction, "label", loss.name, "fc_2_bias", "embedding_0_weight@GRAD"])
    assert [each.shape for each in found] == [(3, 2), (3, 1), (1,), (2,), (40, 8)]
    assert np.unique(np.nonzero(found[4].any(1))[0]).tolist() == [1, 2, 30]
    (words,) = run(BATCH, ["words"], return_numpy=False)
    assert words.tolist() == [[[word] for word in row] for row in BATCH["words"]]
    assert run(BATCH, []) == run(BATCH, None) == []
    for count in (3, 1, 3):
        assert np.isfinite(run({name: value[:count] for name, value in BATCH.items()}, loss)[0]).all()


def test_what_may_be_fed():
    words, _ = text_inputs()
    total = layers.cast(layers.sequence_pool(words, "sum"), "float32")
    ways = [
        *([[1, 2], [30], []], [np.array([1, 2]), np.array([[30]]), []]),
        fluid.create_lod_tensor(np.array([[1], [2], [30]]), [[2, 1, 0]]),
        mx.nd.ragged_array([[1, 2], [30], []], dtype="int64"),
        mx.nd.ragged_array([[1, 2], [30], []], dtype="float32"),
        fluid.create_lod_tensor([[1, 2], [30], []], [[2, 1, 0]]),
    ]
    for way in ways:
        np.testing.assert_array_equal(run({"words": way}, [total])[0], [[3], [30], [0]])
    batch = fluid.DataFeeder([words, "label"], fluid.CPUPlace()).feed([([1, 2], 0), ([30], 1)])
    np.testing.assert_array_equal(batch["label"], [[0], [1]])
    np.testing.assert_array_equal(run(batch, [total])[0], [[3], [30]])


# files


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


@pytest.fixture
def feed():
    found = fluid.DataFeedDesc(PROTOTXT)
    found.set_batch_size(16)
    return found


@pytest.mark.parametrize("mode", ["auto", "serial"])
def test_files_train(net, files, feed, mode):
    loss, accuracy, _ = net
    with started() as executor:
        for _ in range(6):
            found = executor.run_from_files(None, feed, files, 2, [accuracy, "words", loss], mode=mode)
    assert (found.examples, found.workers, len(found)) == (180, 2 if mode == "auto" else 1, 3)
    assert found[0] > 0.9
    assert found[2] < 0.3
    executor.close()
    for call in lambda: executor.run_from_files(None, feed, files, 2, []), lambda: executor.run(feed={}):
        with pytest.raises(StateError, match="the executor is closed; create another one"):
            call()


def test_files_and_batches_train_the_same_parameters_and_states(net, files, feed):
    """A file of one batch is a step like any other."""
    path = Path(files[0])
    lines = path.read_text().splitlines()[:16]
    split = [list(map(int, line.split())) for line in lines]
    batch = {"words": [each[1:-2] for each in split], "label": [[each[-1]] for each in split]}
    path.write_text("\n".join(lines))
    fluid.default_startup_program().random_seed = 3
    found = []
    for order in ("bbb", "bfb", "fbf"):
        with started() as executor:
            for step in order:
                if step == "b":
                    executor.run(feed=batch)
                else:
                    executor.run_from_files(None, feed, files[:1], 1, net[0])
        names = [each.name for each in fluid.default_main_program().all_parameters()]
        found.append(np.concatenate([each.ravel() for each in values(*names)]))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("error")
def test_the_other_executors_take_programs_too(net, files, feed):
    started()
    program, before = fluid.default_main_program(), values("fc_0_weight")[0]
    with fluid.AsyncExecutor(fluid.CPUPlace()) as executor:
        first = executor.run(program, feed, files, 1, [net[1]])
    with mx.AsyncExecutor() as executor:
        assert executor.explain(program, feed).mode == "native" or mx.native.core is None
        assert program.optimizer.rescale_grad == 1.0
        second = executor.run_from_files(program, feed, files, 1, ["accuracy_0"])
    assert second[0] > first[0]
    assert np.abs(values("fc_0_weight")[0] - before).max() > 1e-3


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
    for train in (
        lambda executor: executor.run(feed=batch, fetch_list=[loss])[0],
        lambda executor: executor.run_from_files(None, feed, [str(path)], 1, [loss], mode="serial"),
    ):
        with started() as executor:
            assert train(executor)[0] == pytest.approx(((1.5 - 1) ** 2 + (2 - 2.5) ** 2) / 2)
        found.append(np.concatenate([each.ravel() for each in values("embedding_0_weight", "fc_0_weight")]))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
