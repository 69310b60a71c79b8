"""Greedy and beam search: the likeliest sequences of a model that goes on from what has been said, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["search"]

Array = np.ndarray[Any, Any]
Step = Callable[[Array, Array], Array]
_NEVER = -1e30


def search(step: Step, rows: int, width: int, longest: int, start: int, end: int) -> list[list[int]]:
    """Return the likeliest sequence that beam search finds for each row; greedy search with a width of 1.

    Args:
        step: ``(origins, tokens) -> log probabilities``, for rows * width sequences: which of those of the step before
            each continues, (R,), and its last token, (R,); returns (R, V) for the next one.
        rows: number of rows.
        width: how many sequences are kept for each.
        longest: how many tokens a sequence has at most.
        start: token before the first.
        end: token behind the last, which is not returned.

    Example:
        >>> always = np.log(np.array([0.1, 0.6, 0.3]))  # token 0 ends
        >>> search(lambda origins, tokens: np.tile(always, (len(tokens), 1)), 1, 2, 3, start=9, end=0)
        [[1, 1, 1]]
    """
    count = rows * width
    first = np.arange(rows)[:, None] * width
    tokens, origins = np.full(count, start), np.repeat(first, width)
    scores = np.full((rows, width), _NEVER)
    scores[:, 0] = 0.0  # all are alike in the beginning
    done = np.zeros(count, bool)
    steps: list[tuple[Array, Array]] = []
    for _ in range(longest):
        likely = np.array(step(origins, tokens), "float64")
        size = likely.shape[1]
        if done.any():  # one that has ended stays as it is
            likely[done] = _NEVER
            likely[done, end] = 0.0
        total = (scores.reshape(count, 1) + likely).reshape(rows, width * size)
        best = _largest(total, width)
        scores = np.take_along_axis(total, best, 1)
        origins = (first + best // size).reshape(count)
        tokens = (best % size).reshape(count)
        done = done[origins] | (tokens == end)
        steps.append((origins, tokens))
        if done.all():
            break
    return [_read(steps, int(row * width + scores[row].argmax()), end) for row in range(rows)]


def _largest(values: Array, count: int) -> Array:
    """Return where the largest numbers of each row are, in no order."""
    found: Array = values.argmax(1)[:, None] if count == 1 else np.argpartition(values, -count, 1)[:, -count:]
    return found


def _read(steps: list[tuple[Array, Array]], place: int, end: int) -> list[int]:
    found = []
    for origins, tokens in reversed(steps):
        found.append(int(tokens[place]))
        place = int(origins[place])
    found.reverse()
    return found[: found.index(end)] if end in found else found
