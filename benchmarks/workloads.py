"""Training data of every side of a comparison: sizes, examples and first weights, with NumPy alone.

It does not import torch, dpmodule, MXNet or numpy.random, so that memory is measured for each side. This file also runs
under Python 3.8 with MXNet 1.9.1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

import numpy as np

__all__ = [
    "Bounds",
    "LEARNING_RATE",
    "MOMENTUM",
    "WORKLOADS",
    "Targets",
    "Workload",
    "examples",
    "first_value",
]

LEARNING_RATE = 0.01
MOMENTUM = 0.9

Bounds = Optional["tuple[float, float]"]  # Python 3.8 evaluates this


@dataclass(frozen=True)
class Targets:
    """Lower bounds of others' time over ours, as (must, aim); None if only recorded.

    Attributes:
        fit: MXNet's fit.
        predict: MXNet's predict.
        plain: the fit of the fastest plain PyTorch loop.
        step: MXNet's step, without iterator and metric; if None, steps are not measured separately.
        runtime: ONNX Runtime's predict.
    """

    fit: Bounds = None
    predict: Bounds = None
    plain: Bounds = None
    step: Bounds = None
    runtime: Bounds = None


@dataclass(frozen=True)
class Workload:
    """A network with its data and the length of a measurement.

    Attributes:
        name: key everywhere; the part before a dash is the network's function.
        title: title in reports.
        shape: shape of one example.
        batch_size: number of examples in a batch.
        batches: number of batches in an epoch, which is one measurement.
        checked: number of batches to check that all sides compute the same results.
        tolerance: maximum difference of parameters after these, relative to their change by training; larger with ReLU,
            because rounding can change the sign of a unit.
        targets: bounds from the project's plan.
        labels: shape of one example's classes.
        classes: number of classes.
        trained: True if it is trained, False if it only predicts.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    batch_size: int
    batches: int
    checked: int
    tolerance: float
    targets: Targets
    labels: tuple[int, ...] = ()
    classes: int = 10
    trained: bool = True

    @property
    def network(self) -> str:
        """Name of the network's function."""
        return self.name.partition("-")[0]


_MXNET, _PLAIN = (1.25, 2.0), (1.1, 1.3)
_ALL = (
    Workload(
        "mlp",
        "MLP 784-128-64-10, batch 64",
        (784,),
        64,
        200,
        4,
        3e-2,
        Targets((1.5, 2.0), (1.4, 1.8), _PLAIN),
    ),
    Workload("mlp-256", "MLP, batch 256", (784,), 256, 80, 4, 3e-2, Targets(_MXNET, None, _PLAIN)),
    Workload("lenet", "LeNet, batch 64", (1, 28, 28), 64, 12, 6, 1e-3, Targets(_MXNET, (1.05, 1.3), _PLAIN)),
    Workload(
        "resnet20",
        "ResNet-20, 32x32, batch 64",
        (3, 32, 32),
        64,
        4,
        3,
        5e-2,
        Targets((1.5, 2.0), (1.1, 1.3), _PLAIN),
    ),
    Workload(
        "resnet18",
        "ResNet-18, 64x64, batch 16",
        (3, 64, 64),
        16,
        5,
        1,
        5e-2,
        Targets(_MXNET, None, _PLAIN),
        classes=1000,
    ),
    Workload(
        "resnet50",
        "ResNet-50, 224x224, batch 1",
        (3, 224, 224),
        1,
        10,
        0,
        0.0,
        Targets(None, (0.8, 1.1), None, runtime=(1.0, 1.15)),
        classes=1000,
        trained=False,
    ),
    Workload(
        "lstm",
        "LSTM of 35 unrolled steps, hidden 16, batch 4",
        (35, 16),
        4,
        100,
        10,
        1e-3,
        Targets(plain=_PLAIN, step=(3.0, 8.0)),
        labels=(35,),
    ),
)
WORKLOADS = {each.name: each for each in _ALL}


def examples(workload: Workload, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random images, eight bits a pixel scaled to [0, 1), and random classes.

    Shape:
        images: (batches * batch_size, *workload.shape), float32.
        classes: (batches * batch_size, *workload.labels), int64.
    """
    source = random.Random(0)
    count = batches * workload.batch_size
    images = _bits(source, count * math.prod(workload.shape), np.uint8).astype(np.float32)
    images /= 256
    shape = (count, *workload.labels)
    classes = [source.randrange(workload.classes) for _ in range(math.prod(shape))]
    return images.reshape(count, *workload.shape), np.array(classes, np.int64).reshape(shape)


def first_value(name: str, shape: Iterable[int]) -> np.ndarray:
    """Return a parameter's value before training, the same on all sides because it only depends on the name.

    Args:
        name: name in the symbol; its suffix determines the kind.
        shape: shape of the parameter.
    """
    shape = tuple(shape)
    if name.endswith("_gamma"):
        return np.ones(shape, np.float32)
    if name.endswith(
        "_moving_var"
    ):  # more than one value, so that predictions of deep networks remain comparable
        return np.full(shape, 2, np.float32)
    if not name.endswith("_weight"):
        return np.zeros(shape, np.float32)
    bits = _bits(random.Random(name), math.prod(shape), np.int16)
    largest = math.sqrt(6.0 / math.prod(shape[1:]))
    return bits.reshape(shape).astype(np.float32) * np.float32(largest / 2**15)


def _bits(source: random.Random, count: int, dtype: type) -> np.ndarray:
    """Return random integers of a type, from the bytes of `Random.randbytes` in later Pythons."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer(source.getrandbits(8 * size).to_bytes(size, "little"), dtype)
