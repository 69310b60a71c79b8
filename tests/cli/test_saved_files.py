"""What a command writes, what is in its way, and interrupted commands, which end in the bits of a whole run."""

import os
import re
import shlex
import shutil
import signal
import sys

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import checkpoint
from dpmodule.callback import Callback
from dpmodule.cli import saved_files
from helpers.programs import Program, run_program

FIT = ("fit", "--network", "mlp", "--epochs", "1")


def test_folders_are_made(run, tmp_path):
    assert run(*FIT, "--prefix", "a/b/net").code == 0
    assert (tmp_path / "a/b/net-0001.params").exists()
    assert run("predict", "a/b/net", "--output", "c/d/out.csv").code == 0
    assert (tmp_path / "c/d/out.csv").read_text().startswith("sample,class,p0")


def test_nothing_is_made_for_a_command_that_fails(run, tmp_path):
    assert "is not a number" in run(*FIT, "--data", __file__, "--prefix", "a/net").error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prefix", ["file/net", "folder/", ".", "x" * 250, "/proc/net", "new/" + "x" * 300])
def test_prefixes_that_cannot_be_written_are_refused_first(prefix, run, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    error = run(*FIT, "--data", __file__, "--prefix", prefix).error  # this file is no data, which comes later
    assert f"--prefix is {prefix!r}" in error
    assert run("predict", "--output", "file/out.csv").error.endswith("Not a directory")
    assert "a folder; expected a file" in run("predict", "--output", tmp_path).error


def test_files_of_another_network_are_refused_with_the_command_that_removes_them(run, tmp_path):
    np.savez("small.npz", x=np.eye(4).repeat(5, 0), y=np.arange(20) % 2)
    run(*FIT, "--prefix", "my net")
    (tmp_path / "my net-2024.txt").write_text("mine")
    (tmp_path / "my net-2024").write_text("mine")
    (tmp_path / "my net-other-0001.params").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for words, reason in [
        (
            ("fit", "--network", "lenet", "--epochs", "3", "--prefix", "my net"),
            "its fc1_weight has shape (128, 64)",
        ),
        (
            ("fit", "--network", "mlp", "--epochs", "3", "--prefix=my net", "--data", "small.npz"),
            "its fc1_weight",
        ),
    ]:
        error = run(*words).error
        assert reason in error
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    program, *command = shlex.split(re.search(r"remove the saved files: (dpmodule .*)", error)[1])
    assert command == [*words, "--overwrite"]
    assert run(*command).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "my net-0003.params", "my net-0003.run", "my net-0003.states", "my net-2024", "my net-2024.txt",
        "my net-other-0001.params", "my net-symbol.json", "small.npz",
    ]  # fmt: skip
    assert run(*command[:-1]).code == 0  # the same network again


def test_a_graph_with_other_operators_is_another_network(run):
    for act in ("relu", "tanh"):
        net = mx.sym.Activation(mx.sym.Variable("data"), act_type=act, name="act")
        net = mx.sym.FullyConnected(mx.sym.Flatten(net, name="flat"), num_hidden=10, name="fc")
        mx.sym.SoftmaxOutput(net, name="softmax").save(f"{act}-symbol.json")
    assert run("fit", "--symbol", "relu-symbol.json", "--epochs", "1").code == 0
    assert run("fit", "--symbol", "relu-symbol.json", "--epochs", "1").code == 0
    assert (
        "other operators or attributes" in run("fit", "--symbol", "tanh-symbol.json", "--epochs", "1").error
    )


def test_files_that_hold_no_network_are_refused(run, tmp_path):
    (tmp_path / "model-0003.params").write_bytes(b"")
    assert "the files do not have a readable network" in run(*FIT).error
    assert run(*FIT, "--overwrite").code == 0


def test_later_epochs_of_an_earlier_training_are_told(run):
    run(*FIT, "--epochs", "2")
    done = run(*FIT)
    assert done.code == 0
    assert "saved epoch 2 under this prefix" in done.err
    assert "left epoch" not in run(*FIT, "--overwrite").err


def test_load_epoch_goes_on_with_the_saved_network_only(run):
    run(*FIT)
    assert (
        "--network lenet gives another network for these samples"
        in run("fit", "--network", "lenet", "--load-epoch", "1", "--epochs", "2").error
    )
    assert "not allowed with argument" in run(*FIT, "--load-epoch", "1", "--overwrite").error
    os.unlink("model-0001.states")
    done = run(*FIT, "--load-epoch", "1", "--epochs", "2")
    assert done.code == 0
    assert "the optimizer starts with new states" in done.err


