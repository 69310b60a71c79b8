"""Write the tables of names under ``docs/moving``, and MXNet's missing names for ``dpmodule check --program``.

    python docs/moving_tables.py

reads the lists of names in ``tests/data`` and the package, and writes the pages ``docs/moving/*-names.md``,
``docs/moving/mxnet-members.md`` and ``docs/moving/mxnet-left-out.md``, and the part "absent" of
``dpmodule/cli/moving.json``. A test fails if one of them is not current.
"""

from __future__ import annotations

import functools
import importlib
import json
import textwrap
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dpmodule.agents
import dpmodule.autobatch
import dpmodule.fluid
import dpmodule.gluon
from dpmodule import ops
from dpmodule.cli import check_program

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
MOVING = ROOT / "dpmodule" / "cli" / "moving.json"
MADE = "<!-- made by docs/moving_tables.py -->"
A_ROW = 40  # names
SHORT = {
    "ndarray": "mx.nd",
    "symbol": "mx.sym",
    "module": "mx.mod",
    "initializer": "mx.init",
    "kvstore": "mx.kv",
    "monitor": "mx.mon",
    "visualization": "mx.viz",
}


def read(name: str) -> Any:
    """Return the content of a file of the tests' data."""
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def code(names: Iterable[str]) -> str:
    """Return names as code for a cell."""
    return " ".join(f"`{name}`" for name in names)


def cut(names: Sequence[str]) -> list[Sequence[str]]:
    """Return names split for the rows of a table."""
    return [names[start : start + A_ROW] for start in range(0, len(names), A_ROW)]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def page(title: str, text: str, *parts: Sequence[str]) -> str:
    """Return a page of a title, a paragraph and tables."""
    lines = [
        f"# {title}",
        "",
        MADE,
        "",
        *wrapped(text),
        *(line for part in parts for line in ("", *part)),
        "",
    ]
    return "\n".join(lines)


def wrapped(text: str) -> list[str]:
    """Return the lines of a paragraph."""
    return textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False)


def mxnet_path(module: str) -> str:
    """Return the name of an MXNet module in programs."""
    first, dot, rest = module.partition(".")
    return f"{SHORT.get(first, f'mx.{first}')}{dot}{rest}" if module else "mx"


def mxnet_names(kept: Mapping[str, Any]) -> str:
    """Return the page of the supported names."""
    rows = []
    for module, found in kept.items():
        names = sorted([*found.get("names", "").split(), *found.get("classes", {})])
        here = f"dpmodule.{module}" if module else "dpmodule"
        rows += [(f"`{mxnet_path(module)}`", f"`{here}`", code(part)) for part in cut(names)]
    count = sum(len(row[2].split()) for row in rows)
    stored = {
        "mx.np": sorted(name for name in ops.names() if name.startswith(("_np_", "_npi_"))),
        "mx.npx": sorted(name for name in ops.names() if name.startswith("_npx_")),
    }
    files = [(f"`{face}`", code(part)) for face, names in stored.items() for part in cut(names)]
    return page(
        "MXNet: supported names",
        f"{count:,} names of MXNet 1.9.1, module by module. All keep their names and modules: after "
        "`import dpmodule as mx`, a name of `mx.nd` is in `mx.nd`. Other pages list [members of "
        "classes](mxnet-members.md) and [missing names](mxnet-left-out.md).",
        table(("MXNet", "dpmodule", "names, the same in both"), rows),
        ["## Operators in files"],
        wrapped(
            "Files exported under `npx.set_np()` by MXNet 1.6 to 1.9 and 2.0 contain these operators of `mx.np` and "
            "`mx.npx`, whose interfaces are not part of this package. Each is in `mx.sym._internal`. A graph with one "
            "of them, or a file with the mark `is_np_shape`, has NumPy's meaning of shapes: () is a scalar, and 0 the "
            "length of an empty axis. Operators that ONNX lacks are listed in [ONNX](../interop/to_onnx.md)."
        ),
        table(("interface", "operators"), files),
    )


def mxnet_members(kept: Mapping[str, Any]) -> str:
    """Return the page of members of classes; classes with the same members share a row."""
    rows = []
    for module, found in kept.items():
        same: dict[str, list[str]] = {}
        for name, members in found.get("classes", {}).items():
            same.setdefault(members, []).append(name)
        for members, names in same.items():
            parts = cut(members.split()) or [["only the constructor"]]
            shown = code(names)
            rows += [(f"`{mxnet_path(module)}`", shown, code(part) if members else part[0]) for part in parts]
    count = sum(
        len(members.split()) for found in kept.values() for members in found.get("classes", {}).values()
    )
    return page(
        "MXNet: members of classes",
        f"{count:,} public methods and properties of MXNet 1.9.1's classes that have the same name in dpmodule.",
        table(("module", "classes", "members, the same in both"), rows),
    )


