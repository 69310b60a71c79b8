"""An LSTM language model in a `BucketingModule`: time and memory, against MXNet and plain PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..corpus import BUCKETS
from ..harness import Session, Spread, Times, Worker, agreement, in_turns, with_before
from ..report import Section
from ..workloads import first_value

__all__ = ["run"]

_ABOUT = """\
Embedding of 200, two LSTM layers of 200, scores of 10,000 words; batches of 32 sentences of random words, padded to
buckets of 10 to 60; momentum SGD. "Unrolled" is a stack of two `LSTMCell`, unrolled as in MXNet's example, for ours
and for MXNet; "fused" is ours with one `FusedRNNCell`, also recorded. Plain PyTorch is `nn.LSTM` and
`F.cross_entropy(ignore_index=...)` with fused or foreach `torch.optim.SGD`, the faster of the two at bucket 60, on the
same padded batches as tensors. A step is `forward_backward` and `update`; "fit" is an epoch over all buckets in random
order with `BucketSentenceIter` and `Perplexity`, kept by all sides.

Memory is that of a whole process: Python, libraries, data. "After" is its resident memory after two passes through
all buckets, two batches in each; the first bucket of an order is the default one. "Peak" is `VmHWM` of the
same process. A switch is `switch_bucket` alone, to a bucket seen before, with nothing computed in between."""

ORDERS = {
    "descending": BUCKETS[::-1],
    "ascending": BUCKETS,
    "shuffled": tuple(BUCKETS[i] for i in (2, 0, 5, 1, 4, 3)),
}
MXNET, PLAIN, STORE = (1.25, 2.0), (1.1, 1.3), (0.85, 0.75)
MEMORY = "Memory, MB"


def run(session: Session) -> Section:
    """Measure steps, fit, memory and switches."""
    section = Section("Language model in buckets", _ABOUT)
    if session.quick:
        _switches(session, section)
        return section
    _times(session, section)
    _memory(session, section)
    _switches(session, section)
    return section


def _sides(batches: int) -> dict[str, Sequence[Any]]:
    return {
        "ours": ("language", "dpmodule", "unrolled", batches),
        "fused": ("language", "dpmodule", "fused", batches),
        "mxnet": ("language", "mxnet", "unrolled", batches),
        "plain_fused": ("plain_language", batches, "fused"),
        "plain_foreach": ("plain_language", batches, "foreach"),
    }


def _times(session: Session, section: Section) -> None:
    """Compare steps of two buckets, which also choose the plain loop, and fits."""
    with session.sides(**with_before(_sides(2), "ours", "fused")) as sides:
        section.note(_alike(sides))
        for title, what, options, bounds, rounds in (
            ("step, bucket 60", "step", {"bucket": 60, "count": 2}, MXNET, session.rounds),
            ("step, bucket 20", "step", {"bucket": 20, "count": 3}, None, session.rounds),
            ("fit, perplexity", "fit", {}, MXNET, session.repeated(min(session.rounds, 4))),
        ):
            asked = {name: partial(each.ask, what, **options) for name, each in sides.items()}
            found = in_turns(asked, rounds, settle=session.settles)
            loops = [name for name in found if name.startswith("plain")]
            plain = min(loops, key=lambda name: Spread.of(found[name][session.clock]).median)
            for slower in set(loops) - {plain}:
                del sides[slower]
            _compare(title, found, plain, bounds, section, session.clock)


def _compare(
    title: str, found: dict[str, Times], plain: str, bounds: Any, section: Section, clock: str
) -> None:
    label = f"PyTorch {plain.partition('_')[2]}"
    for kind, name in (("unrolled", "ours"), ("fused", "fused")):
        ours = found[name]
        section.before(f"{title}, {kind}", found, name, clock)
        counts = bounds if kind == "unrolled" else None
        if "mxnet" in found:
            section.compare(f"{title}, {kind}", ours, "MXNet unrolled", found["mxnet"], counts, clock)
        plain_counts = PLAIN if counts else None
        section.compare(f"{title}, {kind}", ours, label, found[plain], plain_counts, clock)


def _alike(sides: Mapping[str, Worker]) -> str:
    """Check that all sides compute the same on a batch of each bucket."""

    def check(side: Worker, path: str) -> Any:
        side.ask("start")
        return side.ask("check", path=path)

    return agreement({name: partial(check, side) for name, side in sides.items()}, first_value, 1e-3)


def _visit(
    session: Session, side: Sequence[Any], name: str, order: Sequence[int]
) -> tuple[float, float] | None:
    """Run through buckets in a new process; return its final memory and its peak."""
    with session.sides(**{name: side}) as sides:
        if name not in sides:
            return None
        after: float = sides[name].ask("visit", order=list(order), rounds=2)["after"]
        return after, sides[name].ask("memory")


def _memory(session: Session, section: Section) -> None:
    """Compare the memory of all sides in every order; for ours, the worst of two processes counts."""
    sides = _sides(2)
    alone = _visit(session, sides["ours"], "ours", BUCKETS[-1:])
    for title, order in ORDERS.items():
        names = {"ours": "ours", "mxnet": "MXNet", "plain_fused": "PyTorch"}
        found = {label: _visit(session, sides[name], name, order) for name, label in names.items()}
        again = _visit(session, sides["ours"], "ours", order)
        ours, mxnet = max(each for each in (found["ours"], again) if each), found["MXNet"]
        verdict = "not compared"
        if mxnet:
            what = f"six-bucket language model, memory after the last bucket, {title}, ours / MXNet"
            verdict = section.hold(what, ours[0] / mxnet[0], STORE, at_most=True)
        cells = {
            f"{label}_{kind}": f"{value:.0f}"
            for label, each in {**found, "ours": ours}.items()
            if each
            for kind, value in zip(("after", "peak"), each, strict=True)
        }
        section.row(
            MEMORY, order=title, **cells, share=f"{ours[0] / mxnet[0]:.2f}" if mxnet else "", target=verdict
        )
    if alone:
        section.note(f"Peak of ours where only bucket 60 is trained: {alone[1]:.0f} MB.")


def _switches(session: Session, section: Section) -> None:
    """Measure switching in one process: its time, and the growth of memory."""
    count = session.short(10_000)
    with session.sides(**with_before({"ours": ("language", "dpmodule", "fused", 1)}, "ours")) as sides:
        for each in sides.values():
            each.ask("start")
        first = sides["ours"].ask("switch", count=1)
        asked = {name: partial(each.ask, "switch", count=count // 10) for name, each in sides.items()}
        found = in_turns(asked, session.rounds, warm=0)
        last = sides["ours"].ask("switch", count=count)
    wall = Spread.of([each * 1e3 for each in found["ours"]["wall"]])
    section.row("Switches", what="a switch", figure=f"{wall} microseconds of wall time")
    growth = f"{first['after']:.0f} MB before, {last['after']:.0f} MB after"
    section.row("Switches", what=f"growth in {count} switches", figure=growth)
    section.before("a switch", found)
