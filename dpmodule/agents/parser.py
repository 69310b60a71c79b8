"""`ParlaiParser`: command-line options, including those of the named agent and tasks.

Source: flags of ParlAI, 2018.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
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
    """Parses command lines into options.

    The classes of the agent of ``--model`` and of the tasks of ``--task`` may add flags: a static method
    ``add_cmdline_args(parser)`` calls ``parser.add_argument`` and returns the group. The type ``"bool"`` reads true and
    false, yes and no, 1 and 0; ``"class"`` reads ``package.module:Class``.

    Args:
        add_parlai_args: whether to add the flags of tasks and worlds.
        add_model_args: whether to add the flags of models and dictionaries.
        description: description of the program for its help.
        options: further arguments of `argparse.ArgumentParser`.

    Attributes:
        parlai_home: folder of the program: PARLAI_HOME, or else the current folder.
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
        self.register("type", "bool", read_bool)
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
        """Add the flag of the data folder.

        Args:
            argument_group: the group of the flag; None: the parser.
        """
        (argument_group or self).add_argument(
            "-dp",
            "--datapath",
            metavar="FOLDER",
            help="folder with the files of tasks (default: $PARLAI_DATAPATH, or data in the current folder)",
        )

    def add_parlai_args(self, args: Sequence[str] | None = None) -> None:
        """Add the flags of tasks, worlds and batches.

        Args:
            args: ignored, for compatibility with ParlAI.
        """
        group = self.add_argument_group("tasks and worlds")
        group.add_argument(
            "-t",
            "--task",
            metavar="NAMES",
            help="tasks, separated by commas: built-in or package.module:Class:arguments (class: DefaultTeacher)",
        )
        group.add_argument(
            "-dt",
            "--datatype",
            default="train",
            type=_datatype,
            help="train, train:ordered, valid or test, with :stream to read files on demand (default: %(default)s)",
        )
        self.add_parlai_data_path(group)
        group.add_argument(
            "-nt", "--numthreads", type=_at_least_1, default=1, help="number of Hogwild workers (default: 1)"
        )
        group.add_argument(
            "--hogwild-mode",
            choices=["fork", "spawn", "thread"],
            help="kind of the workers (default: fork, or spawn if CUDA is in use)",
        )
        group.add_argument(
            "-eps",
            "--num-epochs",
            type=float,
            default=-1.0,
            help="number of epochs to train (default: -1, no limit)",
        )
        group.add_argument(
            "-mcs",
            "--metrics",
            default="default",
            metavar="NAMES",
            help="metrics to compute: f1, bleu, all (default: f1)",
        )
        group.add_argument("--seed", type=int, help="seed of all random numbers")
        group.add_argument("--hide-labels", type="bool", default=False, help="hide labels outside training")
        group.add_argument(
            "--on-bad-line",
            choices=["error", "skip"],
            default="error",
            help="action on malformed lines of data files (default: error)",
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
            help="sort examples by length into batches (default: true)",
        )
        group.add_argument(
            "-clen",
            "--context-length",
            type=int,
            default=-1,
            help="number of texts and labels in a flattened example; -1: all (default)",
        )
        group.add_argument(
            "-incl",
            "--include-labels",
            type="bool",
            default=True,
            help="include labels in the context (default: true)",
        )
        group.add_argument(
            "--max-batch-tokens",
            type=_at_least_1,
            help="largest number of tokens in a batch, instead of --batchsize",
        )

    def add_model_args(self, args: Sequence[str] | None = None) -> None:
        """Add the flags of models and dictionaries.

        Args:
            args: ignored, for compatibility with ParlAI.
        """
        group = self.add_argument_group("models")
        group.add_argument(
            "-m", "--model", metavar="NAME", help="a built-in agent, or package.module:Class:arguments"
        )
        group.add_argument("-mf", "--model-file", metavar="PATH", help="path to save the model to")
        DictionaryAgent.add_cmdline_args(self)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None, print_args: bool = True
    ) -> dict[str, Any]:
        """Return the options as a dict; names have underscores.

        Its item ``override`` has the model options of the command line, which override saved ones (see `create_agent`).

        Args:
            args: the words of the command line (default: `sys.argv`).
            namespace: object whose attributes are also set.
            print_args: whether to write the options to the standard output.

        Raises:
            ArgumentError: a flag, agent or task is unknown, or a value is invalid.
        """
        words = self._spelled(sys.argv[1:] if args is None else args)
        self.add_extra_args(words)
        words = self._spelled(words)
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
        """Add the flags of the agent and the tasks that a command line or `set_defaults` names.

        Args:
            args: the words of the command line (default: `sys.argv`).

        Raises:
            ArgumentError: an agent or task is unknown.
        """
        words = list(sys.argv[1:] if args is None else args)
        self.add_task_args(self._value_of(words, "task"))
        model, trusted = self._value_of(words, "model"), None
        path = options_file(self._value_of(words, "model_file"))
        if not model and os.path.isfile(path):
            model, trusted = load_options(path).get("model") or "", ()
        if model:
            self._add_flags(agent_class(model, trusted=trusted)[0])

    def add_task_args(self, task: str) -> None:
        """Add the flags of tasks.

        Args:
            task: names of tasks, separated by commas.

        Raises:
            ArgumentError: a task is unknown.
        """
        for name in task_names(task):
            self._add_flags(task_class(name)[0])

    def add_model_subargs(self, model: str) -> None:
        """Add the flags of an agent.

        Raises:
            ArgumentError: the agent is unknown.
        """
        self._add_flags(agent_class(model)[0])

    def _add_flags(self, cls: Any) -> None:
        """Add the flags of a class, once."""
        if cls not in self._added_classes and hasattr(cls, "add_cmdline_args"):
            cls.add_cmdline_args(self)
        self._added_classes.add(cls)

    def _value_of(self, words: Sequence[str], name: str) -> str:
        """Return the last value of an option on a command line, else its default, else ""."""
        flags = [flag for flag, action in self._option_string_actions.items() if action.dest == name]
        result = str(self.get_default(name) or "")
        for index, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag in flags:
                result = value if equals else next(iter(words[index + 1 : index + 2]), "")
        return result

    def _spelled(self, words: Iterable[str]) -> list[str]:
        """Return words with known flags in their own spelling, which may have ``_`` where they have ``-``, or ``-``."""
        known = self._option_string_actions
        own = {flag.replace("_", "-"): flag for flag in known if flag.startswith("--")}
        spelled = []
        for word in words:
            flag, equals, value = word.partition("=")
            is_other = flag.startswith("--") and flag not in known
            spelled.append(own.get(flag.replace("_", "-"), flag) + equals + value if is_other else word)
        return spelled

    def _check_flags(self, words: Sequence[str]) -> None:
        """Refuse unknown flags; argparse takes ``-mx`` for ``-m x``."""
        known = self._option_string_actions
        for word in itertools.takewhile(lambda word: word != "--", words):
            flag = word.partition("=")[0]
            if _FLAG.fullmatch(flag) and flag not in known:
                raise ArgumentError(
                    f"there is no flag {flag}{did_you_mean(flag, known)} (--help lists all flags; those of an agent or "
                    "a task need --model or --task)"
                )

    def print_args(self, opt: Mapping[str, Any] | None = None) -> None:
        """Write options to the standard output, a line for each.

        Args:
            opt: the options by name (default: those parsed last, or those of `sys.argv`); ``override`` is not written.
        """
        shown = opt or self.opt or self.parse_args(print_args=False)
        lines = [f"[ {name}: {value} ]" for name, value in sorted(shown.items()) if name != "override"]
        sys.stdout.write("\n".join(lines) + "\n")

    def error(self, message: str) -> NoReturn:
        """Raise ArgumentError, where argparse would print the message and exit.

        Args:
            message: the problem with the command line.
        """
        raise ArgumentError(f"{message} (--help lists all flags)")


def read_bool(text: str) -> bool:
    """Return the boolean of a text such as "true", "no" or "1"."""
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
        raise argparse.ArgumentTypeError(f"{text!r}, expected an integer from 1")
    return int(text)
