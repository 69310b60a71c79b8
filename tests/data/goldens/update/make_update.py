"""Record calls of the update operators in MXNet 1.9.1: inputs, attributes, new weights and new states.

Run in an environment with MXNet: ``python make_update.py``. Writes ``update.json``, a list of calls, and ``update.npz``
with the arrays ``<call>/in<i>`` before, ``<call>/after<i>`` of inputs that changed, and ``<call>/out<i>``.
"""

import json
from pathlib import Path

import mxnet as mx
import numpy as np

rng = np.random.RandomState(11)
calls, arrays = [], {}


def pick(*options):
    return options[rng.randint(len(options))]


def common(clip="clip_gradient"):
    found = {"wd": pick(0.0, 0.03, 0.3), "rescale_grad": pick(1.0, 0.14, 3.0), clip: pick(-1.0, 0.1, 0.5)}
    return found


def values(shape, dtype, positive=False):
    drawn = rng.uniform(-1, 1, shape)
    return (abs(drawn) if positive else drawn).astype(dtype)


def record(op, inputs, outs, **attrs):
    """Call an operator with the inputs at positions `outs` as `out`."""
    name = f"c{len(calls)}"
    function = getattr(mx.nd, op, None) or getattr(mx.nd._internal, op)
    given = [mx.nd.array(x, dtype=x.dtype) for x in inputs]
    single = isinstance(outs, int)
    out = given[outs] if single else [given[i] for i in outs]
    function(*given, out=out, **attrs)
    for i, (before, after) in enumerate(zip(inputs, given)):
        arrays[f"{name}/in{i}"] = before
        if not np.array_equal(before, after.asnumpy(), equal_nan=True):
            arrays[f"{name}/after{i}"] = after.asnumpy()
    calls.append({"op": op, "attrs": attrs, "inputs": len(inputs), "out": outs})


def betas():
    return pick({}, {"beta1": 0.5, "beta2": 0.75, "epsilon": 1e-3})


STATES = {
    "sgd_update": (0, dict),
    "sgd_mom_update": (1, lambda: {"momentum": pick(0.0, 0.9)}),
    "signsgd_update": (0, dict),
    "signum_update": (1, lambda: {"momentum": 0.9, "wd_lh": pick(0.0, 0.1)}),
    "nag_mom_update": (1, lambda: {"momentum": 0.9}),
    "adam_update": (2, betas),
    "ftrl_update": (2, lambda: pick({}, {"lamda1": 0.3, "beta": 0.5})),
    "rmsprop_update": (1, lambda: pick({}, {"gamma1": 0.5, "clip_weights": 0.3})),
    "rmspropalex_update": (3, lambda: pick({"gamma1": 0.5}, {"gamma2": 0.3, "clip_weights": 0.3})),
    "ftml_update": (3, lambda: {"t": pick(1, 7), **betas()}),
    "lamb_update_phase1": (2, lambda: {"t": pick(1, 7), "bias_correction": pick(True, False), **betas()}),
}
WITH_COPY = {
    "mp_sgd_update": (0, dict),
    "mp_sgd_mom_update": (1, lambda: {"momentum": 0.9}),
    "mp_nag_mom_update": (1, lambda: {"momentum": 0.9}),
}


def plain():
    for op, (states, extra) in STATES.items():
        for number in range(6):
            kind = ("float32", "float64")[number % 2]
            inputs = [values((3, 4), kind), values((3, 4), kind)]
            inputs += [values((3, 4), kind, positive=True) for _ in range(states)]
            if op == "rmspropalex_update":
                inputs[2] = inputs[2] + 1
            attrs = common("clip_grad" if op == "ftml_update" else "clip_gradient")
            rate = {} if op == "lamb_update_phase1" else {"lr": pick(0.1, 0.01)}
            record(op, inputs, 0, **rate, **attrs, **extra())


def with_copies():
    for op, (states, extra) in WITH_COPY.items():
        for _ in range(4):
            weight = values((3, 4), "float16")
            inputs = [weight, values((3, 4), "float16")]
            inputs += [values((3, 4), "float32") for _ in range(states)] + [weight.astype("float32")]
            record(op, inputs, 0, lr=0.1, **common(), **extra())


