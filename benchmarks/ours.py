"""dpmodule's side: `Module.fit` as a user calls it, and binding of a large graph.

Run by fit.py as ``ours.py WORKLOAD BATCHES``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from side import Clock, serve
from workloads import BATCH_SIZE, LEARNING_RATE, MOMENTUM, WORKLOADS, examples, first_value

import dpmodule as mx

__all__ = ["NETWORKS", "main", "resnet50"]

Symbol = mx.sym.Symbol


def mlp() -> Symbol:
    """Return the network of the same name in plain.py."""
    net = mx.sym.Variable("data")
    for name, size in (("fc1", 128), ("fc2", 64)):
        net = mx.sym.FullyConnected(net, num_hidden=size, name=name)
        net = mx.sym.Activation(net, act_type="relu")
    return _classifier(net, "fc3")


def lenet() -> Symbol:
    """Return the network of the same name in plain.py."""
    net = mx.sym.Variable("data")
    for name, size in (("conv1", 20), ("conv2", 50)):
        net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=size, name=name)
        net = mx.sym.Activation(net, act_type="tanh")
        net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=500, name="fc1")
    return _classifier(mx.sym.Activation(net, act_type="tanh"), "fc2")


def resnet20() -> Symbol:
    """Return the network of the same name in plain.py."""
    net = _convolution(mx.sym.Variable("data"), 16, 3, 1, "stem")
    for stage, size in enumerate((16, 32, 64)):
        for number in range(3):
            stride, name = (2 if stage and not number else 1), f"s{stage}u{number}"
            inner = _convolution(net, size, 3, stride, f"{name}_a")
            inner = _convolution(inner, size, 3, 1, f"{name}_b", active=False)
            if stride != 1:
                net = _convolution(net, size, 1, stride, f"{name}_short", active=False)
            net = mx.sym.Activation(net + inner, act_type="relu")
    return _classifier(_pooled(net), "fc")


def resnet50() -> Symbol:
    """Return ResNet-50 for 224x224 images: 445 nodes with its variables."""
    net = _convolution(mx.sym.Variable("data"), 64, 7, 2, "stem")
    net = mx.sym.Pooling(net, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    for stage, units in enumerate((3, 4, 6, 3)):
        size = 64 * 2**stage
        for number in range(units):
            stride, name = (2 if stage and not number else 1), f"s{stage}u{number}"
            inner = _convolution(net, size, 1, stride, f"{name}_a")
            inner = _convolution(inner, size, 3, 1, f"{name}_b")
            inner = _convolution(inner, 4 * size, 1, 1, f"{name}_c", active=False)
            if not number:
                net = _convolution(net, 4 * size, 1, stride, f"{name}_short", active=False)
            net = mx.sym.Activation(net + inner, act_type="relu")
    return _classifier(_pooled(net), "fc", 1000)


def _convolution(net: Symbol, size: int, kernel: int, stride: int, name: str, active: bool = True) -> Symbol:
    """Return a convolution without bias, normalised, and rectified if active."""
    net = mx.sym.Convolution(
        net,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        num_filter=size,
        no_bias=True,
        name=name,
    )
    net = mx.sym.BatchNorm(net, fix_gamma=False, eps=1e-5, momentum=0.9, name=f"{name}_bn")
    return mx.sym.Activation(net, act_type="relu") if active else net


def _pooled(net: Symbol) -> Symbol:
    return mx.sym.Flatten(mx.sym.Pooling(net, global_pool=True, kernel=(1, 1), pool_type="avg"))


def _classifier(net: Symbol, name: str, classes: int = 10) -> Symbol:
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=classes, name=name), name="softmax")


NETWORKS: dict[str, Callable[[], Symbol]] = {"mlp": mlp, "lenet": lenet, "resnet20": resnet20}


class Trainer:
    """A module on its data, trained by `fit`, one epoch a call.

    Args:
        workload: name of the workload.
        batches: batches in an epoch.
    """

    def __init__(self, workload: str, batches: int) -> None:
        self.images, self.classes = examples(WORKLOADS[workload], batches)
        self.data = self._iterator(batches)
        quiet = logging.getLogger("benchmark")
        quiet.setLevel(logging.ERROR)
        self.module = mx.mod.Module(NETWORKS[workload](), logger=quiet)
        self.module.bind(self.data.provide_data, self.data.provide_label)
        known = self.module.symbol.infer_shape(data=self.data.provide_data[0].shape)
        values = dict(zip(self.module.symbol.list_arguments(), known[0], strict=True))
        states = dict(zip(self.module.symbol.list_auxiliary_states(), known[2], strict=True))
        for name in ("data", "softmax_label"):
            del values[name]
        first = [{k: mx.nd.array(first_value(k, s)) for k, s in part.items()} for part in (values, states)]
        self.module.init_params(arg_params=first[0], aux_params=first[1])

    def _iterator(self, batches: int) -> Any:
        count = batches * BATCH_SIZE
        return mx.io.NDArrayIter(self.images[:count], self.classes[:count].astype(np.float32), BATCH_SIZE)

    def epoch(self, metric: Any, data: Any = None, callback: Any = None) -> None:
        """Train on every batch once."""
        self.module.fit(
            data or self.data,
            eval_metric=metric,
            num_epoch=1,
            optimizer="sgd",
            optimizer_params={"learning_rate": LEARNING_RATE, "momentum": MOMENTUM},
            batch_end_callback=callback,
        )

    def check(self, count: int, path: str) -> list[float]:
        """Train on the first batches, save the parameters, and return each batch's loss before its update."""
        losses: list[float] = []

        def record(param: Any) -> None:
            rows = slice(param.nbatch * BATCH_SIZE, (param.nbatch + 1) * BATCH_SIZE)
            chosen = self.module.get_outputs()[0].asnumpy()[np.arange(BATCH_SIZE), self.classes[rows]]
            losses.append(float(-np.log(chosen).mean()))

        self.epoch([], self._iterator(count), record)
        self.data.reset()
        np.savez(path, **{k: v.asnumpy() for k, v in self.module.get_params()[0].items()})
        return losses

    def round(self, metric: bool) -> dict[str, float]:
        """Train one epoch and return the time of a batch; without the metric, an empty list of metrics is kept."""
        clock = Clock()
        self.epoch("acc" if metric else [])
        return clock.read(len(self.classes) // BATCH_SIZE)


def bind_once(simple: bool) -> dict[str, float]:
    """Bind ResNet-50 for batches of one image and return the time, with the number of its nodes.

    Args:
        simple: whether by `Symbol.simple_bind` instead of `Module.bind`.
    """
    net = resnet50()
    module = None if simple else mx.mod.Module(net)
    clock = Clock()
    if module is None:
        net.simple_bind(mx.cpu(), data=(1, 3, 224, 224))
    else:
        module.bind([("data", (1, 3, 224, 224))], [("softmax_label", (1,))])
    return {**clock.read(), "nodes": len(net.graph.nodes)}


def main() -> None:
    """Answer the parent's requests."""
    torch.set_num_threads(1)
    workload, batches = sys.argv[1], int(sys.argv[2])
    trainer = Trainer(workload, batches) if workload in NETWORKS else None
    commands: dict[str, Callable[..., Any]] = {"bind": bind_once}
    if trainer is not None:
        commands.update(check=trainer.check, round=trainer.round)
    serve(commands)


if __name__ == "__main__":
    main()
