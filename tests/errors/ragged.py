"""Wrong calls of ragged arrays and of what works on them."""

import numpy as np

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.base import ArgumentError, BoundsError, DTypeError, NodeError, OpError, ShapeError

S, made = mx.sym, mx.nd.ragged_array
ALL, A, PLAIN = slice(None), made([[1.0, 2.0], [], [3.0]]), mx.nd.ones((3,))
IDS, X, Y = made([[-1, 9]], dtype="int64"), S.Variable("x", stype="ragged"), S.Variable("y", stype="ragged")


def item(key):
    return lambda: A[key]


def written(key, value):
    return lambda: A.copy().__setitem__(key, value)


def cell():
    both = dy.cell(S.elemwise_add(X, Y), {})
    both(dy.inputVector([1, 2]), dy.inputVector([3])).npvalue()


def different_lengths():
    executor = S.elemwise_add(X, Y, name="both").simple_bind(mx.cpu(), x=(2,), y=(2,))
    executor.forward(x=made([[1], [2]]), y=made([[1, 2], []]))


def module(net, **desc):
    mod = mx.mod.Module(net, ["words"], None)
    mod.bind([mx.io.DataDesc("words", **desc)], None, for_training=False)
    mod.init_params()
    return mod


EMBEDDED = S.Embedding(S.Variable("words"), input_dim=9, output_dim=2, name="e")
EXP, NAMED = S.exp(X), S.exp(S.Variable("words", stype="ragged"))
ROWS = [
    (lambda: made([1, 2], [0, 1]), ArgumentError, "from 0 to 1, expected 0 to 2"),
    (lambda: made([1, 2], [0, 2, 1, 2]), ArgumentError, "must not descend"),
    (lambda: made([1, 2], [[0, 2]]), ShapeError, "offsets have shape"),
    (lambda: made([1, 2], [0, 1.5, 2]), DTypeError, "expected integers"),
    (lambda: made([]), ArgumentError, "an empty list"),
    (lambda: made(3), ArgumentError, "expected a list of rows"),
    (lambda: made([[[1, 2]], [3]]), ShapeError, "rows have the shapes"),
    (item(3), BoundsError, "3"),
    *[(item(key), ArgumentError, "") for key in (slice(None, None, 2), "x")],
    (lambda: A.padded(length=1), ArgumentError, "at least 2"),
    (lambda: A.copyto(made([[0]])), ShapeError, "shape"),
    (lambda: A.copyto(PLAIN), DTypeError, "ragged"),
    *[(written(*given), ArgumentError, "written completely") for given in ((0, A), (ALL, PLAIN))],
    (lambda: mx.nd.concatenate([A, PLAIN]), ArgumentError, ""),
    *[
        (call, ArgumentError, "ragged")
        for call in (lambda: A.asnumpy(), lambda: A.torch(), lambda: np.asarray(A), lambda: A.raw, lambda: A.T)
    ],
    (lambda: A.reshape((3,)), ArgumentError, "ragged"),
    (lambda: A.tostype("default"), ArgumentError, "ragged"),
    (lambda: mx.nd.save("never.params", {"a": A}), ArgumentError, "ragged"),
    (lambda: S.sequence_expand(S.Variable("a"), X).infer_shape(a=(3, 2), x=(2,)), ShapeError, "rows of x and y"),
    (lambda: mx.nd.sequence_expand(made([[1], [2]]), made([[1], [2], [3]])), ShapeError, "rows of x and y"),
    *[
        (lambda s=s: mx.nd.sequence_gru(made([[[1.0] * 6]]), *map(mx.nd.ones, s), has_state=True), ShapeError, text)
        for s, text in (
            (((6, 2), (1,), (1, 2)), r"bias has shape \(1,\), expected \(6,\)"),
            (((6, 2), (6,), (5, 2)), r"state has shape \(5, 2\), expected \(1, 2\)"),
        )
    ],
    (lambda: made([[1, 2], [3]]) + made([[1], [2, 3]]), ShapeError, r"add.*different row lengths"),
    (lambda: mx.nd.contrib.SparseEmbedding(IDS, mx.nd.ones((4, 2)), input_dim=4, output_dim=2), BoundsError, "0 to 3"),
    (lambda: A.sum(), OpError, "sum takes no ragged input"),
    (lambda: mx.nd.cast_storage(A, "csr"), OpError, "cast_storage takes no ragged"),
    (cell, ShapeError, r"rows of different lengths \[1, 2\]"),
    (lambda: dy.cell(S.sum(X), {}), OpError, "takes no ragged"),
    (different_lengths, NodeError, r"both.*different row lengths"),
    (lambda: module(S.sequence_pool(S.Variable("words")), shape=(2,)), OpError, "sequence_pool takes ragged"),
    (lambda: module(NAMED, shape=(0,), stype="ragged"), ShapeError, "the batch is empty"),
    (lambda: module(NAMED, shape=(3,), stype="ragged").forward(mx.io.DataBatch([PLAIN])), ArgumentError,
     r"words is an array of shape \(3,\), but the bound array is ragged"),
    (lambda: module(EMBEDDED, shape=(3,)).forward(mx.io.DataBatch([A])), ArgumentError, "words is ragged, but the"),
    (lambda: mx.io.DataDesc("words", (3,), stype="rugged"), ArgumentError, "stype is 'rugged'"),
    (lambda: EXP.bind(mx.cpu(), {"x": A}, {"x": PLAIN}), ArgumentError, "args_grad: x is stored as"),
    (lambda: mx.autograd.mark_variables([A], [PLAIN]), ArgumentError, "the gradient is stored as default"),
]  # fmt: skip
