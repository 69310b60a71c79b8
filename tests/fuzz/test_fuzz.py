"""Damaged and hostile files are read or refused with a typed error: no crash, no hang, no flood, nothing runs."""

import builtins
import json
import os
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule import fluid
from dpmodule.agents import create_agent
from dpmodule.base import ArgumentError, FileError, MXNetError
from dpmodule.cli import archives, data, models
from dpmodule.cli.__main__ import main
from dpmodule.hogwild import data_files
from helpers.programs import run_file

HERE = Path(__file__).parent
KINDS = (
    "symbol.json",
    "params",
    "npz",
    "safetensors",
    "tables",
    "part",
    "states",
    "rec",
    "idx",
    "csv",
    "libsvm",
    "mnist",
    "onnx",
    "archive",
)


LONG = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [400, pytest.param(100_000, marks=LONG)])
def test_damaged_files(kind, count, tmp_path):
    done = run_file(HERE / "campaign.py", kind, count, 1, seconds=100 + count / 30, cwd=tmp_path)
    assert done.returncode == 0, f"{kind}: died on {tmp_path / 'last'}\n{done.stderr[-3000:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["findings"] == [], found
    assert found["read"] + found["refused"] == count
    assert found["read"], "nothing got through: the seeds are not valid"
    assert found["refused"], "nothing was refused: the damage does not reach the reader"


# --- hostile names: code, markup, commands or paths, if somebody wrote them somewhere unescaped

OPENINGS = (
    "", '"', "'", '"""', "\\", "\n", "\r\n", "\0", "w)", "w]", "w;", "w\n    ", 'w")', "w'):", "`", "$(", "w|",
    "\x1b[2J", '"/><script>', "</title><script>", "]]>", "-->", "../", "/", "lambda.",
)  # fmt: skip
BODIES = "ran()", '__import__("builtins").ran()', 'training"), ran(), ("', "x=ran(), y", "ran(); touch ran #"
BODIES += "%s\u2028ran()", "x:y:n]; node [label=ran", "<b onclick='ran()'>ran()</b>"
NAMES = [opening + body for opening in OPENINGS for body in BODIES]

INPUT = np.array([[1, 2]], np.float32)


def network(names):
    """Return a network with parameters and operators of these names, and its parameters."""
    net, values = mx.sym.Variable("data"), {}
    for number, name in enumerate(names):
        net = mx.sym.broadcast_add(net, mx.sym.Variable(name, shape=(2,)), name=f"{name}+")
        values[name] = mx.nd.array([number, 1])
    return net, values


def single(name):
    return network([name])


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Return what tells whether the code in hostile names ran; the test runs in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    calls = []
    monkeypatch.setattr(builtins, "ran", lambda *args: calls.append(args), raising=False)
    yield lambda: calls or os.path.exists("ran")
    assert not calls
    assert not any(os.path.exists(name) for name in ("ran", "../ran()"))


def in_checkpoint(net, values, format="params"):
    mx.model.save_checkpoint("net", 0, net, values, {}, format=format)
    return mx.model.load_checkpoint("net", 0)[:2]


def in_onnx(net, values):
    mx.onnx.export_model(net, values, [INPUT.shape], np.float32, "net.onnx")
    return mx.onnx.import_model("net.onnx")[:2]


def in_folder(net, values):
    mx.interop.save_pretrained("folder", net, values, {}, [("data", INPUT.shape)])
    found = mx.interop.load_pretrained("folder")
    card = Path("folder", "README.md").read_text()
    assert not re.search(r"^\s*(ran|<|\[)", card, re.MULTILINE)
    return found.symbol, found.arg_params


