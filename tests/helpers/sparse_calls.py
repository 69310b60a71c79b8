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
NUMBERS = "x + n; n + x; x - n; n - x; x * n; x / n; x ** 2; x == n; x != n; x > n; x >= n; x < n; x <= n"
SAME = "sparse.add sparse.multiply elemwise_sub elemwise_mul broadcast_add maximum"
PAIRS = {
    **{f"x {sign} y": f"x {sign} y" for sign in "+-*>"}, **{name: f"nd.{name}(x, y)" for name in SAME.split()},
    "add_n": "nd.add_n(x, y, x)", **{f"concat {axis}": f"nd.concat(x, y, dim={axis})" for axis in (0, 1)},
    "_hypot": "nd._internal._hypot(x, y)", "like": "nd._internal._identity_with_attr_like_rhs(x, y)",
    "logistic": "nd.LogisticRegressionOutput(x, y)",
}  # fmt: skip


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
        for text, number in itertools.product(NUMBERS.split("; "), (0.0, 2.0, -1.0)):
            given = {"x": x, "n": 3 if (text, number) == ("x / n", 0) else number}
            yield f"{text} {number} {stype}", lambda text=text, given=given: eval(text, given)
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
        for name, text in PAIRS.items():
            given = {"nd": nd, "x": x, "y": y}
            yield f"{name} {left} {right}", lambda text=text, given=given: eval(text, given)
        for flip, stype in itertools.product(((0, 0), (1, 0), (0, 1)), (None, *STYPES)):
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
        how = {"axis": axis, "keepdims": keep}
        yield f"square sum {axis} {keep}", lambda how=how: nd._internal._square_sum(rows, **how)
