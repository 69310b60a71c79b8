"""Helpers of `mx.test_utils` refuse what is wrong."""

import urllib.error
from unittest import mock

import numpy as np

import dpmodule as mx
from dpmodule import test_utils as tu
from dpmodule.base import ArgumentError, FileError, FileFormatError
from dpmodule.test_utils import datasets

X = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
FAR, NAN, HEAD = X + 1e-2, np.array([np.nan, 1.0], np.float32), np.full((2, 2), 3.0, np.float32)
NEST = (mx.nd.array(X), (mx.nd.array(X), None))
PRODUCT = mx.sym.Variable("a") * mx.sym.Variable("b")
LOSS = mx.sym.MakeLoss(mx.sym.Variable("x") * 2, name="loss")
BLOCKED = mx.sym.BlockGrad(mx.sym.Variable("a"))
NORM = mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn")
RUNS = [{"ctx": mx.cpu(), "x": (2,), "type_dict": {"x": np.float32}}] * 2
Y = [mx.sym.identity(mx.sym.Variable("x"), name="y"), mx.sym.BlockGrad(mx.sym.Variable("x"), name="y")]
SGD, BUCKETS = mx.optimizer.SGD(learning_rate=0.5), tu.gen_buckets_probs_with_ppf(lambda p: p, 5)[0]


def uniform(count):
    return np.random.RandomState(7).uniform(size=count)


def with_err(share):
    wrong = X.copy()
    wrong[0, 0] = 7
    tu.assert_almost_equal_with_err(mx.nd.array(wrong), X, etol=share)


def backward(*heads, net=PRODUCT, request="write"):
    tu.check_symbolic_backward(net, [X, X + 1], *heads, [3 * X, 3 * X], grad_req=request)


def optimizers(other, shape=(4, 3), **options):
    tu.compare_optimizer(mx.optimizer.SGD(learning_rate=other), SGD, shape, np.float32, **options)


def offline(call, folder):
    """Call a function without a network, in a folder."""
    lost = urllib.error.URLError("no route")
    with (
        mock.patch.object(datasets, "_fetch", side_effect=lost),
        tu.environment("MXNET_HOME", str(folder)),
        mock.patch("os.path.exists", return_value=False),
    ):
        call()


def idx(folder, content):
    (folder / "labels").write_bytes(content)
    datasets._read_idx(str(folder / "labels"))


def environment():
    with tu.environment("PRESENT"):
        pass


