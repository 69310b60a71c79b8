"""Operators as functions: arguments, results, errors, namespaces, signatures, stubs."""

import inspect
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule._core import mode
from dpmodule.base import DTypeError, OpError, ShapeError
from dpmodule.ndarray import op_dispatch, op_functions
from dpmodule.ndarray.methods import FLUENT
from helpers.programs import run_file
from helpers.walk import walks

nd = mx.nd
ROOT = Path(__file__).parents[2]


def data():
    return nd.array([[1, -2, 3], [4, 5, -6]])


# --- arguments


def test_inputs_and_attributes_by_position_and_name():
    x, weight, bias = data(), nd.ones((2, 3)), nd.array([10, 20])
    want = [[12, 22], [13, 23]]
    for got in (
        nd.FullyConnected(x, weight, bias, 2),
        nd.FullyConnected(x, weight, bias, num_hidden=2),
        nd.FullyConnected(data=x, weight=weight, bias=bias, num_hidden="2"),
        nd.FullyConnected(x, bias=bias, weight=weight, num_hidden=2, name="fc"),
    ):
        np.testing.assert_array_equal(got.asnumpy(), want)
    got = nd.FullyConnected(x, weight, num_hidden=2, no_bias=True)
    np.testing.assert_array_equal(got.asnumpy(), [[2, 2], [3, 3]])
    np.testing.assert_array_equal(nd.FullyConnected(x, weight, None, 2, True).asnumpy(), got.asnumpy())


def test_any_number_of_inputs():
    x = data()
    for got in (
        nd.concat(x, x, dim=0),
        nd.Concat(*[x, x], dim=0, num_args=2),
        nd.concat(arg0=x, arg1=x, dim=0),
    ):
        assert got.shape == (4, 3)
    assert nd.concat(x, x).shape == (2, 6)
    assert nd.add_n(x, x, x).asnumpy()[0, 0] == 3
    assert nd.ElementWiseSum(x).shape == (2, 3)


def test_several_outputs_come_as_a_list():
    parts = nd.split(data(), num_outputs=3, axis=1)
    assert isinstance(parts, list)
    assert [p.shape for p in parts] == [(2, 1)] * 3
    assert nd.split(data(), num_outputs=1, axis=1).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nd.relu(), "'data' is missing"),
        (lambda: nd.relu(5), "data is int 5, expected NDArray"),
        (lambda: nd.relu([1, 2]), "data is list"),
        (lambda: nd.relu(np.zeros(2)), r"ndarray, expected NDArray; convert it with nd.array"),
        (lambda: nd.relu(torch.zeros(2)), r"nd.from_torch"),
        (lambda: nd.relu(data(), data()), "at most 1"),
        (lambda: nd.clip(data(), 0, 1, slope=1), "unknown attribute 'slope'"),
        (lambda: nd.clip(data(), 0, 1, ctx=mx.cpu(1)), "ctx was passed"),
        (lambda: nd.elemwise_add(data(), 2), "rhs is int 2"),
        (lambda: nd.elemwise_add(data()), "'rhs' is missing"),
        (lambda: nd.elemwise_add(data(), None), "rhs"),
        (lambda: nd.concat(data(), 2), "input 1 is int 2"),
        (lambda: nd.concat(data(), data(), num_args=3), "num_args is 3, but 2 inputs"),
        (lambda: nd.FullyConnected(data(), nd.ones((2, 3)), num_hidden=2), "'bias' is missing"),
        (lambda: nd.FullyConnected(data(), nd.ones((2, 3)), nd.ones((2,)), 2, True), "bias was passed"),
        (lambda: nd.FullyConnected(data(), nd.ones((2, 3)), no_bias=True), "num_hidden is required"),
        (lambda: nd.FullyConnected(data(), data=data(), num_hidden=2), "given twice"),
        (lambda: nd.clip(data(), 1, a_max="x"), "a_"),
        (lambda: nd.sum(data(), axis=5), "axis is 5"),
        (lambda: nd.relu(data(), out=3), "out is int"),
        (lambda: nd.split(data(), num_outputs=3, out=[data()]), "out has 1 arrays, expected 3"),
    ],
)
def test_bad_calls(call, words):
    with pytest.raises(OpError, match=words):
        call()


