"""Two runs on one prefix at once: the second is refused, and nothing of the first is in the way when it is gone."""

import os
import signal
import threading

import pytest

import dpmodule as mx
from dpmodule.base import FileError, StateError
from dpmodule.module import saving
from helpers.programs import TESTS, Program
from helpers.small_fits import blobs, classifier


def fit(prefix, **options):
    mx.mod.Module(classifier()).fit(blobs(), num_epoch=1, checkpoint=prefix, **options)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


SAVED = ["a-0001.params", "a-0001.run", "a-0001.states", "a-symbol.json"]


def test_another_process_is_named_until_it_is_killed(tmp_path):
    with Program("file", TESTS / "programs" / "hold_a_prefix.py", tmp_path / "a") as program:
        program.read(1)
        words = f"process {program.pid} on .* is saving a run under the prefix '.*a'"
        with pytest.raises(StateError, match=words):
            fit(tmp_path / "a")
        fit(tmp_path / "b")
        os.kill(program.pid, signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
        assert ".a.lock" in names(tmp_path)
        try:
            fit(tmp_path / "a", resume="auto")
        finally:
            os.killpg(program.pid, signal.SIGKILL)
    assert names(tmp_path) == [*SAVED, *(name.replace("a-", "b-") for name in SAVED)]


def test_a_run_within_a_run(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    seen = []

    def again(param):
        for folder in ("folder", "link"):
            with pytest.raises(StateError, match="fit: this process is saving a run under the prefix '.*a'"):
                fit(tmp_path / folder / "a", resume="auto")
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
        seen.append(param)

    def another():
        with pytest.raises(StateError, match="another prefix for this run"):
            fit(tmp_path / "folder" / "a")
        seen.append("thread")

    fit(tmp_path / "folder" / "a", batch_end_callback=again)
    assert (len(seen), names(tmp_path / "folder")) == (24, SAVED)


def test_no_locks_are_no_error(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(saving.fcntl, "lockf", refuse)
    fit(tmp_path / "a", batch_end_callback=lambda param: param.nbatch or fit(tmp_path / "a"))
    monkeypatch.setattr(saving, "fcntl", None)
    fit(tmp_path / "b")
    assert names(tmp_path)[:4] == SAVED


def test_a_missing_folder_is_created_before_training(tmp_path):
    folder = tmp_path / "runs" / "first"
    fit(folder / "net")
    assert (folder / "net-0001.params").exists()
    (tmp_path / "file").write_text("")
    calls = []
    with pytest.raises(FileError, match="cannot save"):
        fit(tmp_path / "file" / "net", batch_end_callback=calls.append)
    assert calls == []
