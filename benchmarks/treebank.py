"""Random sentences, trees and parses for the tasks of automatic batching, the same on all sides.

Like workloads.py, it imports no package whose memory would count for one side only, and runs under Python 3.8. Lengths
and frequencies are those of a treebank: sentences of 24 words on average, words by Zipf's law.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "ACTIONS",
    "BATCH_SIZE",
    "CHARACTERS",
    "EQUAL_LENGTH",
    "LABELS",
    "TAGS",
    "TOGETHER",
    "VOCABULARY",
    "cut",
    "examples",
    "spelling",
]

VOCABULARY, CHARACTERS, TAGS, LABELS = 10_000, 60, 9, 5
BATCH_SIZE, EQUAL_LENGTH = 64, 40
TOGETHER = 16
"""Number of sentences with vectors in one node."""
ACTIONS = SHIFT, LEFT, RIGHT = range(3)
RARE = 300
"""First word that is spelled out; these words are about a third of a text."""


def _lengths(source: np.random.RandomState, count: int, mean: float, deviation: float, most: int) -> Any:
    shape = (mean / deviation) ** 2
    return np.clip(np.rint(source.gamma(shape, mean / shape, count)), 2, most).astype(int)


def _words(source: np.random.RandomState, count: int) -> list[int]:
    chances = 1.0 / np.arange(1, VOCABULARY)
    found: list[int] = source.choice(np.arange(1, VOCABULARY), count, p=chances / chances.sum()).tolist()
    return found


def _sentences(source: np.random.RandomState, lengths: Any) -> list[tuple[list[int], list[int]]]:
    return [(_words(source, n), source.randint(TAGS, size=n).tolist()) for n in lengths]


def _tree(source: np.random.RandomState, count: int) -> tuple[list[int], list[int]]:
    """Return a binary tree in post-order: left and right child of each node, or -1 - word and -1 for a leaf."""
    left: list[int] = []
    right: list[int] = []

    def grow(low: int, high: int) -> int:
        children = -1 - low, -1
        if high - low > 1:
            drawn = source.rand()
            middle = source.randint(low + 1, high)
            middle = low + 1 if drawn < 0.35 else high - 1 if drawn < 0.5 else middle
            children = grow(low, middle), grow(middle, high)
        left.append(children[0])
        right.append(children[1])
        return len(left) - 1

    grow(0, count)
    return left, right


def _spans(source: np.random.RandomState, count: int) -> list[list[tuple[int, int]]]:
    """Return the words of 2 to 4 characters that end at each of some characters: first character and number."""
    return [
        [(end - n, _words(source, 1)[0]) for n in (1, 2, 3) if n <= end and source.rand() < 0.2]
        for end in range(count)
    ]


def _actions(source: np.random.RandomState, count: int) -> list[int]:
    """Return the actions that parse a sentence of some words, 2 * count - 1 of them."""
    waiting, depth, found = count, 0, []
    while waiting or depth > 1:
        if waiting and (depth < 2 or source.rand() < (0.62 if depth < 3 else 0.42)):
            found.append(SHIFT)
            waiting, depth = waiting - 1, depth + 1
        else:
            found.append(int(source.randint(LEFT, RIGHT + 1)))
            depth -= 1
    return found


def cut(found: list[Any], size: int) -> list[list[Any]]:
    """Return examples in batches of a size."""
    return [found[start : start + size] for start in range(0, len(found), size)]


def _by_place(sentences: list[Any]) -> tuple[Any, ...]:
    """Return the words of all sentences at each position, and their tags."""
    return tuple(np.array([each[of] for each in sentences]).T.tolist() for of in (0, 1))


def spelling() -> list[list[int]]:
    """Return the characters of every word; empty for frequent ones, which are not spelled out."""
    source = np.random.RandomState(1)
    lengths = np.clip(source.poisson(6, VOCABULARY), 1, 15)
    letters = [source.randint(1, CHARACTERS, n).tolist() for n in lengths]
    return [row if word >= RARE else [] for word, row in enumerate(letters)]


def examples(kind: str, batches: int) -> list[tuple[Any, ...]]:
    """Return batches * BATCH_SIZE examples.

    Args:
        kind: "sentences": (words, tags); "equal": the same, of EQUAL_LENGTH words each; "together": the same sentences,
            TOGETHER of them in an example: (words, tags), by position; "trees": (words, left, right, labels), see
            `_tree`; "lattices": (characters, for each the first character and number of the words that end there,
            tags); "grids": (rows of words, rows of labels); "parses": (words, actions).
        batches: number of batches.

    Raises:
        ValueError: there is no such kind.
    """
    count = batches * BATCH_SIZE
    source = np.random.RandomState(2017)
    if kind == "equal":
        return list(_sentences(source, [EQUAL_LENGTH] * count))
    if kind == "together":
        return [_by_place(group) for group in cut(examples("equal", batches), TOGETHER)]
    if kind == "trees":
        found = []
        for n in _lengths(source, count, 19, 9, 56):
            left, right = _tree(source, int(n))
            found.append((_words(source, n), left, right, source.randint(LABELS, size=len(left)).tolist()))
        return found
    if kind == "grids":
        sizes = source.randint(3, 9, size=(count, 2)).tolist()
        return [
            ([_words(source, n) for _ in range(m)], source.randint(LABELS, size=(m, n)).tolist())
            for m, n in sizes
        ]
    lengths = _lengths(source, count, 24, 11, 80)
    if kind == "sentences":
        return list(_sentences(source, lengths))
    if kind == "lattices":
        return [(words, _spans(source, len(words)), tags) for words, tags in _sentences(source, lengths)]
    if kind == "parses":
        return [(_words(source, n), _actions(source, int(n))) for n in lengths]
    raise ValueError(f"there are no examples of kind {kind!r}")
