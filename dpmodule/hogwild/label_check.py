"""The labels of the first lines of a run, checked before any worker trains on them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..base import BoundsError, MXNetError
from ..module.class_labels import FedNetwork, find_wrong_label, reads_classes
from .data_feed import Part, first_batch
from .program import BoundProgram

__all__ = ["check_first_labels"]

_logger = logging.getLogger(__name__)


def check_first_labels(
    prepared: BoundProgram, parts: Sequence[Part], on_bad_line: str, check_labels: str
) -> None:
    """Look for labels that are not classes of the network in the first batch of a run.

    Args:
        prepared: the program.
        parts: what is read.
        on_bad_line: as in `AsyncExecutor.run_from_files`.
        check_labels: likewise.

    Raises:
        BoundsError: there is one, and `check_labels` is "raise".
    """
    feed, symbol = prepared.feed, prepared.module.symbol
    descs = [*feed.data, *feed.labels]
    if check_labels == "ignore" or not reads_classes(symbol, [desc.name for desc in descs]):
        return
    try:
        lines = first_batch(feed.desc, parts, on_bad_line)
    except MXNetError:  # the run itself says it
        return
    if lines is None:
        return
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
