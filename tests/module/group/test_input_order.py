"""Inputs and labels of equal shape, which come in another order than the module is bound to."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import autobatch as dy
from dpmodule.base import ArgumentError, StateError
from helpers.small_fits import TWO, parameters, ready

ROWS, SIZE = 8, 3
NAMES = ["ids", "extra", "mask"]
X = {name: np.random.RandomState(i).rand(ROWS, SIZE).astype("f") for i, name in enumerate(NAMES)}
Y = {"one": np.zeros((ROWS, SIZE), "f"), "two": np.full((ROWS, SIZE), 8.0, "f")}
DATA, LABEL = ([(name, (4, SIZE)) for name in names] for names in (("mask", "ids", "extra"), ("two", "one")))
EXPECTED = 10 * X["ids"] + X["mask"] * X["extra"] ** 2


class Net(torch.nn.Module):
    def forward(self, mask, ids, extra):
        return 10 * ids + mask * extra**2


def net():
    ids, mask, extra = map(mx.sym.Variable, ("ids", "mask", "extra"))
    return 10 * ids + mask * extra**2


def losses():
    out = mx.sym.broadcast_mul(net(), mx.sym.Variable("weight", shape=(1, SIZE)))
    labels = [mx.sym.Variable(name) for name in ("two", "one")]
    return mx.sym.Group([mx.sym.LinearRegressionOutput(out, each, name=f"of_{each.name}") for each in labels])


def arrays(labels=False, batch_size=4):
    return mx.io.NDArrayIter(X, Y if labels else None, batch_size)


def bound(module):
    return ready(module, shapes=[DATA], init=None, for_training=False)


def plain(**options):
    return mx.mod.Module(net(), list(X), None, **options)


def autobatch():
    params = dy.ParameterCollection()
    params.add_parameters((1,))

    def function(extra, ids, mask):
        return dy.inputVector(10 * ids + mask * extra**2)

    return mx.mod.AutobatchModule(function, params, data_names=["extra", "ids", "mask"], label_names=None)


MODULES = {
    "by hand": lambda _: bound(plain()),
    "two contexts": lambda _: bound(plain(context=TWO)),
    "from_torch": lambda _: mx.mod.Module.from_torch(Net(), *[torch.zeros(4, SIZE)] * 3),
    "from_onnx": lambda folder: mx.mod.Module.from_onnx(bound(plain()).to_onnx(str(folder / "net.onnx"))),
    "SequentialModule": lambda _: bound(mx.mod.SequentialModule().add(plain())),
    "AutobatchModule": lambda _: bound(autobatch()),
}


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("batch_size", [4, 3])
def test_predict_matches_by_name(kind, batch_size, tmp_path):
    mod, data = MODULES[kind](tmp_path), arrays(batch_size=batch_size)
    for reader in (data, mx.io.PrefetchingIter(arrays(batch_size=batch_size))):
        np.testing.assert_allclose(mod.predict(reader).asnumpy(), EXPECTED, rtol=1e-5)
    for outputs, number, batch in mod.iter_predict(arrays(batch_size=4)) if kind != "AutobatchModule" else ():
        rows = slice(4 * number, 4 * number + 4)
        np.testing.assert_allclose(outputs[0].asnumpy(), EXPECTED[rows], rtol=1e-5)
        for desc, array in zip(data.provide_data, batch.data):  # the batch is the iterator's
            np.testing.assert_array_equal(array.asnumpy(), X[desc.name][rows])
    # a batch that does not name its arrays goes by position, as in MXNet
    in_bound_order = [mx.nd.array(X[desc[0]]) for desc in mod.data_shapes]
    mod.forward(mx.io.DataBatch(in_bound_order), is_train=False)
    np.testing.assert_allclose(mod.get_outputs()[0].asnumpy(), EXPECTED, rtol=1e-5)


@pytest.mark.parametrize("contexts", [1, 2])
def test_fit_and_score_match_inputs_and_labels_by_name(contexts):
    in_order = [X[name] for name, _ in DATA], [Y[name] for name, _ in LABEL]
    found = []
    for data in (arrays(True), mx.io.NDArrayIter(*in_order, 4)):
        mod = mx.mod.Module(losses(), list(X), list(Y), context=[mx.cpu(i) for i in range(contexts)])
        ready(mod, shapes=(DATA, LABEL), init="ones")
        metric = mx.metric.MAE()
        mod.fit(data, num_epoch=2, eval_metric=metric, optimizer_params={"learning_rate": 1e-4}, accumulate=2)
        found.append([metric.get(), mod.score(data, "mse"), parameters(mod)["weight"].tolist()])
    assert found[0] == found[1]


def test_what_cannot_be_matched_is_refused():
    mod = bound(plain())
    wrong = mx.io.NDArrayIter({"extra": X["ids"], "ids": X["ids"], "other": X["ids"]}, batch_size=4)
    message = "bound to data mask, ids, extra, but the batch has extra, ids, other"
    with pytest.raises(ArgumentError, match=message):
        mod.predict(wrong)
    with pytest.raises(ArgumentError, match=message):
        mod.forward(mx.io.DataBatch(next(wrong).data, provide_data=wrong.provide_data))
    # names that the module does not know go by position, as in MXNet
    unnamed = mx.io.NDArrayIter([X[name] for name, _ in DATA], batch_size=4)
    np.testing.assert_allclose(mod.predict(unnamed).asnumpy(), EXPECTED, rtol=1e-5)

    class Positional(mx.mod.PythonModule):
        def _compute_output_shapes(self):
            return []

    python = bound(Positional(["mask", "ids", "extra"], None, []))
    words = "Positional is bound to mask, ids, extra, but NDArrayIter gives extra, ids"
    with pytest.raises(ArgumentError, match=words):
        python.predict(arrays())
    inner = ready(mx.mod.Module(losses(), list(X), list(Y)), shapes=(DATA, LABEL), init="ones")
    mod = mx.mod.SequentialModule().add(inner, take_labels=True)
    words = r"labels in another order than one \(4, 3\), two .*force_rebind=True"
    with pytest.raises(StateError, match=words):
        mod.bind(DATA, LABEL[::-1])
