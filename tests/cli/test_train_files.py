"""``dpmodule train-files``: learning, written files, and resuming."""

import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.cli import networks
from helpers.hogwild import BAGS, DENSE, WORDS, described, rows_of, write_bags, write_dense

FEED = ("train-files", "--feed", "data.prototxt", "--files", "bag-*")
NATIVE_RUN = (*FEED, "--rows", WORDS)
QUICK = (*NATIVE_RUN, "--mode", "serial")
RATES = {"bow": 0.01, "fm": 0.1, "logistic": 0.1, "wide_deep": 0.03}
NATIVE = pytest.mark.skipif(not native.available(), reason="there is no extension")


@pytest.fixture(autouse=True)
def bags(tmp_path):
    """Files of bags of words, and their description, in the folder in which the command runs."""
    (tmp_path / "data.prototxt").write_text(described(16, **BAGS).desc())
    return write_bags(tmp_path)


def aucs(done, name="auc"):
    return [float(found) for found in re.findall(rf"(?<!validation ){name}=([\d.]+)", done.out)]


def params(path):
    return {name: array.asnumpy() for name, array in mx.nd.load(path).items()}


@NATIVE
@pytest.mark.parametrize("net", sorted(networks.FILE_NETWORKS))
def test_every_net_learns_with_workers_of_the_native_engine(net, run):
    more = ("--net", net, "--workers", 2, "--epochs", 30, "--lr", RATES[net], "--prefix", "runs/net")
    done = run(*NATIVE_RUN, *more)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("engine: native: ")
    assert len(aucs(done)) == 30
    assert aucs(done)[-1] > 0.9
    assert done.out.endswith("written: runs/net-symbol.json, runs/net-0030.params and its .states\n")


@pytest.mark.parametrize("net", sorted(networks.FILE_NETWORKS))
def test_slots_of_floats_and_of_several_ids(net, run, tmp_path):
    write_dense(tmp_path)
    for path in tmp_path.glob("part-*"):
        lines = enumerate(path.read_text().splitlines())
        path.write_text("".join(f"{line} 1 {i % 5} 2 1 {i % 3}\n" for i, line in lines))
    slots = {"x": "float", "click_label": "uint64", "user": "uint64", "pages": "uint64"}
    (tmp_path / "wide.prototxt").write_text(described(8, **slots).desc())
    words = ["--feed", "wide.prototxt", "--files", "part-*", "--rows", 5, "--rows", "pages=3"]
    done = run("train-files", *words, "--net", net, "--mode", "serial", "--epochs", 12, "--lr", RATES[net])
    assert aucs(done)[-1] > 0.8
    shapes = {name: value.shape for name, value in params("model-0012.params").items()}
    assert {shape[0] for name, shape in shapes.items() if "user_" in name or "pages_" in name} == {3, 5}


@NATIVE
def test_a_saved_network_is_served_by_a_module(run):
    text = described(16, **BAGS).desc().replace('"cat"', '"head -n 30"')
    Path("data.prototxt").write_text(text)
    words = "--workers 2 --epochs 3 --width 4 --hidden 5 --allow-pipe-command"
    done = run(*NATIVE_RUN, *words.split())
    assert "120 lines in" in done.out
    served = mx.mod.Module.load("model", 3, data_names=["words"], label_names=["label"])
    served.bind([mx.io.DataDesc("words", (3,), "int64", stype="ragged")], None, for_training=False)
    rows = [[1, 2, 3], [], [7]]
    served.forward(mx.io.DataBatch([mx.nd.ragged_array(rows, dtype="int64")]), is_train=False)
    a = {name.removeprefix("arg:"): value for name, value in params("model-0003.params").items()}
    summed = np.stack([a["words_table_weight"][row].sum(0) for row in rows])
    hidden = np.tanh(np.tanh(summed) @ a["fc1_weight"].T + a["fc1_bias"])
    scores = np.exp(hidden @ a["scores_weight"].T + a["scores_bias"])
    expected = scores / scores.sum(1, keepdims=True)
    np.testing.assert_allclose(served.get_outputs()[0].asnumpy(), expected, rtol=1e-4)


def test_a_validation_file_is_scored_after_each_epoch(run):
    more = ("--files", "bag-[12]", "--validation", "bag-0", "bag-3", "--epochs", 2, "--metric", "auc,acc")
    found = re.findall(r"validation auc=([\d.]+), accuracy=([\d.]+)", run(*QUICK, *more).out)
    assert len(found) == 2
    served = mx.mod.Module.load("model", 2, data_names=["words"], label_names=["label"])
    metric, feed = mx.metric.create(["auc", "acc"]), described(16, **BAGS)
    with mx.AsyncExecutor() as executor:
        rows = executor.infer_from_files(served, feed, ["bag-0", "bag-3"], 1, ["label", "p"])
        for _, _, (label, output) in rows:
            metric.update([label], [output])
    assert [f"{value:.4f}" for _, value in metric.get_name_value()] == list(found[-1])


