"""A library's side of writing ResNet-50 as an ONNX file: ours, or torch's exporter.

Run as ``python -m benchmarks.sides.outgoing LIBRARY SIZE``, with the height and width of the pictures.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import torch

from ..networks import resnet50
from ..workloads import first_value
from .plain_networks import NETWORKS, fill
from .serve import Clock, serve

__all__ = ["Ours", "Theirs", "prepare"]

CLASSES = 1000


class Ours:
    """The symbol and its parameters.

    Args:
        size: height and width of the pictures.
    """

    def __init__(self, size: int) -> None:
        self._mx = importlib.import_module("dpmodule")
        self._net = resnet50(self._mx, CLASSES)
        args, _, states = self._net.infer_shape(data=(1, 3, size, size))
        names = [*self._net.list_arguments(), *self._net.list_auxiliary_states()]
        self._params = {
            name: self._mx.nd.array(first_value(name, shape))
            for name, shape in zip(names, (*args, *states), strict=True)
            if name not in ("data", "softmax_label")
        }
        self._shape = ("batch", 3, size, size)

    def export(self, path: str) -> None:
        """Write the file."""
        export_model = importlib.import_module("dpmodule.onnx").export_model
        export_model(self._net, self._params, [self._shape], onnx_file_path=path, opset=18)


class Theirs:
    """The module of torch, whose exporter traces it.

    Args:
        size: height and width of the pictures.
    """

    def __init__(self, size: int) -> None:
        self._net = torch.nn.Sequential(fill(NETWORKS["resnet50"](CLASSES)), torch.nn.Softmax(1)).eval()
        self._data = torch.zeros(2, 3, size, size)

    def export(self, path: str) -> None:
        """Write the file."""
        torch.onnx.export(
            self._net,
            (self._data,),
            path,
            dynamo=True,
            input_names=["data"],
            dynamic_shapes=({0: "batch"},),
            opset_version=18,
            external_data=False,
            verbose=False,
        )


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    library, size = sys.argv[1], int(sys.argv[2])
    side = Ours(size) if library == "dpmodule" else Theirs(size)

    def measure(path: str) -> dict[str, float]:
        """Return the time of writing the file."""
        clock = Clock()
        side.export(path)
        return clock.read()

    def predict(path: str) -> list[float]:
        """Write the file, and return the first shares that ONNX Runtime computes with it."""
        side.export(path)
        session = importlib.import_module("onnxruntime").InferenceSession(path)
        data = np.random.RandomState(0).rand(3, 3, size, size).astype("float32")
        shares: list[float] = session.run(None, {"data": data})[0].ravel()[:100].tolist()
        return shares

    return {"measure": measure, "predict": predict}


if __name__ == "__main__":
    serve(prepare)
