"""Files are replaced in one step, whatever goes wrong."""

import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

from dpmodule.base import FileError
from dpmodule.files import atomic
from helpers.spawned import killed_while_writing


def test_content_as_bytes_or_by_a_function(tmp_path):
    target = tmp_path / "x"
    atomic.write_atomically(target, b"one")
    assert target.read_bytes() == b"one"
    atomic.write_atomically(str(target), lambda file: file.write(b"two"))
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_in_the_function_leaves_the_old_file(tmp_path):
    target = tmp_path / "x"
    target.write_bytes(b"old")

    def half(file):
        file.write(b"ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.write_atomically(target, half)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failing_disk_leaves_the_old_file_and_is_named(step, tmp_path, monkeypatch):
    target = tmp_path / "net.params"
    target.write_bytes(b"old")

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, step, fail)
    with pytest.raises(FileError, match="No space left on device.*net.params") as caught:
        atomic.write_atomically(target, b"new")
    assert caught.value.errno == 28
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["net.params"]


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(FileError, match="nowhere"):
        atomic.write_atomically(tmp_path / "nowhere" / "x", b"")


def test_permissions_and_links_are_kept(tmp_path):
    target, link = tmp_path / "x", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    atomic.write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    atomic.write_atomically("x", b"here")
    assert Path("x").read_bytes() == b"here"


def test_a_device_is_written_directly():
    atomic.write_atomically(os.devnull, b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_left_overs_of_the_dead_go_and_files_in_work_stay(tmp_path):
    target = tmp_path / "x"
    dead, foreign = tmp_path / ".x.01234567.tmp", tmp_path / ".y.01234567.tmp"
    dead.write_bytes(b"")
    foreign.write_bytes(b"")
    seen = []

    def outer(file):
        file.write(b"outer")
        # another writer of the same file, while this one is at work
        thread = threading.Thread(target=atomic.write_atomically, args=(target, b"inner"))
        thread.start()
        thread.join()
        seen.extend(os.listdir(tmp_path))

    atomic.write_atomically(target, outer)
    assert target.read_bytes() == b"outer"
    assert dead.name not in seen
    assert sorted(os.listdir(tmp_path)) == [foreign.name, "x"]


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up(tmp_path):
    target = tmp_path / "x"
    target.write_bytes(b"old")
    process = multiprocessing.get_context("spawn").Process(target=killed_while_writing, args=(str(target),))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert target.read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    atomic.write_atomically(target, b"new")
    assert os.listdir(tmp_path) == ["x"]
