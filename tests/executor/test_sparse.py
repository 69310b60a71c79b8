"""Graphs with sparse arrays: the same numbers as with dense ones, stored as MXNet stores them."""

import itertools

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.executor.storage_types import gradient_storage_types, infer_storage_types
from helpers.largest import Largest

S = mx.sym.sparse
I = mx.sym._internal  # noqa: E741
STYPES = ("default", "row_sparse", "csr")


X, Y, B, INDEX = (mx.sym.Variable(name) for name in ("x", "y", "b", "index"))


def values_of(name, shape):
    if name == "index":
        return np.array([0, 3, 2, 1, 3, 0], "f4")[: int(np.prod(shape))].reshape(shape)
    rng = np.random.RandomState(len(name) + ord(name[0]))
    values = np.where(rng.rand(*shape) < 0.5, rng.uniform(0.2, 1.5, shape) * rng.choice([-1, 1], shape), 0)
    if len(shape) > 1:
        values[1] = 0
    return values.astype("f4")


UNARY = (
    "abs ceil negative relu rint sign square BlockGrad zeros_like arcsinh sin tanh expm1 radians exp sum mean"
)
SCALARS = "plus mul div power equal greater"
ONE = {
    **{name: getattr(mx.sym, name)(X) for name in UNARY.split()},
    **{f"{name} 2": getattr(I, f"_{name}_scalar")(X, scalar=2.0) for name in SCALARS.split()},
    "clip": S.clip(X, a_min=-1, a_max=0.5),
    "sum 0": S.sum(X, axis=0),
    "mean 1": S.mean(X, axis=1, keepdims=True),
    "slice": mx.sym.slice(X, begin=(1,), end=(4,)),
    "to dense": mx.sym.cast_storage(X, stype="default"),
    "take": mx.sym.take(X, INDEX),
}
BINARY = "elemwise_add elemwise_sub elemwise_mul broadcast_add broadcast_mul"
PAIRS = {
    **{name: getattr(mx.sym, name)(X, Y) for name in BINARY.split()},
    "maximum": I._maximum(X, Y),
    "add_n": mx.sym.add_n(X, Y, X),
    "concat": mx.sym.concat(X, Y, dim=0),
    "twice": mx.sym.elemwise_add(X, Y) * X,
    "chain": mx.sym.sum(mx.sym.square(mx.sym.elemwise_add(X, Y) * 2)),
    "dense layer": mx.sym.FullyConnected(X, Y, B, num_hidden=5),
}


def one_input():
    dense = {"index": ((3,), "default")}
    for stype in ("row_sparse", "csr"):
        for name, symbol in ONE.items():
            yield name, symbol, {"x": ((5, 4), stype), **(dense if name == "take" else {})}
        yield "from dense", mx.sym.cast_storage(X, stype=stype), {"x": ((5, 4), "default")}
    rows = {"x": ((5, 4), "row_sparse")}
    for axis, keep in itertools.product((0, 1), (False, True)):
        yield f"square sum {axis}", I._square_sum(X, axis=axis, keepdims=keep), rows
    yield "retain", S.retain(X, INDEX), {**rows, **dense}


def two_inputs():
    for left, right in itertools.product(STYPES, repeat=2):
        for name, symbol in PAIRS.items():
            where = {"x": ((5, 4), left), "y": ((5, 4), right)}
            yield name, symbol, {**where, "b": ((5,), "default")} if name == "dense layer" else where
        for flip, stype in itertools.product(((0, 0), (1, 0), (0, 1)), (None, *STYPES)):
            shapes = (4, 5) if flip[0] else (5, 4), (3, 4) if flip[1] else (4, 3)
            product = mx.sym.dot(X, Y, transpose_a=flip[0], transpose_b=flip[1], forward_stype=stype)
            yield f"dot {flip} {stype}", product, {"x": (shapes[0], left), "y": (shapes[1], right)}
        made = mx.sym.dot(X, Y * 2) + mx.sym.dot(B, Y)
        yield "shared", made, {"x": ((5, 4), left), "y": ((4, 3), right), "b": ((5, 4), "default")}


def bound(symbol, where, sparse):
    shapes = {name: shape for name, (shape, _) in where.items()}
    stypes = {name: stype if sparse else "default" for name, (_, stype) in where.items()}
    executor = symbol.simple_bind(mx.cpu(), stype_dict=stypes, **shapes)
    for name, shape in shapes.items():
        executor.arg_dict[name][:] = mx.nd.array(values_of(name, shape))
    return executor


def gradients(executor):
    return {name: grad.asnumpy() for name, grad in executor.grad_dict.items() if name != "index"}


