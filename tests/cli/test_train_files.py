"""``dpmodule train-files``: it learns, what it writes, how it goes on, and what it says of mistakes."""

import re
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.cli import networks
from helpers.hogwild import WORDS, described, write_bags, write_dense

BAGS = {"words": "uint64", "label": "uint64 dense"}
QUICK = ("train-files", "--feed", "data.prototxt", "--files", "bag-*", "--rows", WORDS, "--mode", "serial")
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
def test_every_net_learns_with_workers_of_the_native_engine(net, run, tmp_path):
    words = [
        *QUICK[:-2],
        "--net",
        net,
        "--workers",
        2,
        "--epochs",
        30,
        "--lr",
        RATES[net],
        "--prefix",
        "runs/net",
    ]
    done = run(*words)
    assert done.code == 0, done
    assert done.out.startswith("engine: native: ")
    assert done.err == ""
    assert len(aucs(done)) == 30
    assert aucs(done)[-1] > 0.9
    assert done.out.endswith("written: runs/net-symbol.json, runs/net-0030.params and its .states\n")
    assert sorted(path.name for path in tmp_path.glob("runs/*")) == [
        "net-0030.params",
        "net-0030.states",
        "net-symbol.json",
    ]


@pytest.mark.parametrize("net", sorted(networks.FILE_NETWORKS))
def test_slots_of_floats_and_of_several_ids(net, run, tmp_path):
    write_dense(tmp_path)
    for path in tmp_path.glob("part-*"):
        lines = [f"{line} 1 {i % 5} 2 1 {i % 3}\n" for i, line in enumerate(path.read_text().splitlines())]
        path.write_text("".join(lines))
    slots = {"x": "float", "click_label": "uint64", "user": "uint64", "pages": "uint64"}
    (tmp_path / "wide.prototxt").write_text(described(8, **slots).desc())
    words = ["--feed", "wide.prototxt", "--files", "part-*", "--rows", 5, "--rows", "pages=3"]
    done = run("train-files", *words, "--net", net, "--mode", "serial", "--epochs", 12, "--lr", RATES[net])
    assert aucs(done)[-1] > 0.8
    shapes = {name: value.shape for name, value in params("model-0012.params").items()}
    tables = [shape[0] for name, shape in shapes.items() if "user_" in name or "pages_" in name]
    assert sorted(set(tables)) == [3, 5]


@NATIVE
def test_what_is_trained_is_saved_and_served_by_a_module(run, bags):
    run(*QUICK[:-2], "--workers", 2, "--epochs", 3, "--width", 4, "--hidden", 5)
    served = mx.mod.Module.load("model", 3, data_names=["words"], label_names=["label"])
    served.bind([mx.io.DataDesc("words", (3,), "int64", stype="ragged")], None, for_training=False)
    rows = [[1, 2, 3], [], [7]]
    served.forward(mx.io.DataBatch([mx.nd.ragged_array(rows, dtype="int64")]), is_train=False)
    arrays = params("model-0003.params")
    summed = np.stack([arrays["arg:words_table_weight"][row].sum(0) for row in rows])
    hidden = np.tanh(np.tanh(summed) @ arrays["arg:fc1_weight"].T + arrays["arg:fc1_bias"])
    scores = np.exp(hidden @ arrays["arg:scores_weight"].T + arrays["arg:scores_bias"])
    expected = scores / scores.sum(1, keepdims=True)
    np.testing.assert_allclose(served.get_outputs()[0].asnumpy(), expected, rtol=1e-4)


def test_a_validation_file_is_scored_after_each_epoch(run):
    done = run(
        *QUICK, "--files", "bag-[12]", "--validation", "bag-0", "bag-3", "--epochs", 2, "--metric", "auc,acc"
    )
    found = re.findall(r"validation auc=([\d.]+), accuracy=([\d.]+)", done.out)
    assert len(found) == 2
    served = mx.mod.Module.load("model", 2, data_names=["words"], label_names=["label"])
    with mx.AsyncExecutor() as executor:
        metric = mx.metric.create(["auc", "acc"])
        feed, files = described(16, **BAGS), ["bag-0", "bag-3"]
        for _, _, (label, output) in executor.infer_from_files(served, feed, files, 1, ["label", "p"]):
            metric.update([label], [output])
    assert [f"{value:.4f}" for _, value in metric.get_name_value()] == list(found[-1])


