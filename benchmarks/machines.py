"""Figures by processor and setting, each in a file of `machines/` and a column of the report.

A file contains the environment (processor, cores, instruction sets, threads, versions of libraries) and the sections of
the report as in results.json.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from .settings import ISAS, Setting, processor

__all__ = ["PARTS", "columns", "keep", "known"]

PARTS = ("fit", "bucketing", "kernels", "autobatch")
"""Parts with figures by processor."""
VERSION = 1
"""Version of the file format."""

_ABOUT = """\
## Processors and settings

One column for each file of `machines/`. A figure is the other's time over ours, the median of the rounds: CPU time with
one thread, wall time with default threads, of which each library chooses the number. There each turn has two rounds of
the same side, and the second one counts: threads look out for more work for a while after their side's turn, and sleep
until the next. "AVX2" means that all sides do without what the processor has beyond it: `--isa` sets
ONEDNN_MAX_CPU_ISA, ATEN_CPU_CAPABILITY, MKL_ENABLE_INSTRUCTIONS, OPENBLAS_CORETYPE and DPMODULE_ISA; on AMD's
processors MKL does not heed its one, and computes as it does without. ONNX Runtime, DyNet and the compiler of
`torch.compile` have no such setting and are left out where it takes instructions away. PyTorch is the plain loop that
was fastest with the column's setting.
"""


def _name(about: Mapping[str, Any]) -> str:
    return f"{about['processor']}, {about['cores']} cores, {Setting(about['isa'], about['threads'])}"


def known(folder: Path) -> list[dict[str, Any]]:
    """Return the contents of the files of a folder by file name.

    Raises:
        ValueError: a file has another version; the message names it.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            each: Any = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path}: expected JSON of version {VERSION}: {error}") from None
        version = each.get("version") if isinstance(each, dict) else None
        if version != VERSION:
            raise ValueError(
                f"{path}: expected version {VERSION}, found {version}; measure again without the file"
            )
        found.append(each)
    return found


def keep(folder: Path, setting: Setting, versions: Mapping[str, str], parts: Mapping[str, Any]) -> Path:
    """Write sections to the file of this processor and a setting; other parts are kept.

    Args:
        folder: folder of the files.
        setting: setting of all sides.
        versions: versions of the compared packages.
        parts: sections by part, in JSON form.
    """
    model, flags = processor()
    own = {name: metadata.version(name) for name in ("torch", "numpy")}
    about = {
        "version": VERSION,
        "processor": model,
        "cores": os.cpu_count(),
        "instructions": [name for name, isa in ISAS.items() if isa.flags <= flags],
        "isa": setting.isa,
        "threads": setting.threads,
        "clock": setting.clock,
    }
    path = folder / (re.sub(r"[^a-z0-9]+", "-", _name(about).lower()).strip("-") + ".json")
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    about["libraries"] = {
        **before.get("libraries", {}),
        "python": platform.python_version(),
        **own,
        **versions,
    }
    about["parts"] = {**before.get("parts", {}), **parts}
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return path


def _ratios(about: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the comparisons (workload and other side) and their medians."""
    column = {"cpu": "ratio CPU", "wall": "ratio wall"}[about["clock"]]
    for part in PARTS:
        for lines in about["parts"].get(part, {}).get("tables", {}).values():
            rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
            for cells in rows[2:]:
                row = dict(zip(rows[0], cells))
                if column in row and "against" in row:
                    yield (row["what"], _who(row["against"])), row[column].partition(" ")[0]


def _who(against: str) -> str:
    """Return the other side of a row, without the variant of PyTorch that was fastest."""
    return re.sub(r"^(PyTorch by hand|PyTorch)\b.*", r"\1", against)


def columns(folder: Path) -> str:
    """Return the part of the report with a column for each file, "" if there are none."""
    found = known(folder)
    if not found:
        return ""
    by_file = [dict(_ratios(each)) for each in found]
    names = [_name(each) for each in found]
    lines = ["| " + " | ".join(("what", "against", *names)) + " |", "|---" * (2 + len(names)) + "|"]
    lines += [
        "| " + " | ".join((*key, *(each.get(key, "") for each in by_file))) + " |"
        for key in dict.fromkeys(key for each in by_file for key in each)
    ]
    return "\n".join(["", _ABOUT, *lines, "", *map(_note, found)]) + "\n"


def _note(about: Mapping[str, Any]) -> str:
    """Return the description of a column."""
    has = ", ".join(ISAS[isa].title for isa in about["instructions"]) or "other instructions"
    libraries = ", ".join(f"{library} {version}" for library, version in about["libraries"].items())
    lines = [f"- {_name(about)}. The processor has {has}; {libraries}."]
    return "\n".join(lines + [f"  - {part}: {each['where']}" for part, each in about["parts"].items()])
