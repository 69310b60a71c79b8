"""Files: what one is, and writing one or several so that a kill leaves the old or the new."""

import json
import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

import dpmodule as mx
from dpmodule import _files as files
from dpmodule._files import likely_kind
from dpmodule.base import ArgumentError, FileError, FileFormatError, MXNetError
from helpers.spawned import killed_while_writing

PAGE = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n"


def read_records(path):
    record = mx.recordio.MXRecordIO(path, "r")
    try:
        record.read()
    finally:
        record.close()


def read_states(path):
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), label_names=None)
    module.bind([("data", (1, 2))])
    module.init_params()
    module.init_optimizer()
    module.load_optimizer_states(path)


READERS = {
    "net-symbol.json": mx.sym.load,
    "net.params": mx.nd.load,
    "net.states": read_states,
    "data.rec": read_records,
    "data.csv": lambda path: mx.io.CSVIter(data_csv=path, data_shape=(2,), batch_size=1),
    "data.libsvm": lambda path: mx.io.LibSVMIter(data_libsvm=path, data_shape=(2,), batch_size=1),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(("content", "said"), [(PAGE, "an HTML page"), (POINTER, "a Git LFS pointer")])
def test_readers_say_what_a_file_is(name, content, said, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=said) as caught:
        READERS[name](str(path))
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["net-symbol.json", "net.params"])
def test_a_file_cut_short(name, tmp_path):
    path = tmp_path / name
    if name.endswith("json"):
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2).save(str(path))
    else:
        mx.nd.save(str(path), {"a": mx.nd.ones((3, 4))})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match="cut short|truncated") as caught:
        READERS[name](str(path))
    assert name in str(caught.value)


def test_kinds():
    assert likely_kind(b"") == "the file is empty"
    assert "NumPy" in likely_kind(b"\x93NUMPY\x01\x00")
    assert "gzip" in likely_kind(b"\x1f\x8b\x08")
    assert likely_kind(b"\x12\x01\0\0\0\0\0\0") == ""
    assert likely_kind(b"v") == ""


def test_content_as_bytes_or_by_a_function(tmp_path):
    target = tmp_path / "x"
    files.write_atomically(target, b"one")
    assert target.read_bytes() == b"one"
    files.write_atomically(str(target), lambda file: file.write(b"two"))
    assert target.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["x"]


