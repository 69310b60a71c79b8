"""The labels of the first lines of a run, checked before anything is trained on them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from ..base import BoundsError, MXNetError
from ..module.class_labels import FedNetwork, find_wrong_label, reads_classes
from ..symbol import Symbol
from .data_feed import FeedBatch, first_batch
from .data_files import Part
from .program import BoundProgram
from .slot_feed import SlotFeed

_logger = logging.getLogger(__name__)


def check_first_labels(
    prepared: BoundProgram, parts: Sequence[Part], on_bad_line: str, check_labels: str
) -> str:
    """Look for labels that are not classes of the network in the first batch of a run.

    What can be read only once, such as a pipe or the output of a program, is left to the workers.

    Returns:
        What each worker has to do about the labels of its first batch: "ignore" if they have been checked here.
    """
    feed, symbol = prepared.feed, prepared.module.symbol
    names = [desc.name for desc in (*feed.data, *feed.labels)]
    if check_labels == "ignore" or not reads_classes(symbol, names):
        return "ignore"
    if feed.desc.pipe_command != "cat" or not all(os.path.isfile(part.path) for part in parts):
        return check_labels
    try:
        lines = first_batch(feed.desc, parts, on_bad_line)
    except MXNetError:  # the run itself says it
        return "ignore"
    if lines is not None:
        check_labels_of(feed, symbol, lines, check_labels)
    return "ignore"


def check_labels_of(feed: SlotFeed, symbol: Symbol, lines: FeedBatch, check_labels: str) -> None:
    """Look for labels that are not classes of a network in one batch."""
    if check_labels == "ignore":
        return
    descs = [*feed.data, *feed.labels]
    shapes = {desc.name: (lines.num_lines, *desc.shape[1:]) for desc in descs}
    labels = {desc.name: feed.input(desc.name, lines) for desc in descs}
    wrong = find_wrong_label(FedNetwork(symbol, shapes, labels))
    if wrong is None:
        return
    place = f"row {wrong.row} of the batch that begins in line {lines.first_line} of {lines.file}"
    text = f"run_from_files: {wrong.describe(place)}"
    if check_labels == "raise":
        raise BoundsError(f'{text} Correct the files; check_labels="warn" trains on such labels')
    _logger.warning('%s Training goes on; check_labels="raise" stops it, "ignore" says nothing', text)
