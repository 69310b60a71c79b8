"""What both sides of a comparison train on: sizes, examples and first weights, from NumPy alone.

Nothing here imports torch, dpmodule or numpy.random, so that each side's memory is its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

__all__ = ["BATCH_SIZE", "LEARNING_RATE", "MOMENTUM", "WORKLOADS", "Workload", "examples", "first_value"]

BATCH_SIZE = 64
LEARNING_RATE = 0.01
MOMENTUM = 0.9
CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """One network's data and the length of a measurement.

    Attributes:
        name: key of the network on both sides.
        title: how reports call it.
        shape: shape of one example.
        batches: batches in an epoch, which is one measurement.
        checked: batches trained to check that both sides compute the same.
        tolerance: how far parameters may be apart after those, as a share of how far training has moved them.
        target: ours may take this multiple of plain PyTorch's time; None = recorded only.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    batches: int
    checked: int
    tolerance: float
    target: float | None


WORKLOADS = {
    each.name: each
    for each in (
        Workload("mlp", "MLP 784-128-64-10", (784,), 200, 20, 1e-3, 1.0),
        Workload("lenet", "LeNet, 1x28x28", (1, 28, 28), 12, 6, 1e-3, None),
        Workload("resnet20", "ResNet-20, 3x32x32", (3, 32, 32), 3, 3, 3e-2, 1.1),
    )
}


def examples(workload: Workload, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random images, eight bits a pixel scaled to [0, 1), and random classes.

    Shape:
        images: (batches * BATCH_SIZE, *workload.shape), float32.
        classes: (batches * BATCH_SIZE,), int64.
    """
    source = random.Random(0)
    count = batches * BATCH_SIZE
    pixels = np.frombuffer(source.randbytes(count * math.prod(workload.shape)), np.uint8)
    images = pixels.reshape(count, *workload.shape).astype(np.float32)
    images /= 256
    return images, np.array([source.randrange(CLASSES) for _ in range(count)], np.int64)


def first_value(name: str, shape: Iterable[int]) -> np.ndarray:
    """Return a parameter's value before training, the same on both sides because it depends on the name alone.

    Args:
        name: as in the symbol; its ending tells what it is.
        shape: shape of the parameter.
    """
    shape = tuple(shape)
    if name.endswith(("_gamma", "_moving_var")):
        return np.ones(shape, np.float32)
    if not name.endswith("_weight"):
        return np.zeros(shape, np.float32)
    bits = np.frombuffer(random.Random(name).randbytes(2 * math.prod(shape)), np.int16)
    largest = math.sqrt(6.0 / math.prod(shape[1:]))
    return bits.reshape(shape).astype(np.float32) * np.float32(largest / 2**15)
