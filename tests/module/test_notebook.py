"""What modules and histories show in notebooks."""

from xml.etree import ElementTree

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.module.history import History
from helpers.nets import mlp
from helpers.small_fits import ready

SVG = "{http://www.w3.org/2000/svg}"
WEIGHT = ["fc2_weight", "(4, 16)", "float32", "yes"]


def parsed(shown):
    return ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")


def rows(shown):
    root = parsed(shown) if hasattr(shown, "_repr_html_") else shown
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def test_a_module_shows_names_shapes_and_what_is_trained():
    net = mx.sym.BatchNorm(mlp(), name="bn")
    module = mx.mod.Module(net, fixed_param_names=["fc1_weight"])
    root = parsed(module)
    assert "not bound" in "".join(root[0].itertext())
    assert ["data", "data", ""] in rows(root)
    assert "fc2" in ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]
    root = parsed(ready(module))
    for row in (
        ["data", "data", "(8, 6)"],
        ["label", "softmax_label", "(8,)"],
        ["output", "bn_output", "(8, 4)"],
        ["fc1_weight", "(16, 6)", "float32", "no"],
        ["bn_moving_mean", "(4,)", "float32", "state"],
        WEIGHT,
    ):
        assert row in rows(root), row
    assert "parameters: 188 (92 trained)" in "".join(root.itertext())


def test_other_modules_show_what_they_hold():
    low = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="below")
    low = mx.mod.Module(low, label_names=None)
    chain = mx.mod.SequentialModule().add(low).add(mx.mod.Module(mlp()), take_labels=True, auto_wiring=True)
    for module in (chain, mx.mod.BucketingModule(lambda key: (mlp(), ("data",), ("softmax_label",)), 6)):
        parsed(module)
        assert WEIGHT in rows(ready(module))
    collection = dy.ParameterCollection()
    cell = dy.cell(mlp(), collection, shapes={"data": (6,)})
    module = mx.mod.AutobatchModule(lambda example, label: (None, cell(example, label or 0)), collection)
    parsed(module)
    module.fit(mx.mod.ExampleIter([np.zeros(6, "f")] * 4, [0, 1, 2, 0], batch_size=2), num_epoch=1)
    assert WEIGHT in rows(module)
    assert ["output", "<loss>_output", ""] in rows(mx.mod.PythonLossModule(name="<loss>"))


def test_a_long_history_shows_its_last_rows():
    history = History()
    for epoch in range(100):
        history.add(epoch, 5, 0.1, {"train-<b>": float(epoch)})
    root = parsed(history)
    assert [row[0] for row in rows(root)[1:]] == [str(i) for i in range(80, 100)]
    assert "the last 20 of 100 rows" in "".join(root.itertext())
    assert "b" not in {each.tag for each in root.iter()}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "text", None, 3, np.float32(2), 1e308])
def test_values_of_any_kind(value):
    history = History()
    parsed(history)
    history.add(0, 5, 0.1, {"train-x": value})
    parsed(history)
    history.add(1, 5, 0.1, {"train-x": -1e308, "y": 2.0})
    root = parsed(history)
    assert len(rows(root)) == 3
    assert "nan" not in "".join(each.get("d", "") for each in root.iter())
