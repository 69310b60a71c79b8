"""`Agent`, its options, and how agents and tasks are created from names and saved files.

Source: ParlAI of 2018 (Miller et al., "ParlAI: A Dialog Research Software Platform", EMNLP 2017).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import math
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from ..base import ArgumentError, FileError, FileFormatError
from ..files import read_settled

_KNOWN_OPTIONS = (
    "batch_sort",
    "batchsize",
    "cands_datafile",
    "context_length",
    "datatype",
    "hide_labels",
    "hogwild_ahead",
    "hogwild_mode",
    "hogwild_timeout_s",
    "include_labels",
    "max_batch_tokens",
    "model_file",
    "numthreads",
    "on_bad_line",
)
"""Options by which worlds and teachers run differently, and which a program does not use for something else."""

_CUTOFF = 0.85


def check_names(opt: Mapping[str, Any], names: Collection[str] = _KNOWN_OPTIONS) -> None:
    """Refuse options whose names differ from known ones only in case, ``_`` and ``-``; warn of others that are close.

    An option that is there under its right name, too, may have a neighbour of any name.

    Args:
        names: those that are known (default: those of worlds and teachers).
    """
    missing = {_normalized(name): name for name in names if name not in opt}
    for name in (name for name in opt if name not in names):
        letters = _normalized(str(name))
        if letters in missing:
            raise ArgumentError(
                f"there is no option {name!r}; did you mean {missing[letters]!r}? An option of your own needs another "
                "name"
            )
        for near in difflib.get_close_matches(letters, missing, 1, _CUTOFF):
            warnings.warn(
                f"opt has {name!r}, which nothing here reads; did you mean {missing[near]!r}?",
                stacklevel=3,
            )


def _normalized(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def int_option(opt: Mapping[str, Any], name: str, default: int | None, least: int = 1) -> int:
    """Return an option that is a whole number.

    Args:
        default: what an option that is missing or None is; None: there has to be one.
    """
    number = default if opt.get(name) is None else opt[name]
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ArgumentError(f"{name} is {number!r}, expected a whole number from {least}")
    return number


def float_option(
    opt: Mapping[str, Any], name: str, default: float, least: float, below: float = math.inf
) -> float:
    """Return an option that is a number.

    Args:
        default: what an option that is missing or None is.
    """
    number = opt.get(name)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not least <= number < below:
        limit = "" if below == math.inf else f" and below {below:g}"
        raise ArgumentError(f"{name} is {number!r}, expected a number from {least:g}{limit}")
    return float(number)


RUN_OPTIONS = frozenset(
    {
        "batch_sort",
        "batchindex",
        "batchsize",
        "context_length",
        "contexts",
        "datapath",
        "datatype",
        "hide_labels",
        "hogwild_mode",
        "include_labels",
        "max_batch_tokens",
        "metrics",
        "model_file",
        "num_epochs",
        "numthreads",
        "on_bad_line",
        "override",
        "parlai_home",
        "seed",
        "task",
        "task_arguments",
        "threadindex",
    }
)
"""Options of a run, which are not saved with what it learned."""


def options_file(model_file: str) -> str:
    """Return the path of the options that belong to a model file."""
    return f"{model_file}.opt"


def dictionary_file(model_file: str) -> str:
    """Return the path of the dictionary that belongs to a model file."""
    return f"{model_file}.dict"


def dump_options(opt: Mapping[str, Any]) -> bytes:
    """Return options as the content of a file; those of the run, and what JSON has no form for, are left out."""
    kept = {key: value for key, value in opt.items() if key not in RUN_OPTIONS and _is_json(value)}
    return json.dumps(kept, indent=1, sort_keys=True).encode() + b"\n"


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (bool, int, float, str))


def load_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the options of a file."""
    data = read_settled(path)
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{os.fspath(path)}: no options in JSON: {error}") from error
    if not isinstance(found, dict):
        raise FileFormatError(
            f"{os.fspath(path)}: {type(found).__name__} in JSON, expected an object with options"
        )
    return found


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

_PACKAGE = "dpmodule.agents"
_DEFAULT = "DefaultTeacher"
"""The class of a module of tasks that is named alone."""


def agent_class(spec: str, trusted: Collection[str | None] | None = None) -> tuple[Any, str]:
    """Return the class of agents that a name means, and the arguments after the name.

    Args:
        spec: the name of an agent that is ready, or ``package.module:Class``, either with ``:arguments`` behind it.
        trusted: modules that may be imported besides our own; None: any. For names that come from a file.
    """
    return _resolve("model", spec, AGENTS, trusted)


def task_class(spec: str) -> tuple[Any, str]:
    """Return the class of teachers that a name means, and the arguments after the name; see `agent_class`.

    A module alone means its class ``DefaultTeacher``.
    """
    return _resolve("task", spec, TASKS, None)