def by_reason(left: Mapping[str, str]) -> dict[str, list[str]]:
    """Return missing names by reason, starting with the reason of the most names."""
    names_of: dict[str, list[str]] = {}
    for name, why in left.items():
        names_of.setdefault(why, []).append(name)
    return dict(sorted(names_of.items(), key=lambda item: -len(item[1])))


def shown_path(module: str, name: str) -> str:
    """Return a missing name as programs write it; "*" is the whole module."""
    return mxnet_path(module) if name == "*" else f"{mxnet_path(module)}.{name}"


def full_path(module: str, name: str) -> str:
    """Return the full path of a missing name."""
    return ".".join(part for part in ("mxnet", module, "" if name == "*" else name) if part)


def mxnet_left_out(left: Mapping[str, Mapping[str, str]], operators: Mapping[str, str]) -> str:
    """Return the page of missing names, with the reasons."""
    instead = json.loads(MOVING.read_text(encoding="utf-8"))["instead"]
    names = {shown_path(module, name): why for module, found in left.items() for name, why in found.items()}
    full = {
        shown_path(module, name): full_path(module, name) for module, found in left.items() for name in found
    }
    rows = [
        (why, code(part), "; ".join(sorted({instead[full[name]] for name in part if full[name] in instead})))
        for why, found in by_reason(names).items()
        for part in cut(found)
    ]
    others = [(why, code(part)) for why, found in by_reason(operators).items() for part in cut(found)]
    return page(
        "MXNet: missing names",
        f"{len(names)} names of MXNet 1.9.1's modules, {len(operators)} registered names of operators, which programs "
        "hardly ever use, and the names of Gluon. See also [Moving from MXNet](mxnet.md).",
        ["## Names of modules"],
        table(("reason", "names", "use instead"), rows),
        ["## Operators"],
        table(("reason", "names"), others),
        ["## Gluon"],
        wrapped(
            "Networks that Gluon exported run and train in [gluon.SymbolBlock](gluon-exports.md); its layers are left "
            "out. These names can be imported and derived from, so a program with both kinds of networks runs; "
            "creating or calling one is an error."
        ),
        table(("package", "names", "use instead"), gluon_rows(instead)),
    )


