"""Files and models of other systems: what going in and out costs."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from ..harness import Session, in_turns
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
- ONNX: milliseconds from ResNet-50, 445 nodes with its variables, to a file of 100 MB with a dynamic batch, against
  `torch.onnx.export(dynamo=True)` on the same network in torch. Before anything is timed, ONNX Runtime computes the
  same with both files."""


def run(session: Session) -> Section:
    """Measure every row."""
    section = Section("In and out", _ABOUT)
    for row in ROWS:
        row(session, section)
    return section


def _onnx_export(session: Session, section: Section) -> None:
    """Writing ResNet-50 as an ONNX file."""
    size = session.short(224, 32)
    with (
        tempfile.TemporaryDirectory() as folder,
        session.sides(ours=("outgoing", "dpmodule", size), theirs=("outgoing", "torch", size)) as sides,
    ):
        paths = {name: str(Path(folder, f"{name}.onnx")) for name in sides}
        shares = [side.ask("predict", path=paths[name]) for name, side in sides.items()]
        if not np.allclose(*shares, rtol=1e-3, atol=1e-6):
            raise SystemExit(f"the files compute something else: {shares}")
        asked = {name: partial(side.ask, "measure", path=paths[name]) for name, side in sides.items()}
        found = in_turns(asked, session.repeated(min(session.rounds, 7)))
    section.compare("ONNX export, ResNet-50", found["ours"], "torch.onnx", found["theirs"], (3.0, 10.0))


ROWS = (_onnx_export,)
"""What is measured, in the order of the report."""
