"""Published models: loaded from their authors' files, run and trained as by MXNet 1.9.1."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx

FOLDER = Path(__file__).parents[1] / "data" / "checkpoints"
MODELS = sorted(p.name for p in FOLDER.iterdir() if list(p.glob("*-symbol.json")))


class Published:
    """A published model with what MXNet gave for it."""

    def __init__(self, name):
        folder = FOLDER / name
        self.files = next(folder.glob("*.params"))
        self.prefix, epoch = str(self.files)[: -len(".params")].rsplit("-", 1)
        self.epoch = int(epoch)
        self.about = json.loads((folder / "golden.json").read_text())
        with np.load(folder / "golden.npz") as found:
            self.golden = dict(found)
        self.inputs = {k[6:]: v for k, v in self.golden.items() if k.startswith("input/")}

    def module(self):
        labels = self.about["labels"]
        names = [n for n in self.inputs if n not in labels]
        return mx.mod.Module.load(self.prefix, self.epoch, data_names=names, label_names=labels)

    def batch(self):
        labels = self.about["labels"]
        data = [mx.nd.array(v) for n, v in self.inputs.items() if n not in labels]
        return mx.io.DataBatch(data, [mx.nd.array(self.inputs[n]) for n in labels])

    def bind(self, **options):
        module, labels = self.module(), self.about["labels"]
        shapes = {n: v.shape for n, v in self.inputs.items()}
        data = [(n, s) for n, s in shapes.items() if n not in labels]
        module.bind(data, [(n, shapes[n]) for n in labels] or None, **options)
        module.init_params()
        return module


def close(found, expected, what):
    # recorded in flat order, thinned out evenly where there are many
    flat = found.asnumpy().ravel().astype("f8")
    step = -(-flat.size // 20000)
    most = np.abs(expected).max()
    np.testing.assert_allclose(flat[::step], expected, rtol=1e-4, atol=1e-4 * most, err_msg=what)


@pytest.mark.parametrize("name", MODELS)
def test_files_hold_what_mxnet_reads(name):
    model = Published(name)
    reference = model.about["reference"]
    symbol, args, aux = mx.model.load_checkpoint(model.prefix, model.epoch)
    assert symbol.list_arguments() == reference["arguments"]
    assert symbol.list_auxiliary_states() == reference["aux"]
    assert symbol.list_outputs() == reference["outputs"]
    assert [len(args), len(aux)] == reference["n_params"]
    total = sum(float(np.abs(v.asnumpy().astype("f8")).sum()) for v in [*args.values(), *aux.values()])
    assert total == pytest.approx(reference["param_sum"], rel=1e-6)
    shapes = symbol.infer_shape(**{n: v.shape for n, v in model.inputs.items()})
    assert [[list(s) for s in kind] for kind in shapes] == reference["shapes"]


@pytest.mark.parametrize("name", MODELS)
def test_predictions(name):
    model = Published(name)
    module = model.bind(for_training=False)
    module.forward(model.batch(), is_train=False)
    for i, output in enumerate(module.get_outputs()):
        close(output, model.golden[f"out/{i}"], f"output {i}")


@pytest.mark.parametrize("name", MODELS)
def test_one_step_of_training(name):
    model = Published(name)
    module = model.bind(inputs_need_grad=True)
    rate = {"learning_rate": 0.01, "rescale_grad": 1.0, "wd": 0.0}
    module.init_optimizer(optimizer="sgd", optimizer_params=rate)
    before = {k: v.asnumpy() for k, v in module.get_params()[0].items()}
    module.forward(model.batch(), is_train=True)
    heads = [mx.nd.ones(output.shape) for output in module.get_outputs()]
    module.backward(heads if model.about["grads"] == "ones" else None)
    for gradient, one in zip(module.get_input_grads(), module.data_names, strict=True):
        if f"igrad/{one}" in model.golden:
            close(gradient, model.golden[f"igrad/{one}"], f"gradient of {one}")
    module.update()
    after = {k: v.asnumpy() for k, v in module.get_params()[0].items()}
    for key, expected in zip(model.about["reference"]["step_names"], model.golden["step"], strict=True):
        moved = after[key].astype("f8") - before[key]
        # MXNet's memory planner may let PReLU write the gradient of its data over the head gradient before it
        # reads that for gamma's, which is then gamma times too large
        factors = (1, before[key]) if "prelu" in key else (1,)
        # a gradient that is zero but for rounding moves float32 weights by their own last digits
        noise = 1e-7 + float(np.finfo(np.float32).eps * np.linalg.norm(before[key]))
        allowed = [pytest.approx(float(np.linalg.norm(moved * f)), rel=1e-3, abs=noise) for f in factors]
        assert expected in allowed, key


def test_the_oldest_arrays():
    arrays = mx.nd.load(str(FOLDER / "mxnet_legacy" / "legacy_ndarray.v0"))
    with np.load(FOLDER / "mxnet_legacy" / "golden.npz") as expected:
        assert len(arrays) == len(expected)
        for i, array in enumerate(arrays):
            np.testing.assert_array_equal(array.asnumpy(), expected[str(i)])


def test_the_oldest_graph():
    path = FOLDER / "mxnet_legacy"
    expected = json.loads((path / "golden.json").read_text())["save_000800.json"]
    symbol = mx.sym.load(str(path / "save_000800.json"))
    names = {"arguments": "list_arguments", "aux": "list_auxiliary_states", "outputs": "list_outputs"}
    found = {key: getattr(symbol, name)() for key, name in (names | {"attr_dict": "attr_dict"}).items()}
    both = found.keys() & expected
    assert {key: found[key] for key in both} == {key: expected[key] for key in both}
    assert found.keys() & expected
