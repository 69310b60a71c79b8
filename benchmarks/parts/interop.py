"""Files and models of other systems: cost of import and export, and speed of exported models."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ..harness import Session, Worker, agreement, in_turns
from ..report import Section
from ..workloads import WORKLOADS, first_value

__all__ = ["run"]

_ABOUT = """\
- ONNX: milliseconds from ResNet-50, 445 nodes with its variables, to a file of 100 MB with a dynamic batch, against
  `torch.onnx.export(dynamo=True)` on the same network in torch. Before anything is timed, ONNX Runtime computes the
  same with both files.
- Safetensors: milliseconds that loading a file takes, 64 matrices of 4 MB from the cache of files, against the package
  `safetensors`. Both map large files, so that numbers are read at their first use; the second row also reads all of
  them. Before anything is timed, both have the same sum.
- Published export: milliseconds to the first prediction of one image with ResNet-50 v1 of Gluon's model zoo, as
  `HybridBlock.export` of MXNet writes it with random parameters, 102 MB; each measurement is a new process. "From
  import" includes the import of the package, ours with torch; "from files" begins with `mx.model.load_checkpoint`. Both
  make the same prediction.
- "Left" is the result of `Module.to_torch`, run by PyTorch, with or without `torch.compile`."""


def run(session: Session) -> Section:
    """Measure every figure."""
    section = Section("In and out", _ABOUT)
    for measure in _FIGURES:
        measure(session, section)
    return section


def _onnx_export(session: Session, section: Section) -> None:
    """Measure writing ResNet-50 as an ONNX file."""
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


def _safetensors(session: Session, section: Section) -> None:
    """Measure loading a safetensors file, without and with reading the numbers."""
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


def _published(session: Session, section: Section) -> None:
    """Compare the first prediction from a file of MXNet's with MXNet's own, each in a new process."""
    if not session.has("mxnet"):
        section.note("published ResNet-50 export: not compared, since there is no MXNet")
        return
    size, packages = session.short(224, 32), {"ours": "dpmodule", "mxnet": "mxnet"}
    values: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        prefix = str(Path(folder, "resnet50_v1"))
        with session.sides(mxnet=("published", "mxnet")) as sides:
            sides["mxnet"].ask("export", prefix=prefix, size=size)

        def measure(name: str, start: str) -> dict[str, float]:
            with session.sides(**{name: ("published", packages[name])}) as sides:
                answer = sides[name].ask("first", prefix=prefix, size=size)
            values[name] = answer["values"]
            times: dict[str, float] = answer[start]
            return times

        for start, bounds in (("from import", (0.8, 1.0)), ("from files", (1.0, 1.5))):
            asked = {name: partial(measure, name, start) for name in packages}
            found = in_turns(asked, session.repeated(session.short(10, 2)))
            section.compare(
                f"ResNet-50 export, {start} to first prediction",
                found["ours"],
                "MXNet",
                found["mxnet"],
                bounds,
                session.clock,
                "Published export",
            )
    apart = float(np.abs(np.subtract(values["ours"], values["mxnet"])).max())
    if apart > 1e-4:
        raise SystemExit(f"the predictions of the export differ by {apart:.1g}")
    section.note(f"published ResNet-50 export: predictions agree to {apart:.1g}")


def _to_torch(session: Session, section: Section) -> None:
    """Compare predictions of an exported module with the original."""
    workload = WORKLOADS["resnet20"]
    batches = str(session.short(workload.batches, workload.checked))
    # "eager" does not compile, which would take half a minute
    backend = "eager" if session.quick else "inductor"
    compiled = json.dumps({"compile": {"backend": backend}})
    with session.sides(
        left=("left", workload.network, batches, json.dumps({"backend": backend, "dynamic": False})),
        module=("module", "dpmodule", workload.network, batches, compiled),
        left_plain=("left", workload.network, batches),
        module_plain=("module", "dpmodule", workload.network, batches),
    ) as sides:
        checks = {name: partial(_predictions, side) for name, side in sides.items()}
        section.note(f"{workload.title}: {agreement(checks, first_value, 0.0)}")
        found = in_turns({name: partial(side.ask, "predict") for name, side in sides.items()}, session.rounds)
    what = f"{workload.title}: predict, left, torch.compile"
    section.compare(what, found["left"], "Module(compile=True)", found["module"], (1.0, 1.0))
    what = f"{workload.title}: predict, left, as it is"
    section.compare(what, found["left_plain"], "Module", found["module_plain"])


def _predictions(side: Worker, path: str) -> list[float]:
    """Make a side predict and save the results."""
    losses: list[float] = side.ask("check", path=path, train=False)
    return losses


_FIGURES: tuple[Callable[[Session, Section], None], ...] = (_onnx_export, _safetensors, _published, _to_torch)
"""Measurements in order."""
