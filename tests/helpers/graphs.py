"""Random small graphs with a torch interpretation that shares nothing with the executor."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

import dpmodule as mx

Value = tuple[mx.sym.Symbol, Callable[[dict[str, torch.Tensor]], torch.Tensor], tuple[int, ...]]
"""A symbol, the torch function of the arguments that it means, and its shape."""


@dataclass
class Graph:
    """A graph under construction.

    Attributes:
        seed: what it is made from.
        shapes: shapes of its arguments.
        values: everything made so far.
    """

    seed: int
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def variable(self, shape: tuple[int, ...]) -> Value:
        """Add an argument."""
        name = f"x{len(self.shapes)}"
        self.shapes[name] = shape
        value = mx.sym.Variable(name), lambda given: given[name], shape
        self.values.append(value)
        return value

    def arrays(self) -> dict[str, np.ndarray]:
        """Draw values for the arguments, in float64, away from kinks."""
        rng = np.random.RandomState(self.seed)
        return {k: rng.uniform(0.2, 1.2, s) * rng.choice([-1, 1], s) for k, s in self.shapes.items()}


UNARY: dict[str, tuple[Callable[..., mx.sym.Symbol], Callable[[torch.Tensor], torch.Tensor]]] = {
    "tanh": (mx.sym.tanh, torch.tanh),
    "sigmoid": (mx.sym.sigmoid, lambda x: 1 / (1 + torch.exp(-x))),
    "relu": (lambda x: mx.sym.Activation(x, act_type="relu"), lambda x: x * (x > 0)),
    "square": (mx.sym.square, lambda x: x * x),
    "negative": (lambda x: -x, lambda x: -x),
    "half": (lambda x: x / 2, lambda x: x * 0.5),
    "shifted": (lambda x: 1.5 - x, lambda x: 1.5 - x),
    "identity": (mx.sym.identity, lambda x: x),
    "softmax": (mx.sym.softmax, lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)),
}
BINARY: dict[str, Callable[..., object]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
}


def _unary(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice(graph.values)
    symbol, function = UNARY[graph.random.choice(sorted(UNARY))]
    return symbol(made), lambda given: function(meant(given)), shape


def _binary(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice(graph.values)
    same = [v for v in graph.values if v[2] == shape]
    other, means, _ = graph.random.choice(same) if graph.random.random() < 0.7 else graph.variable(shape)
    both = BINARY[graph.random.choice(sorted(BINARY))]
    return both(made, other), lambda given: both(meant(given), means(given)), shape


def _dense(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice([v for v in graph.values if len(v[2]) > 1])
    hidden, columns = graph.random.randint(1, 4), int(np.prod(shape[1:]))
    weight, w, _ = graph.variable((hidden, columns))
    bias, b, _ = graph.variable((hidden,))
    symbol = mx.sym.FullyConnected(made, weight, bias, num_hidden=hidden)

    def run(given: dict[str, torch.Tensor]) -> torch.Tensor:
        return meant(given).reshape(shape[0], -1) @ w(given).T + b(given)

    return symbol, run, (shape[0], hidden)


def _concat(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice(graph.values)
    axis = graph.random.randrange(len(shape))
    rest = shape[:axis] + shape[axis + 1 :]
    fitting = [v for v in graph.values if len(v[2]) == len(shape) and v[2][:axis] + v[2][axis + 1 :] == rest]
    other, means, extent = graph.random.choice(fitting)

    def run(given: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.cat([meant(given), means(given)], axis)

    return (
        mx.sym.Concat(made, other, dim=axis),
        run,
        (*shape[:axis], shape[axis] + extent[axis], *shape[axis + 1 :]),
    )


def _reshape(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice(graph.values)
    size = int(np.prod(shape))
    code, wanted = graph.random.choice(
        [
            ((-1,), (size,)),
            ((0, -1), (shape[0], size // shape[0])),
            ((-1, 1), (size, 1)),
            ((-2, 1), (*shape, 1)),
        ]
    )
    if len(wanted) > 4:
        code, wanted = (-1,), (size,)
    return mx.sym.Reshape(made, shape=code), lambda given: meant(given).reshape(wanted), wanted


def _transpose(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice(graph.values)
    axes = graph.random.sample(range(len(shape)), len(shape))
    symbol = mx.sym.transpose(made, axes=tuple(axes))
    return symbol, lambda given: meant(given).permute(axes), tuple(shape[a] for a in axes)


def _reduce(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice([v for v in graph.values if len(v[2]) > 1])
    axis = graph.random.randrange(len(shape))
    if graph.random.random() < 0.5:
        wanted = shape[:axis] + shape[axis + 1 :]
        return mx.sym.sum(made, axis=axis), lambda given: meant(given).sum(axis), wanted
    wanted = (*shape[:axis], 1, *shape[axis + 1 :])
    return (
        mx.sym.mean(made, axis=axis, keepdims=True),
        lambda given: meant(given).mean(axis, keepdim=True),
        wanted,
    )


def _split(graph: Graph) -> Value:
    made, meant, shape = graph.random.choice(graph.values)
    axis = graph.random.randrange(len(shape))
    count = graph.random.choice([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0])
    which = graph.random.randrange(count)
    piece = shape[axis] // count

    def run(given: dict[str, torch.Tensor]) -> torch.Tensor:
        return meant(given).narrow(axis, which * piece, piece)

    symbol = mx.sym.SliceChannel(made, num_outputs=count, axis=axis)[which]
    return symbol, run, (*shape[:axis], piece, *shape[axis + 1 :])


STEPS = (_unary, _unary, _binary, _binary, _dense, _concat, _reshape, _transpose, _reduce, _split)


def random_graph(seed: int) -> tuple[mx.sym.Symbol, list[Value], Graph]:
    """Make a graph with one to three heads, the same one for the same seed."""
    graph = Graph(seed)
    graph.variable((graph.random.randint(1, 4), graph.random.randint(1, 4)))
    graph.variable(tuple(graph.random.randint(1, 3) for _ in range(3)))
    for _ in range(graph.random.randint(3, 12)):
        made = graph.random.choice(STEPS)(graph)
        if int(np.prod(made[2])) <= 400:
            graph.values.append(made)
    made_by_operator = [v for v in graph.values if v[0].get_children() is not None] or graph.values
    heads = graph.random.sample(made_by_operator, min(len(made_by_operator), graph.random.randint(1, 3)))
    return mx.sym.Group([head[0] for head in heads]), heads, graph
