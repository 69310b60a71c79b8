"""Operators one by one: under an `mx` package, MXNet's or ours, or as bare torch calls.

Run as ``python -m benchmarks.sides.operators PACKAGE``, "torch" for bare torch. This file also runs under Python 3.8,
with MXNet 1.9.1.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ..operator_cases import CASES, SMALL, make_inputs
from .module import load
from .serve import serve

__all__ = ["Package", "Torch", "measure", "prepare"]

LEAST_S = 0.02
"""Each figure is taken over so many calls that they take this long."""


def measure(call: Any) -> float:
    """Return the CPU microseconds of one call, all threads together."""
    call()
    count = 1
    while True:
        begin, wall = time.process_time(), time.perf_counter()
        for _ in range(count):
            call()
        spent = time.process_time() - begin
        if time.perf_counter() - wall >= LEAST_S:
            return spent / count * 1e6
        count *= 2


def small_inputs(ones: Any) -> dict[str, Any]:
    """Return the small arrays by name."""
    shapes = {"x": (2, 2), "w": (2, 2), "b": (2,), "i": (1, 1, 2, 2), "k": (1, 1, 1, 1)}
    return {name: ones(shape) for name, shape in shapes.items()}


class Package:
    """Runs cases through `mx.nd` and through bound executors.

    Args:
        mx: the package.
    """

    def __init__(self, mx: Any) -> None:
        self.mx = mx

    def function(self, space: Any, name: str) -> Any:
        """Return an operator's function."""
        for part in name.split("."):
            space = getattr(space, part)
        return space

    def forward(self, number: int) -> float:
        """Time a call under mx.nd until its result is there."""
        name, inputs, attrs, _, _ = CASES[number]
        attrs = {("shape" if k == "shape_to" else k): v for k, v in attrs.items()}
        function = self.function(self.mx.nd, name)
        arrays = [self.mx.nd.array(x) for x in make_inputs(inputs)]

        def call() -> None:
            found = function(*arrays, **attrs)
            (found[0] if isinstance(found, (list, tuple)) else found).wait_to_read()

        return measure(call)

    def bound(self, number: int) -> Any:
        """Return an executor of a case."""
        name, inputs, attrs, grads, _ = CASES[number]
        attrs = {("shape" if k == "shape_to" else k): v for k, v in attrs.items()}
        names = [f"x{i}" for i in range(len(inputs))]
        symbol = self.function(self.mx.sym, name)(*map(self.mx.sym.Variable, names), name="op", **attrs)
        values = dict(zip(names, map(self.mx.nd.array, make_inputs(inputs))))
        args = {k: v for k, v in values.items() if k in symbol.list_arguments()}
        aux = {k: v for k, v in values.items() if k in symbol.list_auxiliary_states()}
        req = {k: "write" if int(k[1:]) in grads else "null" for k in args}
        bound = symbol.simple_bind(self.mx.cpu(), req, **{k: v.shape for k, v in args.items()})
        bound.copy_params_from(args, aux)
        return bound

    def both(self, number: int) -> float:
        """Time forward and backward of a bound executor until the gradients are there."""
        bound = self.bound(number)
        wanted = [grad for grad in bound.grad_arrays if grad is not None]
        outputs = bound.forward(is_train=True)
        heads = [self.mx.nd.ones(o.shape, dtype=o.dtype) for o in outputs]

        def call() -> None:
            bound.forward(is_train=True)
            bound.backward(heads)
            for grad in wanted:
                grad.wait_to_read()

        return measure(call)

    def small(self, number: int) -> float:
        """Time a call of mx.nd on small arrays."""
        return measure(
            eval(f"lambda: {SMALL[number][0]}", {"nd": self.mx.nd, **small_inputs(self.mx.nd.ones)})
        )

    def chain(self, length: int, train: bool) -> float:
        """Time an executor over a chain of small operators."""
        net = self.mx.sym.Variable("x")
        for _ in range(length):
            net = self.mx.sym.relu(net)
        bound = net.simple_bind(self.mx.cpu(), x=(2, 2), grad_req="write" if train else "null")
        if not train:
            return measure(lambda: bound.forward(is_train=False)[0].wait_to_read())
        head = self.mx.nd.ones((2, 2))

        def call() -> None:
            bound.forward(is_train=True)
            bound.backward(head)
            bound.grad_dict["x"].wait_to_read()

        return measure(call)


class Torch:
    """Runs the same as bare torch calls."""

    def __init__(self) -> None:
        import torch
        from torch.nn import functional

        torch.set_num_threads(1)
        self.torch = torch
        self.names = {"torch": torch, "F": functional}

    def expression(self, number: int, grads: bool) -> tuple[Any, Any]:
        """Return a case as a function, and the tensors whose gradients are wanted."""
        name, inputs, attrs, wanted, text = CASES[number]
        tensors = [self.torch.from_numpy(x) for x in make_inputs(inputs)]
        if grads:
            for i in wanted:
                tensors[i].requires_grad_()
        if name == "RNN":
            return self.lstm(tensors), [tensors[i] for i in wanted]
        scope = {**self.names, **{f"x{i}": t for i, t in enumerate(tensors)}}
        return eval(f"lambda: {text}", scope), [tensors[i] for i in wanted]

    def lstm(self, tensors: Any) -> Any:
        """Return the fused LSTM over weights cut out of one flat tensor."""
        x, flat, h, c = tensors
        sizes = [160000, 160000, 800, 800]
        weights = [w.reshape(s) for w, s in zip(flat.split(sizes), [(800, 200), (800, 200), (800,), (800,)])]

        def call() -> Any:
            return self.torch.lstm(x, (h, c), weights, True, 1, 0.0, True, False, False)[0]

        return call

    def forward(self, number: int) -> float:
        """Time the torch call."""
        call, _ = self.expression(number, False)
        with self.torch.no_grad():
            return measure(call)

    def both(self, number: int) -> float:
        """Time the torch call and the gradients."""
        call, wanted = self.expression(number, True)
        if CASES[number][0] == "RNN":
            x, flat, h, c = (self.torch.from_numpy(v) for v in make_inputs(CASES[number][1]))
            x.requires_grad_()
            flat.requires_grad_()
            wanted = [x, flat]

            def call() -> Any:
                return self.lstm((x, flat, h, c))()

        out = call()
        head = self.torch.ones_like(out if not isinstance(out, tuple) else out[0])

        def step() -> None:
            out = call()
            roots = out if isinstance(out, tuple) else (out,)
            self.torch.autograd.grad(roots, wanted, [head] * len(roots))

        return measure(step)

    def small(self, number: int) -> float:
        """Time a call on small tensors."""
        scope = {**self.names, **small_inputs(self.torch.ones)}
        with self.torch.no_grad():
            return measure(eval(f"lambda: {SMALL[number][1]}", scope))

    def chain(self, length: int, train: bool) -> float:
        """Time a chain of calls on a small tensor."""
        x = self.torch.ones(2, 2, requires_grad=train)
        head = self.torch.ones(2, 2)
        relu = self.torch.relu

        def call() -> None:
            y = x
            for _ in range(length):
                y = relu(y)
            if train:
                self.torch.autograd.grad(y, x, head)

        with self.torch.set_grad_enabled(train):
            return measure(call)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    side = Torch() if sys.argv[1] == "torch" else Package(load(sys.argv[1]))
    return {"forward": side.forward, "both": side.both, "small": side.small, "chain": side.chain}


if __name__ == "__main__":
    serve(prepare)
