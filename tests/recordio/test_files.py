"""Reading and writing record files, and their index files."""

import json
import pickle

import pytest

import dpmodule as mx
from dpmodule.base import FileFormatError, StateError
from helpers.pictures import FORMATS
from helpers.pipes import Child

INFO = json.loads((FORMATS / "files_index.json").read_text())
PAYLOADS = [bytes.fromhex(text) for text in INFO["plain.rec"]]


def write(path, payloads):
    with mx.recordio.MXRecordIO(path, "w") as record:
        for payload in payloads:
            record.write(payload)
    return path


def read_all(path):
    record = mx.recordio.MXRecordIO(path, "r")
    return list(iter(record.read, None))


def test_mxnets_file_is_read_and_written_byte_for_byte(tmp_path):
    assert read_all(FORMATS / "plain.rec") == PAYLOADS
    written = write(tmp_path / "a.rec", PAYLOADS)
    assert written.read_bytes() == (FORMATS / "plain.rec").read_bytes()


def test_indexed_records_match_mxnets(tmp_path):
    record = mx.recordio.MXIndexedRecordIO(FORMATS / "indexed.idx", FORMATS / "indexed.rec", "r")
    again = mx.recordio.MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    for entry in INFO["indexed.rec"]:
        packed = record.read_idx(entry["key"])
        assert packed.hex() == entry["packed_hex"]
        again.write_idx(entry["key"], packed)
    again.close()
    assert (tmp_path / "a.rec").read_bytes() == (FORMATS / "indexed.rec").read_bytes()
    assert (tmp_path / "a.idx").read_text() == (FORMATS / "indexed.idx").read_text()
    assert record.keys == [entry["key"] for entry in INFO["indexed.rec"]]


def test_reading_begins_again_after_reset():
    record = mx.recordio.MXRecordIO(FORMATS / "plain.rec", "r")
    assert len(list(iter(record.read, None))) == len(PAYLOADS)
    assert record.read() is None
    record.reset()
    assert record.read() == PAYLOADS[0]
    record.close()
    record.close()
    with pytest.raises(StateError, match="is closed"):
        record.read()


def test_readers_are_pickled_and_begin_again():
    record = mx.recordio.MXIndexedRecordIO(FORMATS / "indexed.idx", FORMATS / "indexed.rec", "r")
    copy = pickle.loads(pickle.dumps(record))
    assert copy.read_idx(10) == record.read_idx(10)
    plain = mx.recordio.MXRecordIO(FORMATS / "plain.rec", "r")
    plain.read()
    assert pickle.loads(pickle.dumps(plain)).read() == PAYLOADS[0]
    assert plain.read() == PAYLOADS[1]


def test_open_writers_are_not_pickled(tmp_path):
    record = mx.recordio.MXRecordIO(tmp_path / "a.rec", "w")
    with pytest.raises(StateError, match="close it first"):
        pickle.dumps(record)
    record.close()
    pickle.dumps(record)


def test_a_forked_child_reads_by_key_only():
    record = mx.recordio.MXIndexedRecordIO(FORMATS / "indexed.idx", FORMATS / "indexed.rec", "r")
    plain = mx.recordio.MXRecordIO(FORMATS / "plain.rec", "r")

    def read():
        assert record.read_idx(3)
        with pytest.raises(StateError, match="forked child"):
            plain.read()

    assert Child(read).ok()
    assert record.read_idx(3)
    assert plain.read() == PAYLOADS[0]


def test_an_empty_file_has_no_records(tmp_path, caplog):
    (tmp_path / "a.rec").touch()
    assert read_all(tmp_path / "a.rec") == []
    assert [each.getMessage() for each in caplog.records] == [
        f"{tmp_path}/a.rec: the file is empty, it has no records"
    ]


def make(folder, payloads=(b"one", b"number two", b"three"), keys=(5, 3, 9)):
    with mx.recordio.MXIndexedRecordIO(folder / "a.idx", folder / "a.rec", "w") as record:
        for key, payload in zip(keys, payloads, strict=True):
            record.write_idx(key, payload)


def load(folder, **how):
    return mx.recordio.MXIndexedRecordIO(folder / "a.idx", folder / "a.rec", "r", **how)


def test_a_lost_index_is_made_again(tmp_path, caplog):
    make(tmp_path)
    (tmp_path / "a.idx").unlink()
    record = load(tmp_path)
    assert [record.read_idx(key) for key in record.keys] == [b"one", b"number two", b"three"]
    assert record.keys == [0, 1, 2]
    assert "there is no index file" in caplog.text
    assert "3 records" in caplog.text
    assert (tmp_path / "a.idx").read_text() == "0\t0\n1\t12\n2\t32\n"
    caplog.clear()
    assert load(tmp_path).keys == [0, 1, 2]
    assert not caplog.records


def test_a_stale_index_keeps_its_keys(tmp_path, caplog):
    make(tmp_path)
    text = (tmp_path / "a.idx").read_text()
    make(tmp_path, (b"longer than before", b"two", b"three"))
    (tmp_path / "a.idx").write_text(text)
    record = load(tmp_path)
    assert record.read_idx(3) == b"two"
    assert "does not match" in caplog.text


def test_a_stale_index_of_other_length_gets_new_keys(tmp_path):
    make(tmp_path)
    for text, keys in (("7\t4\n", [0, 1, 2]), ("3\t12\n", [3])):  # the second is of some records
        (tmp_path / "a.idx").write_text(text)
        assert load(tmp_path).keys == keys


def test_an_index_that_cannot_be_written_stays_in_memory(tmp_path, caplog, monkeypatch):
    make(tmp_path)
    (tmp_path / "a.idx").unlink()

    def refuse(path, data):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("dpmodule.recordio.files.write_atomically", refuse)
    assert load(tmp_path).read_idx(1) == b"number two"
    assert "in memory only (Permission denied)" in caplog.text
    assert not (tmp_path / "a.idx").exists()


def test_a_file_may_end_with_the_payload(tmp_path):
    write(tmp_path / "a.rec", [b"abcd", b"efghijkl"])
    assert list(mx.recordio.RecordDataset(tmp_path / "a.rec")) == [b"abcd", b"efghijkl"]
    (tmp_path / "a.rec").write_bytes((tmp_path / "a.rec").read_bytes()[:-3])
    with pytest.raises(FileFormatError, match="8 bytes of payload"):
        mx.recordio.RecordDataset(tmp_path / "a.rec")
