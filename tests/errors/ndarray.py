"""Wrong calls of arrays: creation, indexing, arithmetic, operators, sparse arrays, files."""

import operator
import struct

import numpy as np
import torch

import dpmodule as mx
from dpmodule.base import (
    ArgumentError,
    BoundsError,
    DeviceError,
    DTypeError,
    FileError,
    FileFormatError,
    NDArrayHandle,
    NonFiniteError,
    NotSupportedForSparseNDArray,
    OpError,
    OutOfMemoryError,
    ShapeError,
    UnknownNameError,
)

nd, sparse = mx.nd, mx.nd.sparse
one, two, six = nd.ones(1), nd.ones((2,)), nd.array([[1, -2, 3], [4, 5, -6]])
weight, ints = nd.ones((2, 3)), nd.ones((3,), dtype="int32")
ADDED = mx.nd.CachedOp(mx.sym.var("a") + mx.sym.var("b"))
LOOP, _ = mx.sym.contrib.foreach(lambda x, s: (x + s, x + s), mx.sym.var("data"), mx.sym.var("start"))
csr = nd.ones((2, 2)).tostype("csr")
RECORD = struct.pack("<Iiiqiiif", 0xF993FAC9, 0, 1, 1, 1, 0, 0, 0)
SAME_NAMES = (
    struct.pack("<3Q", 0x112, 0, 2) + RECORD * 2 + struct.pack("<Q", 2) + 2 * (struct.pack("<Q", 1) + b"a")
)
PICKLED = struct.pack("<IiiqiiifI", 0xF993FAC9, 0, 1, 1, 2, 0, 0, 2.5, 0)[:-4]
PICKLED_ROWS = struct.pack("<IiiqiqiiiiiqfQ", 0xF993FAC9, 1, 1, 1, 1, 3, 1, 0, 0, 6, 1, 1, 2.5, 2)


def rsp(data=((1, 2), (3, 4)), rows=(0, 2), shape=(4, 2), dtype="float32"):
    data = data if isinstance(data, np.ndarray) else [list(row) for row in data]
    return sparse.row_sparse_array(
        (data, rows if np.ndim(rows) > 1 else list(rows)), shape=shape, dtype=dtype
    )


def foreach(body=lambda x, s: (x, s), data=two, states=()):
    return nd.contrib.foreach(body, data, list(states))


def repeat(body, states, most=3, cond=lambda s: 1):
    return nd.contrib.while_loop(cond, body, states, most)


def put(key, value, array=six):
    array.copy()[key] = value


def update(gradient=None, name="sgd_update", *states, rows=5, out=None):
    array = nd.ones((rows, 2))
    gradient = gradient if gradient is not None else rsp(rows=(1, 3), shape=(5, 2))
    getattr(nd, name)(array, gradient, *states, out=array if out is None else out, lr=1)


def compared(rows):
    return rsp(rows=rows, shape=(3, 2)).check_format()


def csr_of(*parts):
    return sparse.csr_matrix(parts, shape=(3, 4)).check_format()


EMPTY_RANGES = (1, 5, -1), (0, 5, 0), (0, 5, float("nan")), (0, float("inf"))

