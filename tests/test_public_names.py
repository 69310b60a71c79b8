"""MXNet's public names: those kept exist, those left out do not, each with its reason.

`public_names.json` lists, by module, names and the public members of classes; `public_names_left_out.json` gives a
reason for each of the others, "*" standing for a whole module and "Class.member" for a part of a class kept.
`star_imports.json` lists what a star import of each of MXNet's modules brings (`record_mxnet.py`).
"""

import functools
import importlib
import json
import types
from pathlib import Path

import pytest

import dpmodule as mx
from dpmodule import autobatch
from helpers.walk import walks

DATA = Path(__file__).parent / "data"
KEPT = json.loads((DATA / "public_names.json").read_text())
LEFT_OUT = json.loads((DATA / "public_names_left_out.json").read_text())
STARS = json.loads((DATA / "star_imports.json").read_text())
PASSING = "an internal import of MXNet's module"  # what a module happens to import is nobody's promise


def load(module):
    """Return a module by its name below the package, or by the attribute of that name."""
    try:
        return importlib.import_module(f"dpmodule.{module}" if module else "dpmodule")
    except ModuleNotFoundError:
        return functools.reduce(getattr, module.split("."), mx)


def has(owner, name):
    found = True
    for part in name.split("."):
        found, owner = found and hasattr(owner, part), getattr(owner, part, None)
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


def test_star_imports_bring_the_names_that_mxnets_do():
    lacking = {}
    for module, names in STARS.items():
        left = LEFT_OUT.get(module, {})
        if "*" in left:
            continue
        found: dict[str, object] = {}
        exec(f"from dpmodule{'.' if module else ''}{module} import *", found)
        lacking[module] = set(names.split()) - {*found, *left}
    assert {module: names for module, names in lacking.items() if names} == {}


def public_modules():
    """Yield the modules that somebody finds who looks around, and those that have MXNet's names."""
    waiting, seen = [load(module) for module in KEPT] + [autobatch, mx.streams.testing], set()
    while waiting:
        module = waiting.pop()
        if module.__name__ not in seen:
            seen.add(module.__name__)
            yield module
            below = (getattr(module, name) for name in dir(module) if not name.startswith("_"))
            waiting += [each for each in below if isinstance(each, types.ModuleType)]


def test_dir_shows_no_modules_of_pythons():
    names = set()
    for module in public_modules():
        assert module.__name__.split(".")[0] == "dpmodule"
        assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(module)), module
        names.add(module.__name__)
    assert {"dpmodule", "dpmodule.callback", "dpmodule.gluon.nn", "dpmodule.module.base_module"} <= names
    assert {"Module", "SequentialModule", "base_module"} <= set(dir(mx.mod))
    assert "math" not in dir(mx.callback)
    assert mx.callback.math.pi  # which programs written for MXNet may use all the same
