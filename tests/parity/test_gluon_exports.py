"""Networks that Gluon of MXNet 1.9.1 exported, in the classic style and under ``npx.set_np()``, against its results.

`tests/data/gluon_exports/record.py` describes the archive.
"""

import io
import json
import tarfile
from functools import cache
from inspect import signature
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import dpmodule as mx
from dpmodule.base import StateError
from helpers.walk import walks

DATA = Path(__file__).parents[1] / "data" / "gluon_exports"
RATE = 0.5
FEWER = ["ssd_training"]
"""Networks with outputs that are computed from labels, which an ONNX model does not have."""


@cache
def files():
    """Return the content of the archive's files by their names."""
    with tarfile.open(DATA / "exports.tar.xz") as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def sample(values):
    """Return what the recording stores of large arrays."""
    flat = np.asarray(values, "f8").ravel()
    return np.append(
        np.linalg.norm(flat), flat[np.linspace(0, flat.size - 1, min(24, flat.size)).astype(int)]
    )


EXPORTS = sorted(tuple(name[:-4].split("/")) for name in files() if name.endswith(".npz"))


class Export:
    """A network with its parameters, and what MXNet computed.

    Attributes:
        symbol: the network.
        args, aux: parameters and states.
        inputs: values by name.
        found: the recorded arrays.
    """

    def __init__(self, style, name):
        stem = f"{style}/{name}"
        self.symbol = mx.sym.load_json(files()[f"{stem}-symbol.json"].decode())
        params = dict(mx.nd.load_frombuffer(files()[f"{stem}-0000.params"]) or {})
        self.args, self.aux = (
            {k[4:]: v for k, v in params.items() if k[:4] == kind} for kind in ("arg:", "aux:")
        )
        self.found = dict(np.load(io.BytesIO(files()[f"{stem}.npz"])))
        count = sum(key.startswith("data") and key[4:].isdigit() for key in self.found)
        names = [f"data{i}" for i in range(count)] if count > 1 else ["data"]
        values = {name: self.found[f"data{i}"] for i, name in enumerate(names)}
        self.inputs = {name: values[name] for name in values if name in self.symbol.list_arguments()}
        self.operators = {node["op"] for node in json.loads(self.symbol.tojson())["nodes"]}
        self.is_random = name == "dropout"

    def recorded(self, what):
        return [self.found[f"{what}{i}"] for i in range(len(self.symbol.list_outputs()))]

    def batch(self):
        return mx.io.DataBatch([mx.nd.array(each, dtype=each.dtype) for each in self.inputs.values()])

    def module(self, train=False):
        module = mx.mod.Module(self.symbol, list(self.inputs), None)
        has_batch = len({len(each) for each in self.inputs.values()}) == 1 and "RNN" not in self.operators
        layout = "NC" if has_batch else "C"
        described = [
            mx.io.DataDesc(name, each.shape, each.dtype, layout) for name, each in self.inputs.items()
        ]
        module.bind(described, for_training=train, inputs_need_grad=train)
        module.set_params(self.args, self.aux)
        return module


def assert_close(found, expected, tolerance=1e-4, what=""):
    assert found.shape == expected.shape, what
    most = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * most, err_msg=what)


def family(style, name):
    return style


@walks(EXPORTS, family=family)
def test_predictions(style, name):
    export = Export(style, name)
    module = export.module()
    module.forward(export.batch(), is_train=False)
    for found, expected in zip(module.get_outputs(), export.recorded("output"), strict=True):
        assert_close(found.asnumpy(), expected)


@walks(EXPORTS, family=family)
def test_training_steps(style, name):
    export = Export(style, name)
    module = export.module(train=True)
    module.init_optimizer(None, "sgd", {"learning_rate": RATE, "rescale_grad": 1.0, "wd": 0.0})
    module.forward(export.batch(), is_train=True)
    outputs = [each.asnumpy() for each in module.get_outputs()]
    module.backward([mx.nd.array(each, dtype=each.dtype) for each in export.recorded("head")])
    module.update()
    if export.is_random:
        assert 0 < (outputs[0] == 0).sum() < outputs[0].size
        return
    for found, expected in zip(outputs, export.recorded("trained"), strict=True):
        assert_close(found, expected)
    gradients = dict(zip(export.inputs, module.get_input_grads(), strict=True))
    for i, name in enumerate(export.inputs):
        if f"data_grad{i}" in export.found:
            assert_close(sample(gradients[name].asnumpy()), export.found[f"data_grad{i}"], 1e-3, name)
    args, aux = module.get_params()
    for key, value in args.items():
        if f"grad:{key}" in export.found:
            step = (export.args[key].asnumpy().astype("f8") - value.asnumpy()) / RATE
            assert_close(sample(step), export.found[f"grad:{key}"], 1e-3, key)
    for key, value in aux.items():
        if f"aux:{key}" in export.found:
            assert_close(sample(value.asnumpy()), export.found[f"aux:{key}"], 1e-4, key)


