"""The options that say under which prefix a training is saved, and what it goes on from."""

from __future__ import annotations

from typing import Any

from .. import checkpoint
from . import options

__all__ = ["add_options"]


def add_options(group: Any, resumable: bool = False) -> None:
    """Add ``--prefix``, ``--save-every``, ``--load-epoch`` and ``--overwrite``.

    Args:
        group: gets them.
        resumable: whether to add ``--resume`` and ``--save-batches``, too.
    """
    group.add_argument(
        "--prefix",
        type=options.filled,
        default="model",
        help="writes PREFIX-symbol.json, PREFIX-NNNN.params and PREFIX-NNNN.states, and PREFIX-interrupted.* if it "
        "is broken off; missing folders are made (default: model)",
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
        type=options.epoch,
        metavar="EPOCH",
        help=f"go on from this epoch of PREFIX, optimizer included; {checkpoint.INTERRUPTED!r} goes on from what "
        "Ctrl-C or an error left (default: start anew)",
    )
    what_is_there.add_argument(
        "--overwrite",
        action="store_true",
        help="remove all that is saved under PREFIX before training (default: refuse files of another network)",
    )
    if resumable:
        _add_resume(group, what_is_there)


def _add_resume(group: Any, what_is_there: Any) -> None:
    what_is_there.add_argument(
        "--resume",
        action="store_true",
        help="go on, bit for bit, from the newest state of a run under PREFIX if there is one, and save such states: "
        "after every epoch as PREFIX-NNNN.run (the last two are kept without --save-every), and as PREFIX-last.* when "
        "SIGTERM or Ctrl-C ends it (default: only parameters and optimizer are saved)",
    )
    group.add_argument(
        "--save-batches",
        type=options.positive,
        metavar="BATCHES",
        help="with --resume: also save after every so many batches of an epoch (default: none)",
    )
