"""print_summary and plot_network."""

import sys
import warnings
from xml.etree import ElementTree

import pytest

import dpmodule as mx
from dpmodule.base import MissingPackageError


def network():
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, pad=(1, 1), name="conv1")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn1"), act_type="relu", name="relu1")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool1")
    net = mx.sym.Convolution(net, kernel=(3, 3), num_filter=8, num_group=4, no_bias=True, name="conv2")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net, name="flat"), num_hidden=10, no_bias=True, name="fc")
    net = mx.sym.elemwise_add(mx.sym.Activation(net, act_type="tanh", name="tanh"), net, name="plus")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def rows(text):
    return {line.split("(")[0]: line for line in text.splitlines() if "(" in line}


def test_summary_counts_parameters(capsys):
    mx.viz.print_summary(network(), shape={"data": (1, 3, 8, 8)})
    text = capsys.readouterr().out
    counts = {name: line[76:88].split()[0] for name, line in rows(text).items() if name != "Layer "}
    expected = {"conv1": 8 * 3 * 9 + 8, "bn1": 16, "conv2": 8 * 2 * 9, "fc": 320}
    zero = ("data", "relu1", "pool1", "flat", "tanh", "plus", "softmax")
    assert counts == {k: str(v) for k, v in {**expected, **dict.fromkeys(zero, 0)}.items()}
    assert f"Total params: {sum(expected.values())}" in text
    assert "8x4x4" in rows(text)["pool1"]
    plus = text.splitlines().index(rows(text)["plus"])
    assert text.splitlines()[plus].endswith("tanh")
    assert text.splitlines()[plus + 1].strip() == "fc"


def test_parameters_of_any_operator_count(capsys):
    weight, data = mx.sym.Variable("w"), mx.sym.Variable("data")
    net = mx.sym.mean(mx.sym.Embedding(data, weight, input_dim=10, output_dim=4, name="embed"), axis=1)
    net = mx.sym.dot(net, mx.sym.transpose(weight, name="turned"), name="dot")
    net = mx.sym.broadcast_add(net, mx.sym.Variable("b", shape=(1, 10)), name="plus")
    mx.viz.print_summary(mx.sym.square(net - mx.sym.Variable("my_label")), {"data": (2, 5)})
    text = capsys.readouterr().out
    counts = {name: line[76:88].split()[0] for name, line in rows(text).items() if name != "Layer "}
    assert [counts[name] for name in ("embed", "turned", "dot", "plus")] == ["40", "0", "0", "10"]
    assert "Total params: 50" in text


def test_a_label_is_not_a_layer(capsys):
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3), name="softmax")
    mx.viz.print_summary(net, {"data": (4, 3)})
    text = capsys.readouterr().out
    mx.viz.print_summary(net, {"data": (4, 3), "softmax_label": (4,)})
    assert capsys.readouterr().out == text
    assert "label" not in text


def test_summary_without_shapes_and_in_other_widths(capsys):
    mx.viz.print_summary(network())
    assert "Total params: 0" in capsys.readouterr().out
    mx.viz.print_summary(network(), {"data": (1, 3, 8, 8)}, line_length=60, positions=[20, 35, 45, 60])
    assert max(map(len, capsys.readouterr().out.splitlines())) == 60


def test_drawing_shows_layers_shapes_and_no_weights():
    dot = mx.viz.plot_network(network(), shape={"data": (1, 3, 8, 8)}, node_attrs={"fixedsize": "false"})
    assert "Convolution\n3x3/1, 8" in dot.source
    assert "Pooling\nmax, 2x2/2x2" in dot.source
    assert "relu1 -> bn1" in dot.source
    assert "label=8x8x8" in dot.source.replace('"', "")
    assert "fixedsize=false" in dot.source
    assert "conv1_weight" not in dot.source
    types = mx.viz.plot_network(network(), dtype={"data": "float32"}, hide_weights=False)
    assert "conv1_weight" in types.source
    assert "float32" in types.source


def elements(svg, name):
    root = ElementTree.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter(f"{{http://www.w3.org/2000/svg}}{name}")]


@pytest.fixture
def without_graphviz(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)


def test_drawing_without_graphviz(without_graphviz, tmp_path):
    picture = mx.viz.plot_network(network(), shape={"data": (1, 3, 8, 8)}, save_format="svg")
    words = elements(picture._repr_svg_(), "text")
    assert {"Convolution", "3x3/1, 8", "relu1", "1x8x8x8", "data"} <= set(words)
    assert "conv1_weight" not in words
    path = picture.render(tmp_path / "net")
    assert path == str(tmp_path / "net.svg")
    assert (tmp_path / "net.svg").read_text(encoding="utf-8") == picture._repr_svg_()
    shown = mx.viz.plot_network(network(), hide_weights=False)._repr_svg_()
    assert {"conv1_weight", "bn1_gamma"} <= set(elements(shown, "text"))


def test_drawing_without_graphviz_says_what_to_install(without_graphviz, tmp_path):
    with pytest.raises(MissingPackageError, match=r'render writes pdf .*pip install "dpmodule\[viz\]"'):
        mx.viz.plot_network(network()).render(tmp_path / "net")
    net = mx.sym.Variable("data")
    for _ in range(2100):
        net = mx.sym.tanh(net)
    with pytest.raises(MissingPackageError, match=r'more than 2000 nodes .*pip install "dpmodule\[viz\]"'):
        mx.viz.plot_network(net)


def test_a_notebook_shows_a_drawing_without_the_program_dot(monkeypatch):
    pytest.importorskip("graphviz")
    monkeypatch.setenv("PATH", "")
    bundle = mx.viz.plot_network(network())._repr_mimebundle_(include=None, exclude=None)
    assert "relu1" in elements(bundle["image/svg+xml"], "text")


def test_equal_names_in_a_drawing_warn():
    pytest.importorskip("graphviz")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), name="fc", num_hidden=8)
    with pytest.warns(UserWarning, match="multiple variables with the same name in your graph.*: .*fc"):
        mx.viz.plot_network(mx.sym.FullyConnected(net, name="fc", num_hidden=4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.viz.plot_network(net)
