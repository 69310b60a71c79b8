"""PaddlePaddle's side of Hogwild training, by `train_from_dataset`.

Run as ``python -m benchmarks.sides.paddle TASK``, with an interpreter that has PaddlePaddle 3. What is left there of
AsyncExecutor is the trainer of datasets. It takes programs of the old representation only, for which most operators
have no Python function any longer, so that they are appended by name.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..hogwild_tasks import BATCH_SIZE, DEEP, EPSILON, HIDDEN, NUMBERS, TASKS, first_weight, shapes
from .serve import Clock, serve

__all__ = ["Program", "prepare"]

FOLDER = tempfile.TemporaryDirectory()
"""Working folder of this process; it is removed when the process ends."""


class Program:
    """The network of a task and what trains it.

    Args:
        name: name of the task.
    """

    def __init__(self, name: str) -> None:
        self.task = TASKS[name]
        self.paddle = importlib.import_module("paddle")
        self._guard = importlib.import_module("paddle.pir_utils").OldIrGuard()
        self._guard.__enter__()  # for as long as the process runs
        self.paddle.enable_static()
        self.static = self.paddle.static
        self.main, startup = self.static.Program(), self.static.Program()
        with self.static.program_guard(self.main, startup):
            self.inputs = [self._input(slot) for slot in self.task.slots]
            loss = self._bow(*self.inputs) if self.task.net == "bow" else self._wide(*self.inputs)
            self._optimizer().minimize(loss)
        self.executor = self.static.Executor(self.paddle.CPUPlace())
        self.executor.run(startup)

    def _optimizer(self) -> Any:
        if self.task.optimizer == "sgd":
            return self.paddle.optimizer.SGD(self.task.learning_rate)
        return self.paddle.optimizer.Adagrad(self.task.learning_rate, EPSILON)

    def _input(self, slot: Any) -> Any:
        width = NUMBERS if slot.type == "float" else 1
        dtype = "float32" if slot.type == "float" else "int64"
        return self.static.data(slot.name, [None, width], dtype, lod_level=int(not slot.is_dense))

    def _operator(self, type: str, output: str = "Out", attributes: Any = None, **inputs: Any) -> Any:
        """Append an operator and return its output."""
        helper = importlib.import_module("paddle.base.layer_helper").LayerHelper(type)
        made = helper.create_variable_for_type_inference("float32")
        helper.append_op(type=type, inputs=inputs, outputs={output: [made]}, attrs=attributes or {})
        return made

    def _lookup(self, slot: Any, table: str) -> Any:
        size = shapes(self.task)[table]
        attribute = self.paddle.ParamAttr(name=table)
        rows = self.static.nn.embedding(
            slot, size, is_sparse=True, param_attr=attribute
        )  # (values, 1, width)
        pooled = self.static.nn.sequence_pool(rows, "sum")
        return self._operator("reshape", X=pooled, attributes={"shape": [-1, size[1]]})

    def _dense(self, x: Any, size: int, name: str) -> Any:
        attributes = {
            f"{kind}_attr": self.paddle.ParamAttr(name=f"{name}_{kind}") for kind in ("weight", "bias")
        }
        return self.static.nn.fc(x, size, **attributes)

    def _bow(self, words: Any, label: Any) -> Any:
        x = self._operator("tanh", X=self._lookup(words, "embed_weight"))
        for number, size in enumerate(HIDDEN):
            x = self._operator("tanh", X=self._dense(x, size, f"fc{number}"))
        found = self._operator("softmax", X=self._dense(x, 2, f"fc{len(HIDDEN)}"), attributes={"axis": -1})
        cost = self._operator("cross_entropy", "Y", {"soft_label": False}, X=found, Label=label)
        return self._operator("mean", X=cost)

    def _wide(self, numbers: Any, *rest: Any) -> Any:
        *fields, label = rest
        deep = [*(self._lookup(each, "embed_weight") for each in fields), numbers]
        x = self._operator("concat", X=deep, attributes={"axis": 1})
        for number, size in enumerate(DEEP):
            x = self._operator("relu", X=self._dense(x, size, f"fc{number}"))
        wide = self._operator("sum", X=[self._lookup(each, "wide_weight") for each in fields])
        terms = [self._dense(x, 1, f"fc{len(DEEP)}"), wide, self._dense(numbers, 1, "linear0")]
        types = importlib.import_module("paddle.base.core").VarDesc.VarType
        wanted = self._operator(
            "cast", X=label, attributes={"in_dtype": types.INT64, "out_dtype": types.FP32}
        )
        total = self._operator("sum", X=terms)
        cost = self._operator("sigmoid_cross_entropy_with_logits", X=total, Label=wanted)
        return self._operator("mean", X=cost)

    def _tensor(self, name: str) -> Any:
        return self.static.global_scope().find_var(name).get_tensor()

    def begin(self) -> None:
        """Set the parameters to their first values."""
        for name, shape in shapes(self.task).items():
            self._tensor(name).set(_turned(name, first_weight(name, shape)), self.paddle.CPUPlace())

    def weights(self) -> dict[str, np.ndarray]:
        """Return the parameters, those of layers as (outputs, inputs)."""
        return {name: _turned(name, np.array(self._tensor(name))) for name in shapes(self.task)}

    def train(self, files: Sequence[str], workers: int) -> dict[str, float]:
        """Train on files once and return the time of it; a process keeps to its first number of workers."""
        clock = Clock()
        data = self.paddle.distributed.QueueDataset()
        data.init(batch_size=BATCH_SIZE, thread_num=workers, use_var=self.inputs)
        data.set_filelist(list(files))
        self.executor.train_from_dataset(self.main, data, thread=workers)
        return clock.read()

    def check(self, path: str, files: Sequence[str], workers: int, epochs: int) -> list[float]:
        """Train from the first weights and save the parameters as an npz file."""
        self.begin()
        for _ in range(epochs):
            self.train(files, workers)
        np.savez(path, **self.weights())
        return []


def _turned(name: str, value: np.ndarray) -> np.ndarray:
    """Return a parameter with the two axes changed if it is a layer's weight: Paddle has (inputs, outputs)."""
    is_layer = name.endswith("_weight") and name not in ("embed_weight", "wide_weight")
    return np.ascontiguousarray(value.T) if is_layer else value


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    warnings.simplefilter("ignore")
    os.environ.update({"FLAGS_enable_pir_api": "0", "GLOG_v": "-1"})
    os.chdir(FOLDER.name)  # each run writes a description of its trainer where it runs
    program = Program(sys.argv[1])
    return {"train": program.train, "check": program.check}


if __name__ == "__main__":
    serve(prepare)
