"""Classes of agents and tasks by name: those that are ready, and any by ``package.module:Class:arguments``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from ..base import ArgumentError

__all__ = [
    "AGENTS",
    "TASKS",
    "agent_class",
    "class2str",
    "module_named",
    "str2class",
    "task_class",
    "teacher_of",
]

AGENTS: Mapping[str, str] = MappingProxyType(
    {
        "ir_baseline": "dpmodule.agents.baselines:IrBaselineAgent",
        "random_candidate": "dpmodule.agents.baselines:RandomCandidateAgent",
        "repeat_label": "dpmodule.agents.baselines:RepeatLabelAgent",
        "repeat_query": "dpmodule.agents.baselines:RepeatQueryAgent",
        "seq2seq": "dpmodule.agents.seq2seq:Seq2seqAgent",
        "starspace": "dpmodule.agents.starspace:StarspaceAgent",
    }
)
"""Agents that are ready, by the name that ``--model`` takes."""

TASKS: Mapping[str, str] = MappingProxyType(
    {
        "docs": "dpmodule.agents.tasks:DocsTeacher",
        "fromfile": "dpmodule.agents.tasks:FromFileTeacher",
        "nocandidate": "dpmodule.agents.tasks:NoCandidateTeacher",
        "reverse": "dpmodule.agents.tasks:ReverseTeacher",
    }
)
"""Tasks that are ready, by the name that ``--task`` takes."""

_OWN = "dpmodule.agents"
_DEFAULT = "DefaultTeacher"
"""The class of a module of tasks that is named alone."""


def agent_class(spec: str, trusted: Collection[str | None] | None = None) -> tuple[Any, str]:
    """Return the class of agents that a name stands for, and the arguments behind it.

    Args:
        spec: the name of an agent that is ready, or ``package.module:Class``, either with ``:arguments`` behind it.
        trusted: modules that may be imported besides our own; None: any. For names that come from a file.

    Raises:
        ArgumentError: there is no such agent, or its module is not trusted.
    """
    return _find("model", spec, AGENTS, trusted)


def task_class(spec: str) -> tuple[Any, str]:
    """Return the class of teachers that a name stands for, and the arguments behind it; see `agent_class`.

    A module alone means its class ``DefaultTeacher``.

    Raises:
        ArgumentError: there is no such task.
    """
    return _find("task", spec, TASKS, None)


def teacher_of(opt: Mapping[str, Any], task: str) -> Any:
    """Return the teacher of a task.

    Args:
        opt: options; the teacher gets the name of the task, and the arguments behind it as ``task_arguments``, too.
        task: the name; see `task_class`.

    Raises:
        ArgumentError: there is no such task.
    """
    kind, arguments = task_class(task)
    return kind({**opt, "task": task, "task_arguments": arguments})


def str2class(value: str) -> Any:
    """Return the class that a text such as ``package.module:Class`` names.

    Args:
        value: the text.

    Raises:
        ArgumentError: there is none.
    """
    module, _, name = value.partition(":")
    if not name:
        raise ArgumentError(f"str2class: {value!r} names no class, expected package.module:Class")
    return _imported("str2class", module, name)


def class2str(value: type) -> str:
    """Return the text that `str2class` reads.

    Args:
        value: a class.
    """
    return f"{value.__module__}:{value.__qualname__}"


def module_named(spec: str | None) -> str | None:
    """Return the module that a name has in front, None where it is the name of something ready."""
    head = (spec or "").partition(":")[0].strip()
    return None if not head or head in AGENTS or head in TASKS else head


def _find(
    option: str, spec: str, ready: Mapping[str, str], trusted: Collection[str | None] | None
) -> tuple[Any, str]:
    if not isinstance(spec, str) or not spec.strip():
        raise ArgumentError(f"{option} is {spec!r}, expected a name such as {sorted(ready)[0]!r}")
    head, _, rest = spec.strip().partition(":")
    if head in ready:
        path, arguments = ready[head], rest
    else:
        name, _, arguments = rest.partition(":")
        if not name and option == "task" and _is_module(head):
            name = _DEFAULT
        path = f"{head}:{name}"
        if not name:
            raise _unknown(option, spec, ready)
    module, _, name = path.partition(":")
    is_own = module == _OWN or module.startswith(f"{_OWN}.")
    if trusted is not None and not is_own and module not in trusted:
        raise ArgumentError(
            f"{option}: the saved options name {path!r}, whose module is not imported because a file says so; "
            f'if you trust it, name it, too: opt["{option}"] = {path!r}'
        )
    return _imported(option, module, name), arguments


def _imported(option: str, module: str, name: str) -> Any:
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # it is there, and imports something that is not
        raise ArgumentError(
            f"{option}: there is no module {module!r}; expected package.module:Class, importable from here"
        ) from error
    except AttributeError as error:
        raise ArgumentError(f"{option}: the module {module!r} has no {name!r}") from error
    if not isinstance(found, type):
        raise ArgumentError(f"{option}: {module}:{name} is of type {type(found).__name__}, expected a class")
    return found


def _is_module(name: str) -> bool:
    with suppress(ImportError, ValueError):  # a package of its path is missing, or it is not a name
        return name in sys.modules or importlib.util.find_spec(name) is not None
    return False


def _unknown(option: str, spec: str, ready: Mapping[str, str]) -> ArgumentError:
    close = difflib.get_close_matches(spec.partition(":")[0], ready, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ArgumentError(
        f"{option} is {spec!r}, expected one of {', '.join(sorted(ready))}, or package.module:Class:arguments{hint}"
    )