def test_a_symbol_of_ones_own(run):
    pooled = mx.sym.sequence_pool(rows_of(3, sparse=False), pool_type="max")
    net = mx.sym.FullyConnected(pooled, num_hidden=3, name="fc")
    mx.sym.SoftmaxOutput(net, mx.sym.Variable("label"), name="p").save("own-symbol.json")
    done = run(*FEED, "--symbol", "own-symbol.json", "--mode", "serial", "--epochs", 2)
    assert len(aucs(done, "accuracy")) == 2  # three classes
    for old, new in (("words", "word"), ("label", "lable")):
        text = Path("own-symbol.json").read_text().replace(f'"{old}"', f'"{new}"')
        Path("other-symbol.json").write_text(text)
        error = run(*FEED, "--symbol", "other-symbol.json", "--prefix", "other").error
        assert "slots words, label, the network the variables " in error
        assert f"did you mean {old if old == 'words' else new}?" in error


def test_a_seed_gives_the_same_bits_and_quiet_prints_the_last_epoch_only(run):
    for prefix, seed in (("1", 1), ("2", 2), ("again", 1)):
        done = run(*QUICK, "--epochs", 2, "--prefix", prefix, "--seed", seed, "--quiet")
        assert done.out.startswith("epoch 2: auc=")
    one, two, again = (params(f"{prefix}-0002.params") for prefix in ("1", "2", "again"))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["arg:fc1_weight"], two["arg:fc1_weight"])


def test_load_epoch_resumes_with_the_optimizers_states(run):
    run(*QUICK, "--epochs", 3, "--save-every", 1, "--prefix", "whole")
    run(*QUICK, "--epochs", 2, "--prefix", "half")
    done = run(*FEED, "--mode", "serial", "--epochs", 3, "--prefix", "half", "--load-epoch", 2)
    assert re.findall(r"epoch (\d)", done.out) == ["3"]
    half = params("half-0003.params")
    for name, value in params("whole-0003.params").items():
        np.testing.assert_array_equal(half[name], value)


def test_epochs_are_saved_at_intervals_and_patterns_reach_subfolders(run, tmp_path):
    (tmp_path / "part" / "of" / "day").mkdir(parents=True)
    for path in tmp_path.glob("bag-*"):
        path.rename(tmp_path / "part" / "of" / "day" / path.name)
    files = ("--files", "part/**/bag-*", "--epochs", 7, "--save-every", 3)
    assert run(*QUICK, *files).code == 0
    found = sorted(path.name for path in tmp_path.glob("model-*.params"))
    assert found == [f"model-{epoch:04d}.params" for epoch in (3, 6, 7)]


def test_a_feed_of_floats_needs_no_sizes(run, tmp_path):
    write_dense(tmp_path)
    (tmp_path / "dense.prototxt").write_text(described(**DENSE).desc())
    words = ("--feed", "dense.prototxt", "--files", "part-*", "--mode", "serial", "--label", "label")
    assert run("train-files", *words, "--epochs", 1).code == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_ctrl_c_saves_and_prints_the_command_that_resumes(when, run, monkeypatch, tmp_path):
    train, calls = mx.AsyncExecutor.run_from_files, []

    def interrupted(*args, **keywords):
        calls.append(1)
        if len(calls) == 2 and when == "after":
            train(*args, **keywords)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return train(*args, **keywords)

    monkeypatch.setattr(mx.AsyncExecutor, "run_from_files", interrupted)
    done = run(*QUICK, "--epochs", 3, "--prefix", "my run/net")
    assert (done.code, "saved: my run/net-0001.params" in done.err) == (130, True)
    assert done.err.endswith("dpmodule: interrupted\n")
    program, *words = shlex.split(re.search(r"to resume: (.*)", done.err)[1])
    assert program == "dpmodule"
    again = run(*words)
    assert (again.code, re.findall(r"epoch (\d)", again.out)) == (0, ["2", "3"])
    written = {path.name for path in Path("my run").iterdir()}
    assert {"net-0003.params", "net-0003.states", "net-symbol.json"} <= written


def test_bad_lines_are_skipped_and_counted_if_asked_for(run):
    Path("bag-1").write_text("1 2 1 0\n1 x 1 0\n")
    assert "bag-1: line 2: slot 'words'" in run(*QUICK, "--epochs", 1).error.replace(", ", ": ")
    assert "1 bad lines skipped" in run(*QUICK, "--epochs", 1, "--on-bad-line", "skip", "--overwrite").out


def test_fewer_files_than_workers_are_noted_unless_files_are_split(run):
    words = [*NATIVE_RUN, "--files", "bag-0", "--workers", 3, "--epochs", 1, "--overwrite"]
    told = "--workers 3 is reduced to 1, since --mode serial has one worker"
    assert told in run(*words, "--mode", "serial").err
    if native.available():
        assert "the number of files; --split-files splits files" in run(*words).err
        assert run(*words, "--split-files").err == ""


def test_another_network_under_the_prefix_is_refused(run):
    assert run(*QUICK, "--epochs", 1).code == 0
    fm = ("--net", "fm", "--epochs")
    assert "--overwrite" in run(*QUICK, *fm, 1).error
    told = "gives another network for these slots and sizes than model-symbol.json"
    assert told in run(*QUICK, *fm, 2, "--load-epoch", 1).error
    assert run(*QUICK, *fm, 1, "--overwrite").code == 0
