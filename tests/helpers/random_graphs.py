"""Random graphs of arrays whose first axis is the batch, with layers among them: the same one from the same seed."""

import random

import numpy as np

import dpmodule as mx

S = mx.sym

# continuous, so that a rounding error stays one
FUNCTIONS = """
relu tanh sigmoid softsign sin cos arctan abs erf square cbrt
negative log1p_of_abs sqrt_of_more exp_of_less expm1_of_less arcsinh sinh_of_less degrees gamma_of_more rsqrt_of_more
"""
PAIRS = "add sub mul maximum minimum hypot"
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
        self.random, self.params, self.inputs, self.values, self.count = random.Random(seed), {}, {}, [], 0
        for i in range(self.random.choice((1, 1, 2))):
            self.inputs[f"data{i}"] = self.random.choice(((4,), (2, 6), (3, 4), (2, 4, 4), (3, 5, 4)))
            self.keep(S.Variable(f"data{i}"))

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

    def one(self, *ranks):
        """Return such a value, its shape, and one of its axes after the batch, counted from the front."""
        x, rest = self.any(*ranks)
        return x, rest, self.random.randint(1, len(rest)) if rest else None

    def keep(self, value):
        shapes = {name: (3, *rest) for name, rest in self.inputs.items()} | self.params
        rest = value.infer_shape(**{name: shapes[name] for name in value.list_arguments()})[1][0][1:]
        if np.prod(rest) <= MOST:
            self.values.append((value, rest))

    # operators

    def function(self):
        x, _ = self.any()
        name, _, limit = self.random.choice(FUNCTIONS.split()).partition("_of_")
        if limit == "abs":
            x = S.abs(x)
        elif limit:
            x = S.tanh(x) + (1.5 if limit == "more" else 0)
        self.keep(getattr(S, name)(x, name=self.name(name)))

    def number(self):
        x, n = self.any()[0], round(self.random.uniform(0.2, 2), 2)
        numbers = x + n, n - x, x * n, x / n, S.abs(x) * n
        self.keep(self.random.choice((*numbers, S.clip(x, a_min=-n, a_max=1), S.smooth_l1(x, scalar=n))))

    def pair(self):
        (x, rest), (y, other) = self.any(), self.any()
        if len(rest) == len(other) and all(a == b or 1 in (a, b) for a, b in zip(rest, other)):
            kind = self.random.choice(PAIRS.split())
            self.keep(getattr(S, f"broadcast_{kind}")(x, y, name=self.name("pair")))

    def reduction(self):
        x, rest, axis = self.one()
        kind = self.random.choice(("sum", "mean", "max", "min", "norm", "prod"))
        keep = self.random.random() < 0.5 or len(rest) == 1
        axis -= self.random.choice((0, len(rest) + 1))
        self.keep(getattr(S, kind)(S.tanh(x) + 0.1, axis=axis, keepdims=keep))

    def order(self):
        x, rest, axis = self.one()
        k, ascends = self.random.randint(1, rest[axis - 1]), self.random.random() < 0.5
        largest = S.topk(x, axis=axis, k=k, ret_typ="value")
        self.keep(self.random.choice((largest, S.sort(x, axis=axis, is_ascend=ascends))))

    def transpose(self):
        x, rest = self.any(2, 3)
        if x is not None:
            axes = self.random.sample(range(1, len(rest) + 1), len(rest))
            self.keep(S.transpose(x, axes=(0, *axes)))

    def reshape(self):
        x, rest = self.any()
        whole = int(np.prod(rest))
        wanted = self.random.choice([(whole,), *((n, whole // n) for n in (2, 3, 4) if whole % n == 0)])
        code = self.random.choice(((0, *wanted), (-1, *wanted), (0, -1, *wanted[1:])))
        self.keep(S.Reshape(x, shape=code, name=self.name("reshape")))

    def cut(self):
        x, rest, axis = self.one()
        step = self.random.choice((1, -1, 2))
        begin, end = sorted(self.random.sample(range(rest[axis - 1] + 1), 2))
        if step == -1:
            begin, end = end - 1, begin - 1 if begin else None
        lead = (None,) * axis
        self.keep(S.slice(x, begin=(*lead, begin), end=(*lead, end), step=(*lead, step)))

    def joined(self):
        x, rest, axis = self.one()
        alike = [v for v, other in self.values if other == rest]
        parts = [x, *self.random.choices(alike, k=self.random.randint(0, 2))]
        joined = S.Concat(*parts, dim=axis, name=self.name("concat"))
        self.keep(self.random.choice((joined, S.stack(*parts, axis=axis))))

    def pieces(self):
        x, rest, axis = self.one()
        count = next((n for n in (3, 2) if rest[axis - 1] % n == 0), 1)
        made = S.SliceChannel(x, num_outputs=count, axis=axis, name=self.name("split"))
        self.keep(made[self.random.randrange(count)])

    def stretched(self):
        x, _, axis = self.one()
        n = self.random.randint(1, 3)
        made = self.random.choice((S.repeat(x, repeats=n, axis=axis), S.tile(x, reps=(n,))))
        self.keep(self.random.choice((made, S.reverse(made, axis=axis))))

    def unsqueezed(self):
        x, _, axis = self.one(1, 2)
        if x is not None:
            self.keep(S.expand_dims(x, axis=axis))

    def picked(self):
        x, rest, axis = self.one()
        at = self.random.randrange(rest[axis - 1]) % 7
        index = S.slice_axis(S.arange(10, name=self.name("arange")), axis=0, begin=at, end=at + 3)
        self.keep(S.take(x, index, axis=axis, mode=self.random.choice(("wrap", "clip"))))

    def like(self):
        x, rest = self.any()
        y = self.random.choice([v for v, other in self.values if other == rest])
        made = S.where(S.ones_like(x), x, y), x + S.zeros_like(y), x + S.ones_like(y)
        self.keep(self.random.choice(made))

    # layers

    def dense(self):
        x, rest = self.any()
        flatten, bare = self.random.random() < 0.6, self.random.random() < 0.3
        size = self.random.choice((3, 5, 8))
        weight = self.weight(size, int(np.prod(rest)) if flatten else rest[-1])
        options = {"num_hidden": size, "flatten": flatten, "no_bias": bare, "name": self.name("fc")}
        self.keep(S.FullyConnected(x, weight, **({} if bare else {"bias": self.weight(size)}), **options))

    def convolution(self):
        x, rest = self.any(3)
        if x is not None and min(rest[1:]) >= 3:
            options = {"num_filter": 4, "pad": (1, 1), "no_bias": True, "name": self.name("conv")}
            self.keep(S.Convolution(x, self.weight(4, rest[0], 3, 3), kernel=(3, 3), **options))

    def pool(self):
        x, rest = self.any(3)
        if x is not None and min(rest[1:]) >= 2:
            options = {"pool_type": self.random.choice(("max", "avg")), "name": self.name("pool")}
            self.keep(S.Pooling(x, kernel=(2, 2), stride=(2, 2), **options))

    def normalised(self):
        x, rest, axis = self.one()
        if self.random.random() < 0.5:
            self.keep(S.softmax(x, axis=axis))
        else:
            scale, shift = self.weight(rest[-1]), self.weight(rest[-1])
            self.keep(S.LayerNorm(x, scale, shift, eps=1e-2, name=self.name("norm")))

    def product(self):
        (x, rest), (y, other) = self.any(2), self.any(2)
        if x is not None and rest[1] in other:
            self.keep(S.batch_dot(x, y, transpose_b=rest[1] != other[0]))

    def heads(self):
        """Return one to three of the last values as a symbol."""
        values = self.values[-self.random.choice((1, 1, 2, 3)) :]
        return S.Group([S.identity(value, name=f"out{i}") for i, (value, _) in enumerate(values)])


STEPS = """
function number pair reduction order transpose reshape cut joined pieces stretched unsqueezed picked like dense
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
    inputs, params = ({k: v for k, v in each.items() if k in used} for each in (graph.inputs, graph.params))
    return made, inputs, params
