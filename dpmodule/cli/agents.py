"""``dpmodule eval-agent``, ``display-data`` and ``interactive``, and functions shared with ``train-agent``."""

from __future__ import annotations

import argparse
import os
import random as python_random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .. import checkpoint, random
from .._files import regular_file
from ..agents.agent import (
    agent_class,
    create_agent,
    dictionary_file,
    load_options,
    module_of,
    options_file,
)
from ..agents.create import create_task
from ..agents.parser import ParlaiParser
from ..base import ArgumentError, MXNetError
from .options import add_options, own_options, table
from .saved_files import Command

Options = dict[str, Any]

COMMANDS = ("train-agent", "eval-agent", "display-data", "interactive")
COMMAND_OPTIONS = own_options(*COMMANDS)
"""Options of the commands, which are not passed to agents or saved."""


def run(command: Callable[[ParlaiParser, Sequence[str], Command], int], args: argparse.Namespace) -> int:
    """Run a command whose flags depend on its agent and task; return the exit code.

    Args:
        command: function of the parser, the words after the name of the command, and the whole command.
    """
    name = args.words[0]
    has_tasks, has_models = name != "interactive", name != "display-data"
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        try:
            about = table()["commands"][name]["description"]
            parser = ParlaiParser(has_tasks, has_models, about, prog=f"dpmodule {name}")
            parser.set_defaults(seed=0)
            add_options(parser, name)
            return command(parser, args.rest, Command(args.words))
        except SystemExit as stop:  # argparse has printed the help
            return int(stop.code or 0)


def _print_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    """Print a warning as one line."""
    print(f"note: {message}", file=sys.stderr)


def seed_all(opt: Mapping[str, Any]) -> None:
    """Seed all random generators of tasks and agents."""
    number = int(opt.get("seed") or 0)
    python_random.seed(number)
    random.seed(number)


def create(opt: Mapping[str, Any], is_saved: bool = False) -> Any:
    """Return the agent of the options, loaded if it was saved, without the options of the commands."""
    kept = {name: value for name, value in opt.items() if name not in COMMAND_OPTIONS}
    override = opt.get("override") or {}
    kept["override"] = {name: value for name, value in override.items() if name not in COMMAND_OPTIONS}
    return create_agent(kept, requireModelExists=is_saved)


def load(opt: Options) -> Any:
    """Return the saved or named agent of a command that does not train."""
    if not opt.get("model") and not opt.get("model_file"):
        raise ArgumentError("no agent is given; name one with --model, or a saved one with --model-file")
    return create(opt, bool(opt.get("model_file")))


def saved_files(path: str) -> list[str]:
    """Return the existing files of a saved agent."""
    extra = (options_file(path), dictionary_file(path))
    return [*checkpoint.files(path), *filter(os.path.exists, extra)]


def remove(path: str) -> None:
    """Remove the files of a saved agent."""
    for file in saved_files(path):
        os.unlink(file)


def check_same_agent(opt: Options, command: Command) -> None:
    """Raise ArgumentError if the model file is an agent of another class than the one to train."""
    path = options_file(opt["model_file"])
    if not os.path.isfile(path) or not opt.get("model"):
        return
    saved = load_options(path).get("model")
    try:
        saved_class = agent_class(saved or "", [module_of(opt["model"])])[0]
    except MXNetError:
        saved_class = None
    if saved_class is not agent_class(opt["model"])[0]:
        raise ArgumentError(
            f"--model-file is {opt['model_file']!r}, where another agent is saved: {saved!r}. Choose another "
            f"--model-file, or remove the saved agent: {command.changed(add=['--overwrite'])}"
        )


def progress(total: int | None, what: str, quiet: bool = False) -> Any:
    """Return a progress bar over examples, hidden when stderr is not a terminal.

    Args:
        total: number of examples; None: unknown.
    """
    from tqdm import tqdm

    hidden = quiet or not sys.stderr.isatty()
    return tqdm(total=total or None, desc=what, unit=" examples", disable=hidden, leave=False)


def step(world: Any, bar: Any) -> None:
    """Parley once, and update a progress bar."""
    before = world.get_total_exs()
    world.parley()
    bar.update(world.get_total_exs() - before)


def evaluate(world: Any, what: str, quiet: bool = False) -> Mapping[str, Any]:
    """Return the report of one pass over all examples of a world; the world is reset afterwards."""
    with progress(world.num_examples(), what, quiet) as bar:
        while not world.epoch_done():
            step(world, bar)
    report: Mapping[str, Any] = world.report()
    world.reset()
    return report


def format_report(report: Mapping[str, Any]) -> str:
    """Return a report as text: its numbers, followed by those of each task."""
    numbers = [
        f"{name}={value:,}" if isinstance(value, int) else f"{name}={value:.4g}"
        for name, value in report.items()
        if isinstance(value, (int, float))
    ]
    tasks = [f"{name}: {format_report(task)}" for name, task in report.get("tasks", {}).items()]
    return "; ".join([", ".join(numbers), *tasks])


def evaluate_agent(parser: ParlaiParser, words: Sequence[str], command: Command) -> int:
    """Print the metrics of an agent on a task."""
    parser.set_defaults(datatype="valid")
    opt = parser.parse_args(words, print_args=False)
    seed_all(opt)
    with create_task(opt, load(opt)) as world:
        report = evaluate(world, "evaluation")
    print(format_report(report))
    if opt["target"] is not None and report.get("accuracy", 0.0) < opt["target"]:
        print(f"the target of {opt['target']:.4f} was missed", file=sys.stderr)
        return 1
    return 0


def display_data(parser: ParlaiParser, words: Sequence[str], command: Command) -> int:
    """Print the first examples of a task."""
    parser.set_defaults(datatype="train:ordered")
    opt = {**parser.parse_args(words, print_args=False), "numthreads": 1, "batchsize": 1}
    seed_all(opt)
    agent = create_agent({**opt, "model": "repeat_label"})
    with create_task(opt, agent) as world:
        for _ in range(opt["num_examples"]):
            if world.epoch_done():
                break
            world.parley()
            print(f"{world.display()}\n~~", flush=True)
        print(f"{world.num_examples():,} examples in {world.num_episodes():,} episodes")
    return 0


def interactive(parser: ParlaiParser, words: Sequence[str], command: Command) -> int:
    """Answer typed lines."""
    opt = parser.parse_args(words, print_args=False)
    seed_all(opt)
    agent = load(opt)
    fields = {"label_candidates": _lines(opt["offered"])} if opt["offered"] else {}
    try:
        for line in _typed_lines():
            if line:
                agent.observe({"id": "you", "text": line, "episode_done": opt["single_turn"], **fields})
                print(f"[{agent.getID()}]: {agent.act().get('text', '')}", flush=True)
            else:
                agent.reset()
    except KeyboardInterrupt:
        print()
    finally:
        agent.shutdown()
    return 0


def _lines(path: str) -> list[str]:
    """Return the lines of a file that are not empty."""
    try:
        with open(path, encoding="utf-8", opener=regular_file) as file:
            lines = [line.strip() for line in file if line.strip()]
    except UnicodeDecodeError as error:
        raise ArgumentError(f"--candidates is {path!r}, expected a UTF-8 text file: {error}") from error
    if not lines:
        raise ArgumentError(f"--candidates is {path!r}, which has no lines")
    return lines


def _typed_lines() -> Iterator[str]:
    """Yield typed lines, with a prompt in a terminal."""
    prompt = "you: " if sys.stdin.isatty() else ""
    with suppress(EOFError):
        while True:
            yield input(prompt).strip()
