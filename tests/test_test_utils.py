"""Each helper of `mx.test_utils` passes what is right and refuses what is wrong."""

import bz2
import gzip
import io
import os
import platform
import struct
import urllib.error
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import test_utils as tu
from dpmodule.base import FileError
from dpmodule.test_utils import datasets
from helpers.walk import walks

X = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
NAN, OTHER_NAN = np.float32([[np.nan, 2.0], [3.0, 4.0]]), np.float32([[7, 2], [3, np.nan]])
NEST = (mx.nd.array(X), (mx.nd.array(X), None))
A, B, DATA = mx.sym.Variable("a"), mx.sym.Variable("b"), mx.sym.Variable("x")
PRODUCT = A * B
F8, F2, ARRAY, VALUES = np.zeros(1), np.zeros(1, np.float16), mx.nd.array(X), np.arange(24.0).reshape(2, 3, 4)


@pytest.fixture(autouse=True)
def _seed():
    np.random.seed(7)
    mx.random.seed(7)


def uniform(count):
    return np.random.uniform(size=count)


TRUE = """
tu.get_tols(F8, F2, None, None) == (1e-2, 1e-1); tu.get_tols(F8, F8, None, None) == (1e-5, 1e-20)
tu.get_tols(np.zeros(1, np.int32), 3, None, None) == (0, 0); tu.get_tols(F8, F2, {np.float16: 0.5}, 3) == (0.5, 3)
(tu.get_rtol(), tu.get_atol(), tu.get_etol()) == (1e-5, 1e-20, 0); tu.get_rtol(dtype=np.dtype("float16")) == 1e-2
(tu.get_rtol(1), tu.get_atol(2), tu.get_etol(0.5)) == (1, 2, 0.5); tu.default_dtype() is np.float32
tu.default_numeric_eps()[np.dtype("float32")] == 1 / 512; tu.effective_dtype(mx.nd.ones((1,))) == np.float32
tu.effective_dtype(mx.nd.ones((1,)).astype("bfloat16")) == np.float16
tu.get_tolerance(X, None, tu.compare.default_rtols()) == 1e-4
tu.almost_equal(X, X + 1e-6); not tu.almost_equal(X, X + 1e-3); tu.almost_equal(X, X + 1e-3, atol=1e-2)
tu.same(X, X.copy()); not tu.same(X, X[0]); tu.same_array(ARRAY, ARRAY.reshape((2, 2)))
not tu.same_array(ARRAY, ARRAY.copy()); tu.same(ARRAY.asnumpy(), X); tu.same_symbol_structure(A + B, B + A)
not tu.same_symbol_structure(A + B, A * B); not tu.same_symbol_structure(A + B, A)
tu.random_arrays((2, 3)).shape == (2, 3); [each.shape for each in tu.random_arrays((), (4,))] == [(), (4,)]
tu.random_arrays((4,)).dtype == np.float32; sorted(tu.random_sample([1, 2, 3], 3)) == [1, 2, 3]
(lambda found: 2 <= found.min() < found.max() < 3)(*tu.random_uniform_arrays((50,), low=2, high=3))
tu.random_uniform_arrays((50,), dtype=np.float64)[0].dtype == np.float64; len(tu.rand_shape_3d()) == 3
all(1 <= n <= 2 for _ in range(20) for n in tu.rand_shape_2d(2, 2)); tu.rand_coord_2d(3, 4, 5, 6) == (3, 5)
all(type(n) is int for _ in range(20) for n in tu.rand_shape_nd(4, dim=3))
{tu.rand_shape_nd(1, 1, allow_zero_size=True) for _ in range(30)} == {(0,), (1,)}
tu.same(tu.collapse_sum_like(np.ones((2, 3, 4)), (3, 1)), np.full((3, 1), 8.0))
tu.collapse_sum_like(np.ones((0, 3)), (3,)).tolist() == [0, 0, 0]; tu.same(tu.assign_each(X, None), X)
tu.same(tu.assign_each(X, lambda v: v * 2), X * 2); tu.same(tu.assign_each2(X, X.T, lambda v, w: v - w), X - X.T)
tu.create_2d_tensor(2, 2).asnumpy().tolist() == [[0, 0], [1, 1]]; tu.create_vector(2).asnumpy().tolist() == [0, 1]
tu.same(tu.get_identity_mat_batch(2).asnumpy(), [np.eye(2)] * 2); tu.same(tu.get_identity_mat(3).asnumpy(), np.eye(3))
np.abs(np.linalg.eigvals(tu.new_matrix_with_real_eigvals_nd((2, 4, 4))).imag).max() < 1e-9
(lambda found: abs(found - found.T).max() < 1e-9)(tu.new_sym_matrix_with_real_eigvals_nd((3, 3)))
tu.create_sparse_array((4, 3), "row_sparse", data_init=1, rsp_indices=[2, 0]).indices.asnumpy().tolist() == [0, 2]
tu.create_sparse_array_zd((4, 3), "row_sparse", 1).asnumpy().sum() == 0
tu.create_sparse_array_zd((4, 3), "csr", 1, data_init=2).asnumpy().sum() == 24
tu.mean_check(uniform, 0.5, 12**-0.5, 10000); not tu.mean_check(uniform, 0.52, 12**-0.5, 10000)
tu.var_check(np.random.standard_normal, 1.0, 10000); not tu.var_check(np.random.standard_normal, 1.1, 10000)
tu.check_speed(PRODUCT, location={"a": X, "b": X}, N=2) > 0; len(tu.list_gpus()) == mx.num_gpus()
tu.check_speed(PRODUCT, N=1, typ="forward", a=(2, 2), b=(2, 2)) > 0
"""
PASSES = """
tu.assert_allclose(X, X); tu.assert_exception(int, ValueError, "x"); tu.compare_ndarray_tuple(NEST, NEST)
tu.compare_ndarray_tuple(None, NEST); tu.assert_almost_equal(NAN, NAN, equal_nan=True); tu.assert_almost_equal(2, 2)
tu.assert_almost_equal(np.array([True]), np.array([True])); tu.assert_almost_equal(np.float32(1), mx.nd.ones((3, 2)))
tu.assert_almost_equal_ignore_nan(NAN, mx.nd.array(OTHER_NAN)); tu.check_numeric_gradient(PRODUCT, [X, X + 1])
tu.assert_almost_equal_with_err(OTHER_NAN[:, :1], X[:, :1], etol=0.6)
tu.assert_allclose(tu.simple_forward(PRODUCT, a=X, b=X), X * X)
tu.assert_allclose(tu.simple_forward(mx.sym.Group([DATA * 2, DATA + 1]), x=X)[1], X + 1)
tu.check_numeric_gradient(PRODUCT, {"a": X, "b": X}, dtype=np.float64, rtol=1e-5, atol=1e-6)
tu.check_numeric_gradient(PRODUCT, [X, X], grad_nodes={"a": "add", "b": "null"})
tu.check_numeric_gradient(PRODUCT, [X, X], grad_nodes=["b"])
"""


