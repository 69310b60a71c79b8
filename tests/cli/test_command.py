"""The command as a whole: help, version, exit codes, and the line that names it."""

import shutil
import sys

import pytest

import dpmodule as mx
from dpmodule.cli import command
from helpers.programs import run_program


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
    assert "not enough memory, with --batch-size 999999; expected smaller numbers: " in line


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
    words = command.Command(["fit", "--lr", "1", "--overwrite", "--load-epoch=3", "--prefix", "a b"])
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
        assert command.Command(["info"]).changed() == f"{program} info"
