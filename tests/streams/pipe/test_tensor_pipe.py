"""Tensor pipes: any order of calls beside a model, what arrives, what is copied, how a pipe ends. Both cores."""

import collections
import contextlib
import dataclasses
import functools
import threading

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dpmodule._core import torch_private
from dpmodule.base import ArgumentError, StateError
from dpmodule.streams import PipeBroken, PipeClosed, PipeTimeout, StructureError, nested
from dpmodule.streams.pipe.layout import CODES
from helpers.machines import examples, play
from helpers.pipes import Pair, make, pipe, same, structures
from helpers.walk import walks

# --- any order of calls


@st.composite
def any_tensor(draw):
    dtypes = [torch.float32, torch.bool, torch.bfloat16, torch.complex64, torch.int64, torch.uint8]
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    value = torch.randint(0, 2, shape).to(draw(st.sampled_from(dtypes)))
    if value.ndim and draw(st.booleans()):
        value = value.permute(*draw(st.permutations(range(value.ndim))))[:: draw(st.integers(1, 3))]
    if draw(st.booleans()):
        value = value.unsqueeze(0).expand(draw(st.integers(1, 3)), *value.shape)
    return value.clone().share_memory_() if draw(st.integers(0, 5)) == 0 else value


STRUCTURES = structures(st.one_of(st.none(), any_tensor()), 6)


def holds_memory(value):
    return any(leaf.numel() for leaf in nested.flatten(value)[1])