def test_an_error_in_the_function_leaves_the_old_file(tmp_path):
    target = tmp_path / "x"
    target.write_bytes(b"old")

    def half(file):
        file.write(b"ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(target, half)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failing_disk_leaves_the_old_file_and_is_named(step, tmp_path, monkeypatch):
    target = tmp_path / "net.params"
    target.write_bytes(b"old")

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(FileError, match="No space left on device.*net.params") as caught:
        files.write_atomically(target, b"new")
    assert caught.value.errno == 28
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["net.params"]


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(FileError, match="nowhere"):
        files.write_atomically(tmp_path / "nowhere" / "x", b"")


def test_permissions_and_links_are_kept(tmp_path):
    target, link = tmp_path / "x", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    files.write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_atomically("x", b"here")
    assert Path("x").read_bytes() == b"here"


def test_a_device_is_written_directly():
    files.write_atomically(os.devnull, b"gone")
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
        thread = threading.Thread(target=files.write_atomically, args=(target, b"inner"))
        thread.start()
        thread.join()
        seen.extend(os.listdir(tmp_path))

    files.write_atomically(target, outer)
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
    files.write_atomically(target, b"new")
    assert os.listdir(tmp_path) == ["x"]


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def paths(folder, **files):
    return {str(folder / name): data for name, data in files.items()}


def test_writes_plain_files_and_nothing_else(tmp_path):
    files.write_set(paths(tmp_path, a=b"1", b=lambda file: file.write(b"2" * 100_000)), "set")
    assert contents(tmp_path) == {"a": b"1", "b": b"2" * 100_000}


def test_replaces_old_files_and_keeps_their_permissions(tmp_path):
    files.write_set(paths(tmp_path, a=b"1", b=b"2"), "set")
    os.chmod(tmp_path / "a", 0o640)
    files.write_set(paths(tmp_path, a=b"3", b=b"4"), "set")
    assert contents(tmp_path) == {"a": b"3", "b": b"4"}
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640


def test_works_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_set({"a": b"1", "b": b"2"}, "set")
    files.finish_commit("a")
    assert contents(tmp_path) == {"a": b"1", "b": b"2"}


def test_one_file_is_a_set_too(tmp_path):
    files.write_set(paths(tmp_path, a=b"1"), "set")
    assert contents(tmp_path) == {"a": b"1"}


def test_refuses_an_empty_set_and_two_folders(tmp_path):
    with pytest.raises(ArgumentError, match="one folder"):
        files.write_set({}, "set")
    with pytest.raises(ArgumentError, match="one folder"):
        files.write_set({str(tmp_path / "a"): b"", str(tmp_path / "x" / "b"): b""}, "set")


def test_names_a_missing_folder(tmp_path):
    with pytest.raises(FileError, match="nowhere") as caught:
        files.write_set({str(tmp_path / "nowhere" / "a"): b""}, "set")
    assert isinstance(caught.value, MXNetError)


def test_failing_writer_leaves_the_old_set(tmp_path):
    def fail(file):
        file.write(b"half")
        raise KeyboardInterrupt

    files.write_set(paths(tmp_path, a=b"1", b=b"2"), "set")
    with pytest.raises(KeyboardInterrupt):
        files.write_set(paths(tmp_path, a=b"3", b=fail), "set")
    assert contents(tmp_path) == {"a": b"1", "b": b"2"}


def left_by_a_kill(folder, moves, renamed=()):
    """Make what a save leaves that was killed after its set had become valid."""
    for target, data in moves.items():
        name = target if target in renamed else f".{target}.0123abcd.tmp"
        (folder / name).write_bytes(data)
    journal = {"version": 1, "moves": {target: f".{target}.0123abcd.tmp" for target in moves}}
    (folder / ".set.89abcdef.commit").write_text(json.dumps(journal))


@pytest.mark.parametrize("renamed", [(), ("a",), ("a", "b")])
def test_settle_finishes_a_valid_save(tmp_path, renamed):
    files.write_set(paths(tmp_path, a=b"1", b=b"2"), "set")
    left_by_a_kill(tmp_path, {"a": b"3", "b": b"4"}, renamed)
    files.finish_commit(tmp_path / "b")
    assert contents(tmp_path) == {"a": b"3", "b": b"4"}


def test_settle_leaves_saves_of_other_files_alone(tmp_path):
    left_by_a_kill(tmp_path, {"a": b"3", "b": b"4"})
    before = contents(tmp_path)
    files.finish_commit(tmp_path / "c")
    assert contents(tmp_path) == before


def test_next_save_settles_first(tmp_path):
    left_by_a_kill(tmp_path, {"a": b"3", "b": b"4"})
    files.write_set(paths(tmp_path, a=b"5"), "set")
    assert contents(tmp_path) == {"a": b"5", "b": b"4"}


def test_next_save_sweeps_its_family_only(tmp_path):
    for name in ("a", "old-0001", "other"):
        (tmp_path / f".{name}.0123abcd.tmp").write_bytes(b"torn")
    files.write_set(paths(tmp_path, a=b"1", b=b"2"), "set", lambda name: name.startswith("old-"))
    assert set(contents(tmp_path)) == {"a", "b", ".other.0123abcd.tmp"}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"moves": 3}',
        b'{"moves": {"a": 1}}',
        b'{"moves": {"a": "../x"}}',
        b'{"moves": {"/x/a": "a"}}',
    ],
)
def test_settle_ignores_what_is_no_journal_of_ours(tmp_path, text):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / ".set.89abcdef.commit").write_bytes(text)
    before = contents(tmp_path)
    files.finish_commit(tmp_path / "a")
    assert contents(tmp_path) == before


def test_settle_of_a_missing_folder_does_nothing(tmp_path):
    files.finish_commit(tmp_path / "nowhere" / "a")
