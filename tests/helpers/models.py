"""Whole networks for conversions: published ones, those of the benchmarks and of the examples, with parameters."""

import importlib.util
import json
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

import dpmodule as mx
from dpmodule.onnx.prediction import prediction_graph

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"


@dataclass
class Model:
    """A network on its way elsewhere.

    Attributes:
        symbol: the network.
        arrays: values of all its variables by name (NumPy), labels included.
        params: names of parameters and auxiliary states; the other variables are inputs and labels.
        inputs: names of the inputs.
    """

    symbol: mx.sym.Symbol
    arrays: dict[str, np.ndarray]
    params: list[str]
    inputs: list[str]


def by_path(path, name):
    """Return a file of Python code as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def drawn(name, shape, rng, gain):
    """Return values for a parameter: such that activations neither vanish nor explode on their way up."""
    if name.endswith(("_gamma", "_var")):
        values = rng.uniform(0.5, 1.5, shape)
    elif len(shape) < 2:
        values = 0.1 * rng.randn(*shape)
    else:
        values = rng.randn(*shape) * np.sqrt((gain if len(shape) > 2 else 1) / np.prod(shape[1:]))
    return values.astype("float32")


def with_parameters(symbol, given, seed=0):
    """Return a model whose parameters are drawn.

    Args:
        symbol: the network.
        given: values of the inputs by name, and of labels whose shapes do not follow.
        seed: of the random numbers.
    """
    rng = np.random.RandomState(seed)
    args, _, states = symbol.infer_shape(**{name: value.shape for name, value in given.items()})
    shapes = dict(zip(symbol.list_arguments(), args, strict=True))
    shapes |= dict(zip(symbol.list_auxiliary_states(), states, strict=True))
    rest = prediction_graph(symbol.graph)
    read = {*rest.argument_names, *rest.auxiliary_names} - set(rest.labels)
    gain = 1 if states else 2  # what is normalised needs no room for what rectifiers cut off
    params = [name for name in shapes if name in read and name not in given]
    arrays = {name: np.zeros(shapes[name], "float32") for name in shapes if name not in read}
    arrays |= {name: drawn(name, shapes[name], rng, gain) for name in params}
    return Model(symbol, arrays | given, params, [name for name in given if name in read])


def pictures(*shape):
    return np.random.RandomState(1).rand(*shape).astype("float32")


SIZES = {
    "miraclewkf_lenet_output": (2, 1, 28, 28), "songtianyi_go_test_pr3": (4, 1),
    "yyuananyvi_det1_model": (2, 3, 40, 52), "yyuananyvi_det2_model": (2, 3, 24, 24),
    "yyuananyvi_det3_model": (2, 3, 48, 48), "zhuxuhan_model": (2, 3, 112, 112),
    "zzzkk2009_checkpoint_checkpoint": (2, 3, 112, 112), "yeyupiaoli_model_model": (2, 3, 48, 48),
    "save_000800": (2, 20), "miaow1988_model": (2, 3, 224, 224), "miraclewkf_vgg_fc_ilsvrc_16_laye": (2, 3, 224, 224),
    "attrs": (2, 20),
}  # fmt: skip
"""Shapes of the inputs; the rest see small pictures."""

STEMS = [path.stem for path in (DATA / "symbols").glob("*.json")]
SYMBOLS = sorted(
    [each.removesuffix("-symbol") for each in STEMS if each.endswith(("-symbol", "save_000800"))]
)
CHECKPOINTS = sorted(path.parent.name for path in (DATA / "checkpoints").glob("*/*.params"))
NETWORKS = ["mlp", "lenet", "lstm", "resnet18", "resnet20", "resnet50"]
_LARGE = """
resnet18 resnet50 apache_test_dnnl_test_dnnl_model miaow1988_model miraclewkf_resnet_18_model zhuxuhan_model
miraclewkf_vgg16_reduced_model miraclewkf_vgg_fc_ilsvrc_16_laye zzzkk2009_checkpoint_checkpoint
"""
LARGE = _LARGE.split()
"""Networks that take a second or more."""


def published(name):
    """Return a graph of tests/data/symbols, with drawn parameters."""
    path = next(p for p in (DATA / "symbols").glob(f"{name}*.json") if p.stem in (name, f"{name}-symbol"))
    given = {"data": pictures(*SIZES.get(name, (2, 3, 64, 64)))}
    if name == "songtianyi_go_test_pr3":
        given["softmax_label"] = np.zeros(4, "float32")
    return with_parameters(mx.sym.load(str(path)), given)


def checkpoint(name):
    """Return a published network of tests/data/checkpoints with its own parameters and recorded inputs."""
    folder = DATA / "checkpoints" / name
    path = next(folder.glob("*.params"))
    prefix, _, epoch = path.stem.rpartition("-")
    symbol, args, states = mx.model.load_checkpoint(str(folder / prefix), int(epoch))
    known = {key: value.asnumpy() for key, value in {**args, **states}.items() if key in symbol.list_inputs()}
    inputs = json.loads((folder / "golden.json").read_text())["inputs"]
    shapes = {key: each["shape"] for key, each in inputs.items()}
    with np.load(folder / "golden.npz") as recorded:
        given = {key: recorded[f"input/{key}"].reshape(shape) for key, shape in shapes.items()}
    found = with_parameters(symbol, {key: value.astype("float32") for key, value in given.items()})
    return Model(symbol, found.arrays | known, found.params, found.inputs)


def network(name):
    """Return a network of the benchmarks."""
    made = by_path(ROOT / "benchmarks" / "networks.py", "benchmark_networks").NETWORKS[name](mx, 10)
    sizes = {"mlp": (2, 784), "lenet": (2, 1, 28, 28), "lstm": (2, 35, 8), "resnet20": (2, 3, 32, 32)}
    inputs = {"data": pictures(*sizes.get(name, (2, 3, 64, 64)))}
    if name == "lstm":
        inputs["softmax_label"] = np.zeros((2, 35), "float32")
    return with_parameters(made, inputs)


@lru_cache(maxsize=2)
def model(name):
    """Return a model by its name, with small inputs of two rows or so; its nodes are counted from 0."""
    with mx.name.NameManager():
        return (checkpoint if name in CHECKPOINTS else network if name in NETWORKS else published)(name)
