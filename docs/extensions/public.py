"""List the public names of a module in the reference, where a page of `docs/reference` names the module.

A page names modules in a block of one or more lines::

    ```{public}
    dpmodule.metric
    ```

The names are those that `dir` shows, without modules and without operators, which have separate pages. An object that
several modules show has its entry in the module that defines it, and a line in the others.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from since import since

if TYPE_CHECKING:
    from sphinx.application import Sphinx

__all__ = ["entries", "listed_modules", "public_names", "setup"]

BLOCK = re.compile(r"^```\{public\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
REFERENCE = Path(__file__).resolve().parents[1] / "reference"


def is_operator(value: object) -> bool:
    """Return True for a function generated from an operator: its `__module__` is a public module without such code."""
    home = getattr(value, "__module__", None) or ""
    return inspect.isfunction(value) and re.match(r"dpmodule\.(ndarray|symbol)(\.op)?$", home) is not None


def public_names(module: ModuleType) -> dict[str, Any]:
    """Return the public names of a module in the reference, and their values."""
    values = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {
        name: value
        for name, value in values.items()
        if not inspect.ismodule(value) and not is_operator(value)
    }


@cache
def listed_modules() -> tuple[str, ...]:
    """Return the modules that pages list, in the order of the pages."""
    pages = [page.read_text(encoding="utf-8") for page in sorted(REFERENCE.rglob("*.md"))]
    return tuple(name for page in pages for block in BLOCK.findall(page) for name in block.split())


@cache
def shown_in() -> dict[int, list[str]]:
    """Return the listed modules that show an object, by its id; only callable objects are identified by id."""
    modules_of: dict[int, list[str]] = {}
    for name in listed_modules():
        for value in public_names(importlib.import_module(name)).values():
            if callable(value):
                modules_of.setdefault(id(value), []).append(name)
    return modules_of


def home_of(value: object, module: str) -> str:
    """Return the listed module with the entry of a value that `module` shows: the nearest to its source."""
    source = f"{getattr(value, '__module__', '')}."
    shown = shown_in().get(id(value), [module])
    return max(shown, key=lambda name: len(name) if source.startswith(f"{name}.") else 0)


def first_name(value: object, names: dict[str, Any]) -> str:
    """Return the name under which a module lists a value: its own name, if the module shows it."""
    same = [name for name, other in names.items() if other is value]
    own = getattr(value, "__name__", "")
    return own if own in same else same[0]


def with_internal_bases(owner: type) -> list[type]:
    """Return a class, and its bases before the first that has its own entry or is not of this package.

    Their members appear only in the class's entry.
    """

    def is_internal(base: type) -> bool:
        return base.__module__.startswith("dpmodule.") and id(base) not in shown_in()

    return [owner, *takewhile(is_internal, owner.__mro__[1:])]


def operators_of(owner: type) -> Iterator[str]:
    """Yield the lines that list a class's operators as methods: one entry for all of them."""
    names = [name for name in vars(owner) if name[0] != "_" and is_operator(getattr(owner, name))]
    if names:
        yield ""
        lead = ".. py:method:: "
        for name in sorted(names):
            yield f"   {lead}{name}(*inputs, **attributes)"
            lead = " " * len(lead)
        yield ""
        yield "      Call the operator of this name, with this as its first input."


def entry(name: str, value: object, names: dict[str, Any], module: str) -> Iterator[str]:
    """Yield the lines of one name, in reStructuredText."""
    home = home_of(value, module)
    first = name
    if callable(value):
        first = first_name(value, names if home == module else public_names(importlib.import_module(home)))
    if (home, first) != (module, name):
        yield f".. py:data:: {name}"
        yield f"   :module: {module}"
        yield "   :no-index-entry:"
        yield ""
        yield f"   The same as :py:obj:`{home}.{first}`."
        yield ""
        yield f"   .. versionadded:: {since(f'{module}.{name}')}"
    elif inspect.isclass(value):
        yield f".. autoclass:: {module}.{name}"
        yield "   :members:"
        elsewhere = value.__mro__[len(with_internal_bases(value)) :]
        yield f"   :inherited-members: {', '.join(base.__name__ for base in elsewhere)}"
        yield "   :show-inheritance:"
        yield from operators_of(value)
    elif callable(value):
        yield f".. autofunction:: {module}.{name}"
    else:
        yield f".. autodata:: {module}.{name}"
        yield "   :no-value:"
    yield ""


def entries(module: str) -> Iterator[str]:
    """Yield the lines of a module's entries, in reStructuredText."""
    names = public_names(importlib.import_module(module))
    yield f".. automodule:: {module}"
    yield ""
    links = ", ".join(f":py:obj:`{name} <{module}.{name}>`" for name in names)
    yield from textwrap.wrap(links, 1000, break_long_words=False, break_on_hyphens=False)
    yield ""
    for name, value in names.items():
        yield from entry(name, value, names, module)


def skip_operators(app: Sphinx, what: str, name: str, value: object, skip: bool, options: Any) -> bool | None:
    """Skip methods that are operators, which share one entry."""
    del app, what, name, skip, options
    return True if is_operator(value) else None


def insert_entries(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace a page's blocks by entries."""
    del app
    if docname.startswith("reference/"):
        source[0] = BLOCK.sub(
            lambda block: "\n".join(
                ["```{eval-rst}", *(line for name in block[1].split() for line in entries(name)), "```"]
            ),
            source[0],
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.connect("source-read", insert_entries)
    app.connect("autodoc-skip-member", skip_operators)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
