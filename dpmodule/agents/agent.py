"""`Agent`, its options, and the creation of agents and tasks from names and saved files.

Source: ParlAI of 2018 (Miller et al., "ParlAI: A Dialog Research Software Platform", EMNLP 2017).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import io
import json
import math
import os
import pickle
import sys
import warnings
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from types import MappingProxyType
from typing import Any, NoReturn

from .._files import read_committed
from ..base import ArgumentError, FileError, FileFormatError

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
"""Options of worlds and teachers."""

_CUTOFF = 0.85


def check_names(opt: Mapping[str, Any], names: Collection[str] = _KNOWN_OPTIONS) -> None:
    """Refuse options whose names differ from known ones only in case, ``_`` and ``-``; warn of others that are close.

    An option with a similar name is accepted if the right one is also given.

    Args:
        names: the known options (default: those of worlds and teachers).
    """
    missing = {_normalized(name): name for name in names if name not in opt}
    for name in (name for name in opt if name not in names):
        letters = _normalized(str(name))
        if letters in missing:
            raise ArgumentError(
                f"there is no option {name!r}; did you mean {missing[letters]!r}? "
                "Give an option of your own another name"
            )
        for near in difflib.get_close_matches(letters, missing, 1, _CUTOFF):
            warnings.warn(
                f"opt has the unknown option {name!r}; did you mean {missing[near]!r}?",
                stacklevel=3,
            )


def _normalized(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def int_option(opt: Mapping[str, Any], name: str, default: int | None, least: int = 1) -> int:
    """Return an integer option.

    Args:
        default: its value if it is missing or None; None: the option is required.
    """
    number = default if opt.get(name) is None else opt[name]
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ArgumentError(f"{name} is {number!r}, expected an integer from {least}")
    return number


def float_option(
    opt: Mapping[str, Any], name: str, default: float, least: float, below: float = math.inf
) -> float:
    """Return a float option.

    Args:
        default: its value if it is missing or None.
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
"""Options of a run, which are not saved with the agent."""


def options_file(model_file: str) -> str:
    """Return the path of the options that belong to a model file."""
    return f"{model_file}.opt"


def dictionary_file(model_file: str) -> str:
    """Return the path of the dictionary that belongs to a model file."""
    return f"{model_file}.dict"


def dump_options(opt: Mapping[str, Any]) -> bytes:
    """Return options as JSON, without those of the run and values that JSON cannot represent."""
    kept = {key: value for key, value in opt.items() if key not in RUN_OPTIONS and _is_json(value)}
    return json.dumps(kept, indent=1, sort_keys=True).encode() + b"\n"


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (bool, int, float, str))


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler of numbers, strings, lists and dicts, as agents of 2018 save their options."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise ValueError(f"it contains a {module}.{name}, expected numbers, strings, lists and dicts")


