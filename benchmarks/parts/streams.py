"""Jobs, tensors, items and bytes of `dpmodule.streams`, against what one would use or write instead."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..harness import Session, Spread, Times, in_turns, ratio
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
Wall time, in microseconds where nothing else is said; a rate is the inverse. Two processes or two threads do the work
on every side.

- Jobs: a functor in C++ that does nothing, and a Python function that does nothing. "One" is the median time from the
  call to the result, each job awaited before the next; "1,000" is the time of a job when so many are called at once.
  "Threads" are handmade: two, a `SimpleQueue`, and a `call_soon_threadsafe` for every job; "batched" have one call for
  all that are done by then. Where the callers' thread keeps the GIL until all jobs are queued, nothing is cheaper.
- Tensors: a dict of 8 float32 tensors goes to a forked process that drops it; the time of a message. The queue gets
  tensors that are ready beforehand and new for each message, since tensors that it has sent once are shared from then
  on. The ring knows one layout, copies by `ctypes.memmove` and signals by eventfd; it checks nothing.
- "Zero-copy": there and back, tensors in shared memory or a slot filled in place.
- Items: one task puts, another takes; a wake-up for each item, or for each burst of 100.
- Work: MB of text per second; CRC-32C is compared with zlib's CRC-32, which Python has.
- Feeds: an epoch of batches of 64 images of 3 x 64 x 64, which worker processes decompress; they have been started
  before."""

KB, MB = 1 << 10, 1 << 20
SIZES: dict[str, tuple[int, int, int]] = {
    "1 KB": (KB, 5000, 200),
    "64 KB": (64 * KB, 5000, 200),
    "1 MB": (MB, 1500, 100),
    "16 MB": (16 * MB, 100, 12),
}
"""Bytes of a message, and how many are sent in a round, by the queue of torch so many."""

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
    "gunzip": ("gunzip", "zlib in Python threads", 16),
    "checksum": ("CRC-32C", "zlib.crc32 in Python threads", 200),
    "parse": ("MultiSlot text", "NumPy in Python threads", 4),
}

Asked = Mapping[str, Callable[[], Mapping[str, float]]]


def run(session: Session) -> Section:
    """Measure everything."""
    section = Section("Streams", _ABOUT)
    _jobs(session, section)
    _messages(session, section)
    _trips(session, section)
    _items(session, section)
    _bytes(session, section)
    _feeds(session, section)
    return section


def _micro(times: Times) -> Spread:
    return Spread.of([value * 1e3 for value in times["wall"]])


def _compare(
    section: Section, table: str, what: str, ours: Times, name: str, theirs: Times, bounds: Any = None
) -> None:
    """Add a comparison of wall times in microseconds."""
    found = ratio(theirs["wall"], ours["wall"])
    section.row(
        table,
        what=what,
        ours=_micro(ours),
        against=name,
        its=_micro(theirs),
        ratio=found,
        target=section.hold(f"{what}, against {name}", found.median, bounds),
    )


def _jobs(session: Session, section: Section) -> None:
    loops = ["asyncio"]
    if importlib.util.find_spec("uvloop") is None:
        section.note("uvloop is not installed: jobs are measured under asyncio alone.")
    else:
        loops.append("uvloop")
    systems = ("ours", "executor", "threads", "batched")
    with session.sides(**{name: ("jobs", name) for name in systems}) as sides:
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


def _messages(session: Session, section: Section) -> None:
    systems = ("pipe", "async", "ring", "queue")
    with session.sides(**{name: ("pipes", name) for name in systems}) as sides:
        for size, (octets, count, slow) in SIZES.items():
            asked = {
                name: partial(
                    side.ask,
                    "messages",
                    size=octets,
                    count=session.short(slow if name == "queue" else count, 4),
                )
                for name, side in sides.items()
            }
            found = in_turns(asked, session.rounds)
            for ours, title in (("pipe", "send, recv"), ("async", "coro_send, coro_recv")):
                for name in ("queue", "ring"):
                    held = MESSAGES[size][name] if ours == "pipe" else None
                    what = f"dict of 8 tensors, {size}: {title}"
                    _compare(section, "Tensors", what, found[ours], NAMES[name], found[name], held)


def _trips(session: Session, section: Section) -> None:
    with session.sides(pipe=("pipes", "pipe")) as sides:
        ask = sides["pipe"].ask
        for kind, title, bounds in (
            ("shared", "shared tensors", (1.3, 1.1)),
            ("slot", "a slot in place", None),
        ):
            asked = {
                size: partial(ask, "trips", size=octets, kind=kind, count=session.short(1000))
                for size, octets in (("1 KB", KB), ("16 MB", 16 * MB))
            }
            found = in_turns(asked, session.rounds)
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
        sends = ask("growing", messages=200, rows=3)
        what = "200 messages growing by 3 rows: those that needed new memory"
        section.note(f"{what}: {sends}; {section.hold(what, sends, (14, 10), at_most=True)}")


def _items(session: Session, section: Section) -> None:
    with session.sides(ours=("items", "ours"), asyncio=("items", "asyncio")) as sides:
        for burst, (what, bounds) in ITEMS.items():
            asked = {
                name: partial(side.ask, "items", burst=burst, count=session.short(20_000))
                for name, side in sides.items()
            }
            found = in_turns(asked, session.rounds)
            _compare(section, "Items", what, found["ours"], "asyncio.Queue", found["asyncio"], bounds)
        asked = {name: partial(side.ask, "jobs", count=session.short(5000)) for name, side in sides.items()}
        found = in_turns(asked, session.rounds)
        _compare(
            section, "Items", "job of a pool of 4", found["ours"], "Semaphore and tasks", found["asyncio"]
        )


def _bytes(session: Session, section: Section) -> None:
    with session.sides(ours=("work", "ours"), python=("work", "python")) as sides:
        asked = {
            name: partial(side.ask, "view", size=MB, count=session.short(many))
            for (name, side), many in zip(sides.items(), (20_000, 500), strict=True)
        }
        found = in_turns(asked, session.rounds)
        _compare(
            section,
            "Bytes",
            "memoryview(handle), 1 MB",
            found["ours"],
            "a bytes copy",
            found["python"],
            (100.0, 100.0),
        )
        for kind, (what, against, count) in WORK.items():
            options = {"kind": kind, "megabytes": 0.1 if session.quick else 1.0}
            _same(what, [side.ask("check", **options) for side in sides.values()])
            asked = {
                name: partial(side.ask, "work", count=session.short(count), **options)
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


def _feeds(session: Session, section: Section) -> None:
    names = ("batches-ours", "batches-torch", "examples-ours", "examples-torch")
    batches = session.short(100)
    with session.sides(**{name: ("feeds", name, batches) for name in names}) as sides:
        _same("batches of the feeds", [side.ask("check") for side in sides.values()])
        found = in_turns({name: partial(side.ask, "epoch") for name, side in sides.items()}, session.rounds)
        for kind, what, against in (
            ("batches", "ProcessPrefetchingIter, a batch", "DataLoader of batches"),
            ("examples", "DataLoaderIter, a batch", "DataLoader of examples"),
        ):
            _compare(section, "Feeds", what, found[f"{kind}-ours"], against, found[f"{kind}-torch"])


def _same(what: str, answers: Sequence[Any]) -> None:
    """End the program if systems have computed different things."""
    if any(answer != answers[0] for answer in answers):
        raise SystemExit(f"{what}: they compute something else: {answers}")
