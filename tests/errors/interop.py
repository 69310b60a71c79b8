"""Wrong calls of `mx.interop`, and files and folders that it refuses."""

import io
import json

import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, FileError, FileFormatError, SignatureError

S = mx.sym
HIDDEN = S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc")
NET = S.SoftmaxOutput(S.BatchNorm(HIDDEN, name="bn"), name="softmax")
PARAMS = {name: mx.nd.ones(3) for name in ("fc_bias", "bn_gamma", "bn_beta")}
PARAMS["fc_weight"] = mx.nd.ones((3, 5))
STATES = {"bn_moving_mean": mx.nd.ones(3), "bn_moving_var": mx.nd.ones(3)}


def saved(folder, name="", content=None, **options):
    """Load a folder of a network, after a change of one of its files: new text, other values, or None if it goes."""
    target = folder / "net"
    mx.interop.save_pretrained(target, NET, PARAMS, STATES, [("data", (4, 5))], ["softmax_label"], **options)
    if isinstance(content, dict):
        content = json.dumps({**json.loads((target / name).read_text()), **content})
    if name:
        (target / name).write_text(content) if content is not None else (target / name).unlink()
    return mx.interop.load_pretrained(target)


def config(**changes):
    return lambda folder: saved(folder, "config.json", changes)


def index(places):
    name, change = "model.safetensors.index.json", {"weight_map": places}
    return lambda folder: saved(folder, name, change, max_shard_bytes=48)


def torch_file(content):
    """Return a call that loads a file of torch with this content: bytes, or what is saved."""

    def call(folder):
        (folder / "net.pt").write_bytes(content if isinstance(content, bytes) else of_torch(content))
        return mx.interop.load_torch_state(folder / "net.pt")

    return call


def of_torch(value):
    target = io.BytesIO()
    torch.save(value, target)
    return target.getvalue()


ODD = {"a": torch.ones(2, dtype=torch.complex64), "b": 3, "c": torch.ones(2), 4: torch.ones(1)}


def nd_load(folder):
    torch.save({"a": torch.ones(2)}, folder / "net.pt")
    return mx.nd.load(folder / "net.pt")


def misfit(folder):
    params = {"fc_weight": PARAMS["fc_weight"], "old": mx.nd.ones((1,)), "data": mx.nd.ones((1,))}
    data = [("data", (1, 5)), ("x", (1,))]
    mx.interop.save_pretrained(folder / "net", NET, params, {}, data, ["softmax_label"])


ROWS = [
    # saving
    (misfit, ArgumentError, "for bn_beta.*does not have: old.*x; .*also parameters: data"),
    (lambda folder: saved(folder, preprocessor={"lables": []}), ArgumentError, "'lables', expected"),
    (lambda folder: saved(folder, max_shard_bytes=0), ArgumentError, "max_shard_bytes is 0"),
    # folders
    (lambda folder: mx.interop.load_pretrained(folder), FileError, r"has no config\.json"),
    (lambda folder: mx.interop.load_pretrained(folder / "a"), FileError, "no such folder, and no repo"),
    (config(format_version=2), FileFormatError, "format_version is 2, expected 1"),
    (config(data=[{"name": "data"}]), FileFormatError, "data is not a list"),
    (config(data=[{"name": "data", "shape": [1], "dtype": "(1,"}]), FileFormatError, "data is not a list"),
    (config(label_names=3), FileFormatError, "label_names is not a list"),
    (config(label_names=[]), FileFormatError, "no parameters for softmax_label"),
    (config(data=[{"name": "x", "shape": [1]}]), FileFormatError, "for data; inputs .* does not have: x"),
    (lambda folder: saved(folder, "symbol.json", {"nodes": 3}), FileFormatError, r"symbol\.json"),
    *[
        (lambda folder, text=text: saved(folder, "config.json", text), FileFormatError, r"config\.json")
        for text in ("[]", "[" * 10**5)
    ],
    (lambda folder: saved(folder, "model.safetensors"), FileError, r"model\.safetensors"),
    (index(3), FileFormatError, "not an index of parameters"),
    (index({"fc_weight": "../model-00001-of-00009.safetensors"}), FileFormatError, "files of its own folder"),
    (index({"x": "model-00001-of-00003.safetensors"}), FileFormatError, "'x' is not in model-00001-of-00003"),
    # files of torch
    (torch_file(ODD), FileFormatError, r"'a' .*complex64.*'b' is of type int, 4 is a tensor[^;]*cpu; "),
    (torch_file([torch.ones(2)]), FileFormatError, "holds of type list"),
    *[
        (torch_file(content), FileFormatError, r"net\.pt")
        for content in (of_torch({"a": torch.ones(200)})[:400], b"")
    ],
    (lambda folder: mx.interop.load_torch_state(folder / "missing.pt"), FileError, r"missing\.pt"),
    (lambda folder: mx.interop.load_torch_state(5), SignatureError, "file is 5, expected a path"),
    (nd_load, FileFormatError, "interop.load_torch_state"),
]