def load_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the options of a file: JSON, or a pickle of plain values."""
    data = read_committed(path)
    try:
        is_pickle = data.startswith(pickle.PROTO)
        options = _PlainUnpickler(io.BytesIO(data)).load() if is_pickle else json.loads(data)
    except (ValueError, RecursionError, EOFError, LookupError, pickle.UnpicklingError) as error:
        raise FileFormatError(f"{os.fspath(path)}: not a JSON file of options: {error}") from error
    if not isinstance(options, dict):
        raise FileFormatError(
            f"{os.fspath(path)}: the value is a {type(options).__name__}, expected an object with options"
        )
    return options


AGENTS: Mapping[str, str] = MappingProxyType(
    {
        "ir_baseline": "dpmodule.agents.baselines:IrBaselineAgent",
        "local_human": "dpmodule.agents.parlai.local_human:LocalHumanAgent",
        "random_candidate": "dpmodule.agents.baselines:RandomCandidateAgent",
        "repeat_label": "dpmodule.agents.baselines:RepeatLabelAgent",
        "repeat_query": "dpmodule.agents.baselines:RepeatQueryAgent",
        "seq2seq": "dpmodule.agents.seq2seq:Seq2seqAgent",
        "starspace": "dpmodule.agents.starspace:StarspaceAgent",
    }
)
"""Built-in agents by their name for ``--model``."""

TASKS: Mapping[str, str] = MappingProxyType(
    {
        "docs": "dpmodule.agents.tasks:DocsTeacher",
        "fromfile": "dpmodule.agents.tasks:FromFileTeacher",
        "nocandidate": "dpmodule.agents.tasks:NoCandidateTeacher",
        "reverse": "dpmodule.agents.tasks:ReverseTeacher",
    }
)
"""Built-in tasks by their name for ``--task``."""

_PACKAGE = "dpmodule.agents"
_DEFAULT = "DefaultTeacher"
"""Class of tasks if only a module is named."""


def agent_class(spec: str, trusted: Collection[str | None] | None = None) -> tuple[Any, str]:
    """Return the agent class of a name, and the arguments after the name.

    Args:
        spec: the name of a built-in agent or ``package.module:Class``, optionally followed by ``:arguments``.
        trusted: modules that may be imported in addition to this package, for names from a file; None: any.
    """
    return _resolve("model", spec, AGENTS, trusted)


def task_class(spec: str) -> tuple[Any, str]:
    """Return the teacher class of a name, and the arguments after the name; see `agent_class`.

    A module alone means its class ``DefaultTeacher``.
    """
    return _resolve("task", spec, TASKS, None)


def create_teacher(opt: Mapping[str, Any], task: str) -> Any:
    """Return the teacher of a task.

    Args:
        opt: options; ``task`` and ``task_arguments`` are set from the name.
    """
    kind, arguments = task_class(task)
    return kind({**opt, "task": task, "task_arguments": arguments})


def str2class(value: str) -> Any:
    """Return the class that a text such as ``package.module:Class`` names.

    Args:
        value: the text.

    Raises:
        ArgumentError: there is no such class.
    """
    module, _, name = value.partition(":")
    if not name:
        raise ArgumentError(f"str2class: {value!r} does not name a class, expected package.module:Class")
    return _import_class("str2class", module, name)


def class2str(value: type) -> str:
    """Return the text that `str2class` reads."""
    return f"{value.__module__}:{value.__qualname__}"


def module_of(spec: str | None) -> str | None:
    """Return the module of a name such as ``package.module:Class``, None for a built-in name."""
    head = (spec or "").partition(":")[0].strip()
    if not head or head in AGENTS or head in TASKS:
        return None
    found = _in_parlai_folder("model", head, "")
    return found[0] if found else head


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
        if found := _in_parlai_folder(option, head, name):
            head, name = found
        elif not name and option == "task" and _is_module(head):
            name = _DEFAULT
        path = f"{head}:{name}"
        if not name:
            raise _unknown_name_error(option, spec, ready)
    module, _, name = path.partition(":")
    is_own = module == _PACKAGE or module.startswith(f"{_PACKAGE}.")
    if trusted is not None and not is_own and module not in trusted:
        raise ArgumentError(
            f"{option}: the saved options name {path!r}; modules that only a file names are not imported. "
            f'If you trust the file, set opt["{option}"] = {path!r}'
        )
    return _import_class(option, module, name), arguments


def _import_class(option: str, module: str, name: str) -> Any:
    try:
        cls = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # the module exists, but one of its own imports is missing
        raise ArgumentError(
            f"{option}: there is no module {module!r}; expected package.module:Class, importable from here"
        ) from error
    except AttributeError as error:
        raise ArgumentError(f"{option}: the module {module!r} has no {name!r}") from error
    if not isinstance(cls, type):
        raise ArgumentError(f"{option}: {module}:{name} is of type {type(cls).__name__}, expected a class")
    return cls


def _is_module(name: str) -> bool:
    with suppress(ImportError, ValueError):  # a parent package is missing, or the name is not valid
        return name in sys.modules or importlib.util.find_spec(name) is not None
    return False


def _in_parlai_folder(option: str, head: str, name: str) -> tuple[str, str] | None:
    """Return the module and the class of a name that ParlAI looks up in its folders of agents and tasks.

    Programs run by ``--as parlai`` may have such folders of their own.
    """
    if "parlai" not in sys.modules or "." in head:
        return None
    if option == "model":
        module = f"parlai.agents.{head.replace('/', '.') if '/' in head else f'{head}.{head}'}"
        name = name or "".join(map(_capital, head.rpartition("/")[2].split("_"))) + "Agent"
    else:
        module = f"parlai.tasks.{head.lower()}.agents"
        name = _capital(name) if "Teacher" in name else f"{_capital(name) or 'Default'}Teacher"
    return (module, name) if _is_module(module) else None


def _capital(word: str) -> str:
    return word[:1].upper() + word[1:]


def _unknown_name_error(option: str, spec: str, ready: Mapping[str, str]) -> ArgumentError:
    close = difflib.get_close_matches(spec.partition(":")[0], ready, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ArgumentError(
        f"{option} is {spec!r}, expected one of {', '.join(sorted(ready))}, or package.module:Class:arguments{hint}"
    )


class Agent:
    """A participant of a world: it observes the messages of others and acts with messages of its own.

    A message is a dict: ``text``, ``labels`` or ``eval_labels``, ``label_candidates``, ``reward``, ``episode_done``,
    ``id``, and any other fields that both sides know; a reply may have ``text_candidates`` (best first) and ``metrics``
    (a dict of numbers, which the teacher's report averages).

    A subclass for batches defines ``batch_act(observations)``: it takes the results of `observe` of each row's copy and
    returns a list of replies. If the batch size is above 1, it is called on the original instance in place of `act`,
    unless the attribute ``use_batch_act`` is False. An agent without it acts copy by copy.

    Args:
        opt: options, a dict; `opt` is a deep copy.
        shared: the result of `share` of another instance, to make a copy of it; None for an original.

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
        # a subclass may already have set them, as in ParlAI
        if not hasattr(self, "id"):
            self.id = "agent"
        if not hasattr(self, "opt"):
            self.opt: dict[str, Any] = deepcopy(dict(opt))
        self.observation: Any = None

    def observe(self, observation: Any) -> Any:
        """Observe the message of another agent, and return it, possibly changed, for `batch_act`.

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
        """Return the name of this agent in its messages."""
        return self.id

    def epoch_done(self) -> bool:
        """Return True if all examples have been seen; a teacher overrides this."""
        return False

    def reset(self) -> None:
        """Forget the dialogue so far."""
        self.observation = None

    def reset_metrics(self) -> None:
        """Reset all counts; does nothing by default."""

    def save(self, path: str | None = None) -> None:
        """Save the agent to a file; does nothing by default.

        Args:
            path: path of the file; None: ``model_file`` of the options.
        """

    def share(self) -> dict[str, Any]:
        """Return the state for a copy of this agent; a subclass extends the dict of ``super().share()``.

        Rows of a batch and workers of Hogwild training are both made of it.
        """
        return {"class": type(self), "opt": self.opt}

    def shutdown(self) -> None:
        """Release resources; does nothing by default."""


def create_agent(opt: Mapping[str, Any], requireModelExists: bool = False) -> Any:
    """Return the agent that options name.

    If ``opt["model_file"]`` has been saved, the options in its ``.opt`` file override `opt`, and ``opt["override"]``, a
    dict, overrides both. Options of a run, such as ``task``, are not read from the file. An agent of your own may save
    a model file alone; `opt` must then name it, and have its options.

    Args:
        opt: options; ``model`` is the name of a built-in agent, such as ``"repeat_label"``, or
            ``"package.module:Class"``; the text after another colon becomes its option ``model_arguments``.
        requireModelExists: raise FileError if the model file has not been saved.

    Raises:
        ArgumentError: no agent is named, the name is unknown, the saved options name an untrusted module, or the name
            of an option is misspelt.
        FileError: the model file has not been saved, and `requireModelExists` is set or no agent is named.
        FileFormatError: the saved options are not JSON.
    """
    check_names(opt)
    merged, trusted = dict(opt), None
    path = opt.get("model_file")
    if path and os.path.isfile(options_file(path)):
        # a task also names code, so that options of a run are dropped
        loaded = load_options(options_file(path))
        saved = {name: value for name, value in loaded.items() if name not in RUN_OPTIONS}
        own = opt.get("override") or {}
        trusted = [module_of(opt.get("model")), module_of(own.get("model"))]
        merged = {**merged, **saved, **own, "model_file": path}
    elif path and not (opt.get("model") and (os.path.isfile(path) or not requireModelExists)):
        hint = "" if requireModelExists else "; correct model_file, or set model to create an agent"
        raise FileError(2, f"there is no saved model{hint}", options_file(path))
    if not merged.get("model"):
        raise ArgumentError(
            "model is not set; set it to an agent such as 'repeat_label' or 'package.module:Class' "
            '(opt["model"], --model)'
        )
    kind, arguments = agent_class(merged["model"], trusted)
    merged["model_arguments"] = arguments
    return kind(merged)


def create_agent_from_shared(shared: Mapping[str, Any]) -> Any:
    """Return a copy of an agent from the result of its `share`, with a deep copy of its options.

    Args:
        shared: the result of `share`, with ``class`` and ``opt``.
    """
    return shared["class"](deepcopy(shared["opt"]), shared)


def create_agents_from_shared(shared: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return a copy of every agent; see `create_agent_from_shared`.

    Args:
        shared: one such mapping for each agent.
    """
    return [create_agent_from_shared(state) for state in shared]