def test_shapes_and_types_that_do_not_fit():
    with pytest.raises(ShapeError, match="elemwise_add takes inputs of one shape"):
        nd.elemwise_add(data(), nd.ones((3,)))
    with pytest.raises(DTypeError, match="one type"):
        nd.elemwise_add(data(), data().astype("int32"))
    with pytest.raises(ShapeError, match=r"broadcast_add.*\(2, 3\).*\(2,\)"):
        nd.broadcast_add(data(), nd.ones((2,)))
    with pytest.raises(ShapeError, match="FullyConnected"):
        nd.FullyConnected(data(), nd.ones((2, 4)), num_hidden=2, no_bias=True)


def test_types_beyond_mxnets():
    flags, ones = nd.array([1, 0], dtype="bool"), nd.ones((2, 2), dtype="int32")
    halves = nd.ones((2, 2), dtype="float16")
    for call, want in {
        lambda: nd.sort(flags): [False, True],
        lambda: nd.reverse(flags, axis=0): [False, True],
        lambda: nd.topk(flags): [0],
        lambda: flags + flags: [True, False],
        lambda: nd.dot(ones, ones): [[2, 2], [2, 2]],
        lambda: nd.FullyConnected(ones, ones, no_bias=True, num_hidden=2): [[2, 2], [2, 2]],
        lambda: nd.linalg.gemm2(halves, halves): [[2, 2], [2, 2]],
    }.items():
        assert call().asnumpy().tolist() == want


# --- results


def test_out_receives_the_result():
    x, out = data(), nd.zeros((2, 3))
    view = out[0]
    assert nd.relu(x, out=out) is out
    np.testing.assert_array_equal(out.asnumpy(), [[1, 0, 3], [4, 5, 0]])
    np.testing.assert_array_equal(view.asnumpy(), [1, 0, 3])
    assert nd.relu(x, out=x) is x
    parts = [nd.zeros((2, 1)) for _ in range(3)]
    assert nd.split(data(), num_outputs=3, axis=1, out=parts) is parts
    np.testing.assert_array_equal(parts[1].asnumpy(), [[-2], [5]])
    with pytest.raises(ShapeError, match="out has shape"):
        nd.transpose(x, out=x)
    with pytest.raises(DTypeError, match="out has type int32"):
        nd.relu(x, out=nd.zeros((2, 3), dtype="int32"))


def test_results_never_share_memory_with_inputs():
    x = nd.array(np.arange(8).reshape(2, 4))
    for result in (
        nd.reshape(x, shape=(4, 2)),
        nd.Flatten(x),
        nd.identity(x),
        nd.BlockGrad(x),
        nd.transpose(x),
        nd.slice(x, begin=(0, 0), end=(1, 4)),
        nd.expand_dims(x, axis=0),
        nd.Dropout(x, p=0.5),
        nd.cast(x, dtype="float32"),
        nd.broadcast_to(x, shape=(2, 4)),
        *nd.split(x, num_outputs=2, axis=1),
    ):
        assert result.tensor.is_contiguous()
        assert result.tensor.untyped_storage().data_ptr() != x.tensor.untyped_storage().data_ptr()


def test_operators_without_inputs():
    assert nd._internal._zeros(shape=(2,), ctx=mx.cpu(1)).context == mx.cpu(1)
    assert nd._internal._zeros((2, 3), dtype="int32").dtype is np.int32
    with mx.cpu(2):
        assert nd._internal._ones(shape=(1,)).context == mx.cpu(2)
    out = nd.zeros((3,), ctx=mx.cpu(1), dtype="float64")
    nd._internal._ones(out=out)
    np.testing.assert_array_equal(out.asnumpy(), [1, 1, 1])


def test_operators_write_the_states_they_change():
    x, gamma, beta = data(), nd.full((3,), 5), nd.zeros((3,))
    mean, var = nd.zeros((3,)), nd.ones((3,))
    with mode.scope(training=True):
        out = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=True)
    # as MXNet 1.9.1: gamma becomes 1 in every forward, the moving statistics wait for a backward
    np.testing.assert_array_equal(gamma.asnumpy(), [1, 1, 1])
    np.testing.assert_array_equal(mean.asnumpy(), [0, 0, 0])
    np.testing.assert_allclose(out.asnumpy().mean(axis=0), [0, 0, 0], atol=1e-6)
    nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)


