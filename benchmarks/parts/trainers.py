"""The MLP's fit against trainers above PyTorch."""

from __future__ import annotations

from functools import partial

from ..harness import Session, in_turns
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
MLP 784-128-64-10, batch 64, with the accuracy of every batch kept: by `eval_metric="acc"` in ours, by `self.log` in
Lightning, whose logger, checkpoints, progress bar and summary are off, and by `Accelerator.log` to a tracker that only
adds up in Accelerate. The others are fed by slices of a tensor or by a `DataLoader`. The target of Lightning holds for
slices, which are faster; that of Accelerate for a `DataLoader`, the only thing that `Accelerator.prepare` prepares."""

TARGETS = {"lightning": ("slices", (2.0, 3.0)), "accelerate": ("DataLoader", (1.5, 2.0))}


def run(session: Session) -> Section:
    """Measure all that have an interpreter."""
    section = Section("Trainers above PyTorch", _ABOUT)
    batches = session.short(200)
    wanted = {
        f"{name}_{feed}": ("trainers", name, batches, feed)
        for name in TARGETS
        for feed in ("slices", "DataLoader")
    }
    with session.sides(ours=("module", "dpmodule", "mlp", batches), **wanted) as sides:
        asked = {name: partial(side.ask, "fit") for name, side in sides.items()}
        found = in_turns(asked, session.rounds)
        for name in TARGETS:
            if f"{name}_slices" not in sides:
                section.note(f"{name}: not compared; give --against {name}=PYTHON.")
        for each in sides:
            name, _, feed = each.partition("_")
            if name in TARGETS:
                held, bounds = TARGETS[name]
                section.compare(
                    "MLP fit, one metric",
                    found["ours"],
                    f"{name.title()}, {feed}",
                    found[each],
                    bounds if feed == held else None,
                )
    return section
