"""Programs of PyTorch for one example in `autobatch.batching`, against the loop and others."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from ..harness import Session, in_turns, ratio
from ..report import Section
from ..torch_programs import PROGRAMS

__all__ = ["run"]

_ABOUT = """\
A training step (forward, backward, SGD; beam search has no gradients) of twelve programs that are written for one
example, at several numbers of examples and hidden units. Ours is `autobatch.batching` with `autobatch.map`. A cell is
the time of the loop, one example after the other, over that of the side: above 1, the side is faster than the loop.
`torch.compile` compiles the program in the loop and is measured at 64 examples; it cannot compile programs that read
values, `torch.nested` has what two of the programs need, and no program has equal shapes for all examples, as
`torch.vmap` demands. The losses and gradients of all sides agree before anything is timed."""

BATCHES, SIZES = (1, 8, 64, 256), (64, 256)
MUST = {
    "child-sum TreeLSTM": (3.0, 3.0),
    "ragged attention": (4.0, 3.0),
    "graph messages": (2.0, 1.5),
    "set encoder": (2.0, 1.5),
    "greedy decoding": (2.5, 2.0),
    "early exit": (2.0, 2.0),
}
"""Least ratio at 64 examples, by size."""
LEAST = 0.9
SIDES = ("loop", "ours", "hand", "nested", "compiled")


def run(session: Session) -> Section:
    """Measure all programs; in quick sessions small batches only."""
    section = Section("Programs of PyTorch", _ABOUT)
    batches, sizes = ((1, 4), (8,)) if session.quick else (BATCHES, SIZES)
    least: list[float] = []
    with session.sides(**{kind: ("torch_programs", kind) for kind in SIDES}) as sides:
        for size in sizes:
            for name in PROGRAMS:
                for batch in batches:
                    kinds = [kind for kind in sides if kind != "compiled" or batch == 64]
                    found = {
                        kind: sides[kind].ask("start", name=name, size=size, count=batch) for kind in kinds
                    }
                    able = [kind for kind in kinds if "loss" in found[kind]]
                    for kind in able:
                        _compare(name, kind, found[kind], found["loop"])
                    asked = {kind: (lambda side=sides[kind]: side.ask("measure")) for kind in able}
                    times = in_turns(asked, session.short(session.rounds, 1), settle=session.settles)
                    clocks = {kind: each[session.clock] for kind, each in times.items()}
                    shares = {kind: ratio(clocks["loop"], clocks[kind]) for kind in able if kind != "loop"}
                    cells: dict[str, Any] = {kind: shares.get(kind, "") for kind in SIDES[1:]}
                    bound = None
                    if batch == 64 and name in MUST:
                        hand = shares["hand"].median if "hand" in shares else 0
                        bound = (MUST[name][size == 256], max(MUST[name][size == 256], hand / 2))
                    ours = shares["ours"].median
                    least.append(ours)
                    verdict = section.hold(f"{name}, {batch} x {size}, against the loop", ours, bound)
                    section.row(
                        f"Time of the loop over that of each side, {size} hidden units",
                        program=name, examples=batch, loop_ms=f"{statistics.median(clocks['loop']):.2f}",
                        **cells, target=verdict,
                    )  # fmt: skip
                    for kind in ("compiled", "nested"):
                        why = found.get(kind, {}).get("why", "cannot express it")
                        if size == sizes[0] and batch in (batches[0], 64) and why != "cannot express it":
                            section.note(f"{name}, {batch} examples: {kind}: {why}")
    section.hold(
        "least of all programs, against the loop", min(least), None if session.quick else (LEAST, 1.0)
    )
    return section


def _compare(name: str, kind: str, found: dict[str, Any], loop: dict[str, Any]) -> None:
    for what in ("loss", "grads"):
        if not np.allclose(found[what], loop[what], rtol=1e-3, atol=1e-4):
            raise SystemExit(f"{name}: {kind} has another {what} than the loop: {found[what]}, {loop[what]}")
