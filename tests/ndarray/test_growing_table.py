"""Tables of 64-bit ids, `Embedding(hash_rows=True)`, in one process; programs/dist_hashed_rows.py has several."""

import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, MXNetError, ShapeError, StateError
from helpers.programs import TESTS
from helpers.ranks import run_ranks

COUNT, WIDTH, WORDS = 50, 4, 3
random = np.random.default_rng(0)
NAMES = random.integers(-(2**63), 2**63 - 1, COUNT)
X, Y = random.integers(0, COUNT, (48, WORDS)), random.integers(0, 2, 48)
START = {"two_weight": mx.nd.array(random.normal(size=(2, WIDTH))), "two_bias": mx.nd.zeros(2)}


def network(**table):
    rows = mx.sym.Embedding(mx.sym.Variable("data"), output_dim=WIDTH, name="words", **table)
    net = mx.sym.FullyConnected(mx.sym.mean(rows, axis=1), num_hidden=2, name="two")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def ids(array):
    return mx.nd.array(array, dtype="int64")


def trained(net, x, optimizer="sgd", epochs=2, initializer=None, **options):
    data = mx.io.NDArrayIter(ids(x), Y[: len(x)], 12)
    module = mx.mod.Module(net)
    module.bind(data.provide_data, data.provide_label)
    module.init_params(initializer or mx.init.Zero(), arg_params=START, allow_missing=True)
    options = {"optimizer_params": {"learning_rate": 0.3}, **options}
    module.fit(data, optimizer=optimizer, num_epoch=epochs, **options)
    return module, data


def rows_by_id(module):
    table = module.get_params()[0]["words_weight"]
    return dict(zip(table.indices.asnumpy().tolist(), table.data.asnumpy()))


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam", "ftrl"])
@pytest.mark.parametrize("kvstore", ["local", None, "dist_sync"])
def test_rows_are_those_of_a_table_of_all_ids(optimizer, kvstore):
    module, data = trained(network(hash_rows=True), NAMES[X], optimizer, kvstore=kvstore)
    other, numbers = trained(network(input_dim=COUNT, sparse_grad=True), X, optimizer)
    wanted = other.get_params()[0]["words_weight"].asnumpy()
    found = rows_by_id(module)
    assert found.keys() == {int(NAMES[i]) for i in np.unique(X)}
    for i in np.unique(X):
        np.testing.assert_allclose(found[int(NAMES[i])], wanted[i], atol=1e-6)
    np.testing.assert_allclose(module.predict(data).asnumpy(), other.predict(numbers).asnumpy(), atol=1e-6)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), pytest.param(3, 2, marks=pytest.mark.slow)])
def test_several_processes_make_and_save_the_same_rows(before, after, tmp_path):
    for what, size in ("save", before), ("load", after):
        run_ranks(
            TESTS / "programs" / "dist_hashed_rows.py", size, what, kind="file", cwd=tmp_path, seconds=120
        )


def test_initial_rows():
    many = np.arange(12 * WORDS * 1000).reshape(-1, WORDS)
    for initializer, spread in (mx.init.Uniform(0.3), 0.3 / 3**0.5), (mx.init.Normal(0.2), 0.2):
        module, _ = trained(network(hash_rows=True), many[:12], "sgd", 0, initializer)
        source = module._group.store.array("words_weight", 0).source
        rows = source.look_up(mx.nd.array(many.ravel(), dtype="int64").raw)
        assert abs(float(rows.mean())) < 0.01 * spread / 0.2
        assert float(rows.std()) == pytest.approx(spread, rel=0.02)
        assert len(rows.unique(dim=0)) == many.size
        correlation = np.corrcoef(rows.numpy().T)
        assert abs(correlation - np.eye(WIDTH)).max() < 0.03
    assert float(abs(rows).max()) > 3 * spread


def test_min_count_and_ttl_decide_what_stays():
    x = np.repeat(np.arange(4), 12)[:, None].repeat(WORDS, 1)  # a word in each of four steps
    x[:, 0] = 99  # and one in all
    module, data = trained(network(hash_rows=True, min_count=2), x, epochs=1)
    assert rows_by_id(module).keys() == {99}
    module.fit(data, num_epoch=1)
    assert rows_by_id(module).keys() == {0, 1, 2, 3, 99}
    module, data = trained(network(hash_rows=True, ttl_steps=1), x, "adam", epochs=1)
    assert rows_by_id(module).keys() == {2, 3, 99}
    # a row that is made again begins anew
    fresh = trained(network(hash_rows=True), x[:12], "adagrad", epochs=1, kvstore="local")[0]
    module, _ = trained(network(hash_rows=True, ttl_steps=1), x, "adagrad", epochs=1)
    module.set_params(*fresh.get_params())
    assert rows_by_id(module).keys() == {0, 99}