ROWS = [
    (lambda: ADDED(one), ArgumentError, "1 arrays for 2 inputs: a, b"),
    (lambda: ADDED(one, one, out=[one, one]), ArgumentError, "out has 2 arrays"),
    (lambda: nd.CachedOp(one), DTypeError, "takes a Symbol"),
    (lambda: nd.CachedOp(LOOP), ArgumentError, r"use Symbol\.bind"),
    # loops and branches
    (lambda: foreach(data=3), ArgumentError, "data must be one array or symbol"),
    (lambda: foreach(data=[]), ArgumentError, "data is empty"),
    (lambda: foreach(data=[two, nd.ones((3,))]), ShapeError, r"lengths \[2, 3\]"),
    (lambda: foreach(lambda x, s: ("x", s)), ArgumentError, "output of body must be"),
    (lambda: repeat(lambda s: (s, s), [two], None), ArgumentError, "max_iterations should be specified"),
    (lambda: repeat(lambda s: (s, s), []), ArgumentError, "at least one array"),
    (lambda: repeat(lambda s: (s, [s, s]), [two]), ArgumentError, "returned 2 loop variables"),
    (lambda: repeat(lambda s: (s, s), [two], cond=lambda s: s), ShapeError, "not a scalar"),
    (lambda: repeat(lambda s: (s, s), [two], "?"), ArgumentError, r"max_iterations is '\?'"),
    (lambda: repeat(lambda s: (s, nd.concat(s, s, dim=0)), [two]), ShapeError, "output 0 of func changes"),
    (lambda: nd.contrib.cond(two, lambda: 1, lambda: 2), ShapeError, "not a scalar"),
    # creation
    *[(lambda v=v: nd.array(v), DTypeError, "") for v in ([1, "a"], [[1, 2], [3]], "abc", {1: 2}, None)],
    (lambda: nd.array([1, float("nan")], dtype="int32"), NonFiniteError, ""),
    (lambda: nd.array(["1", "a"]), DTypeError, "float32 array of texts.*'a'"),
    (lambda: nd.array(["1.5"], dtype="int32"), DTypeError, "int32 array of texts"),
    *[(lambda s=s: nd.zeros(s), ShapeError, "") for s in ((-1,), (2, "a"), "x", 2.5, None, (1.0,))],
    *[(lambda s=s: nd.ones(s), ShapeError, "np_shape") for s in ((), (0,), (2, 0))],
    (lambda: nd.ones((3,), out=two), ShapeError, ""),
    (lambda: nd.zeros((2,), colour=1), ArgumentError, "colour"),
    (lambda: nd.ones((2, 2), stype="csr"), ArgumentError, "only zeros and empty"),
    (lambda: nd.zeros((2,), ctx="moon(0)"), UnknownNameError, "unknown device type 'moon'"),
    *[(lambda c=c: nd.zeros((2,), ctx=c), ArgumentError, "") for c in ("cpu(x)", 3)],
    *[(lambda a=a: nd.arange(*a), ShapeError, "empty or infinite array") for a in EMPTY_RANGES],
    (lambda: nd.arange(None), OpError, "start is None"),
    (lambda: nd.concatenate([]), ShapeError, ""),
    (lambda: nd.concatenate([weight, one]), ShapeError, ""),
    (lambda: nd.concatenate([weight, weight.astype("int32")]), DTypeError, ""),
    *[(lambda a=a: nd.moveaxis(six, *a), ShapeError, "") for a in ((0, 5), ([0, 0], [0, 1]), ([0], [0, 1]))],
    (lambda: nd.onehot_encode(ints, weight), ShapeError, ""),
    (lambda: nd.random.uniform(0, 1, (2,), out=weight), ShapeError, ""),
    (lambda: nd.random.uniform(two, 4), ArgumentError, "low is NDArray, high is int"),
    (lambda: nd.random.exponential(0), ArgumentError, ""),
    (lambda: nd.random.uniform(2, 1), OpError, "at most high"),
    (lambda: nd.random.randint(3, 3), OpError, "less than high"),
    (lambda: nd.random.randint(two, two), ArgumentError, ""),
    (lambda: nd.random.multinomial(nd.array([-1, 2])), OpError, "probability"),
    # memory of others
    (lambda: nd.from_torch([1, 2]), DTypeError, ""),
    (lambda: nd.from_torch(torch.zeros(2, dtype=torch.complex64)), DTypeError, ""),
    (lambda: nd.from_torch(torch.zeros(2).to_sparse()), ArgumentError, ""),
    (lambda: nd.from_torch(torch.zeros(2, dtype=torch.complex64).conj().imag), ArgumentError, "resolve_neg"),
    (lambda: nd.from_numpy(np.arange(6).reshape(2, 3).T), ArgumentError, "zero_copy=False"),
    (lambda: nd.from_numpy(np.frombuffer(b"12345678", "int32")), ArgumentError, "memory is read-only"),
    (lambda: nd.from_numpy([1, 2]), DTypeError, ""),
    (lambda: nd.from_numpy(np.zeros(2, "complex64")), DTypeError, ""),
    (lambda: six.as_in_context(mx.gpu(77)), DeviceError, ""),
    (lambda: six.copyto(two), ShapeError, ""),
    (lambda: six.copyto(np.zeros(3)), DTypeError, ""),
    (lambda: one.astype("nonsense"), DTypeError, ""),
    (lambda: nd.NDArray(NDArrayHandle(1)), ArgumentError, "takes a tensor and a context"),
    (lambda: one.copy().__setstate__({"handle": PICKLED + b"!"}), FileFormatError, "bytes follow the end"),
    (lambda: csr.copy().__setstate__({"handle": PICKLED}), DTypeError, "not in csr storage"),
    (lambda: rsp().copy().__setstate__({"handle": PICKLED}), DTypeError, "not in row_sparse storage"),
    (lambda: one.copy().__setstate__({"handle": PICKLED_ROWS}), DTypeError, "sparse, expected a dense one"),
    (lambda: sparse.CSRNDArray(two.raw), ArgumentError, "expected values, columns, starts, shape and ctx"),
    (lambda: sparse.RowSparseNDArray(two.raw), ArgumentError, "expected values, rows, shape and ctx"),
    # shapes
    *[
        (lambda c=c: six.reshape(c), ShapeError, "")
        for c in ((4,), (), (-1, -1), (0, 0, 0), (2, -5), "ab", (1.5, 4))
    ],
    (lambda: six.reshape(), ShapeError, ""),
    (lambda: six.reshape((6,), order="C"), DTypeError, "got order"),
    (lambda: six.head_view((13,)), ShapeError, ""),
    (lambda: six.squeeze(axis=0), ShapeError, ""),
    (lambda: six.expand_dims(5), ShapeError, ""),
    (lambda: six.broadcast_to((3, 3)), ShapeError, ""),
    *[(lambda n=n: six.split_v2(n, axis=1), ShapeError, "") for n in (5, 0)],
    *[(lambda n=n: six.split_v2(n, axis=1), ArgumentError, "") for n in ([1], 2.0)],
    (lambda: six.slice_assign_scalar(1, (0,), (1, 2), None), ArgumentError, ""),
    (lambda: len(nd.array(5)), DTypeError, ""),
    (lambda: two.asscalar(), ShapeError, "not a scalar"),
    (lambda: float(nd.empty((0,))), ShapeError, "not a scalar"),
    (lambda: bool(nd.zeros((2,))), ShapeError, "ambiguous"),
    (lambda: six.tostype("coo"), ArgumentError, "expected one of 'default', 'row_sparse', 'csr'"),
    (lambda: setattr(six, "nonsense", 1), AttributeError, ""),
    # indexing
    *[
        (lambda k=k: six[k], ArgumentError, "")
        for k in (1.0, "x", np.float32(1), [0.5], [[0], [0, 1]], slice(0.5, 2))
    ],
    (lambda: six[nd.array([0.5])], ArgumentError, ""),
    (lambda: put(slice(None), nd.zeros((3, 2))), ShapeError, "cannot write an array of shape"),
    (lambda: put([0, 1], nd.zeros((3, 3))), ShapeError, "cannot write an array of shape"),
    *[(lambda v=v: put(slice(None), v), DTypeError, "") for v in (None, "text", {}, object())],
    (lambda: put(0, float("nan"), ints), NonFiniteError, ""),
    # arithmetic
    *[
        (lambda f=f, o=o: f(two.copy(), o), TypeError, "")
        for f in (operator.add, operator.truediv, operator.iadd)
        for o in (None, [1, 2])
    ],
    *[(lambda o=o: o + two, TypeError, "") for o in (None, object(), {})],
    *[(lambda o=o: operator.eq(two, o), DTypeError, "") for o in ("a", [1, 2], object())],
    (lambda: operator.lt(two, None), TypeError, ""),
    *[(lambda t=t: two + two.astype(t), DTypeError, "astype") for t in ("int32", "float64", "float16")],
    (lambda: operator.eq(two, two.astype("int32")), DTypeError, ""),
    *[(lambda f=f: f(two, two), TypeError, "") for f in (operator.matmul, operator.floordiv, divmod)],
    (lambda: operator.iadd(nd.ones((3,)), weight), ShapeError, ""),
    (lambda: operator.iadd(ints, nd.ones((3,))), DTypeError, ""),
    (lambda: nd.add("x", two), DTypeError, ""),
    # operators
    (lambda: nd.relu(), OpError, "'data' is missing"),
    (lambda: nd.relu(5), OpError, "data is int 5, expected NDArray"),
    (lambda: nd.relu(np.zeros(2)), OpError, "ndarray, expected NDArray; convert it with nd.array"),
    (lambda: nd.relu(torch.zeros(2)), OpError, "nd.from_torch"),
    (lambda: nd.relu(six, six), OpError, "at most 1"),
    (lambda: nd.clip(six, 0, 1, slope=1), OpError, "unknown attribute 'slope'"),
    (lambda: nd.clip(six, 0, 1, ctx=mx.cpu(1)), OpError, "ctx was passed"),
    (lambda: nd.elemwise_add(six, 2), OpError, "rhs is int 2"),
    (lambda: nd.concat(six, six, num_args=3), OpError, "num_args is 3, but 2 inputs"),
    (lambda: nd.FullyConnected(six, weight, num_hidden=2), OpError, "'bias' is missing"),
    (lambda: nd.FullyConnected(six, weight, two, 2, True), OpError, "bias was passed"),
    (lambda: nd.FullyConnected(six, weight, no_bias=True), OpError, "num_hidden is required"),
    (lambda: nd.FullyConnected(six, data=six, num_hidden=2), OpError, "given twice"),
    (lambda: nd.FullyConnected(six, six.T, num_hidden=2, no_bias=True), ShapeError, "FullyConnected"),
    (lambda: nd.clip(six, 1, a_max="x"), OpError, "a_"),
    (lambda: nd.sum(six, axis=5), OpError, "axis is 5"),
    # parameters, states and labels of other sizes than the data's
    *[
        (lambda sizes=sizes: nd.BatchNorm(six, *map(nd.ones, sizes)), ShapeError, pattern)
        for sizes, pattern in (
            ((2, 3, 3, 3), r"gamma .*expected \(3,\)"),
            ((3, 3, 3, 2), "moving_var has shape"),
        )
    ],
    *[
        (lambda loss=loss, size=size: getattr(nd, loss)(six, nd.ones(size)), ShapeError, "label")
        for loss in ("SoftmaxOutput", "SVMOutput", "LinearRegressionOutput", "softmax_cross_entropy")
        for size in ((1,), (5,), (3, 2))
    ],
    (lambda: nd.BatchNorm(six, *map(nd.ones, (3, 3, 3)), nd.array([])), ShapeError, r"\(3,\)"),
    (lambda: nd._internal._npi_det(two), ShapeError, "_npi_det failed"),
    (lambda: nd.smooth_l1(six, scalar=0.0), OpError, "smooth_l1 failed"),
    (lambda: nd.batch_take(six.T, two), ShapeError, "batch_take"),
    (lambda: nd.multi_sgd_update(weight, nd.ones((1, 3)), lrs=(0.1,), wds=(0,)), ShapeError, "multi_sgd"),
    *[
        (lambda name=name: getattr(nd._internal, name)(nd.full((2, 2), np.nan)), OpError, "infs or NaNs")
        for name in ("_npi_eig", "_npi_eigvals")
    ],
    (lambda: nd.Embedding(one, weight, input_dim=2, output_dim=4), ShapeError, r"weight .*expected \(2, 4\)"),
    (lambda: nd.relu(six, out=3), OpError, "out is int"),
    (lambda: nd.split(six, num_outputs=3, out=[six]), OpError, "out has 1 arrays, expected 3"),
    (lambda: nd.transpose(six, out=six), ShapeError, "out has shape"),
    (lambda: nd.relu(six, out=six.astype("int32")), DTypeError, "out has type int32"),
    (lambda: nd.elemwise_add(six, one), ShapeError, "elemwise_add takes inputs of one shape"),
    (lambda: nd.broadcast_add(six, two), ShapeError, r"broadcast_add.*\(2, 3\).*\(2,\)"),
    (lambda: nd.rellu, AttributeError, "did you mean relu"),
    # compressed rows
    (lambda: sparse.csr_matrix(nd.ones((2, 2)), shape=(3, 2)), ShapeError, ""),
    (lambda: sparse.csr_matrix((2, 2), shape=(3, 2)), ShapeError, ""),
    (lambda: sparse.csr_matrix(([], [], [0])), ShapeError, ""),
    (lambda: sparse.csr_matrix(([1], [0], [0, 1]), shape=(3, 2)), ShapeError, "indptr has shape"),
    (lambda: sparse.csr_matrix(([1], ([5], [0])), shape=(2, 2)), ShapeError, ""),
    (lambda: sparse.csr_matrix((1, 2, 3, 4)), ArgumentError, ""),
    (lambda: sparse.csr_matrix(nd.ones((2, 2)).tostype("row_sparse")), ArgumentError, ""),
    (lambda: nd.ones((2, 2, 2)).tostype("csr"), ShapeError, ""),
    (lambda: csr.tostype("row_sparse"), ArgumentError, ""),
    (lambda: csr[2], BoundsError, ""),
    (lambda: csr[::2], ArgumentError, ""),
    (lambda: csr.__setitem__(slice(None), 2), ArgumentError, ""),
    (lambda: csr.copyto(sparse.zeros("row_sparse", (2, 2))), DTypeError, ""),
    (lambda: csr_of([7, 8, 9], [2, 1, 1], [0, 2, 2, 3]), ArgumentError, "ascending"),
    *[
        (lambda p=p, use=use: use(sparse.csr_matrix(p, shape=(3, 4))), error, said)
        for p, error, said in (
            (([7, 8, 9], [0, 2, 1], [0, 5, 2, 3]), ArgumentError, "descend"),
            (([7, 8, 9], [1, 2, 1], [0, 2, 2, 4]), ArgumentError, "expected 0 to 3"),
            (([7, 8, 9], [0, 4, 1], [0, 2, 2, 3]), BoundsError, "outside of 4 columns"),
        )
        for use in (sparse.CSRNDArray.check_format, sparse.CSRNDArray.asnumpy)
    ],
    # rows
    (lambda: sparse.row_sparse_array((3,)), ArgumentError, "neither"),
    (lambda: sparse.row_sparse_array((3, 2), shape=(4, 2)), ShapeError, r"shape \(3, 2\), but shape is"),
    (lambda: sparse.row_sparse_array(csr), ArgumentError, "CSRNDArray"),
    (lambda: rsp([[1, 2]], (0, 1)), ShapeError, r"expected data of shape \(2"),
    (lambda: sparse.row_sparse_array(([], [])), ShapeError, "pass shape="),
    (lambda: rsp([[]], (0,), (2, 0)), ShapeError, "have no elements"),
    (lambda: sparse.row_sparse_array(([["a"]], [0])), DTypeError, "expected numbers"),
    (lambda: sparse.zeros("coo", (2, 2)), ArgumentError, "'coo'"),
    (lambda: sparse.zeros("row_sparse", ()), ShapeError, "cannot have shape"),
    (lambda: sparse.zeros("row_sparse", (2, 2), colour=1), ArgumentError, "colour"),
    (lambda: sparse.empty("default", (2, 2)), ArgumentError, "expected 'row_sparse' or 'csr'"),
    (lambda: sparse.array(two), ArgumentError, "tostype"),
    (lambda: nd.zeros((2, 3), stype="row_sparse", out=weight), ArgumentError, "without out"),
    (lambda: rsp().tostype("coo"), ArgumentError, "expected one of"),
    (lambda: nd.from_torch(torch.tensor(1.0)).tostype("row_sparse"), ShapeError, "without axes"),
    (
        lambda: rsp([[1.0] * 1000], (2**40,), (2**41, 1000)).asnumpy(),
        OutOfMemoryError,
        f"needs {2**41 * 4000} bytes",
    ),
    (lambda: compared((1, 0)), ArgumentError, "row 0 after 1"),
    *[
        (lambda r=r, use=use: use(rsp(rows=r, shape=(3, 2))), error, said)
        for r, error, said in (
            ((1, 4), BoundsError, "index 4 is outside of its 3 rows"),
            ((1, 1), ArgumentError, "row 1 twice"),
        )
        for use in (
            lambda a: a.check_format(),
            lambda a: a + a,
            lambda a: a.retain([0]),
            lambda a: weight.T + a,
        )
    ],
    *[(lambda n=n: setattr(rsp(), n, 1), AttributeError, "") for n in ("data", "indices", "colour")],
    (lambda: rsp().copyto(nd.ones((2, 4))), ShapeError, "shape"),
    (lambda: rsp().copyto([1]), DTypeError, "list"),
    *[(lambda k=k: rsp()[k], ArgumentError, "") for k in (0, slice(0, 1), (0, 1))],
    (lambda: list(rsp()), ArgumentError, ""),
    *[(lambda k=k: rsp().__setitem__(k, 3), ArgumentError, "") for k in (1, slice(0, 1))],
    (lambda: rsp().__setitem__(slice(None), [1]), DTypeError, ""),
    (lambda: rsp().__setitem__(slice(None), nd.ones((3, 2))), ShapeError, "expected"),
    (lambda: rsp().reshape((2, 4)), NotSupportedForSparseNDArray, ""),
    (lambda: rsp().torch(), NotSupportedForSparseNDArray, ""),
    (lambda: torch.utils.dlpack.from_dlpack(rsp()), NotSupportedForSparseNDArray, ""),
    (lambda: rsp().expand_dims(0, inplace=True), NotSupportedForSparseNDArray, ""),
    (lambda: bool(rsp()), ShapeError, ""),
    (lambda: rsp().retain([-1]), BoundsError, "row -1"),
    (lambda: rsp().retain(["a"]), DTypeError, "row numbers"),
    (lambda: sparse.retain(rsp(), invalid_arg="garbage_value"), OpError, "input .indices. is missing"),
    (lambda: nd.cast_storage(nd.ones((2, 3, 4)), "csr"), ShapeError, r"2 axes, got shape \(2, 3, 4\)"),
    (lambda: nd.cast_storage(rsp(), "row_sparse", out=nd.ones((4, 2))), ArgumentError, "out is default"),
    (
        lambda: nd.contrib.SparseEmbedding(two, weight, input_dim=9, output_dim=5),
        ShapeError,
        r"expected \(9, 5\)",
    ),
    *[(lambda n=n: update(rows=n), ShapeError, r"sgd_update.*\(5, 2\)") for n in (4, 6)],
    (lambda: update(rsp(rows=(1, 3), shape=(5, 2), dtype="float64")), DTypeError, "float64"),
    (lambda: update(out=nd.ones((5, 2), dtype="float64")), DTypeError, "out has type float64"),
    (lambda: update(out=5), OpError, "out is int"),
    # files
    *[(lambda folder, d=d: nd.save(folder / "x", d), ArgumentError, "") for d in (3, "text")],
    *[(lambda folder, d=d: nd.save(folder / "x", d), DTypeError, "") for d in ([1], {1: None}, {"a": 1})],
    (lambda folder: nd.load(folder / "nowhere"), FileError, "nowhere"),
    (lambda folder: nd.load(str(folder)), FileError, ""),
    (lambda folder: nd.save(folder / "no folder" / "x", one), FileError, "x"),
    (lambda: nd.load(3), DTypeError, ""),
    (lambda: nd.load_frombuffer("text"), DTypeError, ""),
    (lambda: nd.load_frombuffer(SAME_NAMES), FileFormatError, "two arrays have the name 'a'"),
    (lambda folder: nd.load(folder / "missing.safetensors"), FileError, r"missing\.safetensors"),
    (
        lambda folder: nd.save(folder / "x.NPY", {"a": two}),
        ArgumentError,
        "extension of another format; .* wri",
    ),
]
if np.__version__ >= "2":  # NumPy 1 copies where it has to
    ROWS += [
        (lambda: np.asarray(weight, dtype="int32", copy=False), ValueError, "without a copy"),
        (lambda: np.array(rsp(), copy=False), ValueError, ""),
    ]
