"""Tensor pipes: what arrives, when it is valid, what is copied, how it ends. Both cores."""

import asyncio
import collections
import gc
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule._core import torch_private
from dpmodule.base import ArgumentError, StateError
from dpmodule.streams import PipeBroken, PipeClosed, PipeTimeout, StructureError, tensor_pipe
from dpmodule.streams.pipe.layout import CODES
from helpers.loops import run
from helpers.pipes import Frozen, Named, Pair, every_core, make, pipe, same
from helpers.walk import walks


def tensors():
    x = torch.arange(24.0).view(4, 6)
    z = torch.randn(3, dtype=torch.complex64)
    return {
        "transposed": x.t(),
        "sliced": x[::2, 1::3],
        "column": x[:, 1],
        "expanded": torch.ones(1).expand(4, 3),
        "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "no axes": torch.tensor(3),
        "no elements": torch.empty(0, 4),
        "no elements either": torch.empty(3, 0, 2).transpose(0, 2),
        "one element with odd strides": torch.ones(9).as_strided((1, 1), (7, 3)),
        "needs gradient": torch.ones(3, requires_grad=True),
        "computed": torch.ones(3, requires_grad=True) * 2,
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "conjugate": z.conj(),
        "imaginary part of a conjugate": z.conj().imag,
        "negative": torch._neg_view(torch.ones(3)),
        "many axes": torch.ones(1, 2, 1, 2, 1, 2, 1, 2, 1),
        "offset": torch.arange(10)[7:],
        "byte": torch.tensor([1, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False]),
    }


STRUCTURES = [
    None,
    torch.ones(3),
    [None, torch.rand(10), {"x": torch.rand(3), 7: [torch.rand(5, 6)]}],
    Pair([torch.rand(1)], {"a": torch.rand(2, 3)}),
    Frozen(Named(torch.ones(1), None)),
    collections.OrderedDict([("b", torch.ones(1)), ("a", torch.zeros(2))]),
    (),
    [],
    {},
    (torch.arange(5), [()]),
    torch.max(torch.ones(2, 2), dim=1),
]


@every_core
def test_structures_arrive_as_they_were(core):
    with pipe(core) as (reader, writer):
        for value in STRUCTURES * 2:
            writer.send(value)
            assert same(value, reader.recv())


@every_core
@walks(list(tensors()))
def test_all_sorts_of_tensors_arrive(name, core):
    value = tensors()[name]
    with pipe(core) as (reader, writer):
        for _ in range(3):
            writer.send([value])
            found = reader.recv()[0]
            assert same(value, found)
            assert type(found) is torch.Tensor
            assert not found.requires_grad
            assert found.is_leaf


@every_core
@pytest.mark.filterwarnings("ignore:ComplexHalf")
@walks(list(CODES))
def test_all_types_of_elements_arrive(dtype, core):
    size = dtype.itemsize
    bits = torch.arange(1, 1 + 6 * size, dtype=torch.uint8) % (2 if dtype is torch.bool else 101)
    value = bits.view(dtype)
    with pipe(core) as (reader, writer):
        for part in (value, value.view(2, 3), value[::2], value[:0], value[4]):
            writer.send(part)
            assert same(part, reader.recv())


def test_every_type_that_this_torch_computes_with_is_known():
    usable = {v for v in vars(torch).values() if isinstance(v, torch.dtype)}
    left_out = {
        d for d in usable - set(CODES) if not any(t in str(d) for t in (".q", ".bits", ".uint", ".int"))
    }
    assert not left_out


@every_core
@pytest.mark.parametrize("dtype", ["int4", "uint2", "bits8"])
def test_types_without_values_are_refused(core, dtype):
    if not hasattr(torch, dtype):
        pytest.skip("an older torch")
    with pipe(core) as (reader, writer):
        writer.send(torch.ones(3, dtype=torch.int8))
        reader.recv()
        for _ in range(2):
            with pytest.raises(StructureError, match=dtype):
                writer.send(torch.empty(3, dtype=getattr(torch, dtype)))


@every_core
def test_values_of_a_class_of_their_own_arrive_as_tensors(core):
    class Own(torch.Tensor):
        pass

    with pipe(core) as (reader, writer):
        for _ in range(2):
            writer.send(torch.arange(3).as_subclass(Own))
            assert type(reader.recv()) is torch.Tensor


SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def any_tensor(draw):
    dtype = draw(
        st.sampled_from(
            [torch.float32, torch.bool, torch.bfloat16, torch.complex64, torch.int64, torch.uint8]
        )
    )
    value = torch.randint(0, 2, draw(SHAPES)).to(dtype)
    if value.ndim and draw(st.booleans()):
        value = value.permute(*draw(st.permutations(range(value.ndim))))
    if value.ndim and draw(st.booleans()):
        value = value[:: draw(st.integers(1, 3))]
    if draw(st.booleans()):
        value = value.unsqueeze(0).expand(draw(st.integers(1, 3)), *value.shape)
    return value


def structures(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=2).map(tuple),
            st.dictionaries(st.text(max_size=2), inner, max_size=3),
            st.builds(Pair, inner, inner),
        ),
        max_leaves=6,
    )


@pytest.mark.timeout(120)  # many examples, which take their time on a busy machine
@every_core
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_sequence_of_structures_arrives(core, data):
    values = data.draw(st.lists(structures(st.one_of(st.none(), any_tensor())), min_size=1, max_size=6))
    slots = data.draw(st.integers(1, 3))
    with pipe(core, slots) as (reader, writer):
        waiting = collections.deque()
        for value in values * 2:
            writer.send(value)
            waiting.append(value)
            if len(waiting) == slots:
                assert same(waiting.popleft(), reader.recv())
        while waiting:
            assert same(waiting.popleft(), reader.recv())


# --- slots


