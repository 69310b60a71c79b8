"""Records in pieces of record files, against what `mx.recordio` reads and refuses."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpmodule.base import FileFormatError
from dpmodule.recordio.framing import MAGIC, frame
from dpmodule.streams import RecordsFunctor, StringHandle
from helpers.functors import with_backend
from helpers.walk import walks

WITH_MAGIC = st.lists(st.sampled_from([MAGIC, b"abcd", b"x"]), max_size=6).map(b"".join)


@with_backend(100)
@given(payloads=st.lists(st.binary(max_size=30) | WITH_MAGIC, max_size=8), data=st.data())
def test_payloads_come_back_from_pieces_that_end_anywhere(backend, payloads, data):
    frames = [frame(payload) for payload in payloads]
    whole = b"".join(frames)
    assert RecordsFunctor(whole, final=True).run() == (payloads, len(whole))
    cut = data.draw(st.integers(0, len(whole)))
    found = RecordsFunctor(whole[:cut]).run()
    ends = [sum(map(len, frames[: i + 1])) for i in range(len(frames))]
    complete = sum(end <= cut for end in ends)
    assert found == (payloads[:complete], ends[complete - 1] if complete else 0)
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


def test_last_record_may_lack_its_padding_only_at_the_end(backend):
    data = frame(b"abc") + frame(b"12345")
    assert RecordsFunctor(data[:-3], final=True).run() == ([b"abc", b"12345"], len(data) - 3)
    assert RecordsFunctor(data[:-3]).run() == ([b"abc"], 12)


HEAD = "the head of a record, 8 bytes, expected, but"
PART = MAGIC + b"\4\0\0\x20abcd"


@walks(
    [
        (b"PK\3\4....", False, r"1000: no record begins here: 'PK\x03\x04' in place of '\x0a#\xd7\xce'"),
        (frame(b"ok") + b"\0" * 8, False, "1012: no record begins here"),
        (PART + frame(b""), False, "1012: a part of kind 0 is not allowed here"),
        (MAGIC + b"\0\0\0\xe0", False, "1000: a part of kind 7 is not allowed here"),
        (frame(b"ok") + MAGIC, True, f"1012: {HEAD} 4 are left"),
        (frame(b"payload")[:-4], True, "1000: 7 bytes of payload expected, but 4 are left"),
        (PART, True, f"1012: {HEAD} 0 are left"),
    ]
)
def test_damage_is_told_with_its_byte(data, final, text, backend):
    with pytest.raises(FileFormatError, match="^" + re.escape(f"a.rec: byte {text}")):
        RecordsFunctor(data, source="a.rec", offset=1000, final=final).run()
