"""The options that say under which prefix a training is saved, and what it goes on from."""

from __future__ import annotations

from typing import Any

from . import options


def add_options(group: Any, resume: str) -> None:
    """Add ``--prefix``, ``--save-every``, ``--load-epoch``, ``--resume`` and ``--overwrite``.

    Args:
        resume: what ``--resume`` does, for its help.
    """
    group.add_argument(
        "--prefix",
        type=options.filled,
        default="model",
        help="writes PREFIX-symbol.json and, for epoch NNNN, PREFIX-NNNN.params, .states and .run; missing folders are "
        "made (default: model)",
    )
    group.add_argument(
        "--save-every",
        type=options.positive,
        metavar="EPOCHS",
        help="save after every so many epochs, and after the last (default: only after the last)",
    )
    what_is_there = group.add_mutually_exclusive_group()
    what_is_there.add_argument(
        "--load-epoch",
        type=options.whole(0),
        metavar="EPOCH",
        help="train on from this epoch of PREFIX, optimizer included (default: start anew)",
    )
    what_is_there.add_argument(
        "--overwrite",
        action="store_true",
        help="remove all that is saved under PREFIX before training (default: refuse files of another network)",
    )
    what_is_there.add_argument("--resume", action="store_true", help=resume)
