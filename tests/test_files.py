"""Files: what one is, and writing one or several so that a kill or an error leaves the old or the new ones."""

import json
import os
import shutil
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

import dpmodule as mx
from dpmodule import _files as files
from dpmodule.base import FileError, FileFormatError
from helpers.interrupted import interrupted
from helpers.machines import examples, play

PAGE = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n"


def read_records(path):
    with mx.recordio.MXRecordIO(path, "r") as record:
        record.read()


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
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=f"(?s){name}.*{said}|{said}.*{name}"):
        READERS[name](str(tmp_path / name))


NAMES, VERSIONS = st.sets(st.sampled_from("abc"), min_size=1), st.integers(0, 255)


class Saves(RuleBasedStateMachine):
    """Any order of saves, errors, kills of the process between two steps, and reads."""

    def __init__(self):
        super().__init__()
        self.folder, self.known = Path(tempfile.mkdtemp()), {}
        self.disk = mock.patch.object(os, "fsync")  # which takes time, and no test can see
        self.disk.start()

    def teardown(self):
        self.disk.stop()
        shutil.rmtree(self.folder)

    def found(self):
        for name in "abc":
            files.finish_commit(self.folder / name)
        names = self.known.keys() | (set(os.listdir(self.folder)) & {*"abc"})
        return {name: files.read_committed(self.folder / name) for name in names}

    def write(self, contents):
        if len(contents) == 1:
            ((name, data),) = contents.items()
            files.write_atomically(self.folder / name, data)
        else:
            files.write_set({str(self.folder / name): data for name, data in contents.items()}, "set")

    @rule(names=NAMES, version=VERSIONS)
    def save(self, names, version):
        contents = {name: bytes([version]) * 999 for name in names}
        self.write(contents)
        self.known |= contents
        assert self.found() == self.known
        if len(names) == 3:
            assert sorted(os.listdir(self.folder)) == [*"abc"]  # what dead processes left is gone

    @rule(names=NAMES, version=VERSIONS)
    def a_writer_fails(self, names, version):
        def half(file):
            file.write(b"half")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.write(dict.fromkeys(sorted(names)[:-1], bytes([version])) | {max(names): half})
        assert self.found() == self.known

    @rule(names=NAMES, version=VERSIONS, how=st.sampled_from(["once", "for good"]), last=st.integers(1, 30))
    def the_disk_fails(self, names, version, how, last):
        contents = {name: bytes([version]) * 999 for name in names}
        try:
            with interrupted(how, last):
                self.write(contents)
            self.known |= contents
        except FileError:
            found = self.found()
            if len(contents) == 1 and found == {**self.known, **contents}:
                self.known = found  # only the sync of the folder after the rename failed
        assert self.found() == self.known

    @rule(names=NAMES, version=VERSIONS, last=st.integers(1, 30))
    def the_process_is_killed(self, names, version, last):
        contents = {name: bytes([version]) * 999 for name in names}
        child = os.fork()
        if child == 0:
            try:
                with interrupted("kill", last):
                    self.write(contents)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        found = self.found()
        assert found in (self.known, {**self.known, **contents})
        self.known = found


@examples(20, 2000)
def test_any_order_of_saves_errors_and_kills(examples):
    play(Saves, examples, steps=12)


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod"])
def test_a_failing_disk_is_named(step, tmp_path):
    target = tmp_path / "net.params"
    target.write_bytes(b"old")
    with (
        mock.patch.object(files.os, step, side_effect=OSError(28, "No space left on device")),
        pytest.raises(FileError, match="No space left on device.*net.params") as caught,
    ):
        files.write_atomically(target, b"new")
    assert caught.value.errno == 28
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"net.params": b"old"}


def test_permissions_links_and_relative_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_atomically("x", b"old")
    os.chmod("x", 0o640)
    os.symlink("x", "link")
    files.write_atomically("link", lambda file: file.write(b"new"))
    assert os.path.islink("link")
    files.write_set({"x": b"1", "y": lambda file: file.write(b"2" * 100_000)}, "set")
    files.finish_commit("x")
    assert contents(tmp_path) == {"x": b"1", "link": b"1", "y": b"2" * 100_000}
    assert stat.S_IMODE(os.stat("x").st_mode) == 0o640
    files.write_atomically(os.devnull, b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_leftovers_of_the_dead_go_and_files_in_use_stay(tmp_path):
    target = tmp_path / "x"
    dead, foreign, seen = tmp_path / ".x.01234567.tmp", tmp_path / ".y.01234567.tmp", []
    dead.touch()
    foreign.touch()

    def outer(file):
        file.write(b"outer")
        with ThreadPoolExecutor(1) as threads:  # another writer of the same file, while this one is at work
            threads.submit(files.write_atomically, target, b"inner").result()
        seen.extend(os.listdir(tmp_path))

    files.write_atomically(target, outer)
    assert target.read_bytes() == b"outer"
    assert dead.name not in seen
    assert sorted(os.listdir(tmp_path)) == [foreign.name, "x"]


MOVES = b"3", b'{"a": 1}', b'{"a": "../x"}', b'{"/x/a": "a"}'


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def left_by_a_kill(folder, moves, renamed=()):
    """Make what a save leaves that was killed after its set had become valid."""
    for target, data in moves.items():
        (folder / (target if target in renamed else f".{target}.0123abcd.tmp")).write_bytes(data)
    journal = {"version": 1, "moves": {target: f".{target}.0123abcd.tmp" for target in moves}}
    (folder / ".set.89abcdef.commit").write_text(json.dumps(journal))


@pytest.mark.parametrize("renamed", [(), ("a",), ("a", "b")])
def test_readers_and_saves_finish_a_valid_save(tmp_path, renamed):
    left_by_a_kill(tmp_path, {"a": b"3", "b": b"4"}, renamed)
    before = contents(tmp_path)
    files.finish_commit(tmp_path / "c")  # a save of other files
    files.finish_commit(tmp_path / "nowhere" / "a")
    assert contents(tmp_path) == before
    files.finish_commit(tmp_path / "b")
    assert contents(tmp_path) == {"a": b"3", "b": b"4"}
    left_by_a_kill(tmp_path, {"a": b"5", "b": b"6"}, renamed)
    for name in ("a", "old-0001", "other"):
        (tmp_path / f".{name}.0123abce.tmp").write_bytes(b"torn")
    files.write_set({str(tmp_path / "a"): b"7"}, "set", lambda name: name.startswith("old-"))
    assert contents(tmp_path) == {"a": b"7", "b": b"6", ".other.0123abce.tmp": b"torn"}


def test_foreign_journals_are_ignored(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    texts = [b"", b"\xff\xfe", b"[]", *(b'{"moves": ' + each + b"}" for each in MOVES)]
    for text in texts:
        (tmp_path / ".set.89abcdef.commit").write_bytes(text)
        files.finish_commit(tmp_path / "a")
        assert contents(tmp_path) == {"a": b"1", ".set.89abcdef.commit": text}