ROWS = [
    (lambda: tu.assert_almost_equal(X, FAR, names=("left", "right")), AssertionError, "worst element at"),
    (lambda: tu.assert_almost_equal(NAN, NAN), AssertionError, ""),
    (
        lambda: tu.assert_almost_equal(np.ones(()), np.ones((2,)), use_broadcast=False),
        AssertionError,
        "shapes differ",
    ),
    (lambda: tu.assert_almost_equal(np.ones((3,)), np.ones((2,))), AssertionError, "do not broadcast"),
    (lambda: tu.almost_equal(X, X[:1], use_broadcast=False), AssertionError, ""),
    (lambda: tu.assert_allclose(X, X + np.float32(1e-5)), AssertionError, ""),
    (lambda: tu.assert_almost_equal_ignore_nan(X, FAR), AssertionError, ""),
    *[(lambda s=s: with_err(s), AssertionError, "") for s in (0.2, None)],
    (lambda: tu.assert_exception(int, ValueError, "1"), AssertionError, "returned"),
    (lambda: tu.assert_exception(int, ValueError, None), TypeError, ""),
    (lambda: tu.compare_ndarray_tuple(NEST, (NEST[0], (NEST[0] + 1, None))), AssertionError, ""),
    (lambda: tu.check_symbolic_forward(PRODUCT, [X, X], [X]), AssertionError, ""),
    (lambda: tu.check_symbolic_forward(PRODUCT, {"a": X}, [X]), ArgumentError, "arguments are"),
    (lambda: tu.check_symbolic_forward(PRODUCT, [X, X], [X], dtype=np.int32), ArgumentError, "dtype"),
    (
        lambda: tu.check_symbolic_forward(NORM, [X, X[0], X[0]], [X], aux_states={"bn_moving_mean": X[0]}),
        ArgumentError,
        "aux_states",
    ),
    *[(lambda r=r: backward([HEAD], request=r), AssertionError, "") for r in ("write", ["add", "write"])],
    (lambda: tu.check_symbolic_backward(LOSS, [X], 3, [X]), ArgumentError, "out_grads"),
    (lambda: tu.check_symbolic_backward(LOSS, [X], None, [X], grad_req="overwrite"), ArgumentError, ""),
    (lambda: tu.check_numeric_gradient(BLOCKED, [X]), AssertionError, "NUMERICAL_a"),
    (lambda: tu.check_numeric_gradient(PRODUCT, [X, X], numeric_eps=1e-7), ArgumentError, "numeric_eps"),
    (lambda: tu.check_numeric_gradient(PRODUCT, [X, X], grad_nodes=3), ArgumentError, "grad_nodes"),
    (lambda: tu.check_consistency(Y[0], RUNS[:1]), ArgumentError, "at least two"),
    (lambda: tu.check_consistency(Y, RUNS, use_uniform=True), AssertionError, "training"),
    (lambda: tu.check_consistency([Y[0], LOSS], RUNS), ArgumentError, "same names"),
    (lambda: tu.check_speed(PRODUCT, typ="backward", a=(2, 2), b=(2, 2)), ArgumentError, "typ"),
    (lambda: optimizers(0.4), AssertionError, ""),
    (lambda: optimizers(0.4, [(2, 3), (4,)], ntensors=2), AssertionError, ""),
    (lambda: optimizers(0.5, [(2, 3), (4,)]), ArgumentError, "ntensors"),
    (lambda: optimizers(0.5, w_stype="dense"), ArgumentError, "w_stype"),
    (lambda: tu.random_sample([1, 2, 3], 4), ArgumentError, "k is 4"),
    (lambda: tu.collapse_sum_like(np.ones((2, 3)), (2,)), ArgumentError, "broadcast"),
    (lambda: tu.assign_each2(X, X[0], max), ArgumentError, "shape"),
    (lambda: tu.rand_sparse_ndarray((3, 2), "dense", distribution="powerlaw"), ArgumentError, "powerlaw"),
    (lambda: tu.rand_sparse_ndarray((3, 2), "csr", density=2), ArgumentError, "density"),
    (
        lambda: tu.rand_sparse_ndarray((5, 16), "csr", density=0.01, distribution="powerlaw"),
        ArgumentError,
        "density",
    ),
    (
        lambda: tu.verify_generator(lambda n: uniform(n) ** 1.1, BUCKETS, [0.2] * 5, nsamples=20000),
        AssertionError,
        "do not follow",
    ),
    (lambda: tu.chi_square_check(uniform, BUCKETS[::-1], [0.2] * 5, 10), ArgumentError, "ascending"),
    (lambda: tu.chi_square_check(uniform, BUCKETS, [0.2] * 2, 10), ArgumentError, "probs"),
    (lambda: tu.gen_buckets_probs_with_ppf(lambda p: p, 0), ArgumentError, "nbuckets"),
    (environment, ArgumentError, ""),
    (lambda: tu.retry(0), ArgumentError, ""),
    (lambda folder: offline(tu.get_im2rec_path, folder), FileError, "MXNET_HOME"),
    *[
        (lambda folder, get=get: offline(get, folder), FileError, "without a network")
        for get in (tu.get_mnist, tu.get_mnist_ubyte, tu.get_mnist_pkl, tu.get_cifar10)
    ],
    (lambda: tu.download("file:///etc/hosts"), ArgumentError, "url"),
    (lambda folder: idx(folder, b"\0\0\x08\x01\0\0\0\x05\0\0\0\0"), FileFormatError, "expected 5 bytes"),
    (lambda folder: idx(folder, b"text"), FileFormatError, "magic number"),
    (lambda: mx.nothing_like_it, AttributeError, "nothing_like_it"),
    (lambda: tu.nothing, AttributeError, "no attribute 'nothing'"),
]
