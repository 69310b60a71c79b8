"""Modules with sparse data, row-sparse parameters and gradients."""

import functools
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError
from helpers.factorization import OPTIMIZERS, ROW_SPARSE, data, network, train
from helpers.largest import Largest

GOLDENS = np.load(Path(__file__).parents[1] / "data" / "goldens" / "sparse" / "factorization.npz")


@functools.cache
def alone(name):
    return train(mx, name, mx.cpu())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_gives_the_parameters_of_mxnet(name):
    for key, value in alone(name).items():
        np.testing.assert_allclose(value, GOLDENS[f"{name}:{key}"], rtol=1e-4, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("name", ["momentum", "ftrl", "adam of all rows"])
@pytest.mark.parametrize("kvstore", ["local", "device", None])
def test_several_contexts_agree_with_one(name, kvstore):
    if kvstore is None:
        several = train(mx, name, [mx.cpu()], None)
    else:
        several = train(mx, name, [mx.cpu(0), mx.cpu(1), mx.cpu(2)], kvstore)
    for key, value in alone(name).items():
        np.testing.assert_allclose(several[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


def module_and_batches(contexts=None):
    features, targets = data()
    batches = mx.io.NDArrayIter(mx.nd.sparse.csr_matrix(features), {"label": targets}, 16)
    module = mx.mod.Module(network(mx), ["data"], ["label"], context=contexts or mx.cpu())
    module.bind(batches.provide_data, batches.provide_label)
    return module, batches


def test_gradients_travel_as_rows():
    module, batches = module_and_batches()
    module.init_params(mx.init.Normal(0.1))
    module.init_optimizer()
    group = module._exec_group
    stypes = dict(zip(group.param_names, (grads[0].stype for grads in group.grad_arrays)))
    assert stypes == {"b_bias": "default", "v_weight": "row_sparse", "w_weight": "row_sparse"}
    batch = next(batches)
    module.forward_backward(batch)
    columns = sorted(set(batch.data[0].indices.asnumpy().tolist()))
    for name in ROW_SPARSE:
        (grad,) = group.grad_arrays[group.param_names.index(name)]
        assert grad.indices.asnumpy().tolist() == columns
    before = module.get_params()[0]["w_weight"].asnumpy()
    module.update()
    changed = np.flatnonzero((module.get_params()[0]["w_weight"].asnumpy() != before).any(1))
    assert set(changed) <= set(columns)


def test_parameters_declared_row_sparse_are_read_and_saved_so(tmp_path):
    module, _ = module_and_batches()
    module.init_params(mx.init.Normal(0.1))
    module.save_checkpoint(str(tmp_path / "net"), 0)
    _, params, _ = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    assert {name: array.stype for name, array in params.items()} == {
        "b_bias": "default",
        "v_weight": "row_sparse",
        "w_weight": "row_sparse",
    }
    again = mx.mod.Module.load(str(tmp_path / "net"), 0, data_names=["data"], label_names=["label"])
    features, targets = data()
    batches = mx.io.NDArrayIter(mx.nd.sparse.csr_matrix(features), {"label": targets}, 16)
    again.bind(batches.provide_data, batches.provide_label)
    np.testing.assert_array_equal(again.predict(batches).asnumpy(), module.predict(batches).asnumpy())


def test_dense_batches_are_stored_anew_and_borrowed_ones_survive():
    module, batches = module_and_batches()
    module.init_params(mx.init.Normal(0.1))
    batch = next(batches)
    module.forward(batch, is_train=False)
    want = module.get_outputs()[0].asnumpy()
    dense = mx.io.DataBatch([batch.data[0].tostype("default")], batch.label)
    module.forward(dense, is_train=False)
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), want, rtol=1e-6)
    assert module._exec_group.execs[0].arg_dict["data"].stype == "csr"
    np.testing.assert_array_equal(
        module._exec_group.execs[0].arg_dict["data"].asnumpy(), batch.data[0].asnumpy()
    )
    smaller = mx.io.DataBatch([batch.data[0][:5]], [batch.label[0][:5]])
    module.forward(smaller, is_train=False)
    np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), want[:5], rtol=1e-6)


def test_preparing_checks_the_rows():
    module, batches = module_and_batches()
    module.init_params(mx.init.Normal(0.1))
    batch = next(batches)
    module.prepare(batch)
    module.prepare(batch, sparse_row_id_fn=lambda b: {"w_weight": b.data[0].indices})
    with pytest.raises(ArgumentError, match="returned list, expected a dict"):
        module.prepare(batch, sparse_row_id_fn=lambda b: [1])
    with pytest.raises(ArgumentError, match="'u', which is not a parameter"):
        module.prepare(batch, sparse_row_id_fn=lambda b: {"u": mx.nd.array([0])})
    with pytest.raises(BoundsError, match="row 40"):
        module.prepare(batch, sparse_row_id_fn=lambda b: {"w_weight": mx.nd.array([40])})


