"""Sets of files that switch together. Kills and write errors in the middle are in test_checkpoint.py."""

import json
import os
import stat

import pytest

from dpmodule.base import ArgumentError, FileError, MXNetError
from dpmodule.files import file_transaction


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def paths(folder, **files):
    return {str(folder / name): data for name, data in files.items()}


def test_writes_plain_files_and_nothing_else(tmp_path):
    file_transaction.write_set(paths(tmp_path, a=b"1", b=lambda file: file.write(b"2" * 100_000)), "set")
    assert contents(tmp_path) == {"a": b"1", "b": b"2" * 100_000}


def test_replaces_old_files_and_keeps_their_permissions(tmp_path):
    file_transaction.write_set(paths(tmp_path, a=b"1", b=b"2"), "set")
    os.chmod(tmp_path / "a", 0o640)
    file_transaction.write_set(paths(tmp_path, a=b"3", b=b"4"), "set")
    assert contents(tmp_path) == {"a": b"3", "b": b"4"}
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640


def test_works_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file_transaction.write_set({"a": b"1", "b": b"2"}, "set")
    file_transaction.settle("a")
    assert contents(tmp_path) == {"a": b"1", "b": b"2"}


def test_one_file_is_a_set_too(tmp_path):
    file_transaction.write_set(paths(tmp_path, a=b"1"), "set")
    assert contents(tmp_path) == {"a": b"1"}


def test_refuses_an_empty_set_and_two_folders(tmp_path):
    with pytest.raises(ArgumentError, match="one folder"):
        file_transaction.write_set({}, "set")
    with pytest.raises(ArgumentError, match="one folder"):
        file_transaction.write_set({str(tmp_path / "a"): b"", str(tmp_path / "x" / "b"): b""}, "set")


def test_names_a_missing_folder(tmp_path):
    with pytest.raises(FileError, match="nowhere") as caught:
        file_transaction.write_set({str(tmp_path / "nowhere" / "a"): b""}, "set")
    assert isinstance(caught.value, MXNetError)


def test_failing_writer_leaves_the_old_set(tmp_path):
    def fail(file):
        file.write(b"half")
        raise KeyboardInterrupt

    file_transaction.write_set(paths(tmp_path, a=b"1", b=b"2"), "set")
    with pytest.raises(KeyboardInterrupt):
        file_transaction.write_set(paths(tmp_path, a=b"3", b=fail), "set")
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
    file_transaction.write_set(paths(tmp_path, a=b"1", b=b"2"), "set")
    left_by_a_kill(tmp_path, {"a": b"3", "b": b"4"}, renamed)
    file_transaction.settle(tmp_path / "b")
    assert contents(tmp_path) == {"a": b"3", "b": b"4"}


def test_settle_leaves_saves_of_other_files_alone(tmp_path):
    left_by_a_kill(tmp_path, {"a": b"3", "b": b"4"})
    before = contents(tmp_path)
    file_transaction.settle(tmp_path / "c")
    assert contents(tmp_path) == before


def test_next_save_settles_first(tmp_path):
    left_by_a_kill(tmp_path, {"a": b"3", "b": b"4"})
    file_transaction.write_set(paths(tmp_path, a=b"5"), "set")
    assert contents(tmp_path) == {"a": b"5", "b": b"4"}


def test_next_save_sweeps_its_family_only(tmp_path):
    for name in ("a", "old-0001", "other"):
        (tmp_path / f".{name}.0123abcd.tmp").write_bytes(b"torn")
    file_transaction.write_set(paths(tmp_path, a=b"1", b=b"2"), "set", lambda name: name.startswith("old-"))
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
    file_transaction.settle(tmp_path / "a")
    assert contents(tmp_path) == before


def test_settle_of_a_missing_folder_does_nothing(tmp_path):
    file_transaction.settle(tmp_path / "nowhere" / "a")