def test_a_symbol_of_ones_own(run):
    words = mx.sym.Embedding(
        mx.sym.Variable("words", stype="ragged"), input_dim=WORDS, output_dim=3, name="table"
    )
    pooled = mx.sym.sequence_pool(words, pool_type="max")
    net = mx.sym.FullyConnected(pooled, num_hidden=3, name="fc")
    mx.sym.SoftmaxOutput(net, mx.sym.Variable("label"), name="p").save("own-symbol.json")
    done = run(*QUICK[:5], "--symbol", "own-symbol.json", "--mode", "serial", "--epochs", 2)
    assert len(aucs(done, "accuracy")) == 2  # three classes
    for old, new in (("words", "word"), ("label", "lable")):
        text = Path("own-symbol.json").read_text().replace(f'"{old}"', f'"{new}"')
        Path("other-symbol.json").write_text(text)
        error = run(*QUICK[:5], "--symbol", "other-symbol.json", "--prefix", "other").error
        assert "slots words, label, the network the variables " in error
        assert f"did you mean {old if old == 'words' else new}?" in error


def test_same_seed_same_bits_and_quiet_prints_the_last_epoch_only(run):
    done = [run(*QUICK, "--epochs", 2, "--prefix", seed, "--seed", seed, "--quiet") for seed in (1, 2)]
    run(*QUICK, "--epochs", 2, "--prefix", "again", "--seed", 1)
    one, two, again = (params(f"{prefix}-0002.params") for prefix in ("1", "2", "again"))
    assert done[0].out.startswith("epoch 2: auc=")
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["arg:fc1_weight"], two["arg:fc1_weight"])


def test_load_epoch_goes_on_with_the_optimizers_states(run):
    run(*QUICK, "--epochs", 3, "--save-every", 1, "--prefix", "whole")
    run(*QUICK, "--epochs", 2, "--prefix", "half")
    done = run(*QUICK[:5], "--mode", "serial", "--epochs", 3, "--prefix", "half", "--load-epoch", 2)
    assert re.findall(r"epoch (\d)", done.out) == ["3"]
    whole, half = params("whole-0003.params"), params("half-0003.params")
    for name, value in whole.items():
        np.testing.assert_array_equal(half[name], value)


def test_ctrl_c_saves_and_the_printed_command_goes_on(run, monkeypatch, tmp_path):
    train = mx.AsyncExecutor.run_from_files
    calls = []

    def interrupted(*args, **keywords):
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return train(*args, **keywords)

    monkeypatch.setattr(mx.AsyncExecutor, "run_from_files", interrupted)
    done = run(*QUICK, "--epochs", 3, "--prefix", "my run/net")
    assert done.code == 130
    assert "saved: my run/net-0001.params" in done.err
    assert done.err.endswith("dpmodule: interrupted\n")
    program, *words = shlex.split(re.search(r"to resume: (.*)", done.err)[1])
    assert program == "dpmodule"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = run(*words)
    assert again.code == 0, again
    assert re.findall(r"epoch (\d)", again.out) == ["2", "3"]
    endings = [f"net-{epoch:04d}.{ending}" for epoch in (1, 3) for ending in ("params", "states")]
    assert sorted(path.name for path in tmp_path.glob("my run/*")) == [*endings, "net-symbol.json"]


def test_bad_lines_are_passed_over_and_counted_if_asked_for(run, tmp_path):
    (tmp_path / "bag-1").write_text("1 2 1 0\n1 x 1 0\n")
    assert "bag-1: line 2: slot 'words'" in run(*QUICK, "--epochs", 1).error.replace(", ", ": ")
    assert "1 bad lines skipped" in run(*QUICK, "--epochs", 1, "--on-bad-line", "skip", "--overwrite").out