def gluon_rows(instead: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the rows of Gluon's names, by package."""
    names_of: dict[str, set[str]] = {}
    waiting, seen = [dpmodule.gluon], set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        for name in dir(module):
            value = getattr(module, name) if not name.startswith("_") else None
            if isinstance(value, types.ModuleType) and value.__name__.startswith("dpmodule.gluon."):
                waiting.append(value)
            elif hasattr(value, "__left_out_path__"):
                place, _, last = value.__left_out_path__.rpartition(".")
                names_of.setdefault(place, set()).add(last)
    return [
        (f"`mx.{place}`", code(part), instead[check_program.longest_prefix(f"mxnet.{place}", instead)])
        for place, names in sorted(names_of.items())
        for part in cut(sorted(names))
    ]


def dynet_names(recorded: Mapping[str, Any]) -> str:
    """Return the page of DyNet's names."""
    instead = json.loads(MOVING.read_text(encoding="utf-8"))["instead"]
    dy = dpmodule.autobatch
    functions, classes = recorded["names"].split(), recorded["classes"]
    kept = [name for name in functions if hasattr(dy, name)]
    absent = [name for name in (*functions, *classes) if not hasattr(dy, name)]
    same: dict[tuple[str, str], list[str]] = {}
    for name, text in classes.items():
        if hasattr(dy, name):
            there = [member for member in text.split() if has_member(getattr(dy, name), member)]
            lacking = [member for member in text.split() if member not in there]
            same.setdefault((code(there), code(lacking)), []).append(name)
    members = [(code(names), there, lacking) for (there, lacking), names in same.items()]
    return page(
        "DyNet: names",
        f"All {len(functions) + len(classes)} public names of DyNet's Python module. `dy` is `dynet` in DyNet and "
        "`dpmodule.autobatch` in dpmodule; the names are the same. [Moving from DyNet](dynet.md) lists differences in "
        "behaviour.",
        ["## Functions and values"],
        table(
            ("DyNet", "dpmodule", "names, the same in both"),
            [("`dy`", "`dy`", code(part)) for part in cut(kept)],
        ),
        ["## Classes"],
        table(("classes, the same in both", "members, the same in both", "members left out"), members),
        wrapped(
            "`ComputationGraph` has no methods with node numbers: use `cg_version()`, `forward()` and `value()` of "
            "expressions, `print_text_graphviz()`, `inputTensor()`. `inputTensorTranspose` is a function."
        ),
        ["## Left out"],
        table(("name", "what to do"), [(f"`{name}`", instead[f"dynet.{name}"]) for name in absent]),
        ["Instead of `dynet_config` and `dynet_viz`, use `configure`, `print_text_graphviz` and `explain`."],
    )


@functools.cache
def has_member(kind: type, name: str) -> bool:
    """Return True if objects of a class have a member; builders create some members on construction."""
    if hasattr(kind, name):
        return True
    if not kind.__name__.endswith("Builder"):
        return False
    builder = kind(1, 2, 2, dpmodule.autobatch.ParameterCollection())
    return hasattr(builder, name)


def public(owner: Any) -> list[str]:
    """Return the public names of a module, without its submodules."""
    return [
        name
        for name in sorted(owner.__all__)
        if not isinstance(getattr(owner, name), types.ModuleType) and not name.startswith("_")
    ]


def paddle_names() -> str:
    """Return the page of fluid's names."""
    instead = json.loads(MOVING.read_text(encoding="utf-8"))["instead"]
    fluid = dpmodule.fluid
    owners = {"": fluid} | {
        name: getattr(fluid, name)
        for name in fluid.__all__
        if isinstance(getattr(fluid, name), types.ModuleType)
    }
    rows = [
        (f"`{'.'.join(filter(None, ('fluid', name)))}`", code(part))
        for name, owner in owners.items()
        for part in cut(public(owner))
    ]
    absent = [
        (
            "anything else of `paddle`" if path == "paddle" else f"`{path.replace('paddle.fluid', 'fluid')}`",
            what,
        )
        for path, what in instead.items()
        if path.startswith("paddle") and path != "paddle.fluid"
    ]
    return page(
        "Paddle: names",
        "`fluid` is `paddle.fluid` in Paddle and `dpmodule.fluid` in dpmodule. [Moving from Paddle](paddle.md) lists "
        "differences in behaviour.",
        ["## The same in both"],
        table(("module", "names"), rows),
        ["## Left out"],
        table(("in Paddle 1.x", "what to do"), absent),
        wrapped(
            "All other names are missing, too: write the network with `mx.sym`, and train it with `mx.mod.Module`. "
            "`dpmodule check --program FILE.py` finds such lines."
        ),
    )


def parlai_names() -> str:
    """Return the page of ParlAI's modules."""
    data = json.loads(MOVING.read_text(encoding="utf-8"))
    moved = [
        (f"`{old}`", f"`{new}`") for old, new in sorted(data["moved"].items()) if old.startswith("parlai")
    ]
    others = {"parlai.core": "dpmodule.agents.parlai.core"} | {
        old: new for old, new in sorted(data["moved"].items()) if new.startswith("dpmodule.agents.parlai.")
    }
    owners = {old: importlib.import_module(new) for old, new in others.items()}
    further = [
        (f"`{old}`", code(part))
        for old, owner in owners.items()
        for part in cut([name for name in public(owner) if name not in dpmodule.agents.__all__])
    ]
    absent = [(f"`{old}`", what) for old, what in data["instead"].items() if old.startswith("parlai.")]
    return page(
        "ParlAI: names",
        "The names of many modules of ParlAI of 2018 are in one module, `dpmodule.agents`; `python -m dpmodule --as "
        "parlai` answers all these paths. [Moving from ParlAI](parlai.md) lists differences in behaviour.",
        ["## Modules"],
        table(("ParlAI", "dpmodule"), moved),
        ["## Names of `dpmodule.agents`"],
        table(("names",), [(code(part),) for part in cut(public(dpmodule.agents))]),
        ["## Further names"],
        table(("ParlAI", "names"), further),
        ["## Left out"],
        table(("ParlAI", "what to do"), absent),
    )


def written() -> dict[Path, str]:
    """Return the texts of all files, by path."""
    kept, left = read("public_names.json"), read("public_names_left_out.json")
    data = json.loads(MOVING.read_text(encoding="utf-8"))
    absent = {full_path(module, name): why for module, found in left.items() for name, why in found.items()}
    folder = ROOT / "docs" / "moving"
    return {
        MOVING: json.dumps({**data, "absent": dict(sorted(absent.items()))}, indent=1) + "\n",
        folder / "mxnet-names.md": mxnet_names(kept),
        folder / "mxnet-members.md": mxnet_members(kept),
        folder / "mxnet-left-out.md": mxnet_left_out(left, read("operators_left_out.json")),
        folder / "dynet-names.md": dynet_names(read("dynet_names.json")),
        folder / "paddle-names.md": paddle_names(),
        folder / "parlai-names.md": parlai_names(),
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
