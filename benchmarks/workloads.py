"""What every side of a comparison trains on: sizes, examples and first weights, from NumPy alone.

Nothing here imports torch, dpmodule, MXNet or numpy.random, so that each side's memory is its own. This file also runs
under Python 3.8, where MXNet 1.9.1 lives.
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
    """What others' time over ours must and should at least be, as (must, aim); None = recorded only.

    Attributes:
        fit: MXNet's fit.
        predict: MXNet's predict.
        plain: the fit of the fastest plain PyTorch loop.
        step: MXNet's step, without iterator and metric; where None, steps are not measured by themselves.
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
        title: how reports call it.
        shape: shape of one example.
        batch_size: examples in a batch.
        batches: batches in an epoch, which is one measurement.
        checked: batches trained to check that all sides compute the same.
        tolerance: how far parameters may be apart after those, as a share of how far training has moved them; with ReLU
            more, because rounding can put a unit on the other side of zero.
        targets: bounds from the project's plan.
        labels: shape of one example's classes.
        classes: number of classes.
        trained: True if it is trained, or only predicts.
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
    """Return a parameter's value before training, the same on all sides because it depends on the name alone.

    Args:
        name: as in the symbol; its ending tells what it is.
        shape: shape of the parameter.
    """
    shape = tuple(shape)
    if name.endswith("_gamma"):
        return np.ones(shape, np.float32)
    if name.endswith(
        "_moving_var"
    ):  # more than one, so that the predictions of deep networks stay comparable
        return np.full(shape, 2, np.float32)
    if not name.endswith("_weight"):
        return np.zeros(shape, np.float32)
    bits = _bits(random.Random(name), math.prod(shape), np.int16)
    largest = math.sqrt(6.0 / math.prod(shape[1:]))
    return bits.reshape(shape).astype(np.float32) * np.float32(largest / 2**15)


def _bits(source: random.Random, count: int, dtype: type) -> np.ndarray:
    """Return random numbers of a whole type, from the bytes that `Random.randbytes` gives in later Pythons."""
    size = count * np.dtype(dtype).itemsize
    return np.frombuffer(source.getrandbits(8 * size).to_bytes(size, "little"), dtype)
