"""Labels outside of the classes, before workers train on them: the same from every engine."""

import logging

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from dpmodule.base import BoundsError, FileFormatError
from helpers.hogwild import described

FEED = described(3, x="float dense", label="uint64 dense")
LABEL = mx.sym.Variable("label")
SCORES = mx.sym.FullyConnected(mx.sym.Variable("x", shape=(0, 2)), num_hidden=4, name="fc")
NET = mx.sym.SoftmaxOutput(SCORES, LABEL, name="softmax")
PICK = mx.sym.MakeLoss(mx.sym.pick(mx.sym.log_softmax(SCORES), LABEL))


def written(folder, labels, name="part-0"):
    path = folder / name
    path.write_text("".join(f"2 0.5 1 1 {label}\n" for label in labels))
    return str(path)


def run(net, path, feed=FEED, **keywords):
    with mx.AsyncExecutor() as executor:
        return executor.run_from_files(net, feed, [path], 1, **keywords)


@pytest.mark.parametrize("mode", ["serial", "process", "auto"])
def test_every_engine_refuses_them_before_it_trains(mode, tmp_path):
    path = written(tmp_path, [0, 3, 4, 1])
    text = f"row 2 of the batch that begins in line 1 of {path} has the label 4 in 'label', .* of the 4 classes .0 to 3"
    with mx.AsyncExecutor() as executor:
        with pytest.raises(BoundsError, match=text):
            executor.run_from_files(NET, FEED, [path], 1, mode=mode)
        assert executor.module(NET).optimizer.num_update == 0
        good = written(tmp_path, [0, 3, 1, 9])  # later batches are not looked at
        assert executor.run_from_files(NET, FEED, [good], 1, mode="serial").batches == 2


def test_what_counts_as_one(tmp_path, caplog):
    for net, kind, labels, text in (
        (NET, "float", ["0", "1.5", "2"], "row 1 .* label 1.5 .* 4 classes"),
        (NET, "float", ["0", "1", "-1"], "row 2 .* label -1"),
        (NET, "float", ["5", "6", "1"], "row 0 .* label 5 .* 2 of 3 labels are invalid"),
        (mx.sym.SoftmaxOutput(SCORES, LABEL, use_ignore=True, ignore_label=-1), "float", [0, 1, -1], None),
        (PICK, "uint64", [0, 1, 4], "row 2 .* of pick"),
        (mx.sym.LinearRegressionOutput(mx.sym.sum(SCORES, axis=1), LABEL), "uint64", [0, 1, 4], None),
    ):
        caplog.clear()
        path, feed = written(tmp_path, labels), described(3, x="float dense", label=f"{kind} dense")
        with caplog.at_level(logging.WARNING):
            for choice in ("warn", "ignore"):
                assert run(net, path, feed, check_labels=choice).batches == 1
        found = [each.getMessage() for each in caplog.records if "classes" in each.getMessage()]
        assert ['check_labels="raise" stops it' in each for each in found] == [True] * (text is not None)
        if text is None:
            assert run(net, path, feed).batches == 1
        else:
            with pytest.raises(BoundsError, match=text):
                run(net, path, feed)


def test_rows_are_counted_without_bad_lines(tmp_path):
    path = written(tmp_path, ["x", 0, "y", 9, 1])
    with pytest.raises(FileFormatError, match="line 1"):
        run(NET, path)
    with pytest.raises(BoundsError, match="row 1 of the batch that begins in line 2"):
        run(NET, path, on_bad_line="skip")


def test_programs_of_fluid(tmp_path):
    executor = fluid.Executor()
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x, label = fluid.layers.data("x", [2]), fluid.layers.data("label", [1], dtype="int64")
        losses = fluid.layers.cross_entropy(fluid.layers.fc(x, 4, act="softmax"), label, ignore_index=7)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(losses))
        executor.run(fluid.default_startup_program())
        assert executor.run_from_files(None, FEED, [written(tmp_path, [0, 7, 3])], 1, []).batches == 1
        with pytest.raises(BoundsError, match="row 1 .* label 4"):
            executor.run_from_files(None, FEED, [written(tmp_path, [0, 4, 3])], 1, [])
        executor.run(feed={"x": np.ones((2, 2)), "label": [[7], [3]]}, fetch_list=[])
        with pytest.raises(BoundsError, match="row 1 of the batch has the label 4 in 'label'.* 4 classes"):
            executor.run(feed={"x": np.ones((2, 2)), "label": [[7], [4]]}, fetch_list=[])
    with fluid.program_guard(fluid.Program(), fluid.Program()):  # a label for each word
        words, tags = (fluid.layers.data(name, [1], dtype="int64", lod_level=1) for name in ("words", "tags"))
        scores = fluid.layers.fc(fluid.layers.embedding(words, [9, 2]), 3)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(scores, tags))
        executor.run(fluid.default_startup_program())
        batch = {"words": [[1], [2, 3], [4]], "tags": [[0], [1, 3], [2]]}
        with pytest.raises(BoundsError, match="row 1 of the batch has the label 3 in 'tags'.* 3 classes"):
            executor.run(feed=batch, fetch_list=[loss])


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_what_can_be_read_only_once_is_read_once(mode, tmp_path):
    runs = tmp_path / "runs"
    command = f"\"sh -c 'echo run >> {runs}; cat'\""
    feed = mx.DataFeedDesc(FEED.desc().replace('"cat"', command), allow_pipe_command=True)
    assert run(NET, written(tmp_path, [0, 3, 1]), feed, mode=mode).examples == 3
    assert runs.read_text().split() == ["run"]
    with pytest.raises(BoundsError, match="row 2 .* has the label 4"):
        run(NET, written(tmp_path, [0, 3, 4]), feed, mode=mode)
