"""Random layers and thirty networks that nothing is tuned to, against torch, ONNX Runtime, OpenVINO and JAX."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..harness import Session, Worker, in_turns, ratio
from ..report import Section
from ..settings import USUAL, Setting

__all__ = ["run"]

_ABOUT = """\
Layers of 24 families, drawn by a new seed in every run, and thirty networks that nothing is tuned to, at batch 1, 8
and 64. A cell is the time of the other over ours: above 1, ours is faster. Prediction by `Module.forward`, training
steps by `forward`, `backward` and, for networks, `update`; torch runs eagerly in the usual layout and in
channels_last, and `torch.compile` compiles each network once. JAX runs the networks that `jaxonnxruntime` can read. Two
further seeds draw layers only. With AVX2 and with default threads, layers and networks run against eager torch. MB is
the most memory that a process holds for a case, weights included, above what it held before."""

LAYERS, BATCHES = 120, (1, 8, 64)
COMPILERS = ("compiled", "onnxruntime", "openvino", "jax")
LONG_MS = 0.05
"""Layers that take torch less than this are judged by the overhead over torch."""
WORST = 20

MEDIAN, TENTH, LEAST = (1.0, 1.0), (0.9, 0.9), (0.8, 0.8)
OVERHEAD_US = {"module": (15.0, 5.0), "executor": (5.0, 2.0)}
NETWORK_TORCH, NETWORK_ORT_MEDIAN, NETWORK_ORT_LEAST = (1.1, 1.1), (1.0, 1.15), (0.8, 1.0)
FIT_LEAST, FIT_MEDIAN = (1.05, 1.05), (1.2, 1.2)

SETTINGS = {"": USUAL, ", AVX2": Setting("avx2"), ", default threads": Setting(threads="default")}
"""Settings by what their titles end with."""


def run(session: Session) -> Section:
    """Measure layers and networks; in quick sessions the first few."""
    from ..many_networks import NETWORKS

    section = Section("Networks without tuning", _ABOUT)
    seed = int(time.strftime("%Y%m%d%H%M"))
    section.note(f"seeds {seed}, {seed + 1}, {seed + 2}")
    names = list(NETWORKS)[:3] if session.quick else list(NETWORKS)
    for title, setting in SETTINGS.items():
        if setting.problem():
            continue
        here = replace(session, setting=setting)
        further = () if title else COMPILERS
        kinds = ("module", "executor", "torch", "channels_last", *further)
        with here.sides(**{kind: ("untuned", kind, seed) for kind in kinds}) as sides:
            layers = {n: side for n, side in sides.items() if n not in ("channels_last", "compiled", "jax")}
            _layers(here, layers, section, title)
            nets = {name: side for name, side in sides.items() if name != "executor"}
            _networks(here, nets, names, section, title)
    for more in (1, 2):
        with session.sides(**{kind: ("untuned", kind, seed + more) for kind in kinds[:3]}) as sides:
            _layers(session, sides, section, f", seed {more + 1}")
    return section


def _measured(
    session: Session, sides: Mapping[str, Worker], what: int | str, batch: int = 1
) -> dict[str, Any]:
    """Prepare a case on every side, compare the outputs, and return its times by run and side."""
    known = {name: side.ask("prepare", case=what, batch=batch) for name, side in sides.items()}
    outputs = {name: np.array(side.ask("output")) for name, side in sides.items() if known[name]["runs"]}
    for name, found in outputs.items():
        if not np.allclose(
            found, outputs["torch"], rtol=2e-3, atol=2e-3 * max(1.0, np.abs(found[2:]).max(initial=0))
        ):
            raise SystemExit(f"{name} computes other numbers than torch: {known['torch']['text']}")
    runs = {}
    for kind in ("predict", "fit"):
        able = {name: side for name, side in sides.items() if kind in known[name]["runs"]}
        asked = {
            name: (lambda side=side, kind=kind: side.ask("measure", run=kind)) for name, side in able.items()
        }
        times = in_turns(asked, session.rounds, warm=0, settle=session.settles)
        runs[kind] = {name: each[session.clock] for name, each in times.items()}
        runs[f"{kind} MB"] = {name: side.ask("held", run=kind) for name, side in able.items()}
    return {"family": known["torch"]["family"], "text": known["torch"]["text"], **runs}


def _share(found: Mapping[str, Sequence[float]], other: str) -> float:
    return ratio(found[other], found["module"]).median


def _layers(session: Session, sides: Mapping[str, Worker], section: Section, setting: str) -> None:
    found = [_measured(session, sides, number) for number in range(24 if session.quick else LAYERS)]
    for kind in ("predict", "fit"):
        for other in ("torch", "onnxruntime", "openvino"):
            if other not in found[0][kind]:
                continue
            times = [(each, statistics.median(each[kind][other])) for each in found]
            long = [
                (each, _share(each[kind], other)) for each, ms in times if ms >= LONG_MS or other != "torch"
            ]
            bounds = (MEDIAN, TENTH, LEAST) if other == "torch" and not session.quick else (None, None, None)
            _quantiles(section, f"layers, {kind}, {other}{setting}", [share for _, share in long], bounds)
            for each, share in sorted(long, key=lambda pair: pair[1])[:WORST]:
                theirs, ours = (statistics.median(each[kind][name]) for name in (other, "module"))
                section.row(
                    f"Slowest layers against {other}, {kind}, milliseconds{setting}",
                    family=each["family"], layer=each["text"], theirs=f"{theirs:.3f}", ours=f"{ours:.3f}",
                    ratio=f"{share:.2f}",
                )  # fmt: skip
        for ours, bounds in OVERHEAD_US.items():
            measured = (each[kind] for each in found if ours in each[kind])
            short = [each for each in measured if statistics.median(each["torch"]) < LONG_MS]
            if short:
                over = [
                    1e3 * (statistics.median(each[ours]) - statistics.median(each["torch"])) for each in short
                ]
                title = f"short layers, {kind}, {ours} over torch, µs{setting}"
                verdict = section.hold(title, max(over), None if session.quick else bounds, at_most=True)
                section.note(
                    f"{title}: median {statistics.median(over):.1f}, largest {max(over):.1f}: {verdict}"
                )


def _quantiles(section: Section, title: str, shares: Sequence[float], bounds: Iterable[Any]) -> None:
    """Add a row of quantiles, and compare median, lowest tenth and least with their targets."""
    if not shares:
        return
    figures = {
        "median": statistics.median(shares),
        "lowest_tenth": float(np.quantile(shares, 0.1)),
        "least": min(shares),
    }
    verdicts = [
        section.hold(f"{title}, {name}", value, bound)
        for (name, value), bound in zip(figures.items(), bounds)
    ]
    cells = {name: f"{value:.2f}" for name, value in figures.items()}
    section.row(
        "Time of the other over ours", what=title, count=len(shares), **cells, target="; ".join(verdicts)
    )


def _networks(
    session: Session, sides: Mapping[str, Worker], names: Sequence[str], section: Section, setting: str
) -> None:
    shares: dict[str, list[float]] = {}
    for name in names:
        for batch in BATCHES:
            found = _measured(session, sides, name, batch)
            for kind in ("predict", "fit"):
                times = {side: statistics.median(values) for side, values in found[kind].items()}
                cells = {side: f"{times[side] / times['module']:.2f}" for side in times if side != "module"}
                better = min(times["torch"], times["channels_last"]) / times["module"]
                shares.setdefault(f"networks, {kind}, torch's better layout{setting}", []).append(better)
                for side in COMPILERS:
                    if side in times:
                        shares.setdefault(f"networks, {kind}, {side}{setting}", []).append(
                            times[side] / times["module"]
                        )
                row = {"network": name, "batch": batch, "ours_ms": f"{times['module']:.3f}", **cells}
                for side in ("module", "torch", "onnxruntime"):
                    if side in times:
                        row[f"{side}_MB"] = f"{found[f'{kind} MB'][side]:.0f}"
                section.row(f"Networks, {kind}: time of the other over ours{setting}", **row)
    bounds: dict[str, tuple[Any, Any, Any]] = {
        f"networks, predict, torch's better layout{setting}": (None, None, NETWORK_TORCH),
        "networks, predict, onnxruntime": (NETWORK_ORT_MEDIAN, None, NETWORK_ORT_LEAST),
        f"networks, fit, torch's better layout{setting}": (FIT_MEDIAN, None, FIT_LEAST),
    }
    for title, values in shares.items():
        _quantiles(section, title, values, (None,) * 3 if session.quick else bounds.get(title, (None,) * 3))
