"""Modules with sparse data, row-sparse parameters and gradients."""

import functools
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from helpers.factorization import OPTIMIZERS, ROW_SPARSE, data, network, train
from helpers.largest import Largest
from helpers.small_fits import TWO, parameters, ready, same, step

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
    same(train(mx, name, [mx.cpu(i) for i in range(3 if kvstore else 1)], kvstore), alone(name), 1e-5)


def of_csr():
    features, targets = data()
    return mx.io.NDArrayIter(mx.nd.sparse.csr_matrix(features), {"label": targets}, 16)


def machine(contexts=None, **options):
    """Return a factorization machine, its batches and the first of them."""
    module = mx.mod.Module(network(mx), ["data"], ["label"], context=contexts)
    shapes = of_csr().provide_data, of_csr().provide_label
    return ready(module, shapes=shapes, init=mx.init.Normal(0.1), **options), next(of_csr())


def changed_rows(one, other):
    return np.flatnonzero((one != other).any(1)).tolist()


def test_gradients_travel_as_rows():
    module, batch = machine(optimizer={})
    grads = {name: row[0] for name, row in zip(module.param_names, module.group.grad_arrays)}
    assert {n for n, grad in grads.items() if grad.stype == "row_sparse"} == {*ROW_SPARSE}
    before = parameters(module)["w_weight"]
    step(module, batch)
    columns = sorted(set(batch.data[0].indices.asnumpy().tolist()))
    assert [grads[name].indices.asnumpy().tolist() for name in ROW_SPARSE] == [columns] * 2
    assert set(changed_rows(parameters(module)["w_weight"], before)) <= set(columns)


def test_parameters_come_and_are_saved_row_sparse(tmp_path):
    (module, _), path = machine(TWO), str(tmp_path / "saved.params")
    found = parameters(module)
    module.save_params(path)
    for name in ROW_SPARSE:
        assert mx.nd.load(path)[f"arg:{name}"].stype == module.get_params()[0][name].stype == "row_sparse"
    module.set_params({name: mx.nd.zeros(value.shape) for name, value in found.items()}, {})
    assert not any(value.any() for value in parameters(module).values())
    module.load_params(path)
    same(module, found)


def test_dense_batches_are_stored_anew_and_borrowed_ones_survive():
    module, batch = machine()
    module.forward(batch, is_train=False)
    want, (x,), (y,) = module.get_outputs()[0].asnumpy(), batch.data, batch.label
    for given in ([x.tostype("default")], [y]), ([x[:5]], [y[:5]]):
        module.forward(mx.io.DataBatch(*given), is_train=False)
        np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), want[: len(given[1][0])], rtol=1e-6)
        held = module.group.execs[0].arg_dict["data"]
        assert held.stype == "csr"
        np.testing.assert_array_equal(held.asnumpy(), given[0][0].asnumpy())


def test_rows_are_pulled_into_a_modules_parameters():
    """As in MXNet's example of sparse linear classification, which pulls rows by hand."""
    (module, _), store = machine(), mx.kv.create("local")
    module.init_optimizer(kvstore=store)
    position = module._exec_group.param_names.index("w_weight")
    arrays = module._exec_group.param_arrays[position]
    for batch in of_csr():
        store.row_sparse_pull("w_weight", arrays, row_ids=[batch.data[0].indices], priority=-position)
        step(module, batch)
    held = mx.nd.sparse.zeros("row_sparse", arrays[0].shape)
    store.row_sparse_pull("w_weight", held, row_ids=mx.nd.arange(0, 40, dtype="int64"))
    np.testing.assert_array_equal(held.asnumpy(), arrays[0].asnumpy())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad", "ftrl"])
def test_a_step_costs_what_the_touched_rows_cost(optimizer):
    rows, width, count = 100_000, 8, 10
    given = {"input_dim": rows, "output_dim": width, "sparse_grad": True}
    table = mx.sym.Variable("table_weight", stype="row_sparse")
    looked = mx.sym.Embedding(mx.sym.Variable("data"), table, **given)
    net = mx.sym.LinearRegressionOutput(mx.sym.sum(looked, axis=1), mx.sym.Variable("label"))
    shapes = [mx.io.DataDesc("data", (count,), "int32")], [("label", (count,))]
    module = ready(mx.mod.Module(net, ["data"], ["label"]), shapes=shapes, init=mx.init.Uniform(0.1))
    arguments = {"momentum": 0.9} if optimizer == "sgd" else {}
    module.init_optimizer(optimizer=optimizer, optimizer_params={"learning_rate": 0.1, **arguments})
    one = mx.io.DataBatch([mx.nd.array(np.arange(count) * 7, dtype="int32")], [mx.nd.ones((count,))])
    step(module, one)  # makes the states
    before = parameters(module)["table_weight"]
    with Largest() as seen:
        step(module, one)
    assert seen.count <= 4 * count * width  # rows of the parameter and its states are joined in one tensor
    assert changed_rows(parameters(module)["table_weight"], before) == list(range(0, 7 * count, 7))
