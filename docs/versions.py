"""Record the version of dpmodule that added each public name in `docs/versions.json`, which the reference shows.

``python docs/versions.py`` adds new names under the version `dpmodule.__version__` and removes names that no longer
exist; all others remain unchanged. `tests/test_reference.py` fails if it would change something.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import dpmodule as mx
from dpmodule import ops

sys.path.insert(0, str(Path(__file__).with_name("extensions")))
# the line above makes both importable
from public import home_of, is_operator, listed_modules, public_names, with_internal_bases
from since import FILE, Names, read

__all__ = ["names", "renewed", "text_of"]


def of_module(module: str) -> Iterator[str]:
    """Yield the public names of a module, and the public members of classes that have their entry in it."""
    for name, value in public_names(importlib.import_module(module)).items():
        yield name
        if inspect.isclass(value) and home_of(value, module) == module:
            members = {member for each in with_internal_bases(value) for member in vars(each)}
            for member in members:
                if not member.startswith("_") and not is_operator(getattr(value, member)):
                    yield f"{name}.{member}"


def names() -> Names:
    """Return all current names."""
    return {"operators": set(ops.names()), **{module: set(of_module(module)) for module in listed_modules()}}


def renewed(known: Mapping[str, Names], now: Names, version: str) -> dict[str, Names]:
    """Return the known names with new names under a version, and without removed names."""
    kept = {
        each: {module: found & now.get(module, set()) for module, found in of.items()}
        for each, of in known.items()
    }
    new = kept.setdefault(version, {})
    for module, found in now.items():
        old = set[str]().union(*(of.get(module, ()) for of in kept.values()))
        new[module] = new.get(module, set()) | (found - old)
    return {each: {module: found for module, found in of.items() if found} for each, of in kept.items()}


def text_of(known: Mapping[str, Names]) -> str:
    """Return the text of the file, in lines that differ little from one version to the next."""
    wrapped = textwrap.TextWrapper(110, break_long_words=False, break_on_hyphens=False).wrap
    table = {
        version: {module: wrapped(" ".join(sorted(of[module]))) for module in sorted(of)}
        for version, of in known.items()
    }
    return json.dumps(table, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text_of(renewed(read(), names(), mx.__version__)), encoding="utf-8")
