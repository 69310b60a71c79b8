"""StringHandle: like bytes in every way that copies nothing, over the memory of bytes, tensors, buffers and C++."""

import asyncio
import gc
import hashlib
import mmap
import pickle
import socket
import sys
import warnings
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule import native
from dpmodule.base import ArgumentError, BoundsError, DTypeError, StateError
from dpmodule.native import string_handle as fallback
from dpmodule.streams import CompressFunctor, StringHandle
from helpers.both_backends import descriptors, in_native, measures_memory, resident_bytes
from helpers.loops import every_loop, run
from helpers.programs import again_without_native

KINDS = {"python": fallback.StringHandle}
if native.core is not None:
    KINDS["native"] = native.core.StringHandle

every_kind = pytest.mark.parametrize("kind", list(KINDS.values()), ids=list(KINDS))


def address(data):
    return np.frombuffer(memoryview(data), np.uint8).ctypes.data


def strings():
    """Different sources of the same bytes."""
    text = bytes(range(256)) * 4
    return {
        "bytes": text,
        "bytearray": bytearray(text),
        "memoryview": memoryview(b"ab" + text)[2:],
        "array": np.frombuffer(text, np.int32).reshape(16, 16),
        "tensor": torch.tensor(list(text), dtype=torch.uint8).view(32, 32),
        "shared tensor": torch.tensor(list(text), dtype=torch.uint8).share_memory_(),
        "handle": StringHandle(text),
    }


@every_kind
@pytest.mark.parametrize("name", strings())
def test_every_source_reads_as_bytes_without_a_copy(kind, name):
    source, text = strings()[name], bytes(range(256)) * 4
    handle = kind(source)
    where = source.data_ptr() if isinstance(source, torch.Tensor) else address(source)
    assert (len(handle), bytes(handle), address(handle)) == (1024, text, where)
    assert handle == text
    assert text == handle
    assert hash(handle) == hash(text)
    view = memoryview(handle)
    assert (view.readonly, view.format, view.ndim, view.nbytes) == (True, "B", 1, 1024)


@every_kind
def test_source_and_offset_tell_where_the_bytes_are(kind):
    text = b"0123456789"
    handle = kind(text)
    assert handle.source is text
    part = handle[2:9][3:]
    assert (part.source is text, part.offset, bytes(part)) == (True, 5, b"5678")


def test_memory_of_a_functor_has_no_source_in_python():
    handle = CompressFunctor(b"a" * 100).run()
    assert bytes(handle[:2]) == b"\x1f\x8b"
    if native.core is not None:
        assert handle.source is None


@every_kind
def test_slices_and_views_keep_the_memory_alive(kind):
    tensor = torch.arange(100, dtype=torch.uint8)
    alive = weakref.ref(tensor)
    part = kind(tensor)[10:20]
    view = memoryview(part)
    del tensor
    gc.collect()
    assert (alive() is not None, bytes(part), bytes(view)) == (
        True,
        bytes(range(10, 20)),
        bytes(range(10, 20)),
    )
    del part
    gc.collect()
    assert alive() is not None
    view.release()
    del view
    gc.collect()
    assert alive() is None


@every_kind
def test_handle_shows_what_is_written_to_its_tensor(kind):
    tensor = torch.zeros(8, dtype=torch.uint8)
    handle = kind(tensor)
    before = hash(handle)
    tensor[0] = 65
    assert handle[0] == 65
    assert handle == b"A" + bytes(7)
    assert hash(handle) == hash(b"A" + bytes(7)) != before


@every_kind
def test_bytearray_cannot_move_while_a_handle_is_over_it(kind):
    data = bytearray(b"abc")
    handle = kind(data)
    with pytest.raises(BufferError):
        data.append(1)
    del handle
    gc.collect()
    data.append(1)


