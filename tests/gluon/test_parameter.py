"""Parameters outside of blocks, and dicts of them."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.gluon import Parameter, ParameterDict


def made(name="weight", value=2.0, ctx=None, **options):
    param = Parameter(name, shape=(2, 3), **options)
    param.initialize(mx.init.Constant(value), ctx=ctx)
    return param


def test_gradients_follow_grad_req():
    param = made()
    for req, wanted in (("write", 3), ("add", 6), ("add", 6)):
        param.grad_req = req
        for _ in range(2):
            with mx.autograd.record():
                loss = (param.data() * 3).sum()
            loss.backward()
        assert param.grad().asnumpy().tolist() == [[wanted] * 3] * 2
        param.zero_grad()
        assert param.grad().asnumpy().max() == 0
    param.grad_req = "null"
    assert param.data().grad is None
    fixed = made(differentiable=False)
    fixed.grad_req = "write"
    assert fixed.grad_req == "null"


def test_contexts_have_copies_of_a_parameter():
    contexts = [mx.cpu(0), mx.cpu(1)]
    param = made(ctx=contexts)
    assert param.list_ctx() == contexts
    assert [array.context for array in param.list_data()] == contexts
    assert [grad.context for grad in param.list_grad()] == contexts
    param.data(mx.cpu(1))[:] = 4
    assert param._reduce().asnumpy().max() == 3
    with mx.cpu(1):
        assert param.data().asnumpy().max() == 4
    param.reset_ctx(mx.cpu(1))
    assert param.data().asnumpy().max() == 3
    assert param.data(mx.cpu_pinned(1)) is param.data()
    param.set_data(mx.nd.ones((2, 3)))
    assert param.data().asnumpy().max() == 1


def test_types_and_variables():
    param = made(lr_mult=0.5, init="ones")
    assert param.dtype == np.float32
    with mx.autograd.record():
        loss = (param.data() * 3).sum()
    loss.backward()
    param.cast("float64")
    assert param.data().dtype == param.grad().dtype == np.float64
    assert param.grad().asnumpy().max() == 3
    param.dtype = "float16"
    assert param.data().dtype == np.float16
    attrs = param.var().attr_dict()["weight"]
    assert (attrs["__shape__"], attrs["__lr_mult__"], attrs["__init__"]) == ("(2, 3)", "0.5", "ones")
    assert param.var() is param.var()
    assert repr(param) == "Parameter weight (shape=(2, 3), dtype=<class 'numpy.float16'>)"


def test_initializers_by_name_and_of_the_parameter():
    names = {"a_weight": 7, "a_bias": 0, "a_gamma": 1, "a_running_mean": 5, "alpha": 7}
    params = ParameterDict()
    for name in names:
        params.get(name, shape=(2,), **({"init": mx.init.Constant(5)} if "mean" in name else {}))
    params.initialize(mx.init.Constant(7))
    assert {name: param.data().asnumpy()[0] for name, param in params.items()} == names
    with pytest.warns(UserWarning, match="already initialized"):
        params["alpha"].initialize(mx.init.One())
    params["alpha"].initialize(mx.init.One(), force_reinit=True)
    assert params["alpha"].data().asnumpy().max() == 1


def test_shapes_may_follow_later():
    param = Parameter("w_weight", shape=(0, 3), allow_deferred_init=True)
    param.initialize(mx.init.One(), ctx=mx.cpu(1))
    assert param.list_ctx() == [mx.cpu(1)]
    param.reset_ctx(mx.cpu(2))
    param.set_data(mx.nd.ones((2, 3)) * 4)
    assert param.shape == (2, 3)
    param.finish_deferred_init()
    assert param.data(mx.cpu(2)).asnumpy().max() == 4


def test_dicts_of_parameters(tmp_path):
    base = ParameterDict("base_")
    weight = base.get("weight", shape=(2, 0), dtype="float32", allow_deferred_init=True)
    assert base.get("weight", shape=(2, 3), dtype=np.float32) is weight
    assert weight.shape == (2, 3)
    other = ParameterDict("base_", shared=base)
    assert other.get("weight") is weight
    assert list(other) == list(other.keys()) == ["base_weight"]
    assert "base_weight" in other
    assert len(other) == len(other.values()) == 1
    other.initialize(mx.init.Constant(3))
    other.save(str(tmp_path / "a.params"), strip_prefix="base_")
    assert list(mx.nd.load(str(tmp_path / "a.params"))) == ["weight"]
    fresh = ParameterDict()
    fresh.update({"base_weight": Parameter("base_weight", shape=(2, 3), dtype="float64")})
    fresh.load(str(tmp_path / "a.params"), ctx=[mx.cpu(0)], restore_prefix="base_", cast_dtype=True)
    assert fresh["base_weight"].data().dtype == np.float64
    fresh.load(str(tmp_path / "a.params"), restore_prefix="base_", cast_dtype=True, dtype_source="saved")
    assert fresh["base_weight"].data().dtype == np.float32
    fresh.setattr("grad_req", "null")
    fresh.reset_ctx(mx.cpu(1))
    assert fresh.list_ctx() == [mx.cpu(1)]
    fresh.zero_grad()
    assert "base_weight" in repr(other)
    assert repr(base).startswith("base_ (")
    fresh.load_dict({"arg:base_weight": mx.nd.ones((2, 3)), "more": mx.nd.ones(1)}, ignore_extra=True)
    fresh.load_dict({}, allow_missing=True)
    assert fresh["base_weight"].data().asnumpy().max() == 1


def test_row_sparse_gradients_train():
    param = Parameter("table", shape=(4, 2), grad_stype="row_sparse")
    param.initialize(mx.init.One())
    trainer = mx.gluon.Trainer([param], "sgd", {"learning_rate": 1.0})
    with mx.autograd.record():
        rows = mx.nd.Embedding(mx.nd.array([1, 3]), param.data(), input_dim=4, output_dim=2, sparse_grad=True)
        loss = rows.sum()
    loss.backward()
    assert param.grad().stype == "row_sparse"
    trainer.step(1)
    assert param.data().asnumpy()[:, 0].tolist() == [1, 0, 1, 0]
