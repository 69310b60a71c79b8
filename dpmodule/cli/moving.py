"""What became of the names of other systems: where each is found here, and what to write for those that are not."""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import base

_OLD_OF = {
    "dpmodule.autobatch": "dynet",
    "dpmodule.fluid": "paddle.fluid",
    "dpmodule.agents": "parlai.core",
    "dpmodule": "mxnet",
}
"""What a path of this package was called, the longest first."""

_PARTS = {"_dynet": "dynet", "dynet_config": "dynet", "dynet_viz": "dynet"}
"""Modules of a system that stand beside its package."""


@dataclass(frozen=True)
class Place:
    """Where a name of an old program is found here."""

    path: str | None
    """The path here, with the package; None where there is nothing."""
    lacks: str = ""
    """What to do instead; empty if there is nothing to do but to write the new path."""
    is_module: bool = False


@cache
def known() -> Mapping[str, Any]:
    """Return what ``moving.json`` holds.

    "moved" has where modules went to, "absent" why a name was left out, "instead" what to use for one that is not here,
    all by the old path; "members" has what to do about members of objects, by system and name.
    """
    found: Mapping[str, Any] = json.loads(Path(__file__).with_name("moving.json").read_text(encoding="utf-8"))
    return found


def system_of(path: str) -> str:
    """Return the system that a dotted path belongs to, "" if it is none of these."""
    top = path.partition(".")[0]
    tops = {name.partition(".")[0] for name in (*known()["moved"], *known()["instead"])}
    return _PARTS.get(top, top) if top in tops else ""


def members(systems: set[str]) -> dict[str, str]:
    """Return what to do about members of objects, by name, for programs of some systems."""
    found = known()["members"]
    return {
        name: text for system in sorted(systems) if system in found for name, text in found[system].items()
    }


def longest(path: str, among: Mapping[str, str]) -> str:
    """Return the longest beginning of a dotted path, by whole words, that is among some, "" if none is."""
    while path and path not in among:
        path = path.rpartition(".")[0]
    return path


def advice(path: str) -> str:
    """Say what to do about an old name that is not here: why it was left out, and what to use instead."""
    why, instead = longest(path, known()["absent"]), longest(path, known()["instead"])
    found = [f"left out: {known()['absent'][why]}"] if why else []
    return "; ".join(found + ([known()["instead"][instead]] if instead else []))


@cache
def find(path: str) -> Place:
    """Look up a dotted path of an old program, such as ``mxnet.nd.array``.

    Nothing but this package is imported. What stands behind a name that is neither a module nor a class is not looked
    at, since only a running program knows what it is.
    """
    start = longest(path, known()["moved"])
    if not start:
        return Place(None, advice(path))
    new = known()["moved"][start]
    owner: Any = importlib.import_module(new)
    for name in path[len(start) :].split(".")[1:]:
        if not isinstance(owner, (ModuleType, type)):
            break
        found = _member(owner, name)
        if found is None:
            return Place(None, _lacking(path, owner, name))
        owner, new = found[0], f"{new}.{name}"
    if hasattr(owner, "__absent_path__"):  # may be named, as all of Gluon, but not used
        return Place(None, advice(f"mxnet.{owner.__absent_path__}"))
    return Place(new, is_module=isinstance(owner, ModuleType))


def _member(owner: Any, name: str) -> tuple[Any] | None:
    """Return a member of a module or class, which may be a module that has not been imported yet, or None."""
    try:
        return (getattr(owner, name),)
    except (AttributeError, base.MXNetError):
        pass
    if not isinstance(owner, ModuleType) or name.startswith("_"):
        return None
    try:
        return (importlib.import_module(f"{owner.__name__}.{name}"),)
    except ImportError:
        return None


def _lacking(path: str, owner: Any, name: str) -> str:
    """Say what to do about a name that its module or class here does not have."""
    parts = [owner.__name__] if isinstance(owner, ModuleType) else [owner.__module__, owner.__qualname__]
    here = ".".join(parts)
    start = next((new for new in _OLD_OF if f"{here}.".startswith(f"{new}.")), "dpmodule")
    old = f"{_OLD_OF[start]}{here[len(start) :]}.{name}"
    if start != "dpmodule" and isinstance(
        owner, type
    ):  # classes are named by the package that they are taken from
        old = f"{_OLD_OF[start]}.{owner.__qualname__}.{name}"
    text = advice(old) or advice(path)
    if text:
        return text
    near = difflib.get_close_matches(name, dir(owner), 1)
    return f"{here} has no {name}" + (f", the nearest name is {near[0]}" if near else "")