@every_core
def test_a_slot_stays_in_use_until_the_last_view_is_gone(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.send({"a": torch.ones(3), "b": torch.zeros(2)})
        got = reader.recv()
        part = got["a"].view(3, 1)[1:]
        del got
        with pytest.raises(PipeTimeout):
            writer.send({"a": torch.zeros(3), "b": torch.zeros(2)}, timeout=0.01)
        assert part.sum() == 2
        kept = part.numpy()
        del part
        with pytest.raises(PipeTimeout):
            writer.send({"a": torch.zeros(3), "b": torch.zeros(2)}, timeout=0.01)
        assert kept.sum() == 2
        del kept
        gc.collect()
        writer.send({"a": torch.zeros(3), "b": torch.ones(2)}, timeout=10.0)
        assert reader.recv()["b"].sum() == 2


@every_core
def test_a_writer_that_waits_goes_on_when_a_slot_is_let_go_of(core):
    with pipe(core, slots=2) as (reader, writer):
        for i in range(2):
            writer.send([torch.full((4,), float(i))])
        first = reader.recv()
        timer = threading.Timer(0.05, first.clear)
        timer.start()
        begin = time.monotonic()
        writer.send([torch.full((4,), 2.0)], timeout=10.0)
        assert time.monotonic() - begin > 0.04
        timer.join()
        assert reader.recv()[0].sum() == 4
        assert reader.recv()[0].sum() == 8


@every_core
def test_a_structure_without_tensors_does_not_keep_its_slot(core):
    with pipe(core, slots=1) as (reader, writer):
        for _ in range(5):
            writer.send([None, {}], timeout=10.0)
            assert reader.recv() == [None, {}]


@every_core
def test_tensors_outlive_the_pipe(core):
    reader, writer = make(core)
    writer.send([torch.arange(1000), torch.ones(3)])
    value = reader.recv()
    writer.close()
    reader.close()
    del reader, writer
    gc.collect()
    assert value[0].sum() == 499500
    view = value[1][1:]
    del value
    assert view.tolist() == [1.0, 1.0]


@every_core
def test_received_tensors_may_be_dropped_in_any_thread(core):
    with pipe(core, slots=4) as (reader, writer):
        box = []

        def drop():
            while box[0] is not None:
                if len(box) > 1:
                    box.pop()
            box.clear()

        box.append(())
        thread = threading.Thread(target=drop)
        thread.start()
        for i in range(300):
            writer.send({"a": torch.full((8,), float(i)), "b": torch.ones(1)}, timeout=10.0)
            value = reader.recv(timeout=10.0)
            assert value["a"][0] == i
            box.append(value)
            del value
        box[0] = None
        thread.join()


# --- copies, no copies, new memory


@every_core
def test_data_that_grows_is_laid_out_anew_only_a_few_times(core):
    with pipe(core) as (reader, writer):
        for i in range(200):
            n = 64 + 3 * i
            writer.send({"a": torch.full((n, 8), float(n)), "b": torch.zeros(3)})
            value = reader.recv()
            assert value["a"].shape == (n, 8)
            assert bool((value["a"] == n).all())
            del value
        assert writer.stats.queued <= 10
        assert writer.stats.sent == 200
        assert writer.stats.copied == 400
        before = writer.stats.queued
        for n in (1, 600, 30, 661):
            writer.send({"a": torch.ones(n, 8), "b": torch.zeros(3)})
            assert reader.recv()["a"].shape == (n, 8)
        assert writer.stats.queued == before


@every_core
def test_a_slot_with_room_that_becomes_free_too_late_is_not_laid_out_anew(core, monkeypatch):
    """While the writer prepares new memory the reader goes on: the slot that is too small is the one to replace."""
    small, large = torch.ones(10), torch.ones(12)
    with pipe(core) as (reader, writer):
        held = []

        def send(value):
            writer.send(value)
            held.append(reader.recv())

        send(small)
        send(small)
        held.pop(0)
        send(large)
        held.pop(0)
        needed = writer._needed
        with monkeypatch.context() as patch:
            patch.setattr(writer, "_needed", lambda leaf: (held.clear(), needed(leaf))[1])
            send(large)
        assert writer.stats.queued == 4
        held.clear()
        for _ in range(4):
            send(large)
            del held[:-1]
        assert writer.stats.queued == 4


@every_core
def test_without_slack_each_overflow_needs_new_memory(core):
    with pipe(core, slots=1, slack=1.0) as (reader, writer):
        for n in range(1, 11):
            writer.send(torch.ones(n * 1024))
            reader.recv()
        assert writer.stats.queued == 10


@every_core
def test_structures_that_alternate_have_a_slot_each(core):
    with pipe(core, slots=2) as (reader, writer):
        for i in range(20):
            writer.send([torch.ones(3)] if i % 2 else {"a": torch.ones(2)})
            if i:
                reader.recv()
        assert writer.stats.queued <= 4


@every_core
def test_what_fits_may_change_shape_and_type(core):
    with pipe(core, slots=1) as (reader, writer):
        for value in (
            torch.ones(24),
            torch.ones(4, 6).double()[:2],
            torch.ones(24, dtype=torch.bool),
            torch.ones(2, 3, 4),
        ):
            writer.send([value])
            assert same(value, reader.recv()[0])
        assert writer.stats.queued == 1


@every_core
def test_shared_memory_is_seen_without_copies(core):
    with pipe(core) as (reader, writer):
        big = torch.zeros(1 << 16).share_memory_()
        for i in range(10):
            writer.send([big, big[i : i + 2], big.view(256, 256).t()])
            whole, part, turned = reader.recv()
            big[i] = i + 1.0  # after it was sent
            assert part[0] == whole[i] == i + 1.0
            assert turned.shape == (256, 256)
            assert turned.stride() == (1, 256)
        stats = writer.stats
        assert (stats.zero_copy, stats.copied) == (30, 0)


@every_core
def test_small_shared_tensors_are_seen_too(core):
    with pipe(core) as (reader, writer):
        small = torch.zeros(2).share_memory_()
        writer.send([small])
        value = reader.recv()
        small.fill_(3)
        assert value[0].tolist() == [3, 3]
        assert writer.stats.zero_copy == 1


@every_core
def test_shared_memory_is_let_go_of_with_its_owner(core):
    with pipe(core) as (reader, writer):
        for i in range(200):
            big = torch.full((1 << 15,), float(i)).share_memory_()
            writer.send(big)
            assert reader.recv()[5] == i
            del big  # other memory comes to lie at this address
        assert len(writer._blocks._blocks) <= 2


@every_core
def test_shared_blocks_beyond_the_limit_are_copied(core):
    with pipe(core) as (reader, writer):
        many = [torch.full((4,), float(i)).share_memory_() for i in range(70)]
        for _ in range(2):
            writer.send(many)
            assert same(many, reader.recv())
        assert writer.stats.copied == 2 * 6


@every_core
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


@every_core
def test_a_slot_is_filled_in_place(core):
    like = {"x": torch.empty(4, 3, device="meta"), "y": [torch.empty(2, dtype=torch.int64), None]}
    with pipe(core) as (reader, writer):
        for i in range(5):
            value = writer.acquire(like if i == 0 else None)
            assert value["x"].shape == (4, 3)
            assert value["x"].is_contiguous()
            assert value["y"][0].dtype == torch.int64
            value["x"].fill_(i)
            value["y"][0].fill_(-i)
            writer.commit()
            del value
            got = reader.recv()
            assert bool((got["x"] == i).all())
            assert got["y"][0].tolist() == [-i, -i]
            del got
        assert writer.stats.copied == 0
        assert writer.stats.zero_copy == 10
        assert writer.stats.queued <= 2


@every_core
def test_parts_of_an_acquired_slot_are_sent_without_copies(core):
    with pipe(core) as (reader, writer):
        value = writer.acquire({"a": torch.empty(10), "b": torch.empty(4)})
        value["a"].copy_(torch.arange(10.0))
        value["b"].fill_(7)
        writer.commit({"a": value["a"][2:9:3], "b": torch.full((2, 2), 5.0)})
        assert same(reader.recv(), {"a": torch.tensor([2.0, 5.0, 8.0]), "b": torch.full((2, 2), 5.0)})
        assert (writer.stats.zero_copy, writer.stats.copied) == (1, 1)


@every_core
def test_parts_may_change_places(core):
    with pipe(core) as (reader, writer):
        value = writer.acquire([torch.empty(3), torch.empty(3)])
        value[0].fill_(1)
        value[1].fill_(2)
        writer.commit(value[::-1])
        assert same(reader.recv(), [torch.full((3,), 2.0), torch.ones(3)])
        value = writer.acquire()
        value[0].fill_(1)
        value[1].fill_(2)
        writer.commit([torch.full((3,), 9.0), value[0]])  # the copy goes to where the other leaf lies
        assert same(reader.recv(), [torch.full((3,), 9.0), torch.ones(3)])


@every_core
def test_another_structure_than_acquired_is_sent_by_copy(core):
    with pipe(core) as (reader, writer):
        value = writer.acquire([torch.empty(3)])
        value[0].fill_(4)
        writer.commit({"other": value[0], "big": torch.ones(100)})
        assert same(reader.recv(), {"other": torch.full((3,), 4.0), "big": torch.ones(100)})
        writer.send(None)


@every_core
def test_the_rules_of_filling_in_place(core):
    with pipe(core) as (reader, writer):
        with pytest.raises(StateError, match="nothing was sent yet"):
            writer.acquire()
        with pytest.raises(StateError, match="no slot is acquired"):
            writer.commit()
        with pytest.raises(StructureError):
            writer.acquire([3])
        value = writer.acquire([torch.empty(2)])
        for call in (writer.acquire, lambda: writer.send(None)):
            with pytest.raises(StateError, match="commit"):
                call()
        with pytest.raises(StructureError, match="structure is int 3"):
            writer.commit(3)
        value[0].fill_(8)
        writer.commit()
        assert reader.recv()[0].tolist() == [8, 8]
        writer.acquire([torch.empty(2)])
        writer.release()
        for _ in range(3):
            writer.send([torch.ones(2)], timeout=10.0)
            reader.recv()


@every_core
def test_acquire_waits_for_a_slot(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.send([torch.ones(2)])
        held = reader.recv()
        with pytest.raises(PipeTimeout):
            writer.acquire(timeout=0.01)
        del held
        writer.acquire(timeout=10.0)[0].fill_(3)
        writer.commit()
        assert reader.recv()[0].tolist() == [3, 3]


# --- refusals


@every_core
def test_an_unsendable_value_fails_at_once_and_costs_no_slot(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.send([torch.ones(1)])
        loop = []
        loop.append(loop)
        for wrong in (3, {"a": 3}, loop, [torch.ones(1).to_sparse()], [torch.ones(2, device="meta")]):
            with pytest.raises(StructureError):
                writer.send(wrong)  # all slots are in use: it does not wait for one
        assert same(reader.recv(), [torch.ones(1)])
        for wrong in (3, loop):
            with pytest.raises(StructureError):
                writer.send(wrong)
        writer.send([torch.zeros(1)], timeout=10.0)
        assert same(reader.recv(), [torch.zeros(1)])


@every_core
def test_a_class_that_cannot_be_named_is_refused(core):
    import dataclasses

    @dataclasses.dataclass
    class Inside:
        x: object

    with pipe(core) as (reader, writer):
        with pytest.raises(StructureError, match="Inside"):
            writer.send(Inside(None))
        writer.send(torch.ones(1))
        assert reader.recv() == 1


class Fickle:
    """Changes its mind about what it holds."""


@every_core
def test_a_structure_that_changes_while_it_is_sent_is_refused(core):
    import dataclasses

    @dataclasses.dataclass
    class Growing:
        x: object

        def __getattribute__(self, name):
            if name == "x":
                sizes.append(2 * sizes[-1])
                return torch.ones(sizes[-1])
            return object.__getattribute__(self, name)

    sizes = [1024]
    Growing.__qualname__ = "Fickle"
    Growing.__module__ = __name__
    globals()["Fickle"] = Growing
    with pipe(core, slack=1.0) as (reader, writer):
        with pytest.raises(StructureError, match="changed while it was being sent"):
            writer.send(Growing(None))
        writer.send(None)
        assert reader.recv() is None


@pytest.mark.parametrize(
    "options", [{"slots": 0}, {"slots": 65}, {"slots": 1.5}, {"slots": True}, {"slack": 0.5}]
)
def test_options_are_checked(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        tensor_pipe(**options)


# --- the end


@every_core
def test_what_was_sent_before_closing_still_arrives(core):
    reader, writer = make(core)
    with writer:
        writer.send(torch.ones(1))
        writer.send([torch.ones(2)])
    writer.close()
    assert writer.closed
    assert [type(value) for value in reader] == [torch.Tensor, list]
    for _ in range(2):
        with pytest.raises(PipeClosed, match="the writer closed"):
            reader.recv()
    reader.close()
    reader.close()
    with pytest.raises(PipeClosed, match="this reader is closed"):
        reader.recv()
    with pytest.raises(PipeClosed, match="this writer is closed"):
        writer.send(None)
    with pytest.raises(EOFError):
        writer.throw(ValueError())


@every_core
def test_a_writer_learns_that_the_reader_has_closed(core):
    with pipe(core) as (reader, writer):
        writer.send(torch.ones(1))
        reader.recv()
        reader.close()
        with pytest.raises(PipeClosed, match="the reader closed"):
            writer.send(torch.ones(1))
        with pytest.raises(PipeClosed):
            writer.throw(ValueError())
        with pytest.raises(PipeClosed):
            writer.acquire([torch.ones(1)])


@every_core
def test_a_pipe_that_was_never_used_can_be_closed(core):
    for first in (0, 1):
        ends = make(core)
        ends[first].close()
        with pytest.raises(PipeClosed):
            ends[1].send(None) if first == 0 else ends[0].recv()
        ends[1 - first].close()


@every_core
def test_closing_wakes_whoever_waits_in_another_thread(core):
    for which in ("reader", "writer"):
        reader, writer = make(core)
        writer.send(None)
        reader.recv()
        threading.Timer(0.05, reader.close if which == "reader" else writer.close).start()
        with pytest.raises(PipeClosed, match=which):
            reader.recv(timeout=10.0)
        reader.close()
        writer.close()


@every_core
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


@every_core
def test_a_failure_reaches_the_reader_after_what_was_sent_before(core):
    with pipe(core) as (reader, writer):
        writer.send(torch.ones(1))
        try:
            raise KeyError("no such file")
        except KeyError as error:
            writer.throw(error)
        writer.send(None)
        assert reader.recv() == 1
        with pytest.raises(KeyError, match="no such file") as caught:
            reader.recv()
        assert "test_tensor_pipe.py" in str(caught.value.__cause__)
        assert reader.recv() is None


@every_core
def test_failures_do_not_pile_up(core):
    with pipe(core) as (reader, writer):
        for i in range(64):
            writer.throw(ValueError(i))
        with pytest.raises(StateError, match="has not received the last 64 exceptions"):
            writer.throw(ValueError())
        for i in range(64):
            with pytest.raises(ValueError, match=f"^{i}$"):
                reader.recv()
        writer.throw(ValueError("again"))


def produce_and_raise(writer, error):
    with writer:
        writer.send(None)
        raise error


@every_core
def test_leaving_the_block_with_an_exception_hands_it_over(core):
    reader, writer = make(core)
    with pytest.raises(ZeroDivisionError):
        produce_and_raise(writer, ZeroDivisionError("in the producer"))
    assert reader.recv() is None
    with pytest.raises(ZeroDivisionError, match="in the producer"):
        reader.recv()
    with pytest.raises(PipeClosed):
        reader.recv()
    reader.close()


@every_core
def test_leaving_the_block_by_interruption_is_no_clean_end(core):
    reader, writer = make(core)
    with pytest.raises(KeyboardInterrupt):
        produce_and_raise(writer, KeyboardInterrupt())
    assert reader.recv() is None
    with pytest.raises(PipeBroken):
        reader.recv()
    reader.close()


@every_core
def test_one_thread_at_a_time_may_use_an_end(core):
    with pipe(core) as (reader, writer):
        failed = []

        def wait():
            try:
                reader.recv(timeout=10.0)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        while reader._waiting is None:
            time.sleep(0.001)
        with pytest.raises(StateError, match="another call is waiting"):
            reader.recv()
        writer.send(None)
        thread.join()
        assert not failed
        writer.send(None)
        assert reader.recv() is None


@every_core
def test_both_ends_may_be_used_by_threads_of_one_process(core):
    with pipe(core) as (reader, writer):

        def produce():
            with writer:
                for i in range(500):
                    writer.send({"i": torch.tensor(i), "x": torch.full((100,), float(i))})

        thread = threading.Thread(target=produce)
        thread.start()
        for i, value in enumerate(reader):
            assert value["i"] == i
            assert value["x"][50] == i
        thread.join()
        assert i == 499
        assert reader.received == 500


@every_core
def test_big_tensors_are_copied_without_holding_others_up(core):
    with pipe(core) as (reader, writer):
        big = torch.rand(1 << 20)
        thread = threading.Thread(target=lambda: [writer.send([big]) for _ in range(10)])
        thread.start()
        for _ in range(10):
            assert torch.equal(reader.recv(timeout=10.0)[0], big)
        thread.join()


@every_core
def test_loops_and_blocking_calls_may_take_turns(core):
    with pipe(core) as (reader, writer):

        async def some():
            await writer.coro_send(torch.ones(1))
            return await reader.coro_recv()

        for _ in range(3):
            assert run(some()) == 1
            writer.send(torch.zeros(1))
            assert reader.recv() == 0
            assert asyncio.run(some()) == 1


@every_core
def test_wrong_arguments_are_named(core):
    with pytest.raises(ArgumentError, match="slack must be a number in 1..16, got 'x'"):
        tensor_pipe(2, "x")
    with pipe(core) as (reader, writer):
        with pytest.raises(ArgumentError, match="timeout is '1', expected a number of seconds"):
            reader.recv(timeout="1")
        writer.send(None)
        writer.send(None)
        with pytest.raises(ArgumentError, match="timeout is '1', expected a number of seconds"):
            writer.send(None, timeout="1")
        for error in (3, ValueError):
            with pytest.raises(ArgumentError, match="throw: error is .*expected an exception object"):
                writer.throw(error)
        for pid in ("x", 0, -1):
            with pytest.raises(ArgumentError, match="hand_over: pid is .*expected the process id"):
                reader.hand_over(pid)


@every_core
def test_a_tensor_of_too_many_axes_is_refused_as_such(core):
    with pipe(core) as (reader, writer):
        with pytest.raises(
            StructureError, match=r"structure\[0\] is a tensor of 65 axes; expected 64 at most"
        ):
            writer.send([torch.zeros([1] * 65)])
        writer.send([torch.zeros([1] * 64)])
        assert reader.recv()[0].ndim == 64


@every_core
def test_the_place_in_a_deep_structure_is_told_briefly(core):
    value = torch.ones(1)
    for _ in range(100_000):
        value = [value]
    with pipe(core) as (_, writer):
        with pytest.raises(StructureError, match="nested deeper than 200 levels") as caught:
            writer.send(value)
        assert len(str(caught.value)) < 200