@walks(TRUE.strip().replace("\n", "; ").split("; "))
def test_what_holds(text):
    assert eval(text, globals())


@walks(PASSES.strip().replace("\n", "; ").split("; "))
def test_what_passes(text):
    assert eval(text, globals()) is None


@pytest.mark.parametrize("wrap", [np.asarray, mx.nd.array, np.ndarray.tolist])
def test_assert_almost_equal(wrap):
    tu.assert_almost_equal(wrap(X), X + np.float32(5e-4))
    tu.assert_almost_equal(X, wrap(X), rtol=0, atol=0)
    with pytest.raises(AssertionError):
        tu.assert_almost_equal(wrap(X), X + np.float32(1e-2))


def test_check_symbolic_forward():
    outputs = tu.check_symbolic_forward(PRODUCT, [X, X + 1], [X * (X + 1)])
    assert outputs[0].shape == (2, 2)
    named = PRODUCT
    tu.check_symbolic_forward(named, {"b": X, "a": X}, {named.list_outputs()[0]: X * X})
    whole = np.array([1, 2], np.int32)
    (output,) = tu.check_symbolic_forward(PRODUCT, [whole, whole], [whole * whole], dtype="asnumpy")
    assert output.dtype == np.int32
    norm = mx.sym.BatchNorm(mx.sym.Variable("x"), name="bn", fix_gamma=False, eps=1e-3)
    ones, states = np.ones(2, np.float32), [np.zeros(2, np.float32), np.full(2, 4.0, np.float32)]
    tu.check_symbolic_forward(norm, [X, ones, 0 * ones], [X / np.sqrt(4.001)], aux_states=states)
    place = {"x": np.random.randn(6, 2), "bn_gamma": np.ones(2), "bn_beta": np.zeros(2)}
    tu.check_numeric_gradient(norm, place, [np.zeros(2), np.ones(2)], dtype=np.float64, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("request_", ["write", "add", ["add", "write"], {"a": "write", "b": "null"}])
def test_check_symbolic_backward(request_):
    head = np.full((2, 2), 3.0, np.float32)
    grads = tu.check_symbolic_backward(PRODUCT, [X, X + 1], [head], [3 * (X + 1), 3 * X], grad_req=request_)
    assert set(grads) == {"a", "b"}
    loss = mx.sym.MakeLoss(mx.sym.Variable("x") * 2, name="loss")
    tu.check_symbolic_backward(loss, [X], None, {"x": np.full((2, 2), 2.0)})


def test_check_consistency(caplog):
    net = mx.sym.FullyConnected(num_hidden=3, name="fc")
    kinds = enumerate((np.float64, np.float32, np.float16))
    runs = [{"ctx": mx.cpu(i), "fc_data": (2, 4), "type_dict": {"fc_data": kind}} for i, kind in kinds]
    for request_ in ("write", "add", "null"):
        truth = tu.check_consistency(net, runs, grad_req=request_)
    assert truth["fc_output"].dtype == np.float64
    given = {"fc_data": np.ones((2, 4)), "fc_weight": np.ones((3, 4)), "fc_bias": np.ones(3)}
    right, wrong = ({"fc_output": np.full((2, 3), value)} for value in (5.0, 6.0))
    options = {"arg_params": given, "grad_req": "null"}
    tu.check_consistency(net, runs, ground_truth=right, **options)
    with pytest.raises(AssertionError, match="run 1 against run 0"):
        tu.check_consistency(net, runs, ground_truth=wrong, **options)
    tu.check_consistency(net, runs, ground_truth=wrong, raise_on_err=False, **options)
    assert "run 1 against run 0" in caplog.text


class Descent(mx.optimizer.Optimizer):
    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        weights, grads = (weight, grad) if isinstance(weight, list) else ([weight], [grad])
        for each, g in zip(weights, grads):
            each[:] -= self.lr * g.tostype("default")


COMPARED = [((4, 3), {}), ((4, 3), {"g_stype": "row_sparse"}), ([(2, 3), (4,)], {"ntensors": 2})]


@pytest.mark.parametrize(("shape", "options"), COMPARED)
def test_compare_optimizer(shape, options):
    rules = Descent(learning_rate=0.5), mx.optimizer.SGD(learning_rate=0.5, lazy_update=False)
    tu.compare_optimizer(rules[0], rules["ntensors" not in options], shape, np.float32, **options)


@pytest.mark.parametrize("axis", [None, 1, (0, 2), -1])
@pytest.mark.parametrize("keepdims", [True, False])
def test_np_reduce(axis, keepdims):
    found, wanted = tu.np_reduce(VALUES, axis, keepdims, np.sum), VALUES.sum(axis=axis, keepdims=keepdims)
    tu.assert_allclose(found, wanted)
    assert np.shape(found) == np.shape(wanted)


@pytest.mark.parametrize("stype", ["default", "row_sparse", "csr"])
def test_rand_ndarray(stype):
    array = tu.rand_ndarray((6, 5), stype, density=0.5, dtype=np.float64, ctx=mx.cpu(1))
    assert (array.stype, array.shape, array.dtype, array.ctx) == (stype, (6, 5), np.float64, mx.cpu(1))
    if stype == "csr":
        assert np.count_nonzero(array.asnumpy()) == 15


def test_rand_sparse_ndarray():
    array, (values, rows) = tu.rand_sparse_ndarray((5, 2), "row_sparse", rsp_indices=[1, 3], data_init=2)
    assert tu.same(array.asnumpy()[[1, 3]], values)
    assert (array.asnumpy().sum(), rows.tolist()) == (8, [1, 3])
    array, _ = tu.rand_sparse_ndarray((3, 2), "row_sparse", density=1, modifier_func=lambda v: -5)
    assert tu.same(array.asnumpy(), np.full((3, 2), -5))
    empty, (values, _) = tu.rand_sparse_ndarray((3, 2), "row_sparse", density=0)
    assert (values.size, empty.asnumpy().sum()) == (0, 0)
    csr, (indptr, _, _) = tu.rand_sparse_ndarray((5, 16), "csr", density=0.5, distribution="powerlaw")
    lengths = np.diff(indptr.asnumpy())  # which double
    assert (lengths.sum(), lengths[:4].tolist()) == (40, [2, 4, 8, 16])


def test_shuffle_csr_column_indices():
    parts = type("Parts", (), {"indptr": np.array([0, 30, 40]), "indices": np.arange(40)})()
    tu.shuffle_csr_column_indices(parts)
    assert sorted(parts.indices[:30]) == list(range(30)) != list(parts.indices[:30])


def test_verify_generator_of_ranges():
    buckets, probs = tu.gen_buckets_probs_with_ppf(lambda p: p, 5)
    assert (buckets[1], probs) == ((0.2, 0.4), [0.2] * 5)
    values = tu.verify_generator(uniform, buckets, probs, nsamples=20000)
    assert [0 <= p <= 1 for p in values] == [True] * 5


def test_chi_square_of_values():
    # 0 comes 60 times and 1 40 times: statistic 4, whose p value with one degree of freedom is 0.0455
    samples = mx.nd.array([0] * 60 + [1] * 40)
    p, observed, expected = tu.chi_square_check(lambda count: samples, [0, 1], [0.5, 0.5], 100)
    assert abs(p - 0.0455) < 1e-4
    assert (observed.tolist(), expected.tolist()) == ([60, 40], [50, 50])


def test_default_context():
    with mx.cpu(3):
        tu.set_default_context(mx.cpu(2))
        assert tu.default_context() == mx.cpu(2) == mx.nd.ones((1,)).ctx
    assert tu.default_context() == mx.cpu(0)


def test_environment(monkeypatch):
    monkeypatch.setenv("PRESENT", "old")
    monkeypatch.delenv("ABSENT", raising=False)
    with tu.environment({"PRESENT": None, "ABSENT": "new"}):
        assert "PRESENT" not in os.environ
        assert os.environ["ABSENT"] == "new"
    with pytest.raises(KeyError), tu.environment("PRESENT", "other"):
        raise KeyError
    assert os.environ["PRESENT"] == "old"
    assert "ABSENT" not in os.environ
    for job in ("1", None):
        with tu.environment("CD_JOB", job):
            assert tu.is_cd_run() == bool(job)
    assert (tu.has_tvm_ops(), tu.is_op_runnable()) == (False, True)
    assert tu.is_aarch64_run() == (platform.machine() == "aarch64")


def test_retry():
    calls = []

    @tu.retry(3)
    def third(good):
        calls.append(good)
        assert len(calls) == good

    third(2)
    assert len(calls) == 2
    calls.clear()
    with pytest.raises(AssertionError):
        third(4)
    assert len(calls) == 3


def test_dummy_iter():
    real = mx.io.NDArrayIter(np.arange(6).reshape(6, 1), np.zeros(6), batch_size=2)
    dummy = tu.DummyIter(real)
    assert (dummy.provide_data, dummy.batch_size) == (real.provide_data, 2)
    for _, batch in zip(range(5), dummy):
        assert batch.data[0].asnumpy().tolist() == [[0], [1]]


def test_im2rec_path(tmp_path, monkeypatch):
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "im2rec.py").touch()
    assert tu.get_im2rec_path() == str(tmp_path / "tools" / "im2rec.py")


