"""`ParlaiParser`: options from the command line, those of the agent and the task that it names among them.

Source: ParlAI's flags of 2018.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ..base import ArgumentError, did_you_mean
from .agent import RUN_OPTIONS, agent_class, load_options, options_file, str2class, task_class
from .dictionary import DictionaryAgent
from .teachers import is_training
from .worlds import task_names

_BOOLS = {
    **dict.fromkeys(("true", "yes", "y", "t", "1", "on"), True),
    **dict.fromkeys(("false", "no", "n", "f", "0", "off"), False),
}
_FLAG = re.compile(r"--?[A-Za-z][\w-]*")
_UNSET: Any = object()


class ParlaiParser(argparse.ArgumentParser):
    """Makes options of what stands on the command line.

    The class of the agent that ``--model`` names, and of every task that ``--task`` names, may add flags of its own: it
    has a static method ``add_cmdline_args(parser)``, which calls ``parser.add_argument`` and the like, and returns the
    group. The type ``"bool"`` reads true and false, yes and no, 1 and 0; ``"class"`` reads ``package.module:Class``.

    Args:
        add_parlai_args: whether there are the flags of tasks and worlds.
        add_model_args: whether there are those of models and dictionaries, too.
        description: what the program does, for its help.
        options: further arguments of `argparse.ArgumentParser`.

    Attributes:
        parlai_home: the folder of the program: what PARLAI_HOME names, or else the current one.
        opt: the options that were parsed last.

    Example:
        >>> parser = ParlaiParser(True, True)
        >>> opt = parser.parse_args(["-t", "reverse", "-bs", "32", "-bsrt", "no"], print_args=False)
        >>> opt["task"], opt["batchsize"], opt["batch_sort"], opt["context_length"]
        ('reverse', 32, False, -1)
    """

    def __init__(
        self,
        add_parlai_args: bool = True,
        add_model_args: bool = False,
        description: str | None = None,
        **options: Any,
    ) -> None:
        settings = {"allow_abbrev": False, "conflict_handler": "resolve", **options}
        super().__init__(description=description or "Agents and worlds.", **settings)
        self.register("type", "bool", _bool)
        self.register("type", "class", str2class)
        self.add_arg = self.add_argument
        self.parlai_home = os.environ.get("PARLAI_HOME") or os.getcwd()
        self.opt: dict[str, Any] = {}
        self._added_classes: set[Any] = set()
        if add_parlai_args:
            self.add_parlai_args()
        if add_model_args:
            self.add_model_args()

    def add_parlai_data_path(self, argument_group: Any = None) -> None:
        """Add the flag of the folder with data.

        Args:
            argument_group: the group that gets it; None: the parser.
        """
        (argument_group or self).add_argument(
            "-dp",
            "--datapath",
            metavar="FOLDER",
            help="where tasks find their files (default: $PARLAI_DATAPATH, or data in the current folder)",
        )

    def add_parlai_args(self, args: Sequence[str] | None = None) -> None:
        """Add the flags of tasks, worlds and batches.

        Args:
            args: ParlAI's; not used.
        """
        group = self.add_argument_group("tasks and worlds")
        group.add_argument(
            "-t",
            "--task",
            metavar="NAMES",
            help="tasks, with commas: ready ones, or package.module:Class:arguments (default class: DefaultTeacher)",
        )
        group.add_argument(
            "-dt",
            "--datatype",
            default="train",
            type=_datatype,
            help="train, train:ordered, valid or test, with :stream to keep nothing in memory (default: %(default)s)",
        )
        self.add_parlai_data_path(group)
        group.add_argument(
            "-nt", "--numthreads", type=_at_least_1, default=1, help="Hogwild workers (default: 1)"
        )
        group.add_argument(
            "--hogwild-mode",
            choices=["fork", "spawn", "thread"],
            help="what the workers are (default: as it fits)",
        )
        group.add_argument(
            "-eps", "--num-epochs", type=float, default=-1.0, help="when to stop (default: -1, never)"
        )
        group.add_argument(
            "--metrics", default="default", metavar="NAMES", help="what is computed: f1, bleu (default: f1)"
        )
        group.add_argument("--seed", type=int, help="of all that is drawn")
        group.add_argument(
            "--hide-labels", type="bool", default=False, help="show no labels outside training"
        )
        group.add_argument(
            "--on-bad-line",
            choices=["error", "skip"],
            default="error",
            help="what to do about malformed lines of data files",
        )
        self._add_batch_args()

    def _add_batch_args(self) -> None:
        group = self.add_argument_group("batches")
        group.add_argument(
            "-bs", "--batchsize", type=_at_least_1, default=1, help="rows of a batch (default: 1)"
        )
        group.add_argument(
            "-bsrt",
            "--batch-sort",
            type="bool",
            default=True,
            help="sort by length into batches (default: true)",
        )
        group.add_argument(
            "-clen",
            "--context-length",
            type=int,
            default=-1,
            help="texts and labels in a squashed example; -1: all (default)",
        )
        group.add_argument(
            "-incl",
            "--include-labels",
            type="bool",
            default=True,
            help="labels in the context (default: true)",
        )
        group.add_argument(
            "--max-batch-tokens", type=_at_least_1, help="most tokens of a batch, in place of --batchsize"
        )

    def add_model_args(self, args: Sequence[str] | None = None) -> None:
        """Add the flags of models and dictionaries.

        Args:
            args: ParlAI's; not used.
        """
        group = self.add_argument_group("models")
        group.add_argument(
            "-m", "--model", metavar="NAME", help="a ready agent, or package.module:Class:arguments"
        )
        group.add_argument("-mf", "--model-file", metavar="PATH", help="where the model is saved")
        DictionaryAgent.add_cmdline_args(self)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None, print_args: bool = True
    ) -> dict[str, Any]:
        """Return options as a dict; names have underscores.

        ``override`` in it has those of the model that stand on the line: they count more than saved ones (see
        `create_agent`).

        Args:
            args: the words of the line (default: those of the program).
            namespace: what to set attributes of, too.
            print_args: whether to write the options to the standard output.

        Raises:
            ArgumentError: there is no such flag, agent or task, or no such value.
        """
        words = list(sys.argv[1:] if args is None else args)
        self.add_extra_args(words)
        self._check_flags(words)
        given = vars(super().parse_args(words, self._unset()))
        self.opt = opt = dict(vars(super().parse_args(words, namespace)))
        opt["parlai_home"] = self.parlai_home
        if "datapath" in opt and opt["datapath"] is None:
            opt["datapath"] = os.environ.get("PARLAI_DATAPATH") or os.path.join(self.parlai_home, "data")
        opt["override"] = {
            name: value for name, value in given.items() if value is not _UNSET and name not in RUN_OPTIONS
        }
        if print_args:
            self.print_args()
        return opt

    def _unset(self) -> argparse.Namespace:
        """Return a namespace that keeps argparse from setting defaults."""
        return argparse.Namespace(**{action.dest: _UNSET for action in self._actions})

    def add_extra_args(self, args: Sequence[str] | None = None) -> None:
        """Add the flags of the agent and the tasks that a command line, or `set_defaults`, names.

        Args:
            args: the words of the line (default: those of the program).

        Raises:
            ArgumentError: there is no such agent or task.
        """
        words = list(sys.argv[1:] if args is None else args)
        self.add_task_args(self._value_of(words, "task"))
        model, kept = self._value_of(words, "model"), None
        path = options_file(self._value_of(words, "model_file"))
        if not model and os.path.isfile(path):
            model, kept = load_options(path).get("model") or "", ()
        if model:
            self._add_flags(agent_class(model, trusted=kept)[0])

    def add_task_args(self, task: str) -> None:
        """Add the flags of tasks.

        Args:
            task: their names, with commas between.

        Raises:
            ArgumentError: there is no such task.
        """
        for name in task_names(task):
            self._add_flags(task_class(name)[0])

    def add_model_subargs(self, model: str) -> None:
        """Add the flags of an agent.

        Raises:
            ArgumentError: there is no such agent.
        """
        self._add_flags(agent_class(model)[0])

    def _add_flags(self, kind: Any) -> None:
        """Add the flags of a class, once."""
        if kind not in self._added_classes and hasattr(kind, "add_cmdline_args"):
            kind.add_cmdline_args(self)
        self._added_classes.add(kind)

    def _value_of(self, words: Sequence[str], name: str) -> str:
        """Return the last value of an option on a line, or its default; an empty text if there is neither."""
        flags = [flag for flag, action in self._option_string_actions.items() if action.dest == name]
        found = str(self.get_default(name) or "")
        for place, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag in flags:
                found = value if equals else next(iter(words[place + 1 : place + 2]), "")
        return found

    def _check_flags(self, words: Sequence[str]) -> None:
        """Refuse unknown flags; argparse takes ``-mx`` for ``-m x``."""
        known = self._option_string_actions
        for word in itertools.takewhile(lambda word: word != "--", words):
            flag = word.partition("=")[0]
            if _FLAG.fullmatch(flag) and flag not in known:
                raise ArgumentError(
                    f"there is no flag {flag}{did_you_mean(flag, known)} (--help lists all; an agent's or a task's own "
                    "need --model or --task on the line)"
                )

    def print_args(self, opt: Mapping[str, Any] | None = None) -> None:
        """Write options to the standard output, a line for each.

        Args:
            opt: the options by name (default: those that were parsed last, or those of the program's command line);
                ``override`` is left out.
        """
        shown = opt or self.opt or self.parse_args(print_args=False)
        lines = [f"[ {name}: {value} ]" for name, value in sorted(shown.items()) if name != "override"]
        sys.stdout.write("\n".join(lines) + "\n")

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print and end the program for.

        Args:
            message: what is wrong with the command line.
        """
        raise ArgumentError(f"{message} (--help lists all flags)")


def _bool(text: str) -> bool:
    try:
        return _BOOLS[text.strip().lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected true or false, yes or no, 1 or 0") from None


def _datatype(text: str) -> str:
    try:
        is_training(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _at_least_1(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number from 1")
    return int(text)