def test_help_and_version(run):
    shown = run("--help").out
    for name in ("fit", "predict", "check", "summary", "explain", "info", "examples:"):
        assert name in shown
    assert run("--version").out == f"dpmodule {mx.__version__}\n"


def test_info_names_versions_and_devices(run):
    text = run("info").out
    for name in ("dpmodule", "native", "Python", "torch", "NumPy", "CPU", "GPU"):
        assert f"\n{name}" in f"\n{text}"


def test_summary_counts_parameters(run):
    text = run("summary", "--network", "mlp").out
    assert f"{64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10:,}" in text
    assert "fc1" in text
    assert "(64, 128)" in text


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 1 TiB"),
        OSError(12, "Cannot allocate"),
        RuntimeError("can't allocate memory"),
    ],
)
def test_short_memory_is_told_with_what_asks_for_it(error, run, monkeypatch):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(mx.mod.Module, "bind", fail)
    line = run("summary", "--batch-size=999999", "--classes", "10").error
    assert "not enough memory, with --batch-size 999999; try smaller numbers: " in line


def test_errors_that_nobody_foresaw_keep_their_traceback(run, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("never seen")

    monkeypatch.setattr(mx.mod.Module, "bind", fail)
    with pytest.raises(RuntimeError, match="never seen"):
        run("summary")


def test_a_reader_that_goes_away_is_no_error():
    code = """
import os, sys
from dpmodule.cli.__main__ import main
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 1)
code = main(["info"])
sys.stdout.flush()
sys.exit(code)
"""
    done = run_program(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_to_run_next_name_the_program_as_it_was_called(monkeypatch):
    words = saved_files.Command(["fit", "--lr", "1", "--overwrite", "--load-epoch=3", "--prefix", "a b"])
    line = words.changed({"--overwrite": 0, "--load-epoch": 1, "--lr": 1}, ["--load-epoch", "4"])
    assert line == "dpmodule fit --prefix 'a b' --load-epoch 4"
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    for called, program in [
        ("/bin/dpmodule", "dpmodule"),
        ("venv/bin/dpmodule", "venv/bin/dpmodule"),
        ("/site/dpmodule/__main__.py", f"{sys.executable} -m dpmodule"),
        ("/site/pytest/__main__.py", "dpmodule"),
    ]:
        monkeypatch.setattr(sys, "argv", [called])
        assert saved_files.Command(["info"]).changed() == f"{program} info"


WHOLE = ("fit", "--network", "mlp", "--epochs", "3", "--prefix", "my run/net")
INTERRUPTING = """
import os, signal, sys
import dpmodule as mx
from dpmodule.cli import agents
from dpmodule.cli.__main__ import main
place, count, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.argv[1:4] = []
calls = []

def interrupt(original):
    def call(*args, **options):
        calls.append(1)
        if len(calls) == count:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **options)
    return call

where, name = {
    "batch": (mx.callback.Callback, "on_batch_end"),
    "first batch": (mx.mod.Module, "forward_backward"),
    "evaluation": (mx.mod.Module, "evaluate"),
    "save": (mx.checkpoint, "save_checkpoint"),
    "parley": (agents, "step"),
}[place]
setattr(where, name, interrupt(getattr(where, name)))
sys.exit(main())
"""


def interrupted(folder, place, count, times, *words):
    """Run a command that is interrupted, and return the words of the command that it prints."""
    with Program("code", INTERRUPTING, place, str(count), str(times), *words, cwd=folder) as program:
        code = program.wait(60)
        error = program.output()[1]
    assert code == 130, error
    assert error.endswith("dpmodule: interrupted\n"), error
    program, *words = shlex.split(re.search(r"to (resume|start again): (.*)", error)[2])
    return words


def arrays(path):
    return {name: value.asnumpy() for name, value in mx.nd.load(str(path)).items()}


def assert_same(first, second):
    for name, value in arrays(first).items():
        np.testing.assert_array_equal(arrays(second)[name], value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the parameters' file of a run that was not interrupted."""
    from dpmodule.cli.__main__ import main

    prefix = tmp_path_factory.mktemp("whole") / "net"
    assert main([*WHOLE[:-1], str(prefix)]) == 0
    return f"{prefix}-0003.params"


@pytest.mark.parametrize(
    ("place", "count", "times"),
    [("first batch", 1, 1), ("batch", 30, 1), ("first batch", 30, 2), ("save", 1, 2), ("evaluation", 1, 1)],
)
def test_an_interrupted_fit_resumes(place, count, times, run, tmp_path, whole):
    words = interrupted(tmp_path, place, count, times, *WHOLE)
    assert ("--resume" in words) is (times == 1 or place == "save")
    assert "--load-epoch" not in words
    if place == "batch":
        words = interrupted(tmp_path, place, 5, 1, *words)
    assert run(*words).code == 0
    assert_same(whole, tmp_path / "my run/net-0003.params")


AGENT = (
    "train-agent",
    "-t",
    "episodes_of_three:Dialogues",
    "-m",
    "seq2seq",
    "-hs",
    "8",
    "-esz",
    "8",
    "-bs",
    "8",
)
AGENT = (*AGENT, "-opt", "adam", "--num-epochs", "2", "--quiet", "--batch-sort", "false", "-mf")
DIALOGUES = """
from dpmodule.agents.teachers import FixedDialogTeacher

class Dialogues(FixedDialogTeacher):
    '''Has episodes of three examples.'''

    def get(self, episode_idx, entry_idx=0):
        text = " ".join("abcdefgh"[(episode_idx * k + entry_idx) % 8] for k in range(1, 4))
        return {"text": text, "labels": [text[::-1]], "episode_done": entry_idx == 2}

    def num_episodes(self):
        return 24

    def num_examples(self):
        return 72
"""


@pytest.mark.parametrize(
    ("count", "times", "more"), [(11, 1, ("-dt", "train:ordered", "-ve", "0")), (9, 1, ()), (1, 1, ())]
)
def test_an_interrupted_agent_resumes(count, times, more, run, tmp_path, monkeypatch):
    """Within an episode, at the end of an epoch, and at the very beginning."""
    (tmp_path / "episodes_of_three.py").write_text(DIALOGUES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run(*AGENT, "whole", *more).code == 0
    words = interrupted(tmp_path, "parley", count, times, *AGENT, "part", *more)
    assert words[-1] == "--resume"
    assert (tmp_path / "part.trainstats").exists()
    assert run(*words).code == 0
    assert_same("whole-0000.params", "part-0000.params")
    left = sorted(path.name for path in tmp_path.glob("part*"))
    assert left == ["part-0000.params", "part-symbol.json", "part.dict", "part.opt"]


RESUMED = ("fit", "--network", "mlp", "--epochs", 3, "--resume")


def params(prefix):
    args, aux = checkpoint.load_params(prefix, 3)
    return {name: array.asnumpy().tobytes() for name, array in {**args, **aux}.items()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_what_a_signal_ends_goes_on(number, run, tmp_path, monkeypatch):
    assert run(*RESUMED, "--prefix", "whole").code == 0
    seen = []

    def ends(callback, run):
        seen.append(run.nbatch)
        if len(seen) == 30:
            signal.raise_signal(number)

    monkeypatch.setattr(Callback, "on_batch_end", ends)
    try:
        code = run(*RESUMED, "--prefix", "part").code
    except SystemExit as error:
        code = error.code
    assert code == 128 + number
    assert len(seen) == 31
    assert (tmp_path / "part-last.run").exists()
    again = run(*RESUMED, "--prefix", "part")
    assert again.code == 0
    assert params("part") == params("whole")
    saved = sorted(path.name for path in tmp_path.glob("whole-*.run"))
    assert saved == ["whole-0002.run", "whole-0003.run"]


def test_a_finished_run_stays_as_it_is_and_can_be_removed(run, tmp_path):
    assert run(*RESUMED, "--prefix", "a", "--save-every", 2, "--save-batches", 10).code == 0
    assert sorted(path.name for path in tmp_path.glob("a-0*.params")) == ["a-0002.params", "a-0003.params"]
    before = params("a")
    assert run(*RESUMED, "--prefix", "a", "--save-every", 2).code == 0
    assert params("a") == before
    assert run("fit", "--network", "lenet", "--epochs", 1, "--prefix", "a", "--overwrite").code == 0
    assert [path.name for path in tmp_path.glob("a-*.run")] == ["a-0001.run"]


def test_another_run_is_refused(run):
    assert run(*RESUMED, "--prefix", "a").code == 0
    assert "the batch size was 64, is 32" in run(*RESUMED, "--prefix", "a", "--batch-size", 32).error
    shorter = ("fit", "--network", "mlp", "--epochs", 2, "--resume", "--prefix", "a")
    assert "epoch 3 is saved under the prefix 'a'; give --epochs at least that number" in run(*shorter).error


# saved

DIGITS = 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
FOUR = 4 * 128 + 128 + 128 * 64 + 64 + 64 * 2 + 2


@pytest.fixture
def four(run, tmp_path):
    """Train an MLP on samples of four values, saved as "four"; the issue's 9,026 parameters."""
    np.savez("four.npz", x=np.random.RandomState(0).rand(40, 4), y=np.arange(40) % 2)
    fit = ("fit", "--network", "mlp", "--data", "four.npz", "--prefix", "four", "--epochs")
    assert run(*fit, "1").code == 0
    assert run(*fit, "2").code == 0
    return [tmp_path / "four-symbol.json", tmp_path / "four-0002.params"]


def commands(*network):
    yield "summary", *network
    yield "check", *network
    yield "explain", *network, "--no-source"
    yield "predict", *network, "--data", "four.npz"


def test_every_command_takes_a_prefix_or_files(run, four):
    symbol, params = four
    ways = [
        ("four",),
        ("--prefix", "four"),
        ("four", "--epoch", "2"),
        (symbol, params),
        ("--symbol", symbol, "--params", params),
        ("four", params),
    ]
    shown = []
    for way in ways:
        found = [run(*words) for words in commands(*way)]
        assert [each.code for each in found] == [0] * 4, found
        for each in found[:3]:
            assert f"{FOUR:,}" in each.out
            assert " 4) (as saved)" in each.out
        shown.append(found[3].out)
    assert len(set(shown)) == 1
    first, second = (run("predict", "four", "--data", "four.npz", "--epoch", n).out for n in (1, 2))
    assert first != second
    assert second == shown[0]


def test_a_graph_tells_its_shapes_or_they_are_asked_for(run):
    data = mx.sym.Variable("data")
    net = mx.sym.FullyConnected(mx.sym.Flatten(data), num_hidden=2, name="fc")
    mx.sym.SoftmaxOutput(net, name="softmax").save("net-symbol.json")
    for command in ("summary", "explain"):
        assert "set them: --shape data=..." in run(command, "net").error
        assert "parameters: 16" in run(command, "net", "--shape", "7").out
        assert "parameters: 16" in run(command, "net", "--shape", "data=5,7").out
    mx.nd.save("net-0000.params", {"arg:fc_weight": mx.nd.ones((2, 75)), "arg:fc_bias": mx.nd.ones(2)})
    for command in ("summary", "explain", "check"):
        shown = run(command, "net").out
        assert "parameters: 152" in shown
        assert ", 75) (assumed)" in shown
        assert "does not fit the parameters" in run(command, "net", "--shape", "7").error


def test_a_name_of_ours_and_a_prefix(run):
    run("fit", "--network", "mlp", "--epochs", "1", "--prefix", "mlp", "--shape", "64")
    for command in ("summary", "explain"):
        assert "expected --network mlp or --prefix mlp" in run(command, "mlp").error
        assert "(as saved)" in run(command, "--prefix", "mlp").out
        assert "(assumed)" in run(command, "--network", "mlp").out
    assert f"parameters: {DIGITS - 9 * 65:,}" in run("summary", "--network", "mlp", "--classes", "1").out


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["check"], "no network is given; expected NET"),
        (["explain"], "no network is given; expected NET"),
        (["predict"], "nothing is saved under the prefix 'model'"),
        (["predict", "--epoch", "3"], "nothing is saved under the prefix 'model'"),
        (["summary", "--prefix", "nowhere"], "nowhere-symbol.json does not exist"),
        (["check", "lenet"], "lenet-symbol.json does not exist"),
        (["check", "four", "--prefix", "four"], "got NET four and --prefix four, expected one network"),
        (
            ["check", "four", "four-0001.params", "--params", "four-0002.params"],
            "PARAMS four-0001.params and --params",
        ),
        (
            ["check", "four", "four-0001.params", "--epoch", "2"],
            "--epoch 2 and the parameters four-0001.params",
        ),
        (["check", "four-symbol.json", "--epoch", "2"], "--epoch 2 is for a prefix"),
        (
            ["check", "four", "--epoch", "7"],
            "--epoch is 7; the saved epochs of the prefix 'four' are: 1, 2",
        ),
        (
            ["check", "four", "--epoch", "last"],
            "--epoch is last; the saved epochs of the prefix 'four'",
        ),
        (["check", "four-0001.params"], "four-0001.params"),
        (["check", "four", "four-symbol.json"], "four-symbol.json"),
        (["predict", "four-symbol.json"], "four-symbol.json has no parameters"),
        (["summary", "lenet", "four-0001.params"], "is for saved networks"),
        (["summary", "four", "--classes", "3"], "--classes 3 is for built-in networks"),
        (["summary", "--shape", "64"], "a sample has shape (64,)"),
        (["summary", "four", "--shape", "x=1,4"], "--shape names x, expected some of data, "),
    ],
)
def test_what_names_no_network_is_refused(words, match, run, four):
    assert match in run(*words).error