class AnyOrder(RuleBasedStateMachine):
    """Both ends of a pipe, and beside them what is on its way, what is held of what has come, and who has closed."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    @initialize(slots=st.integers(1, 3))
    def begin(self, slots):
        self.slots, (self.reader, self.writer) = slots, make(self.core, slots)
        self.sent, self.held, self.leased, self.closed = collections.deque(), [], None, set()

    def refuses(self, waits=True):
        """Return the error that a call of the writer must raise now, None if it must not."""
        if self.leased is not None:
            return pytest.raises(StateError, match="commit")
        if "writer" in self.closed:
            return pytest.raises(PipeClosed, match="this writer is closed")
        if "reader" in self.closed:
            return pytest.raises(PipeClosed, match="the reader closed")
        used = sum(kind == "value" for kind, _ in self.sent) + len(self.held)
        if waits and used == self.slots:
            return pytest.raises(PipeTimeout, match=f"all {self.slots} slots")
        return None

    @rule(value=STRUCTURES)
    def send(self, value):
        if error := self.refuses():
            with error:
                self.writer.send(value, timeout=0.002)
        else:
            self.writer.send(value, timeout=10)
            self.sent.append(("value", value))

    @rule(value=st.sampled_from([3, {"a": "x"}, [torch.ones(2, device="meta")]]))
    def send_what_cannot_be_sent(self, value):
        if self.leased is None and not self.closed:
            with pytest.raises(StructureError):
                self.writer.send(value)  # at once, even if all slots are in use

    @rule(keep=st.booleans())
    def receive(self, keep):
        if "reader" in self.closed:
            with pytest.raises(PipeClosed, match="this reader is closed"):
                self.reader.recv()
        elif not self.sent and "writer" in self.closed:
            with pytest.raises(PipeClosed, match="the writer closed"):
                self.reader.recv()
        elif not self.sent:
            with pytest.raises(PipeTimeout, match="the writer sent nothing"):
                self.reader.recv(timeout=0.002)
        elif self.sent[0][0] == "error":
            with pytest.raises(KeyError, match=self.sent.popleft()[1]):
                self.reader.recv(timeout=10)
        else:
            _, expected = self.sent.popleft()
            value = self.reader.recv(timeout=10)
            assert same(expected, value)
            if keep and holds_memory(expected):
                self.held.append((value, expected))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data):
        del self.held[data.draw(st.integers(0, len(self.held) - 1))]

    @rule(size=st.integers(1, 2000))
    def acquire(self, size):
        like = {"x": torch.empty(size, 2, device="meta"), "y": [torch.empty(3, dtype=torch.int64), None]}
        if error := self.refuses():
            with error:
                self.writer.acquire(like, timeout=0.002)
            return
        self.leased = self.writer.acquire(like, timeout=10)
        assert self.leased["x"].shape == (size, 2)
        assert self.leased["x"].is_contiguous()
        self.leased["x"].copy_(torch.arange(2 * size).view(size, 2))
        self.leased["y"][0].fill_(-size)

    @rule(how=st.sampled_from(["whole", "parts", "other", "wrong", "release"]))
    def commit(self, how):
        if self.leased is None:
            error, text = (PipeClosed, "closed") if "writer" in self.closed else (StateError, "no slot is")
            with pytest.raises(error, match=text):
                self.writer.release() if how == "release" else self.writer.commit()
            return
        if how == "wrong":
            with pytest.raises(StructureError, match="structure is int 3"):
                self.writer.commit(3)
            return
        if how == "release":
            self.leased = self.writer.release()
            return
        value, x = self.leased, self.leased["x"]
        if how in ("parts", "other"):
            parts = {"x": x[::2, 1:], "y": [torch.full((3,), 7), None]}
            value = parts if how == "parts" else {"other": x, "big": torch.ones(9000)}
        expected = torch.utils._pytree.tree_map(lambda x: x if x is None else x.clone(), value)
        self.writer.commit(None if how == "whole" else value)
        self.sent.append(("value", expected))
        self.leased = None

    @precondition(lambda self: self.leased is None and len(self.sent) < 8)
    @rule(text=st.text("abc", min_size=1))
    def throw(self, text):
        if error := self.refuses(waits=False):
            with error:
                self.writer.throw(KeyError(text))
        else:
            self.writer.throw(KeyError(text))
            self.sent.append(("error", text))

    @precondition(lambda self: self.leased is None)
    @rule(which=st.sampled_from(["reader", "writer"]), again=st.integers(0, 3))
    def close(self, which, again):
        if again == 0 or which in self.closed:  # not too soon
            getattr(self, which).close()
            self.closed.add(which)
            assert getattr(self, which).closed

    @invariant()
    def nothing_is_written_into_what_is_held(self):
        assert all(same(expected, value) for value, expected in getattr(self, "held", ()))

    def teardown(self):
        if hasattr(self, "held"):
            self.writer.close()
            self.reader.close()
            self.nothing_is_written_into_what_is_held()  # which outlives the pipe


@examples(60, 3000)
def test_any_order_of_calls(core, examples):
    play(lambda: AnyOrder(core), examples, steps=30)


# --- what arrives


def tensors():
    x, z = torch.arange(24.0).view(4, 6), torch.randn(3, dtype=torch.complex64)
    bits = torch.arange(1, 97, dtype=torch.uint8) % 101
    return {
        **{str(dtype): (bits % 2 if dtype is torch.bool else bits).view(dtype) for dtype in CODES},
        "column": x[:, 1],
        "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "no elements either": torch.empty(3, 0, 2).transpose(0, 2),
        "one element with odd strides": torch.ones(9).as_strided((1, 1), (7, 3)),
        "computed": torch.ones(3, requires_grad=True) * 2,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "conjugate": z.conj(),
        "imaginary part of a conjugate": z.conj().imag,
        "negative": torch._neg_view(torch.ones(3)),
        "many axes": torch.zeros([1] * 64),
        "of a class of its own": torch.arange(3).as_subclass(type("Own", (torch.Tensor,), {})),
    }


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@walks(list(tensors()))
def test_all_sorts_of_tensors_arrive(name, core):
    value = tensors()[name]
    with pipe(core) as (reader, writer):
        for _ in range(3):
            writer.send([value])
            found = reader.recv()[0]
            assert same(value, found)
            assert type(found) is torch.Tensor
            assert found.is_leaf
            assert not found.requires_grad


def test_every_type_that_this_torch_computes_with_is_known():
    usable = {v for v in vars(torch).values() if isinstance(v, torch.dtype)} - set(CODES)
    assert not [d for d in usable if not any(t in str(d) for t in (".q", ".bits", ".uint", ".int"))]


# --- slots


def test_a_slot_stays_in_use_until_the_last_view_is_gone(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.send([torch.ones(3), torch.zeros(2)])
        held = reader.recv()[0].view(3, 1)[1:]
        for _ in range(2):
            with pytest.raises(PipeTimeout):
                writer.send(None, timeout=0.01)
            assert held.sum() == 2
            held = held.numpy() if isinstance(held, torch.Tensor) else None
        writer.send(None, timeout=10.0)


def test_received_tensors_may_be_dropped_in_any_thread(core):
    box, ended = [], threading.Event()

    def drop():
        while not ended.is_set():
            box.clear()

    with pipe(core, slots=4) as (reader, writer):
        thread = threading.Thread(target=drop)
        thread.start()
        for i in range(300):
            writer.send({"a": torch.full((8,), float(i)), "b": torch.ones(1)}, timeout=10.0)
            box.append(reader.recv(timeout=10.0))
        ended.set()
        thread.join()


# --- copies, no copies, new memory


def test_memory_is_new_only_where_the_old_does_not_fit(core):
    for slots, slack, values, queued in (
        (1, 1.0, [torch.ones(n * 1024) for n in range(1, 11)], [10]),  # without slack each time
        (2, 1.5, [[torch.ones(3)], {"a": torch.ones(2)}] * 10, range(5)),  # a slot for each
        (2, 1.5, [torch.ones(64 + 3 * n, 8) for n in [*range(200), 1, 150]], range(11)),  # a few times
        (1, 1.5, [torch.ones(24), torch.ones(4, 6).double()[:2], torch.ones(24) > 0, torch.ones(2, 3)], [1]),
    ):
        with pipe(core, slots=slots, slack=slack) as (reader, writer):
            for value in values:
                writer.send(value)
                assert same(value, reader.recv())
            assert writer.stats.queued in queued
            assert writer.stats.sent == len(values)


def test_shared_memory_is_seen_without_copies(core):
    with pipe(core) as (reader, writer):
        big, small = torch.zeros(1 << 16).share_memory_(), torch.zeros(2).share_memory_()
        for i in range(10):
            writer.send([big, big[i : i + 2], big.view(256, 256).t(), small])
            whole, part, turned, little = reader.recv()
            big[i] = small[1] = i + 1.0  # after it was sent
            assert part[0] == whole[i] == little[1] == i + 1.0
            assert (turned.shape, turned.stride()) == ((256, 256), (1, 256))
        assert (writer.stats.zero_copy, writer.stats.copied) == (40, 0)


def test_shared_memory_is_let_go_of_with_its_owner(core):
    with pipe(core) as (reader, writer):
        for i in range(200):
            big = torch.full((1 << 15,), float(i)).share_memory_()
            writer.send(big)
            assert reader.recv()[5] == i
            del big  # other memory comes to lie at this address
        assert len(writer._blocks._blocks) <= 2


def test_shared_blocks_beyond_the_limit_are_copied(core):
    with pipe(core) as (reader, writer):
        many = [torch.full((4,), float(i)).share_memory_() for i in range(70)]
        for _ in range(2):
            writer.send(many)
            assert same(many, reader.recv())
        assert writer.stats.copied == 2 * 6


def test_without_torchs_private_functions_shared_memory_is_copied(core):
    torch_private.select(public=True)
    try:
        with pipe(core) as (reader, writer):
            shared = torch.ones(1 << 16).share_memory_()
            for _ in range(2):
                writer.send(shared)
                value = reader.recv()
                shared += 1
                assert value[0] == shared[0] - 1
                del value
            assert writer.stats.copied == 2
    finally:
        torch_private.select()


# --- filling in place


def test_what_is_filled_in_place_is_not_copied(core):
    with pipe(core) as (reader, writer):
        with pytest.raises(StateError, match="no slot is acquired"):
            writer.release()
        with pytest.raises(StateError, match="nothing was sent yet"):
            writer.acquire()
        for i in range(5):
            value = writer.acquire(None if i else [torch.empty(10, device="meta"), torch.empty(4)])
            value[0].copy_(torch.arange(10.0) + i)
            value[1].fill_(-i)
            writer.commit([value[0][2:9:3], torch.full((2, 2), 5.0)] if i == 4 else None)
            del value
            got = reader.recv()
            assert i == 4 or got[1].tolist() == [-i] * 4
        assert same(got, [torch.tensor([6.0, 9.0, 12.0]), torch.full((2, 2), 5.0)])
        assert (writer.stats.zero_copy, writer.stats.copied) == (9, 1)
        assert writer.stats.queued <= 2


def test_parts_may_change_places(core):
    with pipe(core) as (reader, writer):
        for turned in (True, False):
            value = writer.acquire([torch.empty(3), torch.empty(3)])
            value[0].fill_(1)
            value[1].fill_(2)
            nine = torch.full((3,), 9.0)
            writer.commit(value[::-1] if turned else [nine, value[0]])  # copied to where the other leaf lies
            expected = torch.full((3,), 2.0) if turned else nine
            assert same(reader.recv(), [expected, torch.ones(3)])


# --- refusals


LOOP = []
LOOP.append(LOOP)
DEEP = functools.reduce(lambda value, _: [value], range(100_000), None)
AT_ONCE = [
    (LOOP, "contains itself"),
    ([torch.ones(1).to_sparse()], "sparse"),
    (DEEP, "(?s)^.{,200}nested deeper than 200 levels.{,100}$"),
]
UNSENDABLE = [
    *AT_ONCE,
    (dataclasses.make_dataclass("Inside", ["x"])(None), "Inside"),
    ([torch.zeros([1] * 65)], r"structure\[0\] is a tensor of 65 axes; expected 64 at most"),
    *((torch.empty(3, dtype=getattr(torch, t)), t) for t in ("int4", "uint2", "bits8") if hasattr(torch, t)),
]


@pytest.mark.parametrize("number", range(len(UNSENDABLE)))
def test_what_cannot_be_sent_is_refused_and_costs_no_slot(core, number):
    value, text = UNSENDABLE[number]
    with pipe(core, slots=1) as (reader, writer):
        for _ in range(2):
            with pytest.raises(StructureError, match=text):
                writer.send(value)
            writer.send([torch.ones(1)], timeout=10.0)
            if number < len(AT_ONCE):
                with pytest.raises(StructureError, match=text):
                    writer.send(value)  # all slots are in use: it does not wait for one
            assert same(reader.recv(), [torch.ones(1)])


def test_a_structure_that_changes_while_it_is_sent_is_refused(core, monkeypatch):
    sizes = [1024]
    growing = property(lambda self: torch.ones(sizes.append(2 * sizes[-1]) or sizes[-1]))
    fickle = type("Fickle", (Pair,), {"left": growing, "right": None})
    monkeypatch.setitem(globals(), "Fickle", fickle)
    with pipe(core, slack=1.0) as (reader, writer):
        with pytest.raises(StructureError, match="changed while it was being sent"):
            writer.send(fickle.__new__(fickle))
        writer.send(None)
        assert reader.recv() is None


def test_wrong_arguments_are_named(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.claim()
        for call, args, text in (
            (reader.recv, ["1"], "timeout is '1', expected a number of seconds"),
            (reader.recv, [float("nan")], "timeout is nan, expected a number of seconds"),
            (writer.throw, [3], "throw: error is .*expected an exception object"),
            (writer.throw, [ValueError], "throw: error is .*expected an exception object"),
            *((reader.hand_over, [pid], "hand_over: pid is .*expected the process id") for pid in ("x", 0)),
        ):
            with pytest.raises(ArgumentError, match=text):
                call(*args)


# --- the end


@pytest.mark.parametrize("which", ["reader", "writer"])
def test_closing_wakes_whoever_waits_in_another_thread(core, which):
    with pipe(core) as (reader, writer):
        writer.send(None)
        reader.recv()
        threading.Timer(0.05, reader.close if which == "reader" else writer.close).start()
        with pytest.raises(PipeClosed, match=which):
            reader.recv(timeout=10.0)


def test_an_end_that_is_dropped_unclosed_is_broken_not_closed(core):
    reader, writer = make(core)
    writer.send(torch.ones(1))
    ends = [writer]
    del writer
    with pytest.warns(ResourceWarning, match="writer was dropped"):
        ends.clear()
    assert reader.recv() == 1
    with pytest.raises(PipeBroken, match="dropped without close"):
        reader.recv()
    reader.close()


def test_a_failure_has_its_traceback_and_failures_do_not_pile_up(core):
    with pipe(core) as (reader, writer):
        try:
            raise KeyError("no such file")
        except KeyError as error:
            writer.throw(error)
        for i in range(63):
            writer.throw(ValueError(i))
        with pytest.raises(StateError, match="has not received the last 64 exceptions"):
            writer.throw(ValueError())
        with pytest.raises(KeyError, match="no such file") as caught:
            reader.recv()
        assert "test_tensor_pipe.py" in str(caught.value.__cause__)
        for i in range(63):
            with pytest.raises(ValueError, match=f"^{i}$"):
                reader.recv()
        writer.throw(ValueError("again"))


def test_leaving_the_block_tells_the_reader_how(core):
    for error, received in (
        (None, [PipeClosed]),
        (ZeroDivisionError, [ZeroDivisionError, PipeClosed]),
        (KeyboardInterrupt, [PipeBroken]),
    ):
        reader, writer = make(core)
        with pytest.raises(error) if error else contextlib.nullcontext(), writer:
            writer.send(None)
            if error:
                raise error("in the producer")
        assert reader.recv() is None
        for each in received:
            with pytest.raises(each):
                reader.recv()
        reader.close()
        assert issubclass(PipeClosed, EOFError)


# --- threads and loops
