"""A package's first prediction from a file that Gluon exported, in a new process.

Run as ``python -m benchmarks.sides.published PACKAGE``; a process can measure once. Only the package imported differs.
This file also runs under Python 3.8, with MXNet 1.9.1.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from functools import partial
from typing import Any

import numpy as np

from .module import load
from .serve import Clock, serve

__all__ = ["export", "first", "prepare"]

Batch = namedtuple("Batch", ["data"])


def export(package: str, prefix: str, size: int) -> None:
    """Export ResNet-50 v1 of Gluon's model zoo with random parameters; of MXNet alone."""
    mx = load(package)
    mx.random.seed(0)
    net = mx.gluon.model_zoo.vision.resnet50_v1(pretrained=False)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(mx.nd.zeros((1, 3, size, size))).wait_to_read()
    net.export(prefix)


def first(package: str, prefix: str, size: int) -> dict[str, Any]:
    """Return the time from the import of the package, and from reading the files, to the prediction, and its values."""
    from_import = Clock()
    mx = load(package)
    from_files = Clock()
    net, arg_params, aux_params = mx.model.load_checkpoint(prefix, 0)
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (1, 3, size, size))], for_training=False)
    module.set_params(arg_params, aux_params)
    pixels = np.linspace(-1, 1, 3 * size * size, dtype=np.float32).reshape(1, 3, size, size)
    module.forward(Batch([mx.nd.array(pixels)]))
    values = module.get_outputs()[0].asnumpy()
    return {
        "from import": from_import.read(),
        "from files": from_files.read(),
        "values": values.ravel().tolist(),
    }


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    return {"export": partial(export, sys.argv[1]), "first": partial(first, sys.argv[1])}


if __name__ == "__main__":
    serve(prepare)
