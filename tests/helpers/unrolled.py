"""Unrolled recurrent networks made by hand, and the comparison of a graph with a pass on and off."""

import contextlib

import numpy as np

import dpmodule as mx
from dpmodule import executor

S = mx.sym
STEPS, ROWS, FEATURES, UNITS = 5, 2, 4, 3
NTC, TNC = (ROWS, STEPS, FEATURES), (STEPS, ROWS, FEATURES)


class Run:
    """Outputs, gradients and programs of a graph with numbers from a fixed seed."""

    def __init__(
        self,
        net,
        shapes,
        dtype="float32",
        is_train=True,
        grad_req="write",
        values=None,
        again=1,
        ctx=None,
    ):
        types = dict.fromkeys(net.list_arguments(), dtype)
        ctx = ctx or mx.cpu()
        self.bound = net.simple_bind(ctx, grad_req, types, **shapes)
        rng = np.random.RandomState(0)
        for name, array in self.bound.arg_dict.items():
            value = (values or {}).get(name, rng.uniform(-0.8, 0.8, array.shape))
            array[:] = mx.nd.array(value, dtype=dtype)
        for grad in self.bound.grad_dict.values():
            if grad is not None:
                grad[:] = 1
        mx.random.seed(3)
        outputs = self.bound.forward(is_train=is_train)
        heads = [mx.nd.array(rng.uniform(-1, 1, out.shape), ctx, dtype) for out in outputs]
        for _ in range(again):
            self.bound.backward(heads)
        self.outputs = [out.asnumpy() for out in outputs]
        self.grads = {k: v.asnumpy() for k, v in self.bound.grad_dict.items() if v is not None}
        self.program = self.bound._prepare(True, is_train).program

    @property
    def chains(self):
        return self.program.low.fired.get("rnn_chains", 0)


def close(got, wanted, tolerance):
    for one, other in zip(got.outputs, wanted.outputs, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    assert got.grads.keys() == wanted.grads.keys()
    for name, grad in wanted.grads.items():
        scale = max(1.0, np.abs(grad).max(initial=0))
        np.testing.assert_allclose(got.grads[name] / scale, grad / scale, atol=tolerance, err_msg=name)


def compare(make, shapes, chains, dtypes=(("float64", 1e-10), ("float32", 2e-5)), **options):
    """Compare a graph with chains found and not; `make` gets the type that zeros must have.

    Returns:
        The last run with the pass on.
    """
    for dtype, tolerance in dtypes:
        net = make(dtype)
        with executor.disabled("rnn_chains"):
            wanted = Run(net, shapes, dtype, **options)
        got = Run(net, shapes, dtype, **options)
        assert (wanted.chains, got.chains) == (0, chains)
        close(got, wanted, tolerance)
    return got


@contextlib.contextmanager
def switched(off):
    with executor.disabled("rnn_chains") if off else contextlib.nullcontext():
        yield


def lstm_step(data, states, weights, gates="ifgo"):
    """One step as users write it; `gates` is the order in which the maps have them."""
    maps = [
        S.FullyConnected(x, *w, num_hidden=4 * UNITS, no_bias=len(w) == 1)
        for x, w in zip((data, states[0]), (weights[:2], weights[2:]), strict=True)
    ]
    parts = dict(zip(gates, S.SliceChannel(maps[0] + maps[1], num_outputs=4), strict=True))
    i, f, o = (S.Activation(parts[k], act_type="sigmoid") for k in "ifo")
    cell = f * states[1] + i * S.Activation(parts["g"], act_type="tanh")
    return o * S.Activation(cell, act_type="tanh"), cell


def weights_of(prefix):
    return [S.Variable(f"{prefix}_{name}") for name in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")]


def slices(net, count=STEPS, axis=1):
    return list(S.SliceChannel(net, num_outputs=count, axis=axis, squeeze_axis=True))


def zeros(dtype):
    return S.zeros((0, UNITS), dtype=dtype)


def by_hand(dtype, layers=2, dropout=0.0, gates="igfo", merge=lambda steps: S.Concat(*steps, dim=0)):
    """Layers inside the loop over time, as in old examples."""
    weights = [weights_of(f"l{i}") for i in range(layers)]
    states = [(zeros(dtype), zeros(dtype)) for _ in range(layers)]
    outputs = []
    for h in slices(S.Variable("data")):
        for i in range(layers):
            if i and dropout:
                h = S.Dropout(h, p=dropout)
            states[i] = lstm_step(h, states[i], weights[i], gates)
            h = states[i][0]
        outputs.append(S.Dropout(h, p=dropout) if dropout else h)
    return merge(outputs)