FORMATS = {
    "json": lambda net, values: (mx.sym.load_json(net.tojson()), values), "params": in_checkpoint,
    "safetensors": lambda net, values: in_checkpoint(net, values, "safetensors"), "onnx": in_onnx,
    "folder": in_folder,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_names_are_kept_and_do_not_run_in_files(form, ran):
    assert len(set(NAMES)) == 200
    net, values = FORMATS[form](*network(NAMES))
    assert set(values) == set(NAMES)
    found = net.bind(mx.cpu(), {"data": mx.nd.array(INPUT), **values}).forward()[0].asnumpy()
    np.testing.assert_array_equal(found, INPUT + [[sum(range(200)), 200]])


def test_names_in_files_of_dynet(ran):
    source, target, kept = dy.ParameterCollection(), dy.ParameterCollection(), []
    for number, name in enumerate(NAMES):
        try:
            init = dy.NumpyInitializer(np.array([number, 1.0]))
            kept.append((number, source.add_parameters((2,), name=name, init=init)))
        except ArgumentError:
            assert set("/\n_") & set(name)
    source.save("dynet.model")
    copies = [target.add_parameters((2,)) for _ in kept]
    target.populate("dynet.model")
    dy.save("dynet", [parameter for _, parameter in kept])
    loaded = dy.load("dynet", dy.ParameterCollection())
    for (number, _), copy, again in zip(kept, copies, loaded, strict=True):
        assert copy.as_array().tolist() == again.as_array().tolist() == [number, 1]


def test_names_in_a_folder_of_fluid(ran):
    program, startup, executor = fluid.Program(), fluid.Program(), fluid.Executor()
    with fluid.program_guard(program, startup):
        data, layers = fluid.layers.data(NAMES[0], [2]), []
        for name in NAMES[1:]:
            weight = fluid.ParamAttr(name=name, initializer=fluid.initializer.Constant(2.0))
            layers.append(fluid.layers.fc(data, 1, param_attr=weight, bias_attr=False, name=f"{name}fc"))
        out = fluid.layers.sum(layers)
    executor.run(startup)
    fluid.io.save_inference_model("fluid", NAMES[:1], [out], executor, program)
    again, feeds, targets = fluid.io.load_inference_model("fluid", executor)
    assert executor.run(again, {feeds[0]: INPUT}, targets)[0].tolist() == [[6 * 199]]
    assert sorted(os.listdir("fluid")) == ["model-0000.params", "model-symbol.json"]


def drawn_as_svg(net):
    root = ET.fromstring(net._repr_svg_())
    tags = {each.tag.rpartition("}")[2] for each in root.iter()}
    assert tags <= {"svg", "g", "title", "rect", "text", "path"}
    assert not any(key.startswith("on") for each in root.iter() for key in each.attrib)


def drawn_as_dot(net):
    text = mx.viz.plot_network(net, hide_weights=False, shape={"data": INPUT.shape}).source
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "NAME", text, flags=re.DOTALL)
    assert "ran" not in bare
    assert "script" not in bare
    assert (bare.count(" [label="), bare.count("->")) == (5, 2), text  # three nodes, two edges


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found |= {tag, *(key for key, _ in attrs)}


def drawn_as_html(net, values):
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", INPUT.shape)], for_training=False)
    module.init_params(arg_params=values)
    found = Tags(module._repr_html_()).found
    assert "svg" in found
    assert not found & {"script", "b", "a", "img", "onclick", "href"}


def in_torch(net, values):
    module = net.to_torch(values)
    found = module(torch.tensor(INPUT)).detach().numpy()
    np.testing.assert_array_equal(found, INPUT + [[0, 1]])
    assert list(module.state_dict()) == list(values)


def as_options(name):
    Path("agent.opt").write_text(json.dumps({"model": name, name: name}))
    create_agent({"model_file": "agent"})


def as_attribute(name):
    inputs = [[0, 0, 0], [0, 0, 0]]
    node = {"op": "FullyConnected", "name": "fc", "attrs": {"num_hidden": name}, "inputs": inputs}
    rows = [{"op": "null", "name": "data", "attrs": {name: name, "__shape__": name}, "inputs": []}]
    mx.sym.load_json(json.dumps({"nodes": rows, "heads": [[0, 0, 0]]})).attr_dict()
    mx.sym.load_json(json.dumps({"nodes": [*rows, node], "heads": [[1, 0, 0]]}))


def as_custom_attribute(name):
    row = {"op": "Custom", "name": "o", "attrs": {"op_type": "hostile", name: name}, "inputs": [[0, 0, 0]]}
    graph = {"nodes": [{"op": "null", "name": "data", "inputs": []}, row], "heads": [[1, 0, 0]]}
    mx.sym.load_json(json.dumps(graph)).to_torch({})(torch.ones(1))


@mx.operator.register("hostile")
class AnyAttributes(mx.operator.CustomOpProp):
    def __init__(self, **attributes):
        super().__init__()


USES = {
    "svg": (lambda name: drawn_as_svg(single(name)[0]), 0), "html": (lambda name: drawn_as_html(*single(name)), 0),
    "dot": (lambda name: drawn_as_dot(single(name)[0]), 0), "torch": (lambda name: in_torch(*single(name)), 156),
    "options": (as_options, 200), "attribute": (as_attribute, 200), "custom": (as_custom_attribute, 200),
}  # fmt: skip
"""What is done with one name, and how many of the names it refuses."""


@pytest.mark.parametrize("use", USES)
def test_names_are_escaped_or_refused_wherever_they_go(use, ran):
    call, most = USES[use]
    refused = []
    for name in NAMES:
        try:
            call(name)
        except MXNetError as error:
            str(error).encode()
            refused.append(name)
        assert not ran(), name
    assert len(refused) == most, refused
    harmless = ("conv1/weight:0", "a.b", "a b", "1", "gewicht_\u00fc", "\u6743\u91cd", "_x")
    for name in harmless if most < 200 else ():
        call(name)


