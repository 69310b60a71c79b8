"""Training data of a bag of words and of wide & deep as MultiSlot text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .hogwild_tasks import FIELDS, NUMBERS, ROWS, VOCABULARY, Lines, Task

__all__ = ["lines", "write"]

HEAD = 3.7
"""Number of the most frequent words, which are about equally frequent."""

POLAR, FIRST_POLAR = 5_000, 200
"""Words that one class prefers, the same number for each class, alternating from this one on."""


def lines(task: Task, count: int, seed: int) -> Lines:
    """Return synthetic examples.

    Args:
        task: the task.
        count: number of examples.
        seed: seed of the examples; the learned function is always the same.
    """
    rng = np.random.default_rng(seed)
    return _documents(rng, count) if task.net == "bow" else _clicks(rng, count)


def _ranks(rng: np.random.Generator, count: int, shape: int | tuple[int, ...]) -> np.ndarray:
    """Return random ranks below `count` by Zipf's law: rank r has a probability of about 1 / (r + HEAD)."""
    return (HEAD * ((count / HEAD + 1) ** rng.random(shape) - 1)).astype(np.int64)


def _documents(rng: np.random.Generator, count: int) -> Lines:
    """Return documents of about 230 words; one word in ten indicates the class, correctly in three of four cases."""
    labels = rng.integers(0, 2, count)
    lengths = np.clip(rng.lognormal(5.25, 0.6, count), 10, 2500).astype(np.int64)
    document = np.repeat(np.arange(count), lengths)
    words = _ranks(rng, VOCABULARY, len(document))
    polar = rng.random(len(document)) < 0.1
    purity = np.clip(rng.normal(0.74, 0.1, count), 0.3, 0.98)[document[polar]]
    side = labels[document[polar]] ^ (rng.random(len(purity)) > purity)
    words[polar] = FIRST_POLAR + 2 * _ranks(rng, POLAR, len(purity)) + side
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return {"words": (words, offsets), "label": (labels, np.arange(count + 1))}


def _clicks(rng: np.random.Generator, count: int) -> Lines:
    """Return clicks: numbers, and one row a field, all fields' rows hashed into one table; one in four is a click."""
    world = np.random.default_rng(0)
    weights, slopes = world.normal(0, 0.45, ROWS), world.normal(0, 0.25, NUMBERS)
    sizes = np.geomspace(3, 400_000, FIELDS).astype(np.int64)
    starts = world.integers(0, ROWS, FIELDS)
    ranks = np.stack([_ranks(rng, size, count) for size in sizes], axis=1)
    rows = (ranks * 2_654_435_761 + starts) % ROWS
    numbers = np.log1p(rng.exponential(3.0, (count, NUMBERS))).round(4).astype(np.float32)
    logits = weights[rows].sum(1) + (numbers - 1.1) @ slopes - 1.6
    labels = (rng.random(count) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    ones = np.arange(count + 1)
    fields = {f"field{i}": (rows[:, i], ones) for i in range(FIELDS)}
    return {"numbers": (numbers.reshape(-1), ones * NUMBERS), **fields, "label": (labels, ones)}


def write(folder: Path, task: Task, count: int, files: int, seed: int = 1) -> list[str]:
    """Write examples into files of equal sizes and return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        found = lines(task, count // files, seed + number)
        columns = [_texts(*found[slot.name]) for slot in task.slots]
        paths.append(folder / f"part-{number}")
        paths[-1].write_text("".join(" ".join(line) + "\n" for line in zip(*columns)))
    return list(map(str, paths))


def _texts(values: np.ndarray, offsets: np.ndarray) -> list[str]:
    """Return the text of a slot in each line: the number of values, and the values."""
    words, bounds = list(map(str, values.tolist() if values.dtype == np.int64 else values)), offsets.tolist()
    return [f"{end - begin} {' '.join(words[begin:end])}" for begin, end in zip(bounds, bounds[1:])]
