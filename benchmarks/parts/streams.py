"""Jobs, tensors, items and bytes of `dpmodule.streams`, against the usual alternatives."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..harness import Session, Spread, Times, Worker, in_turns, ratio, with_before
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
Microseconds unless stated otherwise; a rate is the inverse. Wall time, which ratios are of, and the CPU
time of the process that sends or awaits. Two threads or two processes do the work on every side.

- Jobs: a functor in C++ that does nothing, and for the others a Python function that does nothing. "One" is the median
  time from the call to the result, each job awaited before the next; "1,000" is the time of a job when so many are
  called together. Handmade threads have a `SimpleQueue`, and a `call_soon_threadsafe` for each finished job; batched
  ones have one for all jobs that are finished when the event loop runs, which is cheapest if no job finishes before
  all are queued. Objects of the imports are excluded from garbage collection.
- Tensors: a dict of 8 float32 tensors goes to a forked process, which drops it. The queue, of two messages as the pipe
  has two slots, gets tensors that are made before the time runs and are new for each message, since it shares what it
  has sent. The ring knows one layout, copies by `ctypes.memmove`, signals by eventfd and checks nothing.
- Zero-copy: there and back; tensors in shared memory, or a slot of the pipe that is filled in place.
- Items: one task puts and another takes, woken for each item or for each burst of 100.
- Work: on the same megabyte of text again and again. Python has no CRC-32C; zlib's CRC-32 replaces it.
- Feeds: batches of 64 images of 3 x 64 x 64 bytes, which processes, started beforehand, convert to float32."""

KB, MB = 1 << 10, 1 << 20
SIZES: dict[str, tuple[int, int, int]] = {
    "1 KB": (KB, 5000, 200),
    "64 KB": (64 * KB, 5000, 200),
    "1 MB": (MB, 1500, 100),
    "16 MB": (16 * MB, 100, 12),
}
"""Bytes of a message, number per round, and number for torch's queue."""

JOBS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "one": ("one empty job", 1000, {"executor": (2.0, 3.0), "threads": (2.0, 3.0)}),
    "many": ("1,000 empty jobs in flight, each", 10, {"executor": (6.0, 10.0), "threads": (1.5, 2.5)}),
}
MESSAGES: dict[str, dict[str, tuple[float, float]]] = {
    "1 KB": {"queue": (40.0, 100.0), "ring": (0.45, 0.8)},
    "64 KB": {"queue": (40.0, 100.0), "ring": (0.45, 0.8)},
    "1 MB": {"queue": (30.0, 80.0), "ring": (0.5, 0.9)},
    "16 MB": {"queue": (15.0, 28.0), "ring": (0.8, 0.95)},
}
ITEMS: dict[int, tuple[str, tuple[float, float]]] = {
    1: ("stream item, a wake-up each", (0.9, 1.2)),
    100: ("stream item, bursts of 100", (1.5, 3.0)),
}
NAMES = {
    "executor": "run_in_executor",
    "threads": "threads + call_soon_threadsafe",
    "batched": "threads, batched",
    "queue": "torch.multiprocessing.Queue",
    "ring": "bare ring",
}
WORK = {
    "gunzip": ("gunzip", "zlib in Python threads", (16, 16)),
    "checksum": ("CRC-32C", "zlib.crc32 in Python threads", (2000, 500)),
    "parse": ("MultiSlot text", "NumPy in Python threads", (40, 4)),
}


def run(session: Session) -> Section:
    """Measure everything."""
    section = Section("Streams", _ABOUT)
    _jobs(session, section)
    _messages(session, section)
    with session.sides(**with_before({"trips": ("trips",)}, "trips")) as sides:
        _trips(session, section, sides)
    _items(session, section)
    _bytes(session, section)
    _feeds(session, section)
    return section


def _micro(times: Times, clock: str = "wall") -> Spread | str:
    return Spread.of([value * 1e3 for value in times[clock]]) if times[clock] else ""


def _before(section: Section, what: str, found: dict[str, Times], name: str = "ours") -> None:
    """Add a comparison with another revision, by wall time in microseconds."""
    section.before(what, found, name, "wall", 1e3)


def _compare(
    section: Section, table: str, what: str, ours: Times, name: str, theirs: Times, bounds: Any = None
) -> None:
    """Add a comparison in microseconds."""
    found = ratio(theirs["wall"], ours["wall"])
    section.row(
        table,
        what=what,
        ours=_micro(ours),
        against=name,
        its=_micro(theirs),
        ratio=found,
        ours_CPU=_micro(ours, "cpu"),
        its_CPU=_micro(theirs, "cpu"),
        target=section.hold(f"{what}, against {name}", found.median, bounds),
    )


def _jobs(session: Session, section: Section) -> None:
    loops = ["asyncio"]
    if importlib.util.find_spec("uvloop") is None:
        section.note("uvloop is not installed: jobs are measured under asyncio alone.")
    else:
        loops.append("uvloop")
    systems = ("ours", "executor", "threads", "batched")
    with session.sides(**with_before({name: ("jobs", name) for name in systems}, "ours")) as sides:
        for loop in loops:
            for kind, (what, count, bounds) in JOBS.items():
                asked = {
                    name: partial(side.ask, kind, loop=loop, count=session.short(count))
                    for name, side in sides.items()
                }
                found = in_turns(asked, session.rounds)
                for name in systems[1:]:
                    held = bounds.get(name) if loop == "asyncio" else None
                    title = f"{what}, {loop}"
                    _compare(section, "Jobs", title, found["ours"], NAMES[name], found[name], held)
                _before(section, f"{what}, {loop}", found)


