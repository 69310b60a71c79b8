"""`parlai.scripts.display_data`: print examples of a task."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from ..baselines import RepeatLabelAgent
from ..create import create_task
from ..parser import ParlaiParser
from ..worlds import shown_messages
from . import core
from .build_dict import options_of

__all__ = ["display_data", "main", "setup_args"]


def setup_args(parser: ParlaiParser | None = None) -> ParlaiParser:
    """Return a parser with the flags of `display_data`.

    Args:
        parser: parser to add them to; None: a new one.
    """
    parser = core.ParlaiParser(True, True) if parser is None else parser
    parser.add_argument(
        "-ne", "--num-examples", type=int, default=10, help="number of examples (default: 10)"
    )
    parser.add_argument(
        "-mdl", "--max-display-len", type=int, default=1000, help="characters of a field (default: 1000)"
    )
    parser.add_argument(
        "--display-ignore-fields", default="agent_reply", help="fields that are not printed, with commas"
    )
    parser.set_defaults(datatype="train:stream")
    return parser


def display_data(opt: Mapping[str, Any] | ParlaiParser) -> None:
    """Print examples of a task, and their number.

    Args:
        opt: options: ``num_examples``, ``max_display_len``, ``display_ignore_fields``, and those of the task.
    """
    opt = options_of(opt)
    ignored = str(opt.get("display_ignore_fields") or "").split(",")
    rows = int(opt.get("batchsize") or 1)
    opt["numthreads"] = 1
    with create_task(opt, RepeatLabelAgent(opt)) as world:
        for _ in range(opt["num_examples"]):
            world.parley()
            acts = world.get_acts()
            text = (
                world.display()
                if rows > 1
                else shown_messages(acts, ignored, opt.get("max_display_len", 1000))
            )
            print(f"{text}\n~~")
            if world.epoch_done():
                print("EPOCH DONE")
                break
        print(f"[ loaded {world.num_episodes()} episodes with a total of {world.num_examples()} examples ]")


def main() -> None:
    """Print the examples that the command line describes."""
    random.seed(42)
    display_data(setup_args().parse_args())
