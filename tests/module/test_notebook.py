"""What modules and histories show in notebooks."""

from xml.etree import ElementTree

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.module.history import History

SVG = "{http://www.w3.org/2000/svg}"


def parsed(shown):
    return ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")


def rows(root):
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    net = mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="bn"), num_hidden=3, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def bound(module):
    module.bind([("data", (16, 6))], [("softmax_label", (16,))])
    return module


def test_a_module_that_is_not_bound_shows_names_and_its_network():
    root = parsed(mx.mod.Module(network()))
    assert "not bound" in "".join(root[0].itertext())
    assert ["data", "data", ""] in rows(root)
    assert ["output", "softmax_output", ""] in rows(root)
    assert "fc2" in ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def test_a_bound_module_shows_shapes_and_what_is_trained():
    root = parsed(bound(mx.mod.Module(network(), fixed_param_names=["fc1_weight"])))
    found = rows(root)
    assert ["data", "data", "(16, 6)"] in found
    assert ["label", "softmax_label", "(16,)"] in found
    assert ["output", "softmax_output", "(16, 3)"] in found
    assert ["fc1_weight", "(8, 6)", "float32", "no"] in found
    assert ["fc2_weight", "(3, 8)", "float32", "yes"] in found
    assert ["bn_moving_mean", "(8,)", "float32", "state"] in found
    count = 48 + 8 + 16 + 24 + 3
    assert f"parameters: {count} ({count - 48} trained)" in "".join(root.itertext())


def test_freezing_is_seen():
    module = bound(mx.mod.Module(network()))
    module.freeze("fc2*")
    assert ["fc2_bias", "(3,)", "float32", "no"] in rows(parsed(module))
    module.unfreeze("fc2_bias")
    assert ["fc2_bias", "(3,)", "float32", "yes"] in rows(parsed(module))


def test_many_parameters_wait_for_a_click():
    net = mx.sym.Variable("data")
    for _ in range(12):
        net = mx.sym.FullyConnected(net, num_hidden=4)
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (2, 4))])
    assert [each.get("open") for each in parsed(module).iter("details")] == [None, None]
    assert [each.get("open") for each in parsed(bound(mx.mod.Module(network()))).iter("details")] == [
        "open",
        None,
    ]


def sequential():
    module = mx.mod.SequentialModule()
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="below")
    module.add(mx.mod.Module(first, label_names=None))
    return module.add(mx.mod.Module(network()), take_labels=True, auto_wiring=True)


def bucketing():
    return mx.mod.BucketingModule(
        lambda key: (network(), ("data",), ("softmax_label",)), default_bucket_key=6
    )


@pytest.mark.parametrize("make", [sequential, bucketing])
def test_other_modules_show_what_they_hold(make):
    parsed(make())
    assert ["fc2_weight", "(3, 8)", "float32", "yes"] in rows(parsed(bound(make())))


def test_a_module_of_cells_shows_its_parameters():
    parameters = dy.ParameterCollection()
    cell = dy.cell(network(), parameters, shapes={"data": (6,)})
    module = mx.mod.AutobatchModule(lambda example, label: (None, cell(example, label or 0)), parameters)
    parsed(module)
    data = mx.mod.ExampleIter([np.zeros(6, "f")] * 4, [0, 1, 2, 0], batch_size=2)
    module.fit(data, num_epoch=1)
    assert ["fc2_weight", "(3, 8)", "float32", "yes"] in rows(parsed(module))


def test_a_module_written_in_python_shows_its_ends():
    module = mx.mod.PythonLossModule(name="<loss>")
    assert ["output", "<loss>_output", ""] in rows(parsed(module))


def test_names_are_escaped():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="<img src=x>&\x00")
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (2, 4))])
    root = parsed(module)
    assert "img" not in {each.tag for each in root.iter()}
    assert ["<img src=x>&\ufffd_weight", "(2, 4)", "float32", "yes"] in rows(root)


def test_a_history_is_a_table_and_curves():
    data = mx.io.NDArrayIter(np.zeros((32, 6), "f"), np.zeros(32, "f"), 16)
    history = mx.mod.Module(network()).fit(data, eval_data=data, num_epoch=3, eval_metric=["acc", "ce"])
    root = parsed(history)
    found = rows(root)
    assert found[0][:3] == ["epoch", "batch", "time_s"]
    assert [row[0] for row in found[1:]] == ["0", "1", "2"]
    assert found[1][found[0].index("train-accuracy")] == f"{history['train-accuracy'][0]:.4g}"
    titles = ["".join(each.itertext()) for each in root.iter(f"{SVG}title")]
    assert titles == ["accuracy over epochs", "cross-entropy over epochs"]
    lines = [each for each in root.iter(f"{SVG}path") if each.get("stroke-width")]
    assert len(lines) == 4
    assert "train" in "".join(root.itertext())


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
