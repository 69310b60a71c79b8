"""Inputs and labels of equal shape, which come in another order than the module is bound to."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import autobatch as dy
from dpmodule.base import ArgumentError, StateError
from dpmodule.module import DataParallelExecutorGroup

ROWS, SIZE = 8, 3
X = {
    name: np.random.RandomState(i).rand(ROWS, SIZE).astype("f")
    for i, name in enumerate(("ids", "extra", "mask"))
}
Y = {"one": np.zeros((ROWS, SIZE), "f"), "two": np.full((ROWS, SIZE), 8.0, "f")}
BOUND = {
    "data": [(name, (4, SIZE)) for name in ("mask", "ids", "extra")],
    "label": [("two", (4, SIZE)), ("one", (4, SIZE))],
}
EXPECTED = 10 * X["ids"] + X["mask"] * X["extra"] ** 2


class Net(torch.nn.Module):
    def forward(self, mask, ids, extra):
        return 10 * ids + mask * extra**2


def net():
    ids, mask, extra = map(mx.sym.Variable, ("ids", "mask", "extra"))
    return 10 * ids + mask * extra**2


def losses():
    out = mx.sym.broadcast_mul(net(), mx.sym.Variable("weight", shape=(1, SIZE)))
    return mx.sym.Group(
        [
            mx.sym.LinearRegressionOutput(out, mx.sym.Variable(name), name=f"of_{name}")
            for name in ("two", "one")
        ]
    )


def arrays(labels=False, batch_size=4):
    return mx.io.NDArrayIter(X, Y if labels else None, batch_size)


def bound(symbol, for_training=False, **options):
    mod = mx.mod.Module(symbol, list(X), list(Y) if for_training else None, **options)
    mod.bind(BOUND["data"], BOUND["label"] if for_training else None, for_training)
    mod.init_params(mx.init.One())
    return mod


def onnx_module(folder):
    path = bound(net()).to_onnx(str(folder / "net.onnx"))
    return mx.mod.Module.from_onnx(path)


def bucketing(*_):
    mod = mx.mod.BucketingModule(lambda key: (net(), list(X), None), 4)
    mod.bind(BOUND["data"], None, for_training=False)
    mod.init_params()
    return mod


def chain(*_):
    mod = mx.mod.SequentialModule().add(mx.mod.Module(net(), list(X), None))
    mod.bind(BOUND["data"], None, for_training=False)
    mod.init_params()
    return mod


def autobatch(*_):
    params = dy.ParameterCollection()
    params.add_parameters((1,))

    def function(extra, ids, mask):
        return dy.inputVector(10 * ids + mask * extra**2)

    mod = mx.mod.AutobatchModule(function, params, data_names=["extra", "ids", "mask"], label_names=None)
    mod.bind(BOUND["data"], None, for_training=False)
    mod.init_params()
    return mod


MODULES = {
    "by hand": lambda _: bound(net()),
    "two contexts": lambda _: bound(net(), context=[mx.cpu(0), mx.cpu(1)]),
    "from_torch": lambda _: mx.mod.Module.from_torch(Net(), *[torch.zeros(4, SIZE)] * 3),
    "from_onnx": onnx_module,
    "SequentialModule": chain,
    "AutobatchModule": autobatch,
}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("batch_size", [4, 3])
def test_predict_matches_by_name(kind, batch_size, tmp_path):
    mod = MODULES[kind](tmp_path)
    data = arrays(batch_size=batch_size)
    for reader in (data, mx.io.PrefetchingIter(arrays(batch_size=batch_size))):
        np.testing.assert_allclose(mod.predict(reader).asnumpy(), EXPECTED, rtol=1e-5)
    names = [desc.name for desc in data.provide_data]
    for outputs, number, batch in mod.iter_predict(arrays(batch_size=4)) if kind != "AutobatchModule" else ():
        rows = slice(4 * number, 4 * number + 4)
        np.testing.assert_allclose(outputs[0].asnumpy(), EXPECTED[rows], rtol=1e-5)
        for name, array in zip(names, batch.data):  # the batch is the iterator's
            np.testing.assert_array_equal(array.asnumpy(), X[name][rows])
    # a batch that does not name its arrays goes by position, as in MXNet
    in_bound_order = [mx.nd.array(X[desc[0]]) for desc in mod.data_shapes]
    mod.forward(mx.io.DataBatch(in_bound_order), is_train=False)
    np.testing.assert_allclose(mod.get_outputs()[0].asnumpy(), EXPECTED, rtol=1e-5)


def test_buckets_match_by_name():
    mod = bucketing()
    for key, order in (
        (4, "ids mask extra"),
        (2, "extra mask ids"),
        (4, "extra ids mask"),
        (2, "ids extra mask"),
    ):
        names = order.split()
        descs = [mx.io.DataDesc(name, (key, SIZE)) for name in names]
        batch = mx.io.DataBatch(
            [mx.nd.array(X[name][:key]) for name in names], bucket_key=key, provide_data=descs
        )
        mod.forward(batch)
        np.testing.assert_allclose(mod.get_outputs()[0].asnumpy(), EXPECTED[:key], rtol=1e-5)


def read(data):
    return {name: array.asnumpy() for name, array in data[0].items()}


@pytest.mark.parametrize("contexts", [1, 2])
def test_fit_and_score_match_inputs_and_labels_by_name(contexts):
    options = {"context": [mx.cpu(i) for i in range(contexts)]}
    metrics, params = [], []
    for order in ("other", "bound"):
        mod, data = bound(losses(), True, **options), arrays(True)
        if order == "bound":
            data = mx.io.NDArrayIter(
                [X[name] for name, _ in BOUND["data"]], [Y[name] for name, _ in BOUND["label"]], 4
            )
        metric = mx.metric.MAE()
        mod.fit(data, num_epoch=2, eval_metric=metric, optimizer_params={"learning_rate": 1e-4}, accumulate=2)
        metrics.append([metric.get(), mod.score(data, "mse")])
        params.append(read(mod.get_params()))
    assert metrics[0] == metrics[1]
    np.testing.assert_array_equal(params[0]["weight"], params[1]["weight"])


def test_a_group_bound_by_hand_matches_batches_that_name_their_arrays():
    group = DataParallelExecutorGroup(
        losses(), [mx.cpu()], None, BOUND["data"], BOUND["label"], ["weight"], False, False, None
    )
    group.set_params({"weight": mx.nd.ones((1, SIZE))}, {})
    metric = mx.metric.CustomMetric(lambda label, out: float(label.mean()), "label")
    batch = next(mx.io.PrefetchingIter(arrays(True)))
    group.forward(batch, is_train=False)
    np.testing.assert_allclose(group.get_outputs()[0].asnumpy(), EXPECTED[:4], rtol=1e-5)
    shown = []
    metric.update_dict = lambda labels, outputs: shown.append(
        {n: float(a.asnumpy()[0, 0]) for n, a in labels.items()}
    )
    group.update_metric(metric, batch.label)
    assert shown == [{"two": 8.0, "one": 0.0}]


def test_what_cannot_be_matched_is_refused():
    mod = bound(net())
    wrong = mx.io.NDArrayIter({"extra": X["ids"], "ids": X["ids"], "other": X["ids"]}, batch_size=4)
    message = "bound to data mask, ids, extra, but the batch has extra, ids, other"
    with pytest.raises(ArgumentError, match=message):
        mod.predict(wrong)
    with pytest.raises(ArgumentError, match=message):
        mod.forward(mx.io.DataBatch(next(wrong).data, provide_data=wrong.provide_data))
    # names that the module does not know go by position, as in MXNet
    unnamed = mx.io.NDArrayIter([X[name] for name, _ in BOUND["data"]], batch_size=4)
    np.testing.assert_allclose(mod.predict(unnamed).asnumpy(), EXPECTED, rtol=1e-5)

    class Positional(mx.mod.PythonModule):
        def _compute_output_shapes(self):
            return []

    python = Positional(["mask", "ids", "extra"], None, [])
    python.bind(BOUND["data"], None)
    python.init_params()
    with pytest.raises(
        ArgumentError, match="Positional is bound to mask, ids, extra, but NDArrayIter gives extra, ids"
    ):
        python.predict(arrays())
    inner = bound(losses(), True)
    mod = mx.mod.SequentialModule().add(inner, take_labels=True)
    with pytest.raises(
        StateError, match=r"labels in another order than one \(4, 3\), two .*force_rebind=True"
    ):
        mod.bind(BOUND["data"], BOUND["label"][::-1])
