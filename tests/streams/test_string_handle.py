"""StringHandle: like bytes in every way that copies nothing, over the memory of bytes, tensors, buffers and C++."""

import gc
import pickle
import weakref

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, precondition, rule

from dpmodule import native
from dpmodule.base import ArgumentError, BoundsError, StateError
from dpmodule.native import string_handle as fallback
from dpmodule.streams import StringHandle
from helpers.both_backends import in_native
from helpers.machines import examples, play
from helpers.programs import again_without_native

KINDS = {"python": fallback.StringHandle}
if native.core is not None:
    KINDS["native"] = native.core.StringHandle

every_kind = pytest.mark.parametrize("kind", list(KINDS.values()), ids=list(KINDS))


def address(data):
    return np.frombuffer(memoryview(data), np.uint8).ctypes.data


# --- any order of calls

SOURCES = {
    "bytes": lambda text: text,
    "bytearray": bytearray,
    "array": lambda text: np.array(bytearray(text), np.uint8),
    "tensor": lambda text: torch.tensor(list(text), dtype=torch.uint8),
    "shared tensor": lambda text: torch.tensor(list(text), dtype=torch.uint8).share_memory_(),
}


class AnyOrder(RuleBasedStateMachine):
    """Handles and views of them, each beside the bytes of its source and its place there."""

    handles, views = Bundle("handles"), Bundle("views")

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    @rule(target=handles, text=st.binary(max_size=40), name=st.sampled_from(list(SOURCES)))
    def make(self, text, name):
        source = SOURCES[name](text)
        handle = self.kind(source)
        assert handle.source is source
        if text:
            assert address(handle) == (address(source) if not torch.is_tensor(source) else source.data_ptr())
        return handle, source, slice(0, len(text))

    def bytes_of(self, made):
        _, source, where = made
        return bytes(source.numpy() if torch.is_tensor(source) else source)[where]

    @rule(target=handles, made=handles, cut=st.slices(50).map(lambda cut: slice(cut.start, cut.stop)))
    def cut(self, made, cut):
        handle, source, where = made
        begin, end, _ = cut.indices(len(handle))
        part = handle[cut]
        assert (part.source is source, part.offset) == (True, where.start + begin)
        return part, source, slice(where.start + begin, where.start + max(begin, end))

    @rule(target=handles, made=handles)
    def make_of_a_handle(self, made):
        return self.kind(made[0]), *made[1:]

    @rule(target=views, made=handles)
    def view(self, made):
        view = memoryview(made[0])
        assert (view.readonly, view.format, view.ndim, view.nbytes) == (True, "B", 1, len(made[0]))
        return view, *made[1:]

    @rule(made=handles, index=st.integers(0, 39), value=st.integers(0, 255))
    def write(self, made, index, value):
        source = made[1]
        if not isinstance(source, bytes) and index < len(source):
            source[index] = value  # the handle shows it

    @rule(made=st.one_of(handles, views))
    def read(self, made):
        assert bytes(made[0]) == self.bytes_of(made)

    @rule(made=handles, index=st.integers(-50, 50), other=st.binary(max_size=3))
    def compare(self, made, index, other):
        handle, text = made[0], self.bytes_of(made)
        assert handle == text
        assert text == handle
        assert hash(handle) == hash(text)
        assert list(handle) == list(text)
        assert (len(handle), bool(handle)) == (len(text), bool(text))
        assert (other in handle) == (other in text)
        assert (handle == other, handle != other) == (text == other, text != other)
        if -len(text) <= index < len(text):
            assert handle[index] == text[index]
            assert text[index] in handle
        else:
            with pytest.raises(BoundsError, match="outside of its"):
                handle[index]

    @precondition(lambda self: self.kind is StringHandle)
    @rule(made=handles, protocol=st.integers(2, pickle.HIGHEST_PROTOCOL))
    def pickle(self, made, protocol):
        again = pickle.loads(pickle.dumps(made[0], protocol))
        assert type(again) is StringHandle
        assert bytes(again) == self.bytes_of(made)
        assert not made[0] or address(again) != address(made[0])

    @rule(made=consumes(handles))
    def drop(self, made):
        if isinstance(made[1], bytearray):
            with pytest.raises(BufferError):
                made[1].append(1)


@every_kind
@examples(60, 3000)
def test_any_order_of_calls(kind, examples):
    play(lambda: AnyOrder(kind), examples)


# --- sources


@every_kind
def test_memory_is_kept_by_slices_and_views_alone(kind):
    tensor = torch.arange(100, dtype=torch.uint8)
    alive = weakref.ref(tensor)
    part = kind(tensor)[10:20]
    view = memoryview(part)
    del tensor, part
    gc.collect()
    assert (alive() is not None, bytes(view)) == (True, bytes(range(10, 20)))
    view.release()
    del view
    gc.collect()
    assert alive() is None


@every_kind
def test_sources_of_other_shapes_and_types(kind):
    text = bytes(range(256)) * 4
    for source in (
        memoryview(b"ab" + text)[2:],
        np.frombuffer(text, np.int32).reshape(16, 16),
        torch.tensor(list(text), dtype=torch.uint8).view(32, 32),
        StringHandle(text),
    ):
        assert kind(source) == text
    for source in (torch.empty(0, dtype=torch.uint8), np.empty((0, 3)), kind(b"abc")[3:]):
        handle = kind(source)
        assert (len(handle), bytes(handle), handle == b"", hash(handle)) == (0, b"", True, hash(b""))
        assert memoryview(handle).nbytes == 0
    assert kind(b"abc") == bytearray(b"abc")
    assert kind(b"abc") not in ("abc", 3, None)
    assert repr(kind(b"abc\0")) == r"StringHandle(b'abc\x00')"
    assert repr(kind(b"a" * 10**6)) == "<StringHandle b'aaaaaaaaaaaaaaaa'... of 1000000 bytes>"


@every_kind
def test_what_bytes_cannot_do_or_would_copy_is_refused(kind):
    for use, error, text in (
        (lambda handle: handle[::2], ArgumentError, r"step 2 would be a copy; write bytes\(handle\)"),
        (lambda handle: memoryview(handle).__setitem__(0, 1), TypeError, None),
        (lambda handle: handle["a"], TypeError, None),
        (lambda handle: 256 in handle, ArgumentError, "0 to 255"),
        (lambda handle: "a" in handle, TypeError, None),
        (lambda handle: handle < b"b", TypeError, None),
    ):
        with pytest.raises(error, match=text):
            use(kind(b"abcdef"))


USES = [lambda h: h[0], lambda h: h[1:3], lambda h: h == b"", hash, repr]


@every_kind
@pytest.mark.parametrize(
    "move", [lambda t: t.share_memory_(), lambda t: t.set_(t.clone())], ids=["share", "set"]
)
def test_tensor_whose_memory_has_moved_is_noticed(kind, move):
    tensor = torch.arange(64, dtype=torch.uint8)
    handle = kind(tensor)
    move(tensor)
    for use in USES if kind is KINDS["python"] else [*USES, memoryview, lambda h: h.__dpmodule_bytes__()]:
        with pytest.raises(StateError, match="memory has moved"):
            use(handle)


# --- those who read


@in_native
def test_an_owner_of_bytes_gives_its_capsule():
    given = [StringHandle(b"text").__dpmodule_bytes__(), 3]
    owner = type("Owner", (), {"__dpmodule_bytes__": lambda self: given.pop(0)})()
    assert StringHandle(owner) == b"text"
    with pytest.raises(TypeError):
        StringHandle(owner)


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    """But for the handles in Python that are tried above, beside those of the extension."""
    again_without_native(__file__, "-k", "not python")
