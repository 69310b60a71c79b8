"""Record what MXNet 1.9.1's initializers do: run this file in an environment with that MXNet."""

import json
import os
import warnings

import mxnet as mx
import numpy as np

NAMES = (
    "fc1_weight",
    "fc1_bias",
    "bn_gamma",
    "bn_beta",
    "bn_moving_mean",
    "bn_running_mean",
    "bn_moving_var",
    "bn_running_var",
    "bn_moving_inv_var",
    "bn_moving_avg",
    "x_min",
    "x_max",
    "q_weight_quantize",
    "q_bias_quantize",
    "upsampling_weight",
    "upsampling0",
    "stn_loc_weight",
    "stn_loc_bias",
    "odd_name",
)
RULES = [name for name in dir(mx.init.Initializer) if name.startswith("_init_")]
RULES.remove("_init_default")


def rule_of(desc):
    """Return the name of the method that an initializer calls for a parameter, None if it refuses."""
    called = []
    mark = {rule: lambda self, name, arr, rule=rule: called.append(rule) for rule in RULES}
    try:
        type("Mark", (mx.init.Initializer,), mark)()(desc, mx.nd.zeros((2, 2)))
    except ValueError:
        return None
    return called[0]


def filled(init, shape, name="w_weight"):
    arr = mx.nd.zeros(shape)
    init._init_weight(mx.init.InitDesc(name), arr)
    return arr.asnumpy()


def statistics(init, shape):
    mx.random.seed(1)
    np.random.seed(1)
    values = filled(init, shape)
    rows = values.reshape(shape[0], -1)
    gram = rows.dot(rows.T) if rows.shape[0] <= rows.shape[1] else rows.T.dot(rows)
    return {
        "std": float(values.std()),
        "absmax": float(np.abs(values).max()),
        "gram": float(np.diag(gram).mean()),
    }


def main():
    warnings.simplefilter("ignore")
    init = mx.init
    made = {"Xavier": {"factor_type": "in", "magnitude": 2}, "Constant": {"value": 3}}
    for name in ("Uniform", "Normal", "One", "Zero", "MSRAPrelu", "Orthogonal", "Bilinear", "LSTMBias"):
        made[name] = {}
    drawn = [("Uniform", {"scale": 0.3}), ("Normal", {"sigma": 0.2}), ("MSRAPrelu", {"slope": 0.25})]
    drawn += [("Orthogonal", {"scale": 1.2, "rand_type": kind}) for kind in ("uniform", "normal")]
    for kind in ("uniform", "gaussian"):
        for fan in ("avg", "in", "out"):
            drawn.append(("Xavier", {"rnd_type": kind, "factor_type": fan, "magnitude": 2.5}))
    found = {
        "rules": {name: rule_of(init.InitDesc(name)) for name in NAMES},
        "legacy_rules": {name: rule_of(name) for name in NAMES},
        "dumps": [[name, kwargs, getattr(init, name)(**kwargs).dumps()] for name, kwargs in made.items()],
        "statistics": [
            [name, kwargs, list(shape), statistics(getattr(init, name)(**kwargs), shape)]
            for name, kwargs in drawn
            for shape in ((400, 300), (64, 32, 3, 3))
        ],
        "bilinear": [[list(s), filled(init.Bilinear(), s).tolist()] for s in ((2, 1, 4, 4), (1, 1, 3, 5))],
        "lstmbias": filled(init.LSTMBias(forget_bias=1.5), (20,), "lstm_i2h_bias").tolist(),
    }
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "initializers.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
