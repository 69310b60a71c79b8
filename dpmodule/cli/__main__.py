"""The ``dpmodule`` command: runs a subcommand and turns errors into one line and an exit code.

Exit codes: 0 success, 1 a ``--target`` was missed, a ``--tolerance`` exceeded or a model of a folder is unusable, 2
an error, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial

from ..base import MXNetError
from ..graph.node import printable
from . import agents, convert, fit_predict, inspect, options, train_agent, train_files
from .option_types import CommandParser, join_negative_values

_LARGE_VALUE = 10**5
"""Option values from here on are reported as likely causes of running out of memory."""

_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fit": fit_predict.fit,
    "train-files": train_files.train_files,
    "train-agent": partial(agents.run, train_agent.train_agent),
    "eval-agent": partial(agents.run, agents.evaluate_agent),
    "display-data": partial(agents.run, agents.display_data),
    "interactive": partial(agents.run, agents.interactive),
    "predict": fit_predict.predict,
    "check": inspect.check,
    "convert": convert.convert,
    "im2rec": convert.im2rec,
    "explain": inspect.explain,
    "summary": inspect.summary,
    "info": inspect.info,
}
"""Function of each command."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = CommandParser(
        prog="dpmodule",
        description="Train and use symbolic networks on PyTorch, as with MXNet's Module.",
        epilog="\n".join(options.table()["examples"]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dpmodule {inspect.version()}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, row in options.table()["commands"].items():
        if name in agents.COMMANDS:
            subparser = commands.add_parser(name, help=row["about"], keep_rest=True, add_help=False)
        else:
            subparser = commands.add_parser(name, help=row["about"], description=row["description"])
            options.add_options(subparser, name)
        subparser.set_defaults(run=_COMMANDS[name])
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: the arguments after the program's name; None takes them from `sys.argv`.
    """
    words = join_negative_values(sys.argv[1:] if argv is None else argv)
    parser = make_parser()
    try:
        args = parser.parse_args(words, argparse.Namespace(words=words))
    except SystemExit as stop:  # argparse has printed the message
        return int(stop.code or 0)
    if args.run is None:
        parser.print_help()
        return 0
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        print("dpmodule: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (MXNetError, OSError, MemoryError, RuntimeError) as error:
        is_memory = _is_out_of_memory(error)
        if not is_memory and not isinstance(error, (MXNetError, OSError)):
            raise
        text = f"not enough memory{_large_values(words)}: {error}" if is_memory else _with_options(str(error))
        line = printable(" ".join(text.splitlines()))  # names in files may contain terminal control sequences
        print(f"dpmodule: error: {line}", file=sys.stderr)
        return 2


def _is_out_of_memory(error: Exception) -> bool:
    """Return True for a failed allocation of Python, NumPy or torch."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "allocate memory" in str(error) or "out of memory" in str(error)


def _with_options(text: str) -> str:
    """Return the text of an error with command-line options in place of arguments."""
    for argument, option in options.table()["in place of arguments"].items():
        text = text.replace(argument, option)
    return text


def _large_values(words: Sequence[str]) -> str:
    """Return a text that names the options with large numbers, the likely cause."""
    large, option = [], ""
    for word in words:
        name, _, value = word.partition("=") if word.startswith("-") else (option, "", word)
        option = name
        if any(int(number) >= _LARGE_VALUE for number in re.findall(r"\d{1,15}", value)):
            large.append(f"{option} {value}".strip())
    return f", with {' and '.join(large)}; try smaller numbers" if large else ""


if __name__ == "__main__":
    sys.exit(main())