@pytest.fixture
def fetched(monkeypatch, tmp_path):
    """Answer downloads from a dict of contents by address; an address that is missing cannot be reached."""
    contents, asked = {}, []

    def fetch(url):
        asked.append(url)
        if url not in contents:
            raise urllib.error.URLError("no route")
        return contents[url]

    monkeypatch.setattr(datasets, "_fetch", fetch)
    monkeypatch.chdir(tmp_path)
    return contents, asked


def test_download(fetched):
    contents, asked = fetched
    url = "http://host/file.bin"
    with pytest.raises(FileError, match="put the file at folder/file.bin"):
        tu.download(url, dirname="folder", retries=2)
    assert len(asked) == 3
    contents[url] = b"one"
    assert tu.download(url, dirname="folder") == "folder/file.bin"
    contents[url] = b"two"
    tu.download(url, dirname="folder")
    assert Path("folder/file.bin").read_text() == "one"
    tu.download(url, dirname="folder", overwrite=True)
    assert Path("folder/file.bin").read_text() == "two"


def test_download_model(fetched):
    contents, _ = fetched
    contents.update({"http://host/s": b"{}", "http://host/p": b"0"})
    where = {"net": {"symbol": "http://host/s", "params": "http://host/p"}}
    assert tu.download_model("net", "models", where) == ("models/net", 0)
    assert os.path.exists("models/net-0000.params")
    assert tu.download_model("other", "models", where) == (None, 0)


