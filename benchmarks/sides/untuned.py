"""A side of the comparison over random layers and many networks.

Run as ``python -m benchmarks.sides.untuned KIND SEED``. KIND is "module" or "executor" of dpmodule, "torch" (the usual
layout), "channels_last", "compiled" (`torch.compile`), or "onnxruntime", "openvino" and "jax", which run the file that
dpmodule exports.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..drawn_layers import describe, draw
from ..many_networks import NETWORKS
from ..settings import OWN_THREADS
from .serve import Clock, limit_threads, peak_rss_mb, rss_mb, serve

__all__ = ["prepare"]

LEAST_S = 0.01
"""A measurement takes at least this long, and at least one call."""

Calls = dict[str, Callable[[], Any]]
"""Prediction ("predict") and, where there is one, training step ("fit"); both return the output as the side has it."""


def make_case(seed: int, what: int | str, batch: int) -> tuple[torch.nn.Module, list[torch.Tensor], str, str]:
    """Return a module, its inputs, its family, and a description.

    Args:
        what: number of a random layer, or name of a network.
        batch: rows of a network's inputs.
    """
    if isinstance(what, int):
        family, net, inputs = draw(seed, what)
        return net, inputs, family, describe(net, inputs)
    torch.manual_seed(seed)
    make, make_inputs = NETWORKS[what]
    return make(), make_inputs(batch), what, f"{what}, batch {batch}"


def head(net: torch.nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    """Return the gradient of the output, the same for all sides."""
    with torch.no_grad():
        shape = net(*inputs).shape
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def of_torch(net: torch.nn.Module, inputs: list[torch.Tensor], layer: bool, kind: str) -> Calls:
    """Return the calls in torch."""
    gradient = head(net, inputs)
    if kind == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        inputs = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs]
        if gradient.dim() == 4:
            gradient = gradient.contiguous(memory_format=torch.channels_last)
    run: Any = torch.compile(net) if kind == "compiled" else net
    wanted = [x.requires_grad_() for x in inputs if layer and x.is_floating_point()]
    parameters = list(net.parameters())
    optimizer = None if layer or not parameters else torch.optim.SGD(parameters, 1e-6, momentum=0.9)

    def predict() -> torch.Tensor:
        if run.training:
            run.eval()
        with torch.inference_mode():
            return run(*inputs)

    def fit() -> torch.Tensor:
        if not run.training:
            run.train()
        for leaf in (*wanted, *parameters):
            leaf.grad = None
        out = run(*inputs)
        out.backward(gradient)
        if optimizer is not None:
            optimizer.step()
        return out

    return {"predict": predict, "fit": fit}


def imported(net: torch.nn.Module, inputs: list[torch.Tensor]) -> tuple[Any, Any, Any, list[str]]:
    """Return the symbol, its arguments and states, and the names of the inputs in their order."""
    import dpmodule as mx

    symbol, arguments, states = mx.sym.from_torch(net, *inputs)
    names = [name for name in symbol.list_arguments() if name not in arguments]
    # "inputs", "inputs_1", ...: a network may read them in another order
    names.sort(key=lambda name: [int(part) for part in name.split("_") if part.isdigit()])
    return symbol, arguments, states, names


def of_dpmodule(net: torch.nn.Module, inputs: list[torch.Tensor], layer: bool, kind: str) -> Calls:
    """Return the calls of a Module, or of an executor."""
    import dpmodule as mx

    gradient = mx.nd.NDArray(head(net, inputs), mx.cpu())
    symbol, arguments, states, names = imported(net, inputs)
    arrays = [mx.nd.NDArray(x, mx.cpu()) for x in inputs]
    shapes = [mx.io.DataDesc(n, a.shape, a.dtype) for n, a in zip(names, arrays)]
    if kind == "executor":
        bound = symbol.bind(
            mx.cpu(), {**arguments, **dict(zip(names, arrays))}, grad_req="null", aux_states=states
        )
        return {"predict": lambda: bound.forward(is_train=False)[0]}
    batch, new_module = mx.io.DataBatch(arrays, provide_data=shapes), mx.mod.Module  # imported here

    @cache
    def ready(train: bool) -> Any:
        module = new_module(symbol, names, None)
        wanted = layer and all(x.is_floating_point() for x in inputs)
        module.bind(shapes, for_training=train, inputs_need_grad=train and wanted)
        module.init_params(arg_params=arguments, aux_params=states)
        if train and not layer:
            module.init_optimizer(None, "sgd", {"learning_rate": 1e-6, "momentum": 0.9, "rescale_grad": 1.0})
        return module

    def predict() -> Any:
        predictor = ready(False)
        predictor.forward(batch, is_train=False)
        return predictor.get_outputs()[0]

    def fit() -> Any:
        module = ready(True)
        module.forward(batch, is_train=True)
        module.backward([gradient])
        if not layer:
            module.update()
        return module.get_outputs()[0]

    return {"predict": predict, "fit": fit}


def of_file(net: torch.nn.Module, inputs: list[torch.Tensor], layer: bool, kind: str) -> Calls:
    """Return the prediction of ONNX Runtime, OpenVINO or JAX, from the file that dpmodule exports.

    Empty for JAX if its reader lacks an operator of the network.
    """
    import dpmodule as mx

    symbol, arguments, states, names = imported(net, inputs)
    values = {name: x.numpy() for name, x in zip(names, inputs)}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "net.onnx")
        types = [values[name].dtype for name in symbol.list_arguments() if name in values]
        shapes = {name: value.shape for name, value in values.items()}
        mx.onnx.export_model(symbol, [arguments, states], shapes, types, path)
        one = os.environ.get(OWN_THREADS) != "default"
        if kind == "onnxruntime":
            return _onnxruntime(Path(path).read_bytes(), values, one)
        return (_jax if kind == "jax" else _openvino)(path, values, one)


def _onnxruntime(file: bytes, values: dict[str, Any], one: bool) -> Calls:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if one:
        options.intra_op_num_threads = 1

    @cache
    def session() -> Any:
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    return {"predict": lambda: torch.from_numpy(session().run(None, values)[0])}


def _openvino(path: str, values: dict[str, Any], one: bool) -> Calls:
    import openvino

    core, options = openvino.Core(), {"INFERENCE_PRECISION_HINT": "f32"}  # its default may be bfloat16
    if one:
        options["INFERENCE_NUM_THREADS"] = "1"
    request = core.compile_model(path, "CPU", options).create_infer_request()
    return {"predict": lambda: torch.from_numpy(request.infer(values, share_inputs=True)[0])}


def _jax(path: str, values: dict[str, Any], one: bool) -> Calls:
    if one:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax
    import onnx
    from jaxonnxruntime import call_onnx

    try:
        function, weights = call_onnx.call_onnx_model(onnx.load(path), values)
        run = jax.jit(function)
        run(weights, values)
    except (NotImplementedError, TypeError):  # its reader covers a part of ONNX
        return {}
    return {"predict": lambda: torch.from_numpy(np.array(run(weights, values)[0]))}


class Side:
    """Answers requests about one case after the other.

    Args:
        kind: see the module.
        seed: of the run.
    """

    def __init__(self, kind: str, seed: int) -> None:
        self._kind, self._seed = kind, seed
        self._calls: Calls = {}
        self._counts: dict[str, int] = {}
        self._held_before = 0.0
        self._held: dict[str, float] = {}

    def prepare(self, case: int | str, batch: int) -> dict[str, Any]:
        """Make a case; return its family, its description and what can run."""
        self._calls, self._counts = {}, {}
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        self._held_before = rss_mb()
        net, inputs, family, text = make_case(self._seed, case, batch)
        make = of_torch if self._kind in ("torch", "channels_last", "compiled") else of_file
        if self._kind in ("module", "executor"):
            make = of_dpmodule
        self._calls = make(net.eval(), inputs, isinstance(case, int), self._kind)
        return {"family": family, "text": text, "runs": list(self._calls)}

    def first(self, case: int | str, batch: int) -> dict[str, float]:
        """Return wall and CPU milliseconds of a case's first prediction, with binding or a session's creation."""
        self.prepare(case, batch)
        clock = Clock()
        self._calls["predict"]()
        return clock.read()

    def output(self) -> list[float]:
        """Return numbers of a prediction, to compare the sides."""
        found = self._calls["predict"]()
        flat = (found if isinstance(found, torch.Tensor) else found.tensor).detach().double().flatten()
        return [float(flat.mean()), float(flat.abs().mean()), *flat[:: max(1, len(flat) // 50)].tolist()]

    def measure(self, run: str) -> dict[str, float]:
        """Return wall and CPU milliseconds of a call."""
        call = self._calls[run]
        if run not in self._counts:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
            call()
            self._held[run] = peak_rss_mb() - self._held_before
            count, begun = 0, time.perf_counter()
            while time.perf_counter() - begun < LEAST_S:
                call()
                count += 1
            self._counts[run] = max(1, count)
        count = self._counts[run]
        if count > 1:  # a long call fills the caches itself
            call()
        clock = Clock()
        for _ in range(count):
            call()
        return clock.read(count)

    def held(self, run: str) -> float:
        """Return the most memory that a case's first calls held above what the process held before, in MB."""
        return self._held[run]


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    limit_threads(torch)
    if os.environ.get(OWN_THREADS) != "default":  # cores differ in speed by what else the machine does
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    side = Side(sys.argv[1], int(sys.argv[2]))
    names = ("prepare", "first", "output", "measure", "held")
    return {name: getattr(side, name) for name in names}


if __name__ == "__main__":
    serve(prepare)
