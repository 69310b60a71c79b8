"""MXNet's public names: those kept exist, those left out do not, each with its reason.

`public_names.json` lists, by module, names and the public members of classes; `public_names_left_out.json` gives a
reason for each of the others, "*" standing for a whole module and "Class.member" for a part of a class kept.
"""

import functools
import importlib
import json
from pathlib import Path

import pytest

import dpmodule as mx
from helpers.walk import walks

DATA = Path(__file__).parent / "data"
KEPT = json.loads((DATA / "public_names.json").read_text())
LEFT_OUT = json.loads((DATA / "public_names_left_out.json").read_text())
PASSING = "an import of MXNet's module for its own use"  # what a module happens to import is nobody's promise


def load(module):
    """Return a module by its name below the package, or by the attribute of that name."""
    try:
        return importlib.import_module(f"dpmodule.{module}" if module else "dpmodule")
    except ModuleNotFoundError:
        return functools.reduce(getattr, module.split("."), mx)


def has(owner, name):
    found = True
    for part in name.split("."):
        found = found and hasattr(owner, part)
        owner = getattr(owner, part, None)
    return found


@walks(KEPT)
def test_kept_names_exist(module):
    owner, kept = load(module), KEPT[module]
    names = kept.get("names", "").split()
    names += [f"{name}.{part}" for name, parts in kept.get("classes", {}).items() for part in parts.split()]
    assert [name for name in names if not has(owner, name)] == []


@walks(LEFT_OUT)
def test_names_left_out_do_not_exist(module):
    left = LEFT_OUT[module]
    if "*" in left:
        with pytest.raises((ImportError, AttributeError)):
            load(module)
        return
    owner = load(module)
    assert [name for name, why in left.items() if not why.startswith(PASSING) and has(owner, name)] == []


def test_every_reason_is_a_sentence():
    for module, left in LEFT_OUT.items():
        for name, why in left.items():
            assert len(why.split()) > 3, (module, name)


def test_nothing_is_both_kept_and_left_out():
    for module, left in LEFT_OUT.items():
        kept = KEPT.get(module, {})
        assert not set(left) & {*kept.get("names", "").split(), *kept.get("classes", {})}