def same(left, right):
    for name, value in left.items():
        np.testing.assert_allclose(right[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("cases", [one_input, two_inputs], ids=lambda f: f.__name__)
def test_sparse_arrays_give_the_numbers_of_dense_ones(cases):
    for label, symbol, where in cases():
        dense, sparse = (bound(symbol, where, flag) for flag in (False, True))
        want = dense.forward(is_train=True)[0].asnumpy()
        found = sparse.forward(is_train=True)[0].asnumpy()
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6, err_msg=f"{label} {where}")
        head = mx.nd.array(np.random.RandomState(5).rand(*want.shape))
        dense.backward([head])
        expected = gradients(dense)
        for _ in range(2):
            sparse.backward([head])
            same(expected, gradients(sparse))
        if sparse.outputs[0].stype == "row_sparse":
            sparse.forward(is_train=True)
            sparse.backward([head.tostype("row_sparse")])
            same(expected, gradients(sparse))
        added = {k: mx.nd.ones(g.shape).tostype(g.stype) for k, g in sparse.grad_dict.items()}
        again = symbol.bind(mx.cpu(), sparse.arg_dict, added, "add")
        again.forward(is_train=True)
        again.backward([head])
        same({name: value + 1 for name, value in expected.items()}, gradients(again))
        np.testing.assert_allclose(sparse.forward()[0].asnumpy(), want, rtol=1e-5, atol=1e-6)


LOOKED = {"input_dim": 4, "output_dim": 3}
BOTH, SPARSE_X, CSR_X = dict.fromkeys("xy", "row_sparse"), {"x": "row_sparse"}, {"x": "csr"}


STORAGE = [
    (mx.sym.dot(X, Y), CSR_X, "default", {"y": "row_sparse"}),
    (mx.sym.dot(X, Y, transpose_a=True), CSR_X, "row_sparse", {}),
    (mx.sym.dot(X, Y), {"y": "csr"}, "csr", {}),
    (mx.sym.elemwise_add(X, Y), dict.fromkeys("xy", "csr"), "csr", dict.fromkeys("xy", "csr")),
    (mx.sym.square(X), SPARSE_X, "row_sparse", SPARSE_X),
    (mx.sym.sin(X), SPARSE_X, "row_sparse", {}),
    (mx.sym.cast_storage(X, stype="csr"), {}, "csr", CSR_X),
    (mx.sym.Embedding(X, Y, sparse_grad=True, **LOOKED), {}, "default", {"y": "row_sparse"}),
    (I._square_sum(X, axis=1), SPARSE_X, "default", SPARSE_X),
    (mx.sym.broadcast_mul(X, Y), CSR_X, "csr", {}),
    (mx.sym.add_n(X, Y), BOTH, "row_sparse", BOTH),
    (X > Y, SPARSE_X, "default", SPARSE_X),
]


@pytest.mark.parametrize(("symbol", "stypes", "out", "grads"), STORAGE)
def test_storage_types_are_those_of_mxnet(symbol, stypes, out, grads):
    storage = infer_storage_types(symbol.graph, stypes)
    if storage is None:
        assert (out, grads) == ("default", {})
        return
    assert storage.of(symbol.graph.heads[0]) == out
    assert gradient_storage_types(symbol.graph, storage) == grads


@pytest.mark.parametrize("kind", ["embedding", "product"])
@pytest.mark.parametrize("stype", ["default", "row_sparse"])
def test_a_large_table_has_a_small_gradient(kind, stype):
    rows, width, batch = 500_000, 8, 16
    touched = np.random.RandomState(0).randint(0, rows, batch)
    weight, data = mx.sym.Variable("table", stype=stype), mx.nd.array(touched, dtype="int64")
    if kind == "embedding":
        net = mx.sym.Embedding(X, weight, input_dim=rows, output_dim=width, sparse_grad=True)
    else:
        net, parts = mx.sym.dot(X, weight), (np.ones(batch, "f4"), touched, np.arange(batch + 1))
        data = mx.nd.sparse.csr_matrix(parts, shape=(batch, rows))
    gradient = mx.nd.sparse.zeros("row_sparse", (rows, width))
    arrays = {"x": data, "table": mx.nd.ones((rows, width)).tostype(stype)}
    executor = net.bind(mx.cpu(), arrays, {"table": gradient})
    for _ in range(2):  # indices are checked once
        with Largest() as seen:
            executor.forward(is_train=True)
            executor.backward([mx.nd.ones((batch, width))])
    assert seen.count < 10 * batch * width
    assert gradient.indices.asnumpy().tolist() == sorted(set(touched))
    np.testing.assert_allclose(gradient.data.asnumpy().sum(), batch * width)


def test_a_module_takes_sparse_batches_for_dense_arrays():
    module, values = mx.mod.Module(mx.sym.square(X), ["x"], None), values_of("x", (3, 4))
    module.bind([("x", (3, 4))], for_training=False)
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.array(values).tostype("csr")]))
    np.testing.assert_array_equal(module.get_outputs()[0].asnumpy(), values**2)
