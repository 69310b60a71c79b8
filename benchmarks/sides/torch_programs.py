"""A side of the comparison of PyTorch programs for one example.

Run as ``python -m benchmarks.sides.torch_programs KIND``. KIND is "ours", "loop" (one example after the other), "hand"
(batched by hand), "compiled" (`torch.compile` of the program in the loop), or "nested" (`torch.nested`).
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..torch_programs import BY_HAND, PROGRAMS, Example, Net, classified, examples
from .serve import limit_threads, serve, time_of

__all__ = ["prepare"]

Loss = Callable[[Net, Sequence[Example]], Tensor]


def _ready(tensor: Tensor) -> Any:
    yield from ()
    return tensor


def alone(program: Callable[..., Any], net: Net, example: Example) -> Tensor:
    """Run a program to its end; a tensor that it waits for is there."""
    found = program(net, example)
    if inspect.iscoroutine(found):
        try:
            found.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
    return found  # type: ignore[no-any-return]


def by_loop(program: Callable[..., Any]) -> Loss:
    return lambda net, batch: torch.stack([alone(program, net, each) for each in batch]).mean()


_OURS = """
def loss(net, batch):
    with autobatch.batching():
        return torch.stack(autobatch.map(lambda each: program(net, each), batch)).mean()
"""


def by_us(program: Callable[..., Any], case: str) -> Loss:
    """Return the loss of a program in a block of its own: whether recording pays is learned for every line."""
    from dpmodule import autobatch

    found: dict[str, Any] = {"autobatch": autobatch, "torch": torch, "program": program}
    exec(compile(_OURS, f"<{case}>", "exec"), found)
    return found["loss"]  # type: ignore[no-any-return]


def nested_set(net: Net, batch: Sequence[Example]) -> Tensor:
    rows = torch.nested.as_nested_tensor([each.rows for each in batch], layout=torch.jagged)
    x = torch.relu(net.layers[1](torch.relu(net.layers[0](rows))))
    return classified(net, torch.relu(net.keys(x.sum(1))), torch.stack([each.label for each in batch]))


def nested_attention(net: Net, batch: Sequence[Example]) -> Tensor:
    words = torch.nested.as_nested_tensor([each.words for each in batch], layout=torch.jagged)
    x = net.embed(words)
    weights = torch.softmax((torch.tanh(net.keys(x)) * net.query).sum(-1, keepdim=True), 1)
    return classified(net, (weights * x).sum(1), torch.stack([each.label for each in batch]))


NESTED: dict[str, Loss] = {"set encoder": nested_set, "ragged attention": nested_attention}


class Case:
    """The training of a network on a batch by a side."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        torch.Tensor.__await__ = _ready  # type: ignore[attr-defined]  # for programs in the loop
        self._step: Callable[[], float] = float

    def _loss_of(self, name: str, case: str) -> Loss | None:
        program, kind = PROGRAMS[name], self._kind
        if kind == "compiled":
            torch._dynamo.config.cache_size_limit = 64
            return None if inspect.iscoroutinefunction(program) else by_loop(torch.compile(program))
        others = {"hand": BY_HAND, "nested": NESTED}
        if kind in others:
            return others[kind].get(name)
        return by_us(program, case) if kind == "ours" else by_loop(program)

    def start(self, name: str, size: int, count: int, file: str = "") -> dict[str, Any]:
        """Return the losses of two steps and the sums of the first gradients, or why there are none.

        Args:
            file: where weights and examples are saved, if anywhere.
        """
        torch.manual_seed(1)
        net, batch = Net(size), examples(count, size)
        loss = self._loss_of(name, f"{name}, {count} x {size}")
        if loss is None:
            return {"why": "cannot express it"}
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

        def step() -> float:
            optimizer.zero_grad()
            found = loss(net, batch)
            if found.requires_grad:
                torch.autograd.backward(found)
                optimizer.step()
            return float(found.detach())

        self._step = step
        if file:  # before the weights change
            self._save(net, batch, file)
        try:
            first = step()
            grads = [float(each.grad.abs().sum()) for each in net.parameters() if each.grad is not None]
            second = step()
        except Exception as error:  # a library may refuse a program in its own way
            return {"why": f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"}
        return {"losses": [first, second], "grads": grads}

    @staticmethod
    def _save(net: Net, batch: Sequence[Example], file: str) -> None:
        """Save weights and examples for a side without torch."""
        weights = {name: each.detach().numpy() for name, each in net.named_parameters()}
        rows = [
            {
                name: each.tolist() if isinstance(each, Tensor) else each
                for name, each in vars(example).items()
            }
            for example in batch
        ]
        np.savez(file, examples=np.array(json.dumps(rows)), **weights)  # type: ignore[arg-type]

    def measure(self) -> dict[str, float]:
        """Return the time of a step."""
        return time_of(self._step, least_s=0.05)


def prepare() -> dict[str, Callable[..., Any]]:
    """Return the answers."""
    limit_threads(torch)
    case = Case(sys.argv[1])
    return {"start": case.start, "measure": case.measure}


if __name__ == "__main__":
    serve(prepare)
