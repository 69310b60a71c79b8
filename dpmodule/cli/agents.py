"""``dpmodule train-agent``, ``eval-agent``, ``display-data`` and ``interactive``: agents in their worlds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..agents.agent import create_agent
from ..agents.create import create_task
from ..base import ArgumentError
from ..files.file_kind import regular_file
from . import agent_options, options, train_agent
from .command import Command

_EVALUATE = "Go through all examples of a task once, and print how well an agent does."
_DISPLAY = "Print the first examples of a task."
_TALK = (
    "Answer what is typed, line by line; an empty line begins a new dialogue. The end of the input, or Ctrl-C, ends "
    "it."
)


def add_commands(commands: Any) -> None:
    """Add these commands to the command line."""
    add = agent_options.add_command
    add(commands, "train-agent", "train an agent on a task, in batches, by Hogwild, or both", train_agent.run)
    add(commands, "eval-agent", "how well an agent answers a task", _evaluate)
    add(commands, "display-data", "the first examples of a task", _display)
    add(commands, "interactive", "talk to an agent", _talk)


def _evaluate(words: Sequence[str], command: Command) -> int:
    parser = agent_options.make_parser("eval-agent", _EVALUATE)
    parser.set_defaults(datatype="valid")
    parser.add_argument(
        "--target", type=options.fraction, help="accuracy below which the exit status is 1 (default: none)"
    )
    opt = parser.parse_args(words, print_args=False)
    agent_options.seed_all(opt)
    with create_task(opt, agent_options.load(opt)) as world:
        report = agent_options.evaluate(world, "evaluation")
    print(agent_options.shown(report))
    if opt["target"] is not None and report.get("accuracy", 0.0) < opt["target"]:
        print(f"the target of {opt['target']:.4f} was missed", file=sys.stderr)
        return 1
    return 0


def _display(words: Sequence[str], command: Command) -> int:
    parser = agent_options.make_parser("display-data", _DISPLAY, with_models=False)
    parser.set_defaults(datatype="train:ordered")
    parser.add_argument(
        "-ne", "--num-examples", type=options.positive, default=10, help="how many examples (default: 10)"
    )
    opt = {**parser.parse_args(words, print_args=False), "numthreads": 1, "batchsize": 1}
    agent_options.seed_all(opt)
    agent = create_agent({**opt, "model": "repeat_label"})
    with create_task(opt, agent) as world:
        for _ in range(opt["num_examples"]):
            if world.epoch_done():
                break
            world.parley()
            print(f"{world.display()}\n~~", flush=True)
        print(f"{world.num_examples():,} examples in {world.num_episodes():,} episodes")
    return 0


def _talk(words: Sequence[str], command: Command) -> int:
    parser = agent_options.make_parser("interactive", _TALK, with_tasks=False)
    parser.add_argument(
        "--candidates",
        dest="offered",
        type=options.input_file,
        metavar="FILE",
        help="answers to choose from, a line each, for agents that rank (default: none)",
    )
    parser.add_argument(
        "--single-turn", action="store_true", help="each line is a dialogue of its own (default: one goes on)"
    )
    opt = parser.parse_args(words, print_args=False)
    agent_options.seed_all(opt)
    agent = agent_options.load(opt)
    asked = {"label_candidates": _lines(opt["offered"])} if opt["offered"] else {}
    try:
        for line in _typed():
            if line:
                agent.observe({"id": "you", "text": line, "episode_done": opt["single_turn"], **asked})
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
            found = [line.strip() for line in file if line.strip()]
    except UnicodeDecodeError as error:
        raise ArgumentError(f"--candidates is {path!r}, expected a text in UTF-8: {error}") from error
    if not found:
        raise ArgumentError(f"--candidates is {path!r}, which has no lines")
    return found


def _typed() -> Iterator[str]:
    """Yield what is typed, with a prompt if somebody sees it."""
    prompt = "you: " if sys.stdin.isatty() else ""
    with suppress(EOFError):
        while True:
            yield input(prompt).strip()
