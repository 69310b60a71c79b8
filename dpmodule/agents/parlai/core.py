"""Names of `parlai.core` in addition to those of `dpmodule.agents`, which this module also shows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ... import agents
from .. import agent, metrics, parser
from ..agent import create_teacher, task_class
from ..create import create_task_agent_from_taskname
from ..metrics import bleu as _bleu
from ..metrics import exact_match as _exact_match
from ..metrics import f1_score as _f1_score
from ..metrics import normalize_answer as _normalize_answer
from ..parser import read_bool as str2bool
from ..worlds import task_names
from .utils import display_messages

__all__ = [
    "ParlaiParser",
    "aggregate_metrics",
    "display_messages",
    "get_agent_module",
    "get_task_module",
    "print_announcements",
    "str2bool",
    *(name for name in agents.__all__ if name not in ("ParlaiParser", "aggregate_metrics")),
]

_COMPATIBLE = (_bleu, _exact_match, _f1_score, _normalize_answer)
"""Private names of ParlAI that public programs import."""


def __getattr__(name: str) -> Any:
    if name in agents.__all__:
        return getattr(agents, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ParlaiParser(parser.ParlaiParser):
    """Parser with ParlAI's further arguments and methods.

    ``--image-mode`` is read and has no effect: images are not loaded.

    Args:
        add_parlai_args: see `dpmodule.agents.ParlaiParser`.
        add_model_args: see `dpmodule.agents.ParlaiParser`.
        description: description of the program for its help.
        model_argv: words of the command line (default: `sys.argv`).
        options: further arguments of `argparse.ArgumentParser`.
    """

    def __init__(
        self,
        add_parlai_args: bool = True,
        add_model_args: bool = False,
        description: str | Sequence[str] | None = None,
        model_argv: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        if description is not None and not isinstance(
            description, str
        ):  # model_argv came third until July 2018
            description, model_argv = None, description
        self._words = model_argv
        super().__init__(add_parlai_args, add_model_args, description, **options)

    def add_parlai_args(self, args: Sequence[str] | None = None) -> None:
        super().add_parlai_args(args)
        group = self.add_argument_group("ParlAI")
        group.add_argument(
            "--download-path",
            default=os.path.join(self.parlai_home, "downloads"),
            help="accepted for compatibility; nothing is downloaded",
        )
        group.add_argument(
            "-im", "--image-mode", default="raw", help="accepted for compatibility; images are not loaded"
        )

    def add_model_args(self, args: Sequence[str] | None = None) -> None:
        super().add_model_args(args)
        self.add_argument(
            "--dict-class",
            metavar="NAME",
            help="class of the dictionary that train_model and build_dict create (default: the agent's)",
        )

    def _add_flags(self, cls: Any) -> None:
        super()._add_flags(cls)
        if hasattr(cls, "dictionary_class"):
            self.set_defaults(dict_class=agent.class2str(cls.dictionary_class()))

    def add_image_args(self, image_mode: Any = None) -> None:
        """Do nothing: images are not loaded.

        Args:
            image_mode: ignored.
        """

    def add_pytorch_datateacher_args(self) -> None:
        """Do nothing: examples are read by `FixedDialogTeacher`, in a thread if it wants."""

    def set_params(self, **options: Any) -> None:
        """Set defaults; see `argparse.ArgumentParser.set_defaults`.

        Args:
            options: the defaults by name.
        """
        self.set_defaults(**options)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None, print_args: bool = True
    ) -> dict[str, Any]:
        return super().parse_args(self._words if args is None else args, namespace, print_args)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None, nohelp: bool = False
    ) -> tuple[Any, list[str]]:
        """Return the namespace of the known flags, and the other words; see `argparse.ArgumentParser`.

        Args:
            args: the words of the command line (default: `sys.argv`).
            namespace: object whose attributes are also set.
            nohelp: whether to ignore ``-h`` and ``--help``.
        """
        words = list(sys.argv[1:] if args is None else args)
        if nohelp:
            words = [word for word in words if word not in ("-h", "--help")]
        return super().parse_known_args(words, namespace)


def aggregate_metrics(reporters: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return the report over several tasks; see `dpmodule.agents.aggregate_metrics`.

    Args:
        reporters: the teachers or worlds of the tasks, or the report of each task by its name.
    """
    if isinstance(reporters, Mapping):
        return metrics.aggregate_metrics(reporters)
    return metrics.aggregate_metrics(
        metrics.reports_by_name((each.getID(), each.report()) for each in reporters)
    )


def get_agent_module(dir_name: str) -> Any:
    """Return the class of an agent.

    Args:
        dir_name: name of the agent, as for ``--model``.
    """
    return agent.agent_class(dir_name)[0]


def get_task_module(taskname: str) -> Any:
    """Return the class of a teacher.

    Args:
        taskname: name of the task, as for ``--task``.
    """
    return task_class(taskname)[0]


def print_announcements(opt: Mapping[str, Any]) -> None:
    """Do nothing, since this package has no announcements.

    Args:
        opt: ignored.
    """


def _create_task_agents(opt: Mapping[str, Any]) -> list[Any]:
    """Return the teachers of a task."""
    names = task_names(opt.get("task") or "")
    return [create_teacher(opt, names[0])] if len(names) == 1 else create_task_agent_from_taskname(opt)