def test_inputs_of_any_name_are_parameters_of_forward(ran):
    words = ["torch", "getattr", "device", "fx_pytree", "dpmodule_ops_fx_FullyConnected", "self", "lambda"]
    weight = mx.sym.Variable("a-b", shape=(2, 2))
    attrs, params = {"num_hidden": 2, "no_bias": True}, {"a-b": mx.nd.array([[1, 0], [0, 2]])}
    layers = [mx.sym.FullyConnected(mx.sym.Variable(word), weight, **attrs) for word in words]
    module = mx.sym.add_n(*layers, *map(mx.sym.Variable, NAMES)).to_torch(params)
    inputs = [torch.full((1, 2), float(i)) for i in range(len(words) + len(NAMES))]
    first, rest = sum(range(len(words))), sum(range(len(words), len(inputs)))
    assert module(*inputs).tolist() == [[first + rest, 2 * first + rest]]
    few = mx.sym.add_n(*layers).to_torch(params).eval()
    program = torch.export.export(few, tuple(inputs[: len(words)]))
    assert program.module()(*inputs[: len(words)]).tolist() == [[first, 2 * first]]


def test_the_command_line_neither_runs_names_nor_prints_what_steers_a_terminal(ran, capsys):
    net, values = network(NAMES)
    mx.onnx.export_model(net, values, [INPUT.shape], np.float32, "evil.onnx")
    shape = ("--shape", "data=1,2")
    assert main(["convert", "evil.onnx", "evil.pt2", *shape]) == 2
    assert "cannot be written in the module's source" in capsys.readouterr().err
    accepted = [name for name in NAMES if name.isprintable() and not set("'\"\\") & set(name)]
    accepted = [name for name in accepted if not name.startswith("lambda") and "." not in name][::6]
    mx.model.save_checkpoint("net", 0, *network(accepted), {})
    commands = "convert net net.pt2; convert evil.onnx copy; check copy; summary copy; explain copy --source"
    for words in commands.split("; "):
        assert main([*words.split(), *shape]) == 0, words
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f]", capsys.readouterr().out)


# --- pipes and devices


def renamed(path, name):
    os.rename(path, name)
    return name


READERS = {
    "onnx": mx.onnx.import_model, "symbol": mx.sym.load, "params": mx.nd.load,
    "safetensors": mx.nd.safetensors.read_metadata,
    "states": lambda path: mx.optimizer.get_updater(mx.optimizer.create("sgd")).load_states(path),
    "torch": mx.interop.load_torch_state, "rec": lambda path: mx.recordio.MXRecordIO(path, "r"),
    "mnist": lambda path: mx.io.MNISTIter(image=path, label=path),
    "list of images": lambda path: mx.image.ImageIter(1, (3, 2, 2), path_imglist=path, path_root="."),
    "feed": mx.hogwild.DataFeedDesc, "dynet": lambda path: dy.ParameterCollection().populate(path),
    "dynet values": lambda path: dy.FromFileInitializer(path).fill(torch.zeros(2), None),
    "fluid": lambda path: (renamed(path, "model-symbol.json"), fluid.io.load_inference_model(".")),
    "folder": lambda path: (renamed(path, "config.json"), mx.interop.load_pretrained(".")), "convert": models.find,
    "archive": lambda path: archives.unpack(path, "."),
    "npz": lambda path: data.read_npz(path, None),
}  # fmt: skip
DATA = {
    "csv": lambda path: mx.io.CSVIter(data_csv=path, data_shape=(2,), batch_size=1),
    "libsvm": lambda path: mx.io.LibSVMIter(data_libsvm=path, data_shape=(2,), batch_size=1),
    "files of a feed": lambda path: data_files.check_files([path]),
    "table": lambda path: data.read_csv(path, None, None),
}
"""Readers of data, which may come from a pipe, but not from a device."""


@pytest.mark.timeout(10)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.parametrize("name", [*READERS, *DATA])
def test_pipes_and_devices_are_not_waited_for(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("/dev/zero", "device")
    with pytest.raises(FileError, match="this is a device, expected a (regular )?file"):
        (READERS | DATA)[name]("device")
    if name in READERS:
        os.mkfifo("pipe")
        with pytest.raises(FileError, match="this is a named pipe, expected a regular file"):
            READERS[name]("pipe")


def test_an_absurd_shape_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc").save("net-symbol.json")
    assert main(["check", "net-symbol.json", "--shape", "data=99999,99999999"]) == 2
    assert "try smaller numbers" in capsys.readouterr().err