def idx(values):
    head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    return head + values.astype(np.uint8).tobytes()


def test_mnist(fetched):
    images, labels = np.full((5, 28, 28), 51), np.arange(5)
    os.mkdir("data")
    for stem in ("train", "t10k"):
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            with gzip.open(f"{stem}-{kind}-ubyte.gz", "wb") as packed:
                packed.write(idx(values))
            with open(f"data/{stem}-{kind}-ubyte", "wb") as plain:
                plain.write(idx(values))
    found = tu.get_mnist()
    assert found["train_data"].shape == (5, 1, 28, 28)
    tu.assert_allclose(found["test_data"], np.full((5, 1, 28, 28), 0.2), rtol=1e-6)
    assert found["test_label"].tolist() == [0, 1, 2, 3, 4]
    _, validation = tu.get_mnist_iterator(2, (784,), num_parts=2, part_index=1)
    (batch,) = list(validation)
    assert (batch.data[0].shape, batch.label[0].asnumpy().tolist()) == ((2, 784), [2, 3])
    assert fetched[1] == []


def test_packed_data(fetched):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("a.txt", "in zip")
    fetched[0].update({"http://host/a.zip": packed.getvalue(), "http://host/b.bz2": bz2.compress(b"in bz2")})
    for _ in range(2):
        tu.get_zip_data("data", "http://host/a.zip", "a.zip")
        tu.get_bz2_data("data", "b.txt", "http://host/b.bz2", "b.bz2")
    assert (Path("data/a.txt").read_text(), Path("data/b.txt").read_text()) == ("in zip", "in bz2")
    assert not os.path.exists("data/b.bz2")
    assert len(fetched[1]) == 2


def test_private_names_that_tests_for_mxnet_import():
    from dpmodule.base import _as_list, integer_types, mx_real_t, py_str
    from dpmodule.ndarray.ndarray import _STORAGE_TYPE_STR_TO_ID, py_slice

    assert (_as_list(3), _as_list((3, 4)), py_str(b"text")) == ([3], [3, 4], "text")
    assert isinstance(np.int64(3), integer_types)
    assert (mx_real_t, _STORAGE_TYPE_STR_TO_ID["csr"], py_slice) == (np.float32, 2, slice)
    assert mx.rnd is mx.random
