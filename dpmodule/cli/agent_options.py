"""What the commands about agents share: their parser, the agent, and reports as text."""

from __future__ import annotations

import argparse
import os
import random as python_random
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import checkpoint, random
from ..agents.agent import agent_class, create_agent, module_named
from ..agents.options import dictionary_file, load_options, options_file
from ..agents.parser import ParlaiParser
from ..base import ArgumentError, MXNetError
from .command import Command

Options = dict[str, Any]

COMMAND_OPTIONS = frozenset(
    {
        "evaltask",
        "init_model",
        "num_examples",
        "offered",
        "overwrite",
        "quiet",
        "resume",
        "save_every_n_secs",
        "single_turn",
        "target",
        "validation_every",
        "validation_metric",
    }
)
"""Options of the commands themselves, which no agent gets, or saves."""


def add_command(commands: Any, name: str, about: str, run: Callable[[Sequence[str], Command], int]) -> None:
    """Add a subcommand whose flags depend on the agent and the task that it names.

    Args:
        run: called with the words behind the name and the whole command; returns the exit code.
    """
    parser = commands.add_parser(name, help=about, passes_on=True, add_help=False)

    def start(args: argparse.Namespace) -> int:
        with warnings.catch_warnings():
            warnings.showwarning = _tell
            try:
                return run(args.rest, Command(args.words))
            except SystemExit as stop:  # argparse has printed the help
                return int(stop.code or 0)

    parser.set_defaults(run=start)


def _tell(message: Warning | str, *where: Any, **more: Any) -> None:
    """Print a warning, such as of the number of lines that were left out, in a line."""
    print(f"note: {message}", file=sys.stderr)


def make_parser(name: str, about: str, with_tasks: bool = True, with_models: bool = True) -> ParlaiParser:
    """Return the parser of a subcommand; see `ParlaiParser`."""
    parser = ParlaiParser(with_tasks, with_models, about, prog=f"dpmodule {name}")
    parser.set_defaults(seed=0)
    return parser


def seed_all(opt: Mapping[str, Any]) -> None:
    """Seed everything that tasks and agents draw with."""
    number = int(opt.get("seed") or 0)
    python_random.seed(number)
    random.seed(number)


def create(opt: Mapping[str, Any], is_saved: bool = False) -> Any:
    """Return the agent that options name, as it was saved if it has been; it gets none of the commands' own options."""
    kept = {name: value for name, value in opt.items() if name not in COMMAND_OPTIONS}
    given = opt.get("override") or {}
    kept["override"] = {name: value for name, value in given.items() if name not in COMMAND_OPTIONS}
    return create_agent(kept, requireModelExists=is_saved)


def load(opt: Options) -> Any:
    """Return the agent of a command that trains none."""
    if not opt.get("model") and not opt.get("model_file"):
        raise ArgumentError("there is no agent; name one by --model, or what has been saved by --model-file")
    return create(opt, bool(opt.get("model_file")))


def saved_files(path: str) -> list[str]:
    """Return the files of a saved agent that are there."""
    extra = (options_file(path), dictionary_file(path))
    return [*checkpoint.files(path), *filter(os.path.exists, extra)]


def remove(path: str) -> None:
    """Remove the files of a saved agent."""
    for each in saved_files(path):
        os.unlink(each)


def refuse_others(opt: Options, command: Command) -> None:
    """Make sure that what is saved as the model file is an agent of the class that is going to be trained."""
    path = options_file(opt["model_file"])
    if not os.path.isfile(path) or not opt.get("model"):
        return
    saved = load_options(path).get("model")
    try:
        kind = agent_class(saved or "", [module_named(opt["model"])])[0]
    except MXNetError:
        kind = None
    if kind is not agent_class(opt["model"])[0]:
        raise ArgumentError(
            f"--model-file is {opt['model_file']!r}, where another agent is saved, {saved!r}. Another --model-file "
            f"keeps it; this removes it and trains: {command.changed(add=['--overwrite'])}"
        )


def progress(total: int | None, what: str, quiet: bool = False) -> Any:
    """Return a progress bar over examples, which shows nothing where nobody sees it.

    Args:
        total: how many there are; None: nobody knows.
    """
    from tqdm import tqdm

    hidden = quiet or not sys.stderr.isatty()
    return tqdm(total=total or None, desc=what, unit=" examples", disable=hidden, leave=False)


def step(world: Any, bar: Any) -> None:
    """Parley once, and move a progress bar on."""
    before = world.get_total_exs()
    world.parley()
    bar.update(world.get_total_exs() - before)


def evaluate(world: Any, what: str, quiet: bool = False) -> Mapping[str, Any]:
    """Go through all examples of a world once, and return its report; the world is then at its beginning again."""
    with progress(world.num_examples(), what, quiet) as bar:
        while not world.epoch_done():
            step(world, bar)
    found: Mapping[str, Any] = world.report()
    world.reset()
    return found


def shown(report: Mapping[str, Any]) -> str:
    """Return a report as text: its numbers, those of each task behind it."""
    numbers = [
        f"{name}={value:,}" if isinstance(value, int) else f"{name}={value:.4g}"
        for name, value in report.items()
        if isinstance(value, (int, float))
    ]
    tasks = [f"{name}: {shown(each)}" for name, each in report.get("tasks", {}).items()]
    return "; ".join([", ".join(numbers), *tasks])
