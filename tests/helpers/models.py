"""Whole networks for conversions: published ones, those of the benchmarks and of the examples, with parameters."""

import importlib.util
import json
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

import dpmodule as mx
from dpmodule.onnx.prediction import prediction_graph

__all__ = [
    *("CHECKPOINTS", "EXAMPLES", "LARGE", "NETWORKS", "ROOT", "SYMBOLS"),
    *("Model", "by_path", "model", "with_parameters"),
]

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


SIZES = {
    "miraclewkf_lenet_output": (2, 1, 28, 28),
    "songtianyi_go_test_pr3": (4, 1),
    "yyuananyvi_det1_model": (2, 3, 40, 52),
    "yyuananyvi_det2_model": (2, 3, 24, 24),
    "yyuananyvi_det3_model": (2, 3, 48, 48),
    "zhuxuhan_model": (2, 3, 112, 112),
    "zzzkk2009_checkpoint_checkpoint": (2, 3, 112, 112),
    "yeyupiaoli_model_model": (2, 3, 48, 48),
    "save_000800": (2, 20),
    "miaow1988_model": (2, 3, 224, 224),
    "miraclewkf_vgg_fc_ilsvrc_16_laye": (2, 3, 224, 224),
    "attrs": (2, 20),
}
"""Shapes of the inputs; the rest see small pictures."""

SYMBOLS = sorted(
    path.stem.removesuffix("-symbol")
    for path in (DATA / "symbols").glob("*.json")
    if path.stem.endswith("-symbol") or path.stem == "save_000800"
)
CHECKPOINTS = sorted(path.parent.name for path in (DATA / "checkpoints").glob("*/*.params"))
NETWORKS = ["mlp", "lenet", "lstm", "resnet18", "resnet20", "resnet50"]
LARGE = [
    "resnet18",
    "resnet50",
    "apache_test_dnnl_test_dnnl_model",
    "miaow1988_model",
    "miraclewkf_resnet_18_model",
    "miraclewkf_vgg16_reduced_model",
    "miraclewkf_vgg_fc_ilsvrc_16_laye",
    "zhuxuhan_model",
    "zzzkk2009_checkpoint_checkpoint",
]
"""Networks that take a second or more."""


def published(name):
    """Return a graph of tests/data/symbols, with drawn parameters."""
    path = next(p for p in (DATA / "symbols").glob(f"{name}*.json") if p.stem in (name, f"{name}-symbol"))
    given = {"data": values(*SIZES.get(name, (2, 3, 64, 64)))()}
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
    inputs = {"data": values(*sizes.get(name, (2, 3, 64, 64)))()}
    if name == "lstm":
        inputs["softmax_label"] = np.zeros((2, 35), "float32")
    return with_parameters(made, inputs)


def of_example(file, *arguments, function="network", **inputs):
    """Return what makes the network of an example, which a function returns, perhaps with more."""

    def make():
        module = by_path(ROOT / "examples" / f"{file}.py", f"example_{Path(file).name}")
        made = getattr(module, function)(*arguments)
        made = made(5) if function == "generator" else made  # of a length
        return with_parameters(
            made[0] if isinstance(made, tuple) else made, {k: draw() for k, draw in inputs.items()}
        )

    return make


def values(*shape, below=0, share=0):
    """Return what draws an input: numbers below 1, whole ones below a limit, or a share of ones."""

    def draw():
        rng = np.random.RandomState(1)
        made = rng.randint(0, below, shape) if below else rng.rand(*shape)
        return (made < share if share else made).astype("float32")

    return draw


def chained(position, name, *shape):
    def make():
        example = by_path(ROOT / "examples" / "chained_modules.py", "example_chained_modules")
        module = example.chain(torch.nn.Identity(), 16)._modules[position]
        return with_parameters(module.symbol, {name: values(*shape)()})

    return make


def agent():
    made = by_path(ROOT / "examples" / "agents" / "module_agent.py", "example_module_agent").MoodAgent
    return with_parameters(made.sym_gen(None, {}, ["good", "bad"]), {"words": values(2, 30)()})


TEXT = {"function": "generator", "data": values(2, 5, below=20), "softmax_label": values(2, 5, below=1)}
RARE = values(2, 65536, share=1e-4)
STATEFUL = {"softmax_label": values(2, 32), **{f"lstm_begin_state_{i}": values(1, 2, 8) for i in (0, 1)}}
SOME = values(2, below=50)
EXAMPLES = {
    "agent": agent,
    "autoencoder": of_example("autoencoder", 8, data=values(2, 64)),
    "bucketing_lm": of_example("bucketing_lm", 20, 8, **TEXT),
    "chained_begin": chained(0, "data", 2, 1, 8, 8),
    "chained_end": chained(2, "features", 2, 16),
    "custom_metric": of_example("custom_metric", data=values(2, 64)),
    "detection_ssd": of_example("detection_ssd", data=values(2, 3, 32, 32), label=values(2, 3, 5)),
    "fit_digits": of_example("fit_digits", data=values(2, 64)),
    "model_parallel_lstm": of_example("model_parallel_lstm", 20, 8, **TEXT),
    "multi_context": of_example("multi_context", data=values(2, 1, 8, 8)),
    "sparse_linear": of_example("sparse_linear", 2, function="linear", data=RARE),
    "factorization_machine": of_example("sparse_linear", 4, function="factorization_machine", data=RARE),
    "stateful_lstm": of_example("stateful_lstm", 20, 8, data=values(2, 32, below=20), **STATEFUL),
    "skip_gram": of_example("hogwild/skip_gram", word=SOME, other=SOME),
}
"""Networks of the examples, by how they are made, but for those of ragged variables and `custom_operator`."""


@lru_cache(maxsize=2)
def model(name):
    """Return a model by its name, with small inputs of two rows or so; its nodes are counted from 0."""
    with mx.name.NameManager():
        if name in EXAMPLES:
            return EXAMPLES[name]()
        return (checkpoint if name in CHECKPOINTS else network if name in NETWORKS else published)(name)
