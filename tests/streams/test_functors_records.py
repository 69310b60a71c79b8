"""Records in pieces of record files, against what `mx.recordio` reads and refuses."""

import random
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpmodule import native, recordio
from dpmodule.base import ArgumentError, BoundsError, FileFormatError
from dpmodule.recordio.framing import MAGIC, frame
from dpmodule.streams import RecordsFunctor, StringHandle
from helpers.both_backends import in_native
from helpers.functors import backend as backend
from helpers.functors import outcome

PAYLOADS = st.lists(
    st.binary(max_size=30) | st.lists(st.sampled_from([MAGIC, b"abcd", b"x"]), max_size=6).map(b"".join),
    max_size=8,
)
with_backend = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@with_backend
@given(payloads=PAYLOADS)
def test_payloads_come_back(backend, payloads):
    data = b"".join(map(frame, payloads))
    for final in (True, False):
        assert RecordsFunctor(data, final=final).run() == (payloads, len(data))


@with_backend
@given(payloads=PAYLOADS, data=st.data())
def test_a_piece_may_end_anywhere(backend, payloads, data):
    frames = [frame(payload) for payload in payloads]
    whole = b"".join(frames)
    cut = data.draw(st.integers(0, len(whole)))
    found = RecordsFunctor(whole[:cut]).run()
    complete = 0
    while sum(map(len, frames[: complete + 1])) <= cut and complete < len(frames):
        complete += 1
    assert found.records == payloads[:complete]
    assert found.consumed == sum(map(len, frames[:complete]))
    rest = RecordsFunctor(whole[found.consumed :], final=True).run()
    assert found.records + rest.records == payloads


def test_records_are_slices_without_a_copy(backend):
    tensor = torch.tensor(list(frame(b"first") + frame(b"second record")), dtype=torch.uint8).share_memory_()
    records, _ = RecordsFunctor(StringHandle(tensor)).run()
    where = [np.frombuffer(record, np.uint8).ctypes.data - tensor.data_ptr() for record in records]
    assert where == [8, 24]
    assert all(isinstance(record, StringHandle) for record in records)
    tensor[8] = ord("F")
    assert records[0] == b"First"


def test_records_written_in_parts_are_joined(backend):
    payload = MAGIC + b"1234" + MAGIC + MAGIC + b"end"
    assert RecordsFunctor(frame(payload), final=True).run().records == [payload]


def test_last_record_may_lack_its_padding_only_at_the_end(backend):
    data = frame(b"abc") + frame(b"12345")
    assert RecordsFunctor(data[:-3], final=True).run() == ([b"abc", b"12345"], len(data) - 3)
    assert RecordsFunctor(data[:-3]).run() == ([b"abc"], 12)


@pytest.mark.parametrize(
    ("data", "final", "text"),
    [
        (b"PK\3\4....", False, r"byte 1000: no record begins here: 'PK\x03\x04' in place of '\x0a#\xd7\xce'"),
        (MAGIC[:2] + b"x", False, r"byte 1000: no record begins here: '\x0a#x'"),
        (frame(b"ok") + b"\0" * 8, False, "byte 1012: no record begins here"),
        (MAGIC + b"\0\0\0\x40", False, "byte 1000: a part of kind 2 is not allowed here"),
        (MAGIC + b"\4\0\0\x20abcd" + frame(b""), False, "byte 1012: a part of kind 0 is not allowed here"),
        (MAGIC + b"\0\0\0\xe0", False, "byte 1000: a part of kind 7 is not allowed here"),
        (frame(b"ok") + MAGIC, True, "byte 1012: the head of a record, 8 bytes, expected, but 4 are left"),
        (frame(b"payload")[:-4], True, "byte 1000: 7 bytes of payload expected, but 4 are left"),
        (
            MAGIC + b"\4\0\0\x20abcd",
            True,
            "byte 1012: the head of a record, 8 bytes, expected, but 0 are left",
        ),
    ],
)
def test_damage_is_told_with_its_byte(backend, data, final, text):
    with pytest.raises(FileFormatError, match="^" + re.escape(f"a.rec: {text}")):
        RecordsFunctor(data, source="a.rec", offset=1000, final=final).run()


def test_arguments_are_checked(backend):
    with pytest.raises(BoundsError, match="offset is -1"):
        RecordsFunctor(b"", offset=-1)
    with pytest.raises(ArgumentError, match="offset is 1.5"):
        RecordsFunctor(b"", offset=1.5)


def read_all(path):
    """What the reader of files gives: the records, or the byte at which it stops."""
    reader = recordio.MXRecordIO(path, "r")
    try:
        return list(iter(reader.read, None))
    except FileFormatError as error:
        return int(re.search(r"byte (\d+)", str(error)).group(1))
    finally:
        reader.close()


def find_all(data):
    found = outcome(RecordsFunctor(data, final=True))
    return int(re.search(r"byte (\d+)", found[1]).group(1)) if found[0] is FileFormatError else found.records


@pytest.mark.parametrize("seed", range(3))
def test_the_reader_of_files_finds_the_same(backend, seed, tmp_path):
    generator = random.Random(seed)
    path, refused = tmp_path / "a.rec", 0
    for _ in range(60):
        pieces = [
            generator.choice([MAGIC, b"abcd", generator.randbytes(generator.randrange(9))]) for _ in range(20)
        ]
        cuts = sorted(generator.randrange(21) for _ in range(5))
        data = bytearray(b"".join(frame(b"".join(pieces[a:b])) for a, b in zip(cuts, cuts[1:], strict=False)))
        kind = generator.randrange(4)
        if kind == 1:
            del data[generator.randrange(len(data)) :]
        elif kind == 2:
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        elif kind == 3:
            data[generator.randrange(0, len(data), 4) :][:4] = b""
        path.write_bytes(data)
        expected = read_all(path)
        assert find_all(bytes(data)) == expected
        refused += isinstance(expected, int)
    assert refused > 5


@in_native
def test_messages_agree(monkeypatch):
    generator = random.Random(9)
    made = []
    for _ in range(300):
        data = bytearray(b"".join(frame(generator.choice([MAGIC + b"a", b"abc", b""])) for _ in range(4)))
        data[generator.randrange(len(data))] = generator.randrange(256)
        data = bytes(data[: generator.randrange(len(data) + 1)])
        final = generator.random() < 0.5
        made.append((outcome(RecordsFunctor(data, final=final)), data, final))
    monkeypatch.setattr(native, "core", None)
    for found, data, final in made:
        assert found == outcome(RecordsFunctor(data, final=final))
