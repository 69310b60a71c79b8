"""Wrong calls of `mx.gluon`, and of what is left out of it."""

import importlib

import numpy as np

import dpmodule as mx
from dpmodule.base import (
    ArgumentError,
    DTypeError,
    FileError,
    MXNetError,
    NotSupportedError,
    ShapeError,
    StateError,
    UnknownNameError,
)
from dpmodule.gluon import DeferredInitializationError, Parameter, ParameterDict, SymbolBlock, Trainer
from dpmodule.gluon.parameter import ParameterError
from dpmodule.gluon.trainer import _StepError

five = mx.nd.ones((5, 2))
data = mx.sym.Variable("data")
dense = mx.sym.FullyConnected(data, num_hidden=3, name="fc")


def block(values=None, ctx=None):
    """Return a block, with values unless None."""
    made = SymbolBlock(dense, data)
    if values is not None:
        made.load_dict({"fc_weight": mx.nd.ones((3, 2)), "fc_bias": mx.nd.zeros(3), **values}, ctx)
    return made


def param(**options):
    """Return an initialized parameter."""
    made = Parameter("w", shape=(2,), **options)
    made.initialize(mx.init.One())
    return made


def trainer(**options):
    """Return a trainer of a parameter on two contexts."""
    made = Parameter("w", shape=(2,))
    made.initialize(mx.init.One(), ctx=[mx.cpu(0), mx.cpu(1)])
    return Trainer([made], "sgd", {"learning_rate": 1}, **options)


def renamed(**options):
    """Look a parameter up with attributes that it does not have."""
    params = ParameterDict()
    params.update({"w": param()})
    params.get("w", **options)


def deferred():
    """Return a parameter that waits for its shape."""
    made = Parameter("w", shape=(0,), allow_deferred_init=True)
    made.initialize()
    return made


def named(params):
    """Return a dict of parameters."""
    made = ParameterDict()
    made.update(params)
    return made


def listed(folder):
    """Load arrays without names."""
    mx.nd.save(str(folder / "a.params"), [five])
    block().load_parameters(folder / "a.params")


def renamed_update():
    """Add another parameter of a known name."""
    named({"w": param()}).update({"w": param()})


def used(place):
    module = mx.gluon
    for part in place.split("."):
        module = getattr(module, part)
    module.Other()


