"""Wrong calls of `mx.init`."""

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, OpError, ShapeError, SignatureError
from dpmodule.ops.nn import rnn_weights

Desc = mx.init.InitDesc
TWO = {"w": mx.nd.zeros((2,))}
FUSED, SIZE = mx.init.FusedRNN(None, 3, 1, "lstm"), rnn_weights.vector_size("lstm", 1, 2, 3, False)


def fill(init, name="w_weight", shape=(2,), attrs=None):
    init(Desc(name, attrs), mx.nd.full(shape, -9))


def unbound(name):
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2), label_names=[])
    module.bind([("data", (2, 3))])
    module.init_params(name)


def without_names(folder):
    mx.nd.save(folder / "net.params", [mx.nd.zeros((2,))])
    mx.init.Load(str(folder / "net.params"))


class Holds(mx.init.Initializer):
    def __init__(self, value):
        super().__init__(value=value)


ROWS = [
    (lambda: fill(mx.init.Uniform(), "odd_name"), ArgumentError, "the name 'odd_name': expected an ending"),
    (lambda: fill(mx.init.Zero(), attrs={"__init__": "nix"}), ArgumentError, "unknown initializer 'nix'"),
    (lambda: Holds(mx.cpu()).dumps(), DTypeError, r"arguments of Holds\(value=cpu\(0\)\) as JSON"),
    (
        lambda: mx.init.create("xaver"),
        ArgumentError,
        r"^(?!.*torchmodulevalue).*zeros; did you mean xavier\?$",
    ),
    (lambda: unbound("foo"), ArgumentError, "unknown initializer 'foo'"),
    (lambda: mx.init.register(int), ArgumentError, "not a subclass of Initializer"),
    (lambda: mx.init.One()(Desc("a_weight"), np.zeros(3)), ArgumentError, "arr is ndarray, expected an"),
    (lambda: mx.init.One()(3, mx.nd.zeros((2,))), SignatureError, "desc is 3, expected an InitDesc"),
    (lambda: fill(mx.init.Initializer()), NotImplementedError, "Initializer does not define _init_weight"),
    (lambda: fill(mx.init.Xavier()), ShapeError, r"Xavier: w_weight has shape \(2,\), expected at l"),
    (lambda: fill(mx.init.Orthogonal()), ShapeError, r"Orthogonal: w_weight has shape \(2,\), expected at l"),
    *[
        (lambda n=n, o=o: getattr(mx.init, n)(**o), ArgumentError, said)
        for n, o, said in (
            ("Xavier", {"rnd_type": "normal"}, "rnd_type is 'normal', expected one of uniform, gaussian"),
            ("Xavier", {"magnitude": -1}, "magnitude is -1"),
            ("Orthogonal", {"rand_type": "gaussian"}, "rand_type is 'gaussian'"),
            ("Uniform", {"scale": -0.1}, "scale is -0.1"),
            ("Normal", {"sigma": float("nan")}, "sigma is nan"),
        )
    ],
    (lambda: fill(mx.init.Bilinear()), ShapeError, r"Bilinear: w_weight has shape \(2,\), expected 4 ax"),
    (lambda: fill(mx.init.LSTMBias()), ShapeError, r"LSTMBias: w_weight has shape \(2,\), expected a first"),
    (
        lambda: fill(mx.init.Mixed(["a", "b"], ["one"] * 2), "c"),
        ArgumentError,
        r"matches 'c' \(tried 'a', 'b'\)",
    ),
    (lambda: mx.init.Mixed(["a", "b"], [mx.init.Zero()]), ArgumentError, "2 patterns for 1 initializers"),
    (without_names, ArgumentError, "expected arrays by name"),
    (lambda: fill(mx.init.Load(TWO), "w", (3,)), ShapeError, r"w has shape \(3,\), but the loaded array"),
    (lambda: fill(mx.init.Load(TWO), "x"), ArgumentError, "x is not among the loaded arrays, and there is"),
    (lambda: mx.init.FusedRNN(None, 3, 2, "foo"), OpError, "'foo', expected one of rnn_relu"),
    (lambda: mx.init.FusedRNN("foo", 3, 2, "lstm"), ArgumentError, "unknown initializer"),
    (lambda: FUSED._init_weight(Desc("p"), mx.nd.zeros(SIZE)), ArgumentError, "no initializer for the"),
    (
        lambda: FUSED._init_weight(Desc("p", global_init=mx.init.One()), mx.nd.zeros((7,))),
        ShapeError,
        "parameters have 7 elements",
    ),
]