def test_fewer_files_than_workers_are_told_unless_files_are_split(run):
    words = [*QUICK[:3], "--files", "bag-0", "--rows", WORDS, "--workers", 3, "--epochs", 1]
    done = run(*words, "--mode", "serial")
    assert "--workers 3 is reduced to 1, since --mode serial has one worker" in done.err
    if native.available():
        assert "the number of files; --split-files splits files" in run(*words, "--overwrite").err
        assert run(*words, "--overwrite", "--split-files").err == ""


MISTAKES = [
    (
        ["--files", "none-*"],
        "--files 'none-*' matches no file, expected a path or a pattern such as 'part-*'",
    ),
    (["--files", "none"], "'none'"),
    (["--files", "empty"], "--files: the files have no lines to train on"),
    (["--validation", "none-*"], "--validation 'none-*' matches no file"),
    (["--feed", "none"], "--feed: 'none', expected an existing file"),
    (["--feed", "empty"], "empty: line 1, column 1"),
    (["--feed", "piped"], "if you trust the description, use --allow-pipe-command"),
    (["--feed", "unused"], "which slot is the label? 0 of the used slots have a name that ends in 'label'"),
    (["--label", "lable"], "--label is 'lable', expected one of the used slots: words, label"),
    (["--rows", "wrods=5"], "--rows wrods=5: 'wrods' is not a used id slot; these are words"),
    (["--rows", "words="], "--rows: 'words=', expected a slot and a number of rows such as 'words=90000'"),
    (["--rows", "20"], "--rows SLOT=COUNT sets the number of rows"),
    (
        ["--files", "outside"],
        "the label 2 in 'label', which is not one of the 2 classes (0 to 1) of SoftmaxOutput 'p'",
    ),
    (
        ["--files", "outside"],
        "--check-labels warn trains on such labels; --classes COUNT sets the number of",
    ),
    (["--hidden", "5,x"], "--hidden: '5,x', expected units such as '128,96', or none"),
    (["--metric", "aux"], "--metric: 'aux', expected names of metrics: "),
    (["--net", "logistic", "--width", "5"], "--width 5 is not supported by --net logistic"),
    (["--net", "fm", "--classes", "3"], "--classes 3 is not supported by --net fm"),
    (
        ["--symbol", "fc-symbol.json"],
        "--rows 50 is not supported with --symbol, whose network has fixed sizes",
    ),
    (["--momentum", "0.5"], "--momentum 0.5 is not supported by --optimizer adagrad"),
    (["--load-epoch", "1"], "nothing is saved under the prefix 'model'"),
    (["--prefix", "bag-0/net"], "--prefix is 'bag-0/net', which cannot be written"),
]


@pytest.mark.parametrize(("words", "match"), MISTAKES, ids=lambda value: str(value)[:30])
def test_mistakes_are_one_line_before_anything_is_written(words, match, run, tmp_path):
    text = described(16, **BAGS).desc()
    (tmp_path / "empty").write_text("")
    (tmp_path / "outside").write_text("1 3 1 2\n")
    (tmp_path / "piped").write_text(text.replace('"cat"', '"zcat -f"'))
    (tmp_path / "unused").write_text(text.replace("is_used: true", "is_used: false"))
    mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2).save("fc-symbol.json")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    done = run(*QUICK, "--epochs", 2, *words)
    assert match in done.error
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_feed_and_files_are_needed(run):
    assert "no files are given; expected --feed FILE" in run("train-files").error


def test_an_allowed_pipe_command_runs(run, tmp_path):
    text = described(16, **BAGS).desc().replace('"cat"', '"head -n 3"')
    (tmp_path / "data.prototxt").write_text(text)
    assert "12 lines in" in run(*QUICK, "--epochs", 1, "--allow-pipe-command").out


def test_another_network_under_the_prefix_is_refused(run):
    assert run(*QUICK, "--epochs", 1).code == 0
    assert "--overwrite" in run(*QUICK, "--epochs", 1, "--net", "fm").error
    assert (
        "gives another network for these slots and sizes than model-symbol.json"
        in run(*QUICK, "--epochs", 2, "--net", "fm", "--load-epoch", 1).error
    )
    assert run(*QUICK, "--epochs", 1, "--net", "fm", "--overwrite").code == 0
