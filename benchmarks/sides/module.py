"""A package's Module side, dpmodule's or MXNet's: `fit`, `predict`, steps and bind as a user calls them.

Run as ``python -m benchmarks.sides.module PACKAGE WORKLOAD BATCHES [OPTIONS]``; only the package imported differs. With
no batches it only binds.
OPTIONS is a JSON object: "contexts" (how many), "disabled" (names of passes that stay off); all else goes to `Module`.
This file also runs under Python 3.8, with MXNet 1.9.1.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from typing import Any

import numpy as np

from ..networks import NETWORKS
from ..workloads import LEARNING_RATE, MOMENTUM, WORKLOADS, examples, first_value
from .serve import Clock, limit_threads, serve

__all__ = ["Binder", "Trainer", "bind_once", "load", "prepare"]

OPTIONS = {"learning_rate": LEARNING_RATE, "momentum": MOMENTUM}


def load(package: str) -> Any:
    """Import a package under which MXNet's names are found, to run with the session's number of threads."""
    mx = importlib.import_module(package)
    if package == "dpmodule":
        limit_threads(importlib.import_module("torch"))
    return mx


class Trainer:
    """A module on its data.

    Args:
        mx: the package.
        workload: the workload, or its name.
        batches: batches in an epoch.
        contexts: number of CPU contexts a batch is split among.
        options: further arguments of `Module`.
    """

    def __init__(self, mx: Any, workload: Any, batches: int, contexts: int = 1, **options: Any) -> None:
        self.mx, self.count = mx, batches
        self.workload = WORKLOADS[workload] if isinstance(workload, str) else workload
        self.images, self.classes = examples(self.workload, batches)
        self.data = self.iterator(batches)
        quiet = logging.getLogger("benchmark")
        quiet.setLevel(logging.ERROR)
        net = NETWORKS[self.workload.network](mx, self.workload.classes)
        where = [mx.cpu(i) for i in range(contexts)]
        self.module = mx.mod.Module(net, context=where, logger=quiet, **options)
        self.module.bind(self.data.provide_data, self.data.provide_label, for_training=self.workload.trained)
        shapes = {each.name: each.shape for each in (*self.data.provide_data, *self.data.provide_label)}
        known, _, states = net.infer_shape(**shapes)
        values = dict(zip(net.list_arguments(), known))
        first = [
            {k: mx.nd.array(first_value(k, s)) for k, s in part.items() if k not in shapes}
            for part in (values, dict(zip(net.list_auxiliary_states(), states)))
        ]
        self.module.init_params(arg_params=first[0], aux_params=first[1])
        if self.workload.trained:
            self.module.init_optimizer(optimizer="sgd", optimizer_params=OPTIONS)

    def iterator(self, batches: int) -> Any:
        """Return an iterator over the first batches."""
        size = self.workload.batch_size
        rows = batches * size
        return self.mx.io.NDArrayIter(self.images[:rows], self.classes[:rows].astype(np.float32), size)

    def check(self, path: str, train: bool = True) -> list[float]:
        """Predict, then train on the first batches; save predictions and parameters, return losses before updates."""
        losses: list[float] = []
        size, few = self.workload.batch_size, max(1, self.workload.checked)

        def record(param: Any) -> None:
            labels = self.classes[param.nbatch * size : (param.nbatch + 1) * size].ravel()
            chosen = self.module.get_outputs()[0].asnumpy()[np.arange(len(labels)), labels]
            losses.append(float(-np.log(chosen).mean()))

        saved = {"predictions": self.module.predict(self.iterator(few)).asnumpy()}
        if self.workload.checked and train:
            self.module.fit(self.iterator(few), eval_metric=[], num_epoch=1, batch_end_callback=record)
            saved.update({k: v.asnumpy() for k, v in self.module.get_params()[0].items()})
        np.savez(path, **saved)
        return losses

    def fit(self, metric: bool = True) -> dict[str, float]:
        """Train one epoch and return the time of a batch; without the metric, an empty list of metrics is kept."""
        clock = Clock()
        self.module.fit(self.data, eval_metric="acc" if metric else [], num_epoch=1)
        self.mx.nd.waitall()
        return clock.read(self.count)

    def fit_without_look(self) -> dict[str, float]:
        """Return what `fit` does where dpmodule does not look for NaN in gradients before it applies them."""
        self.module.nonfinite_gradient = lambda: None
        try:
            return self.fit()
        finally:
            del self.module.nonfinite_gradient

    def predict(self) -> dict[str, float]:
        """Predict one epoch and return the time of a batch."""
        clock = Clock()
        self.module.predict(self.data).wait_to_read()
        return clock.read(self.count)

    def export(self, path: str) -> None:
        """Write the network with its parameters as an ONNX file; of dpmodule alone."""
        args, states = self.module.get_params()
        shapes = [each.shape for each in self.data.provide_data]
        export_model = importlib.import_module("dpmodule.onnx").export_model
        export_model(self.module.symbol, {**args, **states}, shapes, onnx_file_path=path)

    def step(self) -> dict[str, float]:
        """Return the time of a step without iterator and metric, over as many as an epoch has."""
        self.data.reset()
        batch = self.data.next()
        clock = Clock()
        for _ in range(self.count):
            self.module.forward_backward(batch)
            self.module.update()
        self.mx.nd.waitall()
        return clock.read(self.count)


def bind_once(mx: Any, simple: bool = False) -> dict[str, float]:
    """Bind ResNet-50 for batches of one image and return the time.

    Args:
        mx: the package.
        simple: True to bind by `Symbol.simple_bind` instead of `Module.bind`.
    """
    net = NETWORKS["resnet50"](mx, 1000)
    module = None if simple else mx.mod.Module(net)
    clock = Clock()
    if module is None:
        net.simple_bind(mx.cpu(), data=(1, 3, 224, 224))
    else:
        module.bind([("data", (1, 3, 224, 224))], [("softmax_label", (1,))])
    return clock.read()


class Binder:
    """Binds modules of one symbol.

    Args:
        mx: the package.
        workload: name of the workload, whose shapes they are bound to.
    """

    def __init__(self, mx: Any, workload: str) -> None:
        known = WORKLOADS[workload]
        self._mx, size = mx, known.batch_size
        self._net = NETWORKS[known.network](mx, known.classes)
        self._shapes = [("data", (size, *known.shape))], [("softmax_label", (size, *known.labels))]

    def bind(self) -> dict[str, float]:
        """Bind a new module for training and return the time until all its work is done."""
        module = self._mx.mod.Module(self._net)
        clock = Clock()
        module.bind(*self._shapes)
        self._mx.nd.waitall()
        return clock.read()


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    package, workload, batches, *rest = sys.argv[1:]
    options = json.loads(rest[0]) if rest else {}
    os.environ["DPMODULE_DISABLE_PASSES"] = ",".join(options.pop("disabled", ()))
    mx = load(package)
    commands: dict[str, Any] = {"bind": lambda simple=False: bind_once(mx, simple)}
    if workload in WORKLOADS and not int(batches):
        commands["bind"] = Binder(mx, workload).bind
    elif workload in WORKLOADS:
        trainer = Trainer(mx, workload, int(batches), **options)
        commands.update(check=trainer.check, fit=trainer.fit, predict=trainer.predict, step=trainer.step)
        commands.update(fit_without_look=trainer.fit_without_look, export=trainer.export)
    return commands


if __name__ == "__main__":
    serve(prepare)
