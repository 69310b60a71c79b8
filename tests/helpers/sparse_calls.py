"""Calls of functions on sparse arrays, run by MXNet (which recorded what comes out) and by this package."""

import itertools

import numpy as np

STYPES = ("default", "row_sparse", "csr")
RNG = np.random.RandomState(0)
FIRST = np.where(RNG.rand(5, 4) < 0.5, RNG.uniform(-0.9, 0.9, (5, 4)), 0).astype("f4")
SECOND = np.where(RNG.rand(5, 4) < 0.5, RNG.uniform(-0.9, 0.9, (5, 4)), 0).astype("f4")
FIRST[[1, 3]] = 0
SECOND[[0, 1]] = 0
WIDE, TALL = RNG.randn(4, 3).astype("f4"), RNG.randn(5, 3).astype("f4")

UNARY = (
    "abs arccos arcsin arcsinh arctan cbrt ceil cos cosh degrees exp expm1 fix floor gamma log1p make_loss negative "
    "radians relu rint round sigmoid sign sin sinh sqrt square stop_gradient tan tanh trunc zeros_like sum mean norm"
)
NUMBERS = {
    "x + n": lambda x, n: x + n,
    "n + x": lambda x, n: n + x,
    "x - n": lambda x, n: x - n,
    "n - x": lambda x, n: n - x,
    "x * n": lambda x, n: x * n,
    "x / n": lambda x, n: x / (n or 3),
    "x ** 2": lambda x, n: x**2,
    "x == n": lambda x, n: x == n,
    "x != n": lambda x, n: x != n,
    "x > n": lambda x, n: x > n,
    "x >= n": lambda x, n: x >= n,
    "x < n": lambda x, n: x < n,
    "x <= n": lambda x, n: x <= n,
}
PAIRS = {
    "x + y": lambda nd, x, y: x + y,
    "x - y": lambda nd, x, y: x - y,
    "x * y": lambda nd, x, y: x * y,
    "x > y": lambda nd, x, y: x > y,
    "sparse.add": lambda nd, x, y: nd.sparse.add(x, y),
    "sparse.multiply": lambda nd, x, y: nd.sparse.multiply(x, y),
    "elemwise_sub": lambda nd, x, y: nd.elemwise_sub(x, y),
    "elemwise_mul": lambda nd, x, y: nd.elemwise_mul(x, y),
    "broadcast_add": lambda nd, x, y: nd.broadcast_add(x, y),
    "maximum": lambda nd, x, y: nd.maximum(x, y),
    "_hypot": lambda nd, x, y: nd._internal._hypot(x, y),
    "add_n": lambda nd, x, y: nd.add_n(x, y, x),
    "concat 0": lambda nd, x, y: nd.concat(x, y, dim=0),
    "concat 1": lambda nd, x, y: nd.concat(x, y, dim=1),
    "like": lambda nd, x, y: nd._internal._identity_with_attr_like_rhs(x, y),
    "logistic": lambda nd, x, y: nd.LogisticRegressionOutput(x, y),
}


def calls(mx):
    """Yield pairs of a label and a function that returns an array."""
    yield from _of_one(mx.nd)
    yield from _of_two(mx.nd)
    yield from _of_rows(mx.nd)


def _stored(nd, values, stype):
    return nd.array(values).tostype(stype)


def _of_one(nd):
    for stype in STYPES[1:]:
        x = _stored(nd, FIRST, stype)
        for name in UNARY.split():
            yield f"{name} {stype}", lambda name=name, x=x: getattr(nd.sparse, name)(x)
        for (name, function), number in itertools.product(NUMBERS.items(), (0.0, 2.0, -1.0)):
            yield f"{name} {number} {stype}", lambda f=function, x=x, number=number: f(x, number)
        for axis in (0, 1):
            yield f"sum {axis} {stype}", lambda x=x, axis=axis: nd.sparse.sum(x, axis=axis)
            yield f"mean {axis} {stype}", lambda x=x, axis=axis: nd.sparse.mean(x, axis=axis, keepdims=True)
        yield f"clip {stype}", lambda x=x: nd.sparse.clip(x, -0.5, 0.5)
        yield f"slice {stype}", lambda x=x: nd.slice(x, begin=(1, 1), end=(4, 3))
        yield f"take {stype}", lambda x=x: nd.take(x, nd.array([0, 3, 2, 2]))
        yield f"ones_like {stype}", lambda x=x: nd.ones_like(x)
        yield f"where {stype}", lambda x=x: nd.where(x, nd.ones((5, 4)), nd.zeros((5, 4)))
        yield f"astype {stype}", lambda x=x: x.astype("float64")


def _of_two(nd):
    for left, right in itertools.product(STYPES, repeat=2):
        x, y = _stored(nd, FIRST, left), _stored(nd, SECOND, right)
        for name, function in PAIRS.items():
            yield f"{name} {left} {right}", lambda f=function, x=x, y=y: f(nd, x, y)
        for flip, stype in itertools.product(
            ((0, 0), (1, 0), (0, 1)), (None, "default", "row_sparse", "csr")
        ):
            other = TALL if flip[0] else WIDE.T if flip[1] else WIDE
            attrs = {"transpose_a": bool(flip[0]), "transpose_b": bool(flip[1])}
            if stype is not None:
                attrs["forward_stype"] = stype
            z = _stored(nd, other.copy(), right)
            yield f"dot {left} {right} {flip} {stype}", lambda x=x, z=z, attrs=attrs: nd.dot(x, z, **attrs)


def _of_rows(nd):
    rows, numbers = _stored(nd, SECOND, "row_sparse"), nd.array([[0, 3], [4, 4]])
    size = {"input_dim": 5, "output_dim": 4}
    yield "Embedding", lambda: nd.Embedding(numbers, rows, **size)
    yield "SparseEmbedding", lambda: nd.contrib.SparseEmbedding(numbers, rows, **size)
    yield "retain", lambda: nd.sparse.retain(rows, nd.array([0, 2, 3], dtype="int64"))
    for axis, keep in itertools.product((0, 1), (False, True)):
        yield (
            f"square sum {axis} {keep}",
            lambda a=axis, k=keep: nd._internal._square_sum(rows, axis=a, keepdims=k),
        )