def lamb():
    for number in range(4):
        kind = ("float32", "float64")[number % 2]
        bounds = {"lower_bound": pick(-1.0, 0.5), "upper_bound": pick(-1.0, 0.0, 1.5)}
        norms = [values((1,), kind, positive=True) for _ in range(2)]
        record(
            "lamb_update_phase2", [values((3, 4), kind), values((3, 4), kind), *norms], 0, lr=0.1, **bounds
        )
        weight = values((3, 4), "float16")
        norms = [values((1,), "float32", positive=True) for _ in range(2)]
        inputs = [weight, values((3, 4), "float32"), *norms, weight.astype("float32")]
        record("mp_lamb_update_phase2", inputs, 0, lr=0.1, **bounds)


def groups(members, copies, count):
    """Return the inputs of several weights and the positions of the weights."""
    inputs, outs = [], []
    for _ in range(count):
        shape = tuple(rng.randint(1, 5, 2))
        kind = "float16" if copies else "float32"
        weight = values(shape, kind)
        outs.append(len(inputs))
        inputs += [weight, values(shape, kind)]
        inputs += [values(shape, "float32", positive=True) for _ in range(members)]
        inputs += [weight.astype("float32")] if copies else []
    return inputs, outs


def multi_sgd():
    for momentum in (0, 1):
        for copies in (0, 1):
            name = f"multi_{'mp_' * copies}sgd_{'mom_' * momentum}update"
            for count in (1, 3):
                attrs = {
                    "rescale_grad": pick(1.0, 0.3),
                    "clip_gradient": pick(-1.0, 0.1),
                    "num_weights": count,
                }
                attrs.update({"momentum": 0.9} if momentum else {})
                lrs, wds = rng.rand(count).astype("f4"), rng.rand(count).astype("f4")
                inputs, outs = groups(momentum, copies, count)
                outs = outs[0] if count == 1 else outs
                record(name, inputs, outs, lrs=lrs.tolist(), wds=wds.tolist(), **attrs)
                record("preloaded_" + name, [*inputs, lrs, wds], outs, **attrs)


def multi_adaptive():
    for copies in (0, 1):
        for count, factor in ((1, 0.5), (3, 2.0), (2, np.nan)):
            inputs, outs = groups(2, copies, count)
            outs = outs[0] if count == 1 else outs
            rates = {"wds": rng.rand(count).tolist(), "clip_gradient": pick(-1.0, 0.1), **betas()}
            lrs = rng.rand(count).tolist()
            scale = np.array([factor], "float32")
            name = f"_multi_{'mp_' * copies}adamw_update"
            record(name, [*inputs, scale], outs, lrs=lrs, etas=[0.3] * count, num_weights=count, **rates)
            name = f"_{'mp_' * copies}adamw_update"
            one = {**betas(), "lr": 0.1, "eta": 0.3, "wd": 0.1, "clip_gradient": pick(-1.0, 0.1)}
            record(name, [*inputs[: 5 if copies else 4], scale], 0, **one)
            name = f"_multi_{'mp_' * copies}lamb_update"
            extra = {"bias_correction": pick(True, False), "upper_bound": pick(-1.0, 0.5)}
            steps = {"step_count": rng.randint(1, 9, count).tolist(), "num_tensors": count}
            record(name, inputs, outs, learning_rates=lrs, **steps, **extra, **rates)


def lars():
    for _ in range(3):
        numbers = [values((4,), "float32", positive=True) * pick(0, 1, 1) for _ in range(4)]
        record("multi_lars", numbers, 0, eta=0.1, eps=1e-3, rescale_grad=pick(1.0, 0.3))


def main():
    plain()
    with_copies()
    lamb()
    multi_sgd()
    multi_adaptive()
    lars()
    folder = Path(__file__).parent
    (folder / "update.json").write_text(json.dumps(calls, indent=1) + "\n")
    np.savez_compressed(folder / "update.npz", **arrays)


if __name__ == "__main__":
    main()
