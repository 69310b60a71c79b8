"""Files and models of other systems: what going in and out costs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..harness import Session, in_turns
from ..report import Section

__all__ = ["run"]

_ABOUT = """\
- Safetensors: milliseconds that loading a file takes, 64 matrices of 4 MB from the cache of files, against the package
  `safetensors`. Both map large files, so that the numbers come when they are first used; the second row reads all of
  them, too. Before anything is timed, both have the same sum."""


def run(session: Session) -> Section:
    """Measure every figure."""
    section = Section("In and out", _ABOUT)
    for measure in _FIGURES:
        measure(session, section)
    return section


def _safetensors(session: Session, section: Section) -> None:
    """Loading a safetensors file, without and with reading the numbers."""
    size = session.short(1024, 64)
    with (
        tempfile.TemporaryDirectory() as folder,
        session.sides(ours=("arrays", "dpmodule"), theirs=("arrays", "safetensors")) as sides,
    ):
        path = str(Path(folder, "x.safetensors"))
        sides["theirs"].ask("write", path=path, count=64, size=size)
        sums = {name: side.ask("measure", path=path, touch=True)["sum"] for name, side in sides.items()}
        if len(set(sums.values())) != 1:
            raise SystemExit(f"they load something else: {sums}")
        for touch, bounds in ((False, (0.8, 1.0)), (True, None)):
            asked = {
                name: partial(side.ask, "measure", path=path, touch=touch) for name, side in sides.items()
            }
            found = in_turns(asked, session.repeated(session.short(10, 2)))
            title = f"safetensors load, 256 MB{', all numbers read' if touch else ''}"
            section.compare(title, found["ours"], "the package", found["theirs"], bounds, "wall", "Files")


_FIGURES: tuple[Callable[[Session, Section], None], ...] = (_safetensors,)
"""What is measured, in order."""