@every_kind
def test_mapped_file_is_read_in_place(kind, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"mapped file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        handle = kind(mapped)
        assert bytes(handle[7:]) == b"file"
        del handle
        gc.collect()


@pytest.mark.timeout(120)  # many examples, which take their time on a busy machine
@every_kind
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_slices_indices_and_comparisons_are_those_of_bytes(kind, data):
    text = data.draw(st.binary(max_size=40))
    handle = kind(text)
    cut = data.draw(st.slices(50).map(lambda s: slice(s.start, s.stop)))
    part, expected = handle[cut], text[cut]
    assert bytes(part) == expected
    assert part == expected
    assert part == kind(expected)
    assert hash(part) == hash(expected)
    assert list(part) == list(expected)
    assert (len(part), bool(part)) == (len(expected), bool(expected))
    other = data.draw(st.binary(max_size=3))
    assert (other in handle) == (other in text)
    assert (handle == other, handle != other) == (text == other, text != other)
    index = data.draw(st.integers(-50, 50))
    if -len(text) <= index < len(text):
        assert handle[index] == text[index]
        assert text[index] in handle
    else:
        with pytest.raises(BoundsError, match="outside of its"):
            handle[index]


@every_kind
def test_empty_handle(kind):
    for source in (b"", bytearray(), torch.empty(0, dtype=torch.uint8), np.empty((0, 3)), kind(b"abc")[3:]):
        handle = kind(source)
        assert (len(handle), bytes(handle), list(handle), handle == b"", hash(handle)) == (
            0,
            b"",
            [],
            True,
            hash(b""),
        )
        assert memoryview(handle).nbytes == 0


@every_kind
def test_handles_are_unequal_to_what_is_not_bytes(kind):
    handle = kind(b"abc")
    assert handle != "abc"
    assert handle != 3
    assert handle is not None
    assert handle == bytearray(b"abc")
    assert handle == memoryview(b"abc")
    with pytest.raises(TypeError):
        handle < b"b"  # noqa: B015


@every_kind
@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ("abc", DTypeError, r"str.*encode"),
        (7, DTypeError, "int, expected bytes"),
        (None, DTypeError, "NoneType"),
        (torch.zeros(3), DTypeError, r"torch.float32.*view\(torch.uint8\)"),
        (torch.zeros(4, 4, dtype=torch.uint8)[:, 1], ArgumentError, r"not contiguous; call contiguous"),
        (np.zeros((4, 4), np.uint8)[:, 1], ArgumentError, "ndarray that is not contiguous"),
        (memoryview(b"abcdef")[::2], ArgumentError, "not contiguous"),
    ],
    ids=["text", "number", "none", "float tensor", "strided tensor", "strided array", "strided view"],
)
def test_what_is_no_bytes_is_refused(kind, data, error, text):
    with pytest.raises(error, match=text):
        kind(data)


@every_kind
def test_slices_with_a_step_and_writes_are_refused(kind):
    handle = kind(b"abcdef")
    with pytest.raises(ArgumentError, match=r"step 2 would be a copy; write bytes\(handle\)"):
        handle[::2]
    with pytest.raises(ArgumentError, match="step -1"):
        handle[::-1]
    with pytest.raises((TypeError, ValueError)):
        handle[0] = 1
    with pytest.raises((TypeError, ValueError)):
        memoryview(handle)[0] = 1
    with pytest.raises(TypeError):
        handle["a"]
    with pytest.raises(ArgumentError, match="0 to 255"):
        assert 256 in handle
    with pytest.raises(TypeError):
        assert "a" in handle


@every_kind
@pytest.mark.parametrize(
    "move", [lambda t: t.share_memory_(), lambda t: t.set_(t.clone())], ids=["share", "set"]
)
def test_tensor_whose_memory_has_moved_is_noticed(kind, move):
    tensor = torch.arange(64, dtype=torch.uint8)
    handle = kind(tensor)
    move(tensor)
    for use in (
        lambda: handle[0],
        lambda: handle[1:3],
        lambda: handle == b"",
        lambda: hash(handle),
        lambda: repr(handle),
    ):
        with pytest.raises(StateError, match="memory has moved"):
            use()


@in_native
def test_view_of_a_tensor_whose_memory_has_moved_is_refused():
    tensor = torch.arange(64, dtype=torch.uint8)
    handle = StringHandle(tensor)
    tensor.share_memory_()
    with pytest.raises(StateError, match="memory has moved"):
        memoryview(handle)
    with pytest.raises(StateError, match="memory has moved"):
        handle.__dpmodule_bytes__()