def _messages(session: Session, section: Section) -> None:
    systems = ("pipe", "async", "ring", "queue")
    wanted = with_before({name: ("pipes", name) for name in systems}, "pipe", "async")
    with session.sides(**wanted) as sides:
        for size, (octets, count, slow) in SIZES.items():
            counts = {name: session.short(slow if name == "queue" else count, 4) for name in sides}
            asked = {
                name: partial(side.ask, "messages", size=octets, count=counts[name])
                for name, side in sides.items()
            }
            found = in_turns(asked, session.rounds)
            for ours, title in (("pipe", "send, recv"), ("async", "coro_send, coro_recv")):
                what = f"dict of 8 tensors, {size}: {title}"
                _before(section, what, found, ours)
                for name in ("queue", "ring"):
                    held = MESSAGES[size][name] if ours == "pipe" else None
                    _compare(section, "Tensors", what, found[ours], NAMES[name], found[name], held)


def _trips(session: Session, section: Section, sides: Mapping[str, Worker]) -> None:
    for kind, title, bounds in (("shared", "shared tensors", (1.3, 1.1)), ("slot", "a slot in place", None)):
        asked = {
            name.replace("trips", size): partial(
                side.ask, "trips", size=octets, kind=kind, count=session.short(1000)
            )
            for size, octets in (("1 KB", KB), ("16 MB", 16 * MB))
            for name, side in sides.items()
        }
        found = in_turns(asked, session.rounds)
        for size in ("1 KB", "16 MB"):
            _before(section, f"zero-copy round trip of {title}, {size}", found, size)
        share = ratio(found["16 MB"]["wall"], found["1 KB"]["wall"])
        what = f"zero-copy round trip of {title}, 16 MB over 1 KB"
        section.row(
            "Zero-copy",
            what=what,
            time_of_16_MB=_micro(found["16 MB"]),
            time_of_1_KB=_micro(found["1 KB"]),
            ratio=share,
            target=section.hold(what, share.median, bounds, at_most=True),
        )
    sends = sides["trips"].ask("growing", messages=200, rows=3)
    what = "200 messages growing by 3 rows: those that needed new memory"
    section.note(f"{what}: {sends}; {section.hold(what, sends, (14, 10), at_most=True)}")


def _items(session: Session, section: Section) -> None:
    wanted = with_before({"ours": ("items", "ours"), "asyncio": ("items", "asyncio")}, "ours")
    with session.sides(**wanted) as sides:
        for burst, (what, bounds) in ITEMS.items():
            asked = {
                name: partial(side.ask, "items", burst=burst, count=session.short(20_000))
                for name, side in sides.items()
            }
            found = in_turns(asked, session.rounds)
            _compare(section, "Items", what, found["ours"], "asyncio.Queue", found["asyncio"], bounds)
            _before(section, what, found)
        asked = {name: partial(side.ask, "jobs", count=session.short(5000)) for name, side in sides.items()}
        found = in_turns(asked, session.rounds)
        what = "job of a pool of 4"
        _compare(section, "Items", what, found["ours"], "Semaphore and tasks", found["asyncio"])
        _before(section, what, found)


def _bytes(session: Session, section: Section) -> None:
    wanted = with_before({"ours": ("work", "ours"), "python": ("work", "python")}, "ours")
    with session.sides(**wanted) as sides:
        counts = {name: session.short(500 if name == "python" else 20_000) for name in sides}
        asked = {name: partial(side.ask, "view", size=MB, count=counts[name]) for name, side in sides.items()}
        found = in_turns(asked, session.rounds)
        what = "memoryview(handle), 1 MB"
        _compare(section, "Bytes", what, found["ours"], "a copy as bytes", found["python"], (100.0, 100.0))
        _before(section, what, found)
        for kind, (what, against, each) in WORK.items():
            counts = {name: each[name == "python"] for name in sides}
            options = {"kind": kind, "megabytes": 0.1 if session.quick else 1.0}
            _same(what, [side.ask("check", **options) for side in sides.values()])
            asked = {
                name: partial(side.ask, "work", count=session.short(counts[name]), **options)
                for name, side in sides.items()
            }
            found = in_turns(asked, session.rounds)
            rates = {name: Spread.of([1e3 / each for each in times["wall"]]) for name, times in found.items()}
            section.row(
                "Work, MB/s",
                what=what,
                ours=rates["ours"],
                against=against,
                its=rates["python"],
                ratio=ratio(found["python"]["wall"], found["ours"]["wall"]),
            )
            section.before(f"{what}, a megabyte", found, clock="wall")


def _feeds(session: Session, section: Section) -> None:
    names = ("batches-ours", "batches-torch", "examples-ours", "examples-torch")
    batches = session.short(100)
    wanted = with_before({name: ("feeds", name, batches) for name in names}, names[0], names[2])
    with session.sides(**wanted) as sides:
        _same("batches of the feeds", [side.ask("check") for side in sides.values()])
        found = in_turns({name: partial(side.ask, "epoch") for name, side in sides.items()}, session.rounds)
        for kind, what, against in (
            ("batches", "ProcessPrefetchingIter, a batch", "DataLoader of batches"),
            ("examples", "DataLoaderIter, a batch", "DataLoader of examples"),
        ):
            _compare(section, "Feeds", what, found[f"{kind}-ours"], against, found[f"{kind}-torch"])
            _before(section, what, found, f"{kind}-ours")


def _same(what: str, answers: Sequence[Any]) -> None:
    """End the program if systems have computed different things."""
    if any(answer != answers[0] for answer in answers):
        raise SystemExit(f"{what}: they compute something else: {answers}")
