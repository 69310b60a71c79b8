"""Training data of the language model for both sides: sizes, sentences and first weights, with NumPy alone.

Like workloads.py, it imports no package whose memory would count for one side only, and runs under Python 3.8.
"""

from __future__ import annotations

import random

import numpy as np

from .workloads import first_value

__all__ = [
    "BATCH_SIZE",
    "BUCKETS",
    "LAYERS",
    "LEARNING_RATE",
    "MOMENTUM",
    "PADDING",
    "VOCABULARY",
    "WIDTH",
    "first_weights",
    "padded",
    "sentences",
]

VOCABULARY, WIDTH, LAYERS = 10_000, 200, 2
BUCKETS = (10, 20, 30, 40, 50, 60)
BATCH_SIZE = 32
PADDING = 0
LEARNING_RATE, MOMENTUM = 0.1, 0.9


def sentences(batches: int) -> dict[int, list[list[int]]]:
    """Return random sentences of any length of each bucket.

    Args:
        batches: number of batches of each bucket.
    """
    source = random.Random(0)
    return {
        bucket: [
            source.choices(range(1, VOCABULARY), k=source.randint(bucket - 9, bucket))
            for _ in range(batches * BATCH_SIZE)
        ]
        for bucket in BUCKETS
    }


def padded(batches: int) -> dict[int, list[tuple[np.ndarray, np.ndarray]]]:
    """Return the batches of each bucket: words and next words, int64, (BATCH_SIZE, bucket)."""
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for bucket, rows in sentences(batches).items():
        words = np.full((len(rows), bucket), PADDING)
        for row, sentence in zip(words, rows):
            row[: len(sentence)] = sentence
        following = np.full_like(words, PADDING)
        following[:, :-1] = words[:, 1:]
        found[bucket] = [
            (words[start : start + BATCH_SIZE], following[start : start + BATCH_SIZE])
            for start in range(0, len(words), BATCH_SIZE)
        ]
    return found


def first_weights() -> dict[str, np.ndarray]:
    """Return the same first weights for all sides; those of the LSTM by layer, gates in the order i, f, c, o."""
    shapes: dict[str, tuple[int, ...]] = {"embed_weight": (VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        for part in ("i2h", "h2h"):
            shapes[f"lstm_l{layer}_{part}_weight"] = (4 * WIDTH, WIDTH)
            shapes[f"lstm_l{layer}_{part}_bias"] = (4 * WIDTH,)
    shapes.update(scores_weight=(VOCABULARY, WIDTH), scores_bias=(VOCABULARY,))
    return {name: first_value(name, shape) for name, shape in shapes.items()}