def test_training_mode_reaches_operators():
    ones = nd.ones((1000,))
    assert nd.Dropout(ones, p=0.5).asnumpy().min() == 1
    with mode.scope(training=True):
        dropped = nd.Dropout(ones, p=0.5).asnumpy()
    assert set(np.unique(dropped)) == {0, 2}


def test_nothing_is_recorded_by_torch():
    x = nd.from_torch(torch.ones(2))
    x.torch().requires_grad_()
    assert not nd.relu(x).tensor.requires_grad
    assert not (x + 1).tensor.requires_grad
    x += 1
    x[:] = 3
    x.asnumpy()


def test_loss_operators_run_forward():
    got = nd.SoftmaxOutput(nd.zeros((2, 4)), nd.array([0, 1]))
    np.testing.assert_allclose(got.asnumpy(), np.full((2, 4), 0.25))


def test_results_agree_between_threads():
    x = data()
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend((x + i % 3).asnumpy().sum() for i in range(30)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([5.0, 11.0, 17.0] * 40)


def test_kept_plans_stay_few():
    x = data()
    for i in range(3 * op_dispatch._CACHED_PLANS // 2):
        nd._internal._plus_scalar(x, scalar=i)
    assert len(op_dispatch._plans) <= op_dispatch._CACHED_PLANS
    assert nd._internal._plus_scalar(x, scalar=3).asnumpy()[0, 0] == 4


# --- methods, namespaces, signatures


@walks(FLUENT)
def test_methods_are_the_operators(name):
    assert ops.find(name) is not None, f"{name} is no operator yet"
    method = getattr(mx.nd.NDArray, name)
    assert callable(method)
    assert method.__doc__


def test_methods_take_what_the_functions_take():
    x = data()
    np.testing.assert_array_equal(x.sum(axis=1).asnumpy(), [2, 3])
    np.testing.assert_array_equal(x.sum(1, True).asnumpy(), [[2], [3]])
    assert x.max().shape == (1,)
    np.testing.assert_array_equal(x.clip(0, 2).asnumpy(), [[1, 0, 2], [2, 2, 0]])
    np.testing.assert_array_equal(x.relu().sqrt().asnumpy()[1, 0], 2)
    assert x.transpose().shape == (3, 2)
    assert x.take(nd.array([1])).shape == (1, 3)
    assert x.diag().shape == (2,)
    assert x.argmax(axis=1).dtype is np.float32


def test_namespaces():
    assert nd.op.relu is nd.relu
    assert nd._internal._plus_scalar(data(), scalar=1).shape == (2, 3)
    assert {"relu", "Convolution", "broadcast_add", "array"} <= set(dir(nd))
    assert "_plus_scalar" in dir(nd._internal)
    assert "_plus_scalar" not in dir(nd)
    assert "uniform_like" in dir(nd.random)
    with pytest.raises(AttributeError, match="did you mean relu"):
        nd.rellu  # noqa: B018
    for space in ("contrib", "linalg", "sparse", "image", "random", "_internal", "op"):
        assert not hasattr(getattr(nd, space), "no_such_operator")


def test_unknown_operator_names():
    with pytest.raises(AttributeError, match="no operator 'no_such_operator'"):
        op_functions.op_function("no_such_operator")
    with pytest.raises(OpError, match="axis is required"):
        nd.slice_axis(data())


def test_every_operator_has_a_function():
    for name in ops.names():
        space, public = ops.namespace_of(name)
        module = getattr(nd, space) if space else nd.op
        if name.startswith("_sample_"):
            module, public = nd._internal, name
        assert callable(getattr(module, public)), name


def test_signatures_and_docstrings():
    signature = inspect.signature(nd.FullyConnected)
    assert list(signature.parameters) == [
        "data", "weight", "bias", "num_hidden", "no_bias", "flatten", "out", "name",
    ]  # fmt: skip
    assert nd.FullyConnected.__name__ == "FullyConnected"
    assert "num_hidden" in nd.FullyConnected.__doc__


@pytest.mark.timeout(120)
def test_stubs_are_current():
    done = run_file(ROOT / "tools" / "stubs.py", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_keywords_without_effect_are_taken_where_mxnet_takes_them():
    array = nd.array([[-1.0, 2.0]])
    for result in (
        nd.relu(array, shape=(3,), ctx="cpu(1)", attr={"a": "b"}, other=array, data_lr_mult=1),
        array.relu(slope=[1]),
        nd.broadcast_add(array, nd.array([[1.0, 0.0]]), axis=1),
        nd.clip(array, 0, 9, __mark__="x"),
    ):
        assert result.asnumpy().tolist() == [[0, 2]]


nd = mx.nd


def forms_of(face):
    """Return what a face keeps."""
    names = face.__code__.co_freevars
    return face.__closure__[names.index("forms")].cell_contents


def test_a_form_leads_to_the_plan_of_its_values():
    face = op_functions.make_op_function(ops.get("sum"), "sum")
    x = nd.array([[1, 2], [3, 4]])
    for _ in range(2):
        assert face(x, axis=0).asnumpy().tolist() == [4, 6]
        assert face(x, axis=1).asnumpy().tolist() == [3, 7]
        assert face(x, 1).asnumpy().tolist() == [3, 7]
        assert face(x).asnumpy().tolist() == [10]
    assert {key: len(form.plans) for key, form in forms_of(face).items()} == {
        (1, "axis"): 2,
        (2,): 1,
        (1,): 1,
    }


def test_named_inputs_in_another_order():
    face = op_functions.make_op_function(ops.get("FullyConnected"), "FullyConnected")
    x, w, b = nd.array([[1, 2]]), nd.array([[1, 1], [2, 2]]), nd.array([10, 20])
    for _ in range(2):
        assert face(bias=b, weight=w, data=x, num_hidden=2).asnumpy().tolist() == [[13, 26]]
        assert face(x, bias=b, num_hidden=2, weight=w).asnumpy().tolist() == [[13, 26]]
        assert face(x, w, num_hidden=2, no_bias=True).asnumpy().tolist() == [[3, 6]]
        assert face(x, w, None, 2, True).asnumpy().tolist() == [[3, 6]]
        assert face(x, w, bias=None, num_hidden=2, no_bias=True).asnumpy().tolist() == [[3, 6]]
        with pytest.raises(OpError, match="'bias' is missing"):
            face(x, w, num_hidden=2)


def test_one_form_with_other_kinds_of_arguments():
    face = op_functions.make_op_function(ops.get("Concat"), "Concat")
    x = nd.ones((2, 1))
    assert face(x, dim=1).shape == (2, 1)
    assert face([x, x], dim=1).shape == (2, 2)
    with pytest.raises(OpError, match="int 3"):
        face(3, dim=1)
    plus = op_functions.make_op_function(ops.get("_plus_scalar"), "_plus_scalar")
    assert plus(x, scalar=1).asnumpy().tolist() == [[2], [2]]
    with pytest.raises(OpError, match="ndarray"):
        plus(np.ones(2), scalar=1)


def test_equal_values_of_other_types_are_told_apart():
    face = op_functions.make_op_function(ops.get("_div_scalar"), "_div_scalar")
    x = nd.array([1, -1])
    for zero, want in ((0.0, np.inf), (-0.0, -np.inf), (0, np.inf)):
        assert face(x, scalar=zero).asnumpy().tolist() == [want, -want]


def test_out_and_name_are_no_attributes():
    x, out = nd.array([-1, 2]), nd.zeros(2)
    for _ in range(2):
        assert nd.relu(x, out=out, name="r") is out
    assert out.asnumpy().tolist() == [0, 2]
    assert nd.relu(x, out=None).asnumpy().tolist() == [0, 2]


def test_plans_kept_of_a_form_stay_few():
    face = op_functions.make_op_function(ops.get("_plus_scalar"), "_plus_scalar")
    x = nd.zeros(1)
    for i in range(op_functions._MOST_PLANS * 3 // 2):
        assert face(x, scalar=i).asscalar() == i
    assert len(forms_of(face)[(1, "scalar")].plans) <= op_functions._MOST_PLANS