@every_kind
def test_repr_is_short(kind):
    assert repr(kind(b"abc\0")) == r"StringHandle(b'abc\x00')"
    assert repr(kind(b"a" * 10**6)) == "<StringHandle b'aaaaaaaaaaaaaaaa'... of 1000000 bytes>"


def test_plain_pickle_is_by_value():
    tensor = torch.arange(50, dtype=torch.uint8).share_memory_()
    for handle in (StringHandle(b"abc"), StringHandle(tensor)[5:], StringHandle(b"")):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(handle, protocol))
            assert type(again) is StringHandle
            assert again == handle
            assert address(again) != address(handle) or len(handle) == 0


@in_native
def test_capsules_carry_bytes_from_and_to_cpp():
    text = b"some text"
    handle = StringHandle(text)
    capsule = handle[5:].__dpmodule_bytes__()
    again = StringHandle(capsule)
    where = address(handle)
    del handle, capsule
    gc.collect()
    assert (bytes(again), address(again), again.source) == (b"text", where + 5, None)

    class Owner:
        def __dpmodule_bytes__(self):
            return again.__dpmodule_bytes__()

    assert StringHandle(Owner()) == b"text"


@in_native
def test_object_of_another_library_gets_a_clear_answer():
    class Odd:
        def __dpmodule_bytes__(self):
            return 3

    with pytest.raises(TypeError):
        StringHandle(Odd())


def test_arrays_and_tensors_are_made_without_a_copy():
    source = torch.arange(64, dtype=torch.uint8)
    handle = StringHandle(source)[8:]
    assert np.frombuffer(handle, np.int64).ctypes.data == source.data_ptr() + 8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has no tensors that cannot be written, and says so
        tensor = torch.frombuffer(handle, dtype=torch.uint8)
    assert tensor.data_ptr() == source.data_ptr() + 8
    source[8] = 200
    assert int(tensor[0]) == 200


def test_libraries_read_handles(tmp_path):
    handle = StringHandle(b"xxabcyy")[2:5]
    assert hashlib.sha256(handle).digest() == hashlib.sha256(b"abc").digest()
    assert b"-".join([handle, b"d"]) == b"abc-d"
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(handle)
    assert path.read_bytes() == b"abc"
    one, two = socket.socketpair()
    with one, two:
        one.sendall(handle)
        assert two.recv(10) == b"abc"


@every_loop
def test_transports_of_asyncio_send_handles(new_loop):
    async def main():
        one, two = socket.socketpair()
        reader, unused = await asyncio.open_connection(sock=one)
        _, writer = await asyncio.open_connection(sock=two)
        large = StringHandle(b"z" * 300_000)
        writer.write(memoryview(StringHandle(b"abcd")[1:]))
        writer.writelines([large, StringHandle(b"end")])
        received = asyncio.create_task(reader.readexactly(300_006))
        await writer.drain()
        assert await received == b"bcd" + bytes(large) + b"end"
        for end in (writer, unused):
            end.close()
            await end.wait_closed()

    run(main(), new_loop)


@measures_memory
@every_kind
def test_ten_thousand_handles_leave_nothing(kind):
    tensor = torch.zeros(1 << 16, dtype=torch.uint8)
    text = b"t" * (1 << 16)

    def use():
        for source in (tensor, text):
            handle = kind(source)
            part = handle[100:-100]
            assert len(memoryview(part)) == len(source) - 200
            assert part[5] in (0, ord("t"))
            hash(handle[:50])

    for _ in range(500):
        use()
    before, references, files = resident_bytes(), sys.getrefcount(text), descriptors()
    for _ in range(10_000):
        use()
    assert resident_bytes() - before < 2 << 20
    assert (sys.getrefcount(text), descriptors()) == (references, files)


@measures_memory
def test_ten_thousand_pickles_leave_nothing():
    handle = StringHandle(b"p" * (1 << 14))
    for _ in range(500):
        pickle.loads(pickle.dumps(handle))
    before = resident_bytes()
    for _ in range(10_000):
        pickle.loads(pickle.dumps(handle))
    assert resident_bytes() - before < 2 << 20


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    """But for the handles in Python that are tried above, beside those of the extension."""
    again_without_native(__file__, "-k", "not python")