def create_teacher(opt: Mapping[str, Any], task: str) -> Any:
    """Return the teacher of a task.

    Args:
        opt: options; the teacher gets the name of the task, and the arguments after it as ``task_arguments``.
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
    return _import_class("str2class", module, name)


def class2str(value: type) -> str:
    """Return the text that `str2class` reads."""
    return f"{value.__module__}:{value.__qualname__}"


def module_of(spec: str | None) -> str | None:
    """Return the module that a name has in front, None where it is the name of something ready."""
    head = (spec or "").partition(":")[0].strip()
    return None if not head or head in AGENTS or head in TASKS else head


def _resolve(
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
            raise _unknown_name_error(option, spec, ready)
    module, _, name = path.partition(":")
    is_own = module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
    if trusted is not None and not is_own and module not in trusted:
        raise ArgumentError(
            f"{option}: the saved options name {path!r}, whose module is not imported because a file says so; "
            f'if you trust it, name it, too: opt["{option}"] = {path!r}'
        )
    return _import_class(option, module, name), arguments


def _import_class(option: str, module: str, name: str) -> Any:
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


def _unknown_name_error(option: str, spec: str, ready: Mapping[str, str]) -> ArgumentError:
    close = difflib.get_close_matches(spec.partition(":")[0], ready, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ArgumentError(
        f"{option} is {spec!r}, expected one of {', '.join(sorted(ready))}, or package.module:Class:arguments{hint}"
    )


class Agent:
    """Something that observes what others say, and says something itself.

    A message is a dict: ``text``, ``labels`` or ``eval_labels``, ``label_candidates``, ``reward``, ``episode_done``,
    ``id``, and whatever else both sides know; a reply may have ``text_candidates`` (best first) and ``metrics`` (a dict
    of numbers, which the teacher's report averages).

    A subclass for batches defines ``batch_act(observations)``: it gets what `observe` of each row's copy returned, and
    returns a list with one reply for each. It is called on the original instance, and `act` is not, while the batch
    size is above 1, unless the attribute ``use_batch_act`` is False. It is not defined here: an agent without it acts
    copy by copy.

    Args:
        opt: options, a dict; a deep copy of them is kept as `opt`.
        shared: what `share` of another instance returned, for a copy of that; None for an original.

    Example:
        >>> class Parrot(Agent):
        ...     def act(self):
        ...         return {"id": self.getID(), "text": self.observation["text"]}
        >>> parrot = Parrot({})
        >>> parrot.observe({"text": "hello"})
        {'text': 'hello'}
        >>> parrot.act()["text"]
        'hello'
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        # a subclass may have set them before, as in ParlAI
        if not hasattr(self, "id"):
            self.id = "agent"
        if not hasattr(self, "opt"):
            self.opt: dict[str, Any] = deepcopy(dict(opt))
        self.observation: Any = None

    def observe(self, observation: Any) -> Any:
        """Take what another agent said; return it, changed or not: that is what `batch_act` gets.

        Args:
            observation: the message of the other agent, a mapping with keys such as ``text`` and
                ``episode_done``.
        """
        self.observation = observation
        return observation

    def act(self) -> dict[str, Any]:
        """Return a message."""
        return {"id": self.getID(), "text": "hello, teacher!"}

    def getID(self) -> str:
        """Return what this agent is called in its messages."""
        return self.id

    def epoch_done(self) -> bool:
        """Say whether all examples have been seen; a teacher knows."""
        return False

    def reset(self) -> None:
        """Forget the dialogue so far."""
        self.observation = None

    def reset_metrics(self) -> None:
        """Begin to count anew; there is nothing to count here."""

    def save(self, path: str | None = None) -> None:
        """Write what has been learned to a file; there is nothing to write here.

        Args:
            path: where to write; None for the place that the options name.
        """

    def share(self) -> dict[str, Any]:
        """Return what a copy of this agent is made of; a subclass adds to what ``super().share()`` returns.

        The same function serves the rows of a batch and the workers of Hogwild training.
        """
        return {"class": type(self), "opt": self.opt}

    def shutdown(self) -> None:
        """Let go of what has to be closed; there is nothing here."""


def create_agent(opt: Mapping[str, Any], requireModelExists: bool = False) -> Any:
    """Return the agent that options name.

    Where ``opt["model_file"]`` has been saved, the options in the file beside it (``.opt``) count more than `opt`, and
    ``opt["override"]``, a dict, more than these. Options of a run, such as ``task``, are not read from there.

    Args:
        opt: options; ``model`` is the name of an agent that is ready, such as ``"repeat_label"``, or
            ``"package.module:Class"``; what follows another colon is its option ``model_arguments``.
        requireModelExists: refuse a model file that has not been saved.

    Raises:
        ArgumentError: no agent is named, there is none of the name, the saved options name one in a module that is
            neither ours nor named in `opt`, too, or the name of an option is misspelt.
        FileError: the model file has not been saved, and that is required, or no agent is named to make one.
        FileFormatError: the saved options are no JSON.
    """
    check_names(opt)
    merged, trusted = dict(opt), None
    path = opt.get("model_file")
    if path and os.path.isfile(options_file(path)):
        found = load_options(options_file(path))
        # a task, too, names code
        saved = {name: value for name, value in found.items() if name not in RUN_OPTIONS}
        own = opt.get("override") or {}
        trusted = [module_of(opt.get("model")), module_of(own.get("model"))]
        merged = {**merged, **saved, **own, "model_file": path}
    elif path and (requireModelExists or not opt.get("model")):
        hint = "" if requireModelExists else "; correct model_file, or name the agent to make as model"
        raise FileError(2, f"there is no saved model{hint}", options_file(path))
    if not merged.get("model"):
        raise ArgumentError(
            "model is not set; name an agent, such as 'repeat_label' or 'package.module:Class' "
            '(opt["model"], --model)'
        )
    kind, arguments = agent_class(merged["model"], trusted)
    merged["model_arguments"] = arguments
    return kind(merged)


def create_agent_from_shared(shared: Mapping[str, Any]) -> Any:
    """Return a copy of an agent from what its `share` returned: of its class, with a deep copy of its options.

    Args:
        shared: what `share` of the agent returned, with ``class`` and ``opt``.
    """
    return shared["class"](deepcopy(shared["opt"]), shared)


def create_agents_from_shared(shared: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return a copy of every agent; see `create_agent_from_shared`.

    Args:
        shared: one such mapping for each agent.
    """
    return [create_agent_from_shared(each) for each in shared]