def outputs_of(network, inputs):
    """Return what a torch module makes of values in the order of its inputs."""
    with torch.no_grad():
        found = network(*inputs)
    return list(found) if isinstance(found, (tuple, list)) else [found]


def in_torch(export):
    """Return the network as a torch module, and its inputs."""
    network = export.module().to_torch().eval()
    return network, tuple(
        torch.from_numpy(export.inputs[name]) for name in signature(network.forward).parameters
    )


@walks(EXPORTS, family=family)
def test_torch(style, name):
    export = Export(style, name)
    for found, expected in zip(outputs_of(*in_torch(export)), export.recorded("output"), strict=True):
        assert_close(found.numpy(), expected)


@walks(EXPORTS, family=family)
def test_onnx(style, name, tmp_path):
    export = Export(style, name)
    path = tmp_path / f"{style}-{name}.onnx"
    export.module().to_onnx(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = [each.name for each in session.get_inputs()]
    found = session.run(None, {name: value for name, value in export.inputs.items() if name in wanted})
    names = [each.name for each in session.get_outputs()]
    expected = dict(zip(export.symbol.list_outputs(), export.recorded("output"), strict=True))
    assert name in FEWER or names == list(expected)
    for one, values in zip(names, found, strict=True):
        assert_close(values, expected[one], what=one)


WITHOUT_PT2 = ["cond", "while_loop"]
"""Networks that choose by their data what to run, which `torch.export` cannot record."""


def check_pt2(style, name):
    export = Export(style, name)
    network, inputs = in_torch(export)
    if name in WITHOUT_PT2:
        with pytest.raises(StateError, match=f"_{name} chooses by its data"):
            torch.export.export(network, inputs)
        return
    file = io.BytesIO()
    torch.export.save(torch.export.export(network, inputs), file)
    loaded = torch.export.load(io.BytesIO(file.getvalue())).module()
    for found, expected in zip(outputs_of(loaded, inputs), export.recorded("output"), strict=True):
        assert_close(found.numpy(), expected)


@pytest.mark.slow
@walks(EXPORTS, family=family)
def test_pt2(style, name):
    check_pt2(style, name)


@walks(
    [each for each in EXPORTS if each[1] in ("bert", "resnet_v2", "d2l_bert", "masked_attention_np", "cond")]
)
def test_some_as_pt2(style, name):
    check_pt2(style, name)


def test_enough_networks():
    """There are as many as the pages say."""
    assert len({name for _, name in EXPORTS}) >= 60


def test_files_of_version_2(tmp_path):
    """Names have dots, the parameters are an archive, and the graph has names of MXNet 2.0."""
    rng = np.random.RandomState(0)
    data, weight, bias = (rng.uniform(-1, 1, shape).astype("f4") for shape in ((2, 4), (3, 4), (3,)))
    nodes = [
        {"op": "null", "name": name, "inputs": []}
        for name in ("data", "features.0.weight", "features.0.bias")
    ]
    dense = {"num_hidden": "3", "no_bias": "False", "flatten": "True"}
    inputs = [[0, 0, 0], [1, 0, 0], [2, 0, 0]]
    nodes += [
        {"op": "FullyConnected", "name": "features.0_fwd", "attrs": dense, "inputs": inputs},
        {"op": "_npx_relu", "name": "relu0", "inputs": [[3, 0, 0]]},
        {"op": "_npi_sum", "name": "sum0", "attrs": {"axis": "(1,)"}, "inputs": [[4, 0, 0]]},
    ]
    about = {"mxnet_version": ["int", 20000]}
    text = json.dumps({"nodes": nodes, "arg_nodes": [0, 1, 2], "heads": [[5, 0, 0]], "attrs": about})
    (tmp_path / "net-symbol.json").write_text(text)
    with open(tmp_path / "net-0000.params", "wb") as file:
        np.savez(file, **{"arg:features.0.weight": weight, "arg:features.0.bias": bias})
    module = mx.mod.Module.load(str(tmp_path / "net"), 0, label_names=None)
    module.bind([("data", data.shape)], for_training=False)
    expected = np.maximum(data @ weight.T + bias, 0).sum(1)
    np.testing.assert_allclose(module.predict(data).asnumpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(module.to_torch()(torch.from_numpy(data)).detach(), expected, rtol=1e-5)
    module.save_checkpoint(str(tmp_path / "again"), 1)
    args = mx.model.load_checkpoint(str(tmp_path / "again"), 1)[1]
    assert sorted(args) == ["features.0.bias", "features.0.weight"]