def test_rows_are_pulled_into_a_modules_parameters():
    """As in MXNet's example of sparse linear classification, which pulls rows by hand."""
    module, batches = module_and_batches()
    module.init_params(mx.init.Normal(0.1))
    store = mx.kv.create("local")
    module.init_optimizer(kvstore=store)
    position = module._exec_group.param_names.index("w_weight")
    arrays = module._exec_group.param_arrays[position]
    for batch in batches:
        store.row_sparse_pull("w_weight", arrays, row_ids=[batch.data[0].indices], priority=-position)
        module.forward_backward(batch)
        module.update()
    held = mx.nd.sparse.zeros("row_sparse", arrays[0].shape)
    store.row_sparse_pull("w_weight", held, row_ids=mx.nd.arange(0, 40, dtype="int64"))
    np.testing.assert_array_equal(held.asnumpy(), arrays[0].asnumpy())


def test_batches_of_csr():
    features, targets = data()
    matrix = mx.nd.sparse.csr_matrix(features)
    for handle in ("pad", "discard", "roll_over"):
        batches = mx.io.NDArrayIter(matrix, targets, 24, last_batch_handle=handle)
        like = mx.io.NDArrayIter(features, targets, 24, last_batch_handle=handle)
        for _ in range(2):
            for left, right in zip(batches, like, strict=True):
                assert (left.data[0].stype, left.pad) == ("csr", right.pad)
                np.testing.assert_array_equal(left.data[0].asnumpy(), right.data[0].asnumpy())
            batches.reset()
            like.reset()
    mx.random.seed(0)
    batch = next(mx.io.NDArrayIter(matrix, targets, 8, shuffle=True))
    rows = [np.flatnonzero((targets == t).all(1))[0] for t in batch.label[0].asnumpy()]
    np.testing.assert_array_equal(batch.data[0].asnumpy(), features[rows])


@pytest.mark.parametrize("act", ["relu", "tanh", "sigmoid"])
def test_layers_over_csr_data(act):
    features, _ = data()
    targets = (features.sum(1) > features.sum(1).mean()).astype("f4")
    net = mx.sym.FullyConnected(mx.sym.Variable("data", stype="csr"), num_hidden=8, name="low")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type=act), num_hidden=2, name="top")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    found = []
    for contexts in ([mx.cpu()], [mx.cpu(0), mx.cpu(1)]):
        for matrix in (mx.nd.sparse.csr_matrix(features), features):
            batches = mx.io.NDArrayIter(matrix, targets, 12)
            module = mx.mod.Module(net, context=contexts)
            mx.random.seed(1)
            module.fit(batches, num_epoch=2, optimizer_params={"learning_rate": 0.1})
            found.append(module.predict(batches).asnumpy())
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-5, atol=1e-6)


def test_fit_takes_a_row_function():
    module, batches = module_and_batches([mx.cpu(0), mx.cpu(1)])
    asked = []

    def rows(batch):
        asked.append(batch)
        return dict.fromkeys(ROW_SPARSE, batch.data[0].indices)

    module.fit(
        batches,
        num_epoch=3,
        eval_metric="mse",
        kvstore="local",
        optimizer_params={"learning_rate": 0.5},
        initializer=mx.init.Normal(0.1),
        sparse_row_id_fn=rows,
    )
    assert len(asked) >= 9
    assert dict(module.score(batches, "mse"))["mse"] < 0.2


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "ftrl"])
def test_a_step_costs_what_the_touched_rows_cost(optimizer):
    rows, width, batch = 100_000, 8, 10
    weight = mx.sym.Variable("table_weight", stype="row_sparse")
    looked = mx.sym.Embedding(
        mx.sym.Variable("data"), weight, input_dim=rows, output_dim=width, sparse_grad=True
    )
    net = mx.sym.LinearRegressionOutput(mx.sym.sum(looked, axis=1), mx.sym.Variable("label"))
    module = mx.mod.Module(net, ["data"], ["label"])
    module.bind([mx.io.DataDesc("data", (batch,), "int32")], [("label", (batch,))])
    module.init_params(mx.init.Uniform(0.1))
    arguments = {"momentum": 0.9} if optimizer == "sgd" else {}
    module.init_optimizer(optimizer=optimizer, optimizer_params={"learning_rate": 0.1, **arguments})
    data = mx.io.DataBatch([mx.nd.array(np.arange(batch) * 7, dtype="int32")], [mx.nd.ones((batch,))])

    def step():
        module.forward_backward(data)
        module.update()

    step()  # makes the states
    before = module.get_params()[0]["table_weight"].asnumpy()
    with Largest() as seen:
        step()
    assert seen.count <= 4 * batch * width  # rows of the parameter and its states are joined in one tensor
    after = module.get_params()[0]["table_weight"].asnumpy()
    assert np.flatnonzero((after != before).any(1)).tolist() == list(range(0, 7 * batch, 7))