ROWS = [
    (
        lambda: mx.gluon.nn.Dense(3),
        MXNetError,
        r"gluon\.nn\.Dense is not available: .*SymbolBlock\.imports.*torch\.nn",
    ),
    (lambda: mx.gluon.HybridBlock(), MXNetError, r"gluon\.HybridBlock is not available"),
    (lambda: mx.gluon.loss.SDMLLoss(), MXNetError, r"gluon\.loss\.SDMLLoss is not available"),
    (lambda: SymbolBlock.imports("no-symbol.json", ["data"]), FileError, "no-symbol.json"),
    (lambda: SymbolBlock(dense, dense), ParameterError, "input fc is an output of operators"),
    (lambda: SymbolBlock(3, data), DTypeError, "outputs have a int, expected symbols"),
    (lambda: block()(five), StateError, "'fc_weight' has not been initialized"),
    (
        lambda: block({})(five, five),
        ArgumentError,
        r"structure of inputs is \[0, 0\], expected \[0\] for data",
    ),
    (lambda: block({})(np.ones((5, 2))), DTypeError, "inputs have a ndarray, expected NDArrays or tensors"),
    (lambda: block({})(mx.nd.ones((5, 3))), ShapeError, "fc"),
    (lambda: block({})(five.astype("float64")), DTypeError, "data float64, fc_weight float32"),
    (lambda: block({})(five.as_in_context(mx.cpu(1))), StateError, r"not initialized on context cpu\(1\)"),
    (lambda: SymbolBlock(data + 1, [data])([five]), ArgumentError, "structure of inputs"),
    (
        lambda: SymbolBlock(data + mx.sym.Variable("b"), [data, mx.sym.Variable("b")])(five, data),
        DTypeError,
        "symbols and arrays are given",
    ),
    (
        lambda: SymbolBlock(data + mx.sym.Variable("b"), [data, mx.sym.Variable("b")])(
            five, five.as_in_context(mx.cpu(1))
        ),
        ArgumentError,
        r"b is on cpu\(1\), but data on cpu\(0\)",
    ),
    (lambda: block().export("net"), StateError, "has not been initialized"),
    (lambda: block().register_child(block()), NotSupportedError, "no blocks inside"),
    (lambda: block({"fc_weight": mx.nd.ones((3, 2, 1))})(five), ShapeError, "fc"),
    (lambda: block({"more": five}), ParameterError, "'more' loaded from param_dict is not present"),
    (lambda: block().load_dict({"fc_bias": five}), ParameterError, "'fc_weight' is missing in param_dict"),
    (lambda: block({"fc_bias": five.astype("int32")}), ParameterError, "dtype incompatible"),
    (
        lambda: block({}).load_dict({"fc_bias": five}, allow_missing=True),
        ParameterError,
        "shape incompatible",
    ),
    (
        lambda: block({}).load_dict({"fc_bias": mx.nd.ones(3)}, mx.cpu(1), allow_missing=True),
        ParameterError,
        r"on \[cpu\(1\)\] because it was previous initialized on \[cpu\(0\)\]",
    ),
    (lambda folder: listed(folder), ParameterError, "its arrays have no names"),
    (lambda: block({}).params["fc_wieght"], UnknownNameError, "did you mean fc_weight"),
    (lambda: Parameter("w", grad_req="all"), ParameterError, "grad_req must be one of"),
    (lambda: Parameter("w", stype="csr"), ParameterError, "stype is 'csr'"),
    (lambda: Parameter("w").initialize(), ArgumentError, "because it has invalid shape: None"),
    (lambda: Parameter("w").list_ctx(), StateError, "'w' has not been initialized"),
    (lambda: Parameter("w", shape=(2,)).set_data(mx.nd.ones(2)), StateError, "'w' has not been initialized"),
    (lambda: Parameter("w").reset_ctx(mx.cpu()), ArgumentError, "Cannot reset context for Parameter 'w'"),
    (lambda: param().set_data(five), ParameterError, r"Expected shape \(2,\) is incompatible"),
    (lambda: param(grad_req="null").grad(), StateError, "because grad_req='null'"),
    (
        lambda: param().load_init(mx.nd.ones(2), None, dtype_source="other"),
        ParameterError,
        "dtype_source is 'other'",
    ),
    (lambda: deferred().data(), DeferredInitializationError, "initialization was deferred"),
    (lambda: deferred().finish_deferred_init(), ParameterError, "invalid shape"),
    (lambda: renamed(dtype="float16"), ParameterError, "desired 'float16' vs stored"),
    (lambda: renamed(shape=(3,)), ParameterError, r"Expected shape \(2,\)"),
    (lambda: renamed_update(), ParameterError, "different Parameters with the same name 'w'"),
    (lambda: named({"w": param()}).save("a.params", strip_prefix="b_"), ArgumentError, "Prefix 'b_'"),
    (
        lambda: Trainer(3, "sgd"),
        ArgumentError,
        "First argument must be a list or dict of Parameters, got <class 'int'>",
    ),
    (lambda: Trainer([3], "sgd"), ArgumentError, "got list of <class 'int'>"),
    (
        lambda: Trainer([param()], mx.optimizer.SGD(), {"wd": 1}),
        ParameterError,
        "optimizer_params must be None",
    ),
    (lambda: Trainer([param()], "sgd").step(1), _StepError, "Gradient of Parameter `w` on context cpu"),
    (lambda: Trainer([Parameter("w")], "sgd"), StateError, "'w' has not been initialized"),
    (lambda: Trainer([param(), *trainer()._params], "sgd"), ParameterError, "on the same set of contexts"),
    (lambda: trainer().update(1), StateError, r"update\(\) when parameters are updated on kvstore"),
    (lambda: trainer().allreduce_grads(), StateError, r"allreduce_grads\(\) when parameters"),
    (lambda: Trainer([param()], "sgd").load_states("none.states"), FileError, "none.states"),
    (lambda: mx.gluon.loss.Loss(None, 0)(five, five), NotImplementedError, "does not define hybrid_forward"),
    (lambda: mx.gluon.loss.LogisticLoss(label_format="x"), ArgumentError, "signed or binary"),
    (lambda: mx.gluon.loss.CTCLoss("NCT"), ArgumentError, "layout is 'NCT'"),
    (lambda: mx.gluon.loss.CTCLoss(label_layout="T"), ArgumentError, "label_layout is 'T'"),
    (lambda: mx.gluon.data.vision.transforms.Compose([]), MXNetError, r"data\.vision\.transforms\.Compose"),
    (lambda: importlib.import_module("dpmodule.gluon.no_such_module"), ModuleNotFoundError, ""),
    *[
        (lambda p=p: used(p), MXNetError, rf"gluon\.{p}\.Other is not available")
        for p in ("nn", "contrib.rnn")
    ],
    (lambda: mx.gluon.utils.clip_global_norm([], 1.0), ArgumentError, "arrays is empty"),
    (lambda: mx.gluon.utils.split_data(five, 2), ShapeError, "even_split=False allows"),
    (lambda: mx.gluon.contrib.rnn.LSTMPCell(2, 0), ArgumentError, "projection_size is 0"),
]
