"""Random graphs of arrays whose first axis is the batch, with layers among them: the same one from the same seed."""

import random

import numpy as np

import dpmodule as mx

__all__ = ["RandomGraph", "random_graph"]

S = mx.sym

# continuous, so that a rounding error stays one
FUNCTIONS = """
relu tanh sigmoid softsign sin cos arctan abs erf square cbrt
negative log1p_of_abs sqrt_of_more exp_of_less expm1_of_less arcsinh sinh_of_less degrees gamma_of_more rsqrt_of_more
"""
PAIRS = (
    "broadcast_add",
    "broadcast_sub",
    "broadcast_mul",
    "broadcast_maximum",
    "broadcast_minimum",
    "broadcast_hypot",
)
MOST = 400
"""Elements of a row, at most."""


class RandomGraph:
    """A graph under construction.

    Args:
        seed: what it is made from.

    Attributes:
        values: symbols made so far, and their shapes without the batch.
        params: shapes of parameters by name.
        inputs: shapes of inputs by name, without the batch.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.params, self.inputs, self.values, self.count = {}, {}, [], 0
        for i in range(self.random.choice((1, 1, 2))):
            rest = self.random.choice(((4,), (2, 6), (3, 4), (2, 4, 4), (3, 5, 4)))
            self.inputs[f"data{i}"] = rest
            self.values.append((S.Variable(f"data{i}"), rest))

    def name(self, kind):
        self.count += 1
        return f"{kind}{self.count}"

    def weight(self, *shape):
        name = self.name("weight")
        self.params[name] = shape
        return S.Variable(name)

    def any(self, *ranks):
        """Return a value whose rows have one of these numbers of axes, or any."""
        fitting = [each for each in self.values if not ranks or len(each[1]) in ranks]
        return self.random.choice(fitting) if fitting else (None, None)

    def axis(self, rest):
        """Return one of the axes after the batch, counted from the front or from the end."""
        axis = self.random.randint(1, len(rest))
        return self.random.choice((axis, axis - len(rest) - 1))

    def keep(self, value, rest):
        if 0 < np.prod(rest, initial=1) <= MOST:
            self.values.append((value, tuple(int(d) for d in rest)))

    # operators

    def function(self):
        x, rest = self.any()
        name, _, limit = self.random.choice(FUNCTIONS.split()).partition("_of_")
        if limit == "abs":
            x = S.abs(x)
        elif limit:
            x = S.tanh(x) + (1.5 if limit == "more" else 0)
        self.keep(getattr(S, name)(x, name=self.name(name)), rest)

    def number(self):
        x, rest = self.any()
        n = round(self.random.uniform(0.2, 2), 2)
        made = (
            x + n,
            n - x,
            x * n,
            x / n,
            S.clip(x, a_min=-n, a_max=1),
            S.smooth_l1(x, scalar=n),
            S.maximum(x, n),
        )
        self.keep(self.random.choice(made), rest)

    def pair(self):
        (x, rest), (y, other) = self.any(), self.any()
        if len(rest) == len(other) and all(a == b or 1 in (a, b) for a, b in zip(rest, other)):
            made = getattr(S, self.random.choice(PAIRS))(x, y, name=self.name("pair"))
            self.keep(made, np.maximum(rest, other))

    def reduction(self):
        x, rest = self.any()
        axis, keep = self.axis(rest), self.random.random() < 0.5 or len(rest) == 1
        kind = self.random.choice(("sum", "mean", "max", "min", "norm", "prod"))
        made = getattr(S, kind)(S.tanh(x) + 0.1, axis=axis, keepdims=keep)
        at = axis % (len(rest) + 1) - 1
        self.keep(made, (*rest[:at], *((1,) if keep else ()), *rest[at + 1 :]))

    def order(self):
        x, rest = self.any()
        axis = self.axis(rest)
        at = axis % (len(rest) + 1) - 1
        if self.random.random() < 0.5:
            self.keep(S.sort(x, axis=axis, is_ascend=self.random.random() < 0.5), rest)
            return
        k = self.random.randint(1, rest[at])
        self.keep(S.topk(x, axis=axis, k=k, ret_typ="value"), (*rest[:at], k, *rest[at + 1 :]))

    def transpose(self):
        x, rest = self.any(2, 3)
        if x is not None:
            axes = list(range(1, len(rest) + 1))
            self.random.shuffle(axes)
            self.keep(S.transpose(x, axes=(0, *axes)), [rest[a - 1] for a in axes])

    def reshape(self):
        x, rest = self.any()
        whole = int(np.prod(rest))
        parts = [(whole,)] + [(n, whole // n) for n in (2, 3, 4) if whole % n == 0]
        wanted = self.random.choice(parts)
        code = self.random.choice(((0, *wanted), (-1, *wanted), (0, -1, *wanted[1:])))
        self.keep(S.Reshape(x, shape=code, name=self.name("reshape")), wanted)

    def cut(self):
        x, rest = self.any()
        axis = self.axis(rest)
        at = axis % (len(rest) + 1) - 1
        step = self.random.choice((1, -1, 2))
        begin, end = sorted(self.random.sample(range(rest[at] + 1), 2))
        if step == -1:
            part, begin, end = len(range(end - 1, begin - 1, -1)), end - 1, begin - 1 if begin else None
        else:
            part = len(range(begin, end, step))
        lead = (None,) * (at + 1)
        made = S.slice(x, begin=(*lead, begin), end=(*lead, end), step=(*lead, step))
        self.keep(made, (*rest[:at], part, *rest[at + 1 :]))

    def joined(self):
        x, rest = self.any()
        alike = [v for v, other in self.values if other == rest]
        parts = [x, *self.random.choices(alike, k=self.random.randint(0, 2))]
        if self.random.random() < 0.5:
            axis = self.random.randint(1, len(rest) + 1)
            self.keep(S.stack(*parts, axis=axis), (*rest[: axis - 1], len(parts), *rest[axis - 1 :]))
        else:
            at = self.random.randrange(len(rest))
            made = S.Concat(*parts, dim=at + 1, name=self.name("concat"))
            self.keep(made, (*rest[:at], rest[at] * len(parts), *rest[at + 1 :]))

    def pieces(self):
        x, rest = self.any()
        at = self.random.randrange(len(rest))
        count = next((n for n in (3, 2) if rest[at] % n == 0), 1)
        made = S.SliceChannel(x, num_outputs=count, axis=at + 1, name=self.name("split"))
        self.keep(made[self.random.randrange(count)], (*rest[:at], rest[at] // count, *rest[at + 1 :]))

    def stretched(self):
        x, rest = self.any()
        at, n = self.random.randrange(len(rest)), self.random.randint(1, 3)
        if self.random.random() < 0.5:
            made, wanted = S.repeat(x, repeats=n, axis=at + 1), (*rest[:at], rest[at] * n, *rest[at + 1 :])
        else:
            made, wanted = S.tile(x, reps=(n,)), (*rest[:-1], rest[-1] * n)
        self.keep(self.random.choice((made, S.reverse(made, axis=at + 1))), wanted)

    def unsqueezed(self):
        x, rest = self.any(1, 2)
        if x is not None:
            axis = self.random.randint(1, len(rest) + 1)
            self.keep(S.expand_dims(x, axis=axis), (*rest[: axis - 1], 1, *rest[axis - 1 :]))

    def picked(self):
        x, rest = self.any()
        at = self.random.randrange(len(rest))
        places = [self.random.randrange(rest[at]) for _ in range(3)]
        index = S.slice_axis(
            S.arange(10, name=self.name("arange")), axis=0, begin=places[0] % 7, end=places[0] % 7 + 3
        )
        self.keep(
            S.take(x, index, axis=at + 1, mode=self.random.choice(("wrap", "clip"))),
            (*rest[:at], 3, *rest[at + 1 :]),
        )

    def like(self):
        x, rest = self.any()
        kind = self.random.choice(("zeros_like", "ones_like"))
        self.keep(x + getattr(S, kind)(x), rest)

    def chosen(self):
        x, rest = self.any()
        y = self.random.choice([v for v, other in self.values if other == rest])
        self.keep(S.where(S.ones_like(x), x, y), rest)

    # layers

    def dense(self):
        x, rest = self.any()
        flatten, bare = self.random.random() < 0.6, self.random.random() < 0.3
        size = self.random.choice((3, 5, 8))
        weight = self.weight(size, int(np.prod(rest)) if flatten else rest[-1])
        more = {} if bare else {"bias": self.weight(size)}
        made = S.FullyConnected(
            x, weight, num_hidden=size, flatten=flatten, no_bias=bare, name=self.name("fc"), **more
        )
        self.keep(made, (size,) if flatten else (*rest[:-1], size))

    def convolution(self):
        x, rest = self.any(3)
        if x is None or min(rest[1:]) < 3:
            return
        weight = self.weight(4, rest[0], 3, 3)
        made = S.Convolution(
            x, weight, kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True, name=self.name("conv")
        )
        self.keep(made, (4, *rest[1:]))

    def pool(self):
        x, rest = self.any(3)
        if x is not None and min(rest[1:]) >= 2:
            kind = self.random.choice(("max", "avg"))
            made = S.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type=kind, name=self.name("pool"))
            self.keep(made, (rest[0], rest[1] // 2, rest[2] // 2))

    def normalised(self):
        x, rest = self.any()
        if self.random.random() < 0.5:
            self.keep(S.softmax(x, axis=self.axis(rest)), rest)
        else:
            scale, shift = self.weight(rest[-1]), self.weight(rest[-1])
            self.keep(S.LayerNorm(x, scale, shift, eps=1e-2, name=self.name("norm")), rest)

    def product(self):
        (x, rest), (y, other) = self.any(2), self.any(2)
        if x is not None and rest[1] == other[0]:
            self.keep(S.batch_dot(x, y), (rest[0], other[1]))
        elif x is not None and rest[1] == other[1]:
            self.keep(S.batch_dot(x, y, transpose_b=True), (rest[0], other[0]))

    def heads(self):
        """Return one to three of the last values as a symbol."""
        count = self.random.choice((1, 1, 2, 3))
        return S.Group(
            [S.identity(value, name=f"out{i}") for i, (value, _) in enumerate(self.values[-count:])]
        )


STEPS = """
function number pair reduction order transpose reshape cut joined pieces stretched unsqueezed picked like chosen dense
convolution pool normalised product
"""


def random_graph(seed, steps=12):
    """Make a graph.

    Args:
        seed: what it is made from.
        steps: how many operators are tried.

    Returns:
        The symbol, the shapes of its inputs without the batch, and the shapes of its parameters, by name.
    """
    graph = RandomGraph(seed)
    for _ in range(graph.random.randint(1, steps)):
        getattr(graph, graph.random.choice(STEPS.split()))()
    made = graph.heads()
    used = set(made.list_arguments())
    return (
        made,
        {k: v for k, v in graph.inputs.items() if k in used},
        {k: v for k, v in graph.params.items() if k in used},
    )