def test_a_large_number_of_ids(tmp_path):
    x = np.arange(300_000).reshape(-1, WORDS) * 7919
    data = mx.io.NDArrayIter(ids(x), np.zeros(len(x)), 20_000)
    module = mx.mod.Module(network(hash_rows=True))
    module.fit(data, num_epoch=1, optimizer="adagrad")
    found = rows_by_id(module)
    assert len(found) == 300_000
    module.save_checkpoint(str(tmp_path / "ids"), 1)
    _, args, _ = mx.model.load_checkpoint(str(tmp_path / "ids"), 1)
    assert args["words_weight"].indices.shape == (300_000,)


def test_arrays_of_ids_are_saved_and_set(tmp_path):
    module, data = trained(network(hash_rows=True), NAMES[X], "adagrad")
    wanted = module.predict(data).asnumpy()
    mx.nd.save(str(tmp_path / "all"), module.get_params()[0])
    arrays = mx.nd.load(str(tmp_path / "all"))
    other, _ = trained(network(hash_rows=True), NAMES[X], epochs=0)
    other.set_params(arrays, {})
    np.testing.assert_array_equal(other.predict(data).asnumpy(), wanted)
    other.fit(data, num_epoch=1, optimizer="adagrad")
    assert abs(other.predict(data).asnumpy() - wanted).max() > 1e-3
    other.set_params(arrays, {})  # fewer rows than slots
    other.fit(data, num_epoch=1, optimizer="adagrad")
    module.save_params(str(tmp_path / "net.params"))
    other = mx.mod.Module(network(hash_rows=True))
    other.bind(data.provide_data, None, for_training=False)
    other.load_params(str(tmp_path / "net.params"))
    np.testing.assert_array_equal(other.predict(data).asnumpy(), wanted)


def test_gradients_are_clipped_and_accumulated():
    for options in {"clip_global_norm": 0.05}, {"accumulate": 2}:
        module, data = trained(network(hash_rows=True), NAMES[X], "adam", **options)
        other, numbers = trained(network(input_dim=COUNT, sparse_grad=True), X, "adam", **options)
        np.testing.assert_allclose(
            module.predict(data).asnumpy(), other.predict(numbers).asnumpy(), atol=1e-6
        )


def test_what_cannot_be_is_an_error(tmp_path):
    data = mx.sym.Variable("data")
    with pytest.raises(ArgumentError, match="input_dim is missing"):
        mx.sym.Embedding(data, output_dim=4).infer_shape(data=(2, 3))
    with pytest.raises(ArgumentError, match="input_dim is 9, but hash_rows=True"):
        mx.sym.Embedding(data, input_dim=9, hash_rows=True, output_dim=4).infer_shape(data=(2, 3))
    module = mx.mod.Module(network(hash_rows=True))
    lost = mx.io.NDArrayIter(np.full((12, WORDS), 2.0**24 + 2, "f4"), np.zeros(12), 12)
    with pytest.raises(MXNetError, match=r"an id is 16777218 in torch.float32.*pass ids as int64"):
        module.fit(lost, num_epoch=1)
    for arguments, text in (
        (
            {"optimizer": "rmsprop"},
            "words_weight with hash_rows=True: the optimizer is RMSProp, expected SGD",
        ),
        (
            {"optimizer_params": {"lazy_update": False}},
            "words_weight with hash_rows=True: the SGD has lazy_update=False",
        ),
        ({"initializer": mx.init.Xavier()}, "words_weight with hash_rows=True: initializer is"),
        ({"kvstore": "dist_async"}, "words_weight with hash_rows=True: the kvstore is 'dist_async'"),
    ):
        module = mx.mod.Module(network(hash_rows=True))
        with pytest.raises(ArgumentError, match=text):
            module.fit(mx.io.NDArrayIter(ids(X), Y, 12), num_epoch=1, **arguments)
    module = mx.mod.Module(network(hash_rows=True), context=[mx.cpu(0), mx.cpu(1)])
    with pytest.raises(ArgumentError, match="one context"):
        module.fit(mx.io.NDArrayIter(ids(X), Y, 12), num_epoch=1)
    module, rows = trained(network(hash_rows=True), X)
    with pytest.raises(ShapeError, match="words_weight has hash_rows=True, and is given as"):
        module.set_params({**START, "words_weight": mx.nd.zeros((3, WIDTH))}, {})
    with pytest.raises(StateError, match="made for ids"):
        module._group.store.share_memory()
    with pytest.raises(ArgumentError, match="ONNX has no tables of ids"):
        module.to_onnx(str(tmp_path / "ids.onnx"))
    with pytest.raises(MXNetError, match="dense"):
        module.live_params()[0]["words_weight"].asnumpy()


def test_the_file_says_that_mxnet_cannot_read_it():
    attributes = json.loads(network(hash_rows=True).tojson())["attrs"]
    assert attributes["dpmodule_only"] == ["str", "MXNet cannot read this file: words has hash_rows=True"]
    assert "dpmodule_only" not in json.loads(network(input_dim=9).tojson())["attrs"]
    assert mx.sym.load_json(network(hash_rows=True).tojson()).list_arguments()[1] == "words_weight"
