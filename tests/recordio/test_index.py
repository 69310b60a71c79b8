import logging

import pytest

import dpmodule as mx
from dpmodule.base import FileFormatError
from helpers.pictures import FORMATS


def make(folder, payloads=(b"one", b"number two", b"three"), keys=(5, 3, 9)):
    record = mx.recordio.MXIndexedRecordIO(folder / "a.idx", folder / "a.rec", "w")
    for key, payload in zip(keys, payloads, strict=True):
        record.write_idx(key, payload)
    record.close()


def load(folder, **how):
    return mx.recordio.MXIndexedRecordIO(folder / "a.idx", folder / "a.rec", "r", **how)


def test_a_lost_index_is_made_again(tmp_path, caplog):
    make(tmp_path)
    (tmp_path / "a.idx").unlink()
    with caplog.at_level(logging.WARNING):
        record = load(tmp_path)
    assert [record.read_idx(key) for key in record.keys] == [b"one", b"number two", b"three"]
    assert record.keys == [0, 1, 2]
    assert "there is no index file" in caplog.text
    assert "3 records" in caplog.text
    assert (tmp_path / "a.idx").read_text() == "0\t0\n1\t12\n2\t32\n"


def test_a_stale_index_keeps_its_keys(tmp_path, caplog):
    make(tmp_path)
    text = (tmp_path / "a.idx").read_text()
    make(tmp_path, (b"longer than before", b"two", b"three"))
    (tmp_path / "a.idx").write_text(text)
    with caplog.at_level(logging.WARNING):
        record = load(tmp_path)
    assert record.read_idx(3) == b"two"
    assert "does not fit" in caplog.text


def test_a_stale_index_of_other_length_gets_new_keys(tmp_path):
    make(tmp_path)
    (tmp_path / "a.idx").write_text("7\t4\n")
    assert load(tmp_path).keys == [0, 1, 2]


def test_an_index_of_some_records_is_kept(tmp_path):
    make(tmp_path)
    (tmp_path / "a.idx").write_text("3\t12\n")
    assert load(tmp_path).keys == [3]


def test_an_index_that_cannot_be_written_stays_in_memory(tmp_path, caplog, monkeypatch):
    make(tmp_path)
    (tmp_path / "a.idx").unlink()

    def refuse(path, data):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("dpmodule.recordio.files.write_atomically", refuse)
    with caplog.at_level(logging.WARNING):
        assert load(tmp_path).read_idx(1) == b"number two"
    assert "in memory only (Permission denied)" in caplog.text
    assert not (tmp_path / "a.idx").exists()


def test_a_damaged_record_file_is_not_indexed(tmp_path):
    make(tmp_path)
    data = (tmp_path / "a.rec").read_bytes()
    (tmp_path / "a.rec").write_bytes(data[:-6])
    (tmp_path / "a.idx").unlink()
    with pytest.raises(FileFormatError, match=r"a\.rec: byte 32"):
        load(tmp_path)
    assert not (tmp_path / "a.idx").exists()


@pytest.mark.parametrize("text", ["<!DOCTYPE html>\n", "1 2\n", "a\t0\n", "\xff"])
def test_a_file_that_is_no_index_is_left_alone(tmp_path, text):
    make(tmp_path)
    (tmp_path / "a.idx").write_bytes(text.encode("latin-1"))
    with pytest.raises(FileFormatError, match=r"a\.idx: "):
        load(tmp_path)
    assert (tmp_path / "a.idx").read_bytes() == text.encode("latin-1")


def test_keys_may_be_text(tmp_path):
    (tmp_path / "a.idx").write_text("first\t0\n")
    make_from = (FORMATS / "plain.rec").read_bytes()
    (tmp_path / "a.rec").write_bytes(make_from)
    assert load(tmp_path, key_type=str).read_idx("first") == b""
