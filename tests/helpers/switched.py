"""The same graph run with passes on and off: outputs, gradients, states and random numbers must not differ."""

import numpy as np

import dpmodule as mx
from dpmodule import executor
from dpmodule.executor.passes import PASSES

ALL_PASSES = tuple(each.name for each in PASSES)


def _first_value(rng, name, shape):
    """Draw class numbers for labels, positive numbers for scales, else numbers around zero."""
    if name.endswith("label"):
        return rng.randint(0, 3, shape)
    if name.endswith(("gamma", "var")):
        return rng.uniform(0.5, 1.5, shape)
    return rng.uniform(-1, 1, shape)


def results(
    net, shapes, off=(), grad_req="write", seed=0, is_train=True, dtype="float32", seeds=False, values=None
):
    """Run a graph in the current context: forward, backward twice, and once for prediction.

    Args:
        off: passes that do not run.
        grad_req: of all arguments, or by name.
        seed: of the values and of what the graph draws.
        is_train: mode of the forward before backward.
        dtype: of the data.
        seeds: give every output a gradient; else all must be losses.
        values: of some arguments, by name.

    Returns:
        Everything it leaves, by name, and how many places each pass has rewritten in the program.
    """
    with executor.disabled(*off):
        types = dict.fromkeys(shapes, dtype)
        one = net.simple_bind(mx.current_context(), grad_req=grad_req, type_dict=types, **shapes)
        rng = np.random.RandomState(seed)
        for name, array in sorted({**one.arg_dict, **one.aux_dict}.items()):
            value = _first_value(rng, name, array.shape)
            array[:] = mx.nd.array((values or {}).get(name, value), dtype=dtype)
        mx.random.seed(seed)
        outputs = one.forward(is_train=is_train)
        found = {f"output {i}": out.asnumpy() for i, out in enumerate(outputs)}
        rng = np.random.RandomState(seed + 1)
        heads = [mx.nd.array(rng.uniform(-1, 1, out.shape), dtype=out.dtype) for out in outputs]
        for turn in ("first", "second"):
            one.backward(heads if seeds else None)
            grads = {k: g.asnumpy() for k, g in one.grad_dict.items() if g is not None}
            found.update({f"{turn} gradient of {k}": g for k, g in grads.items()})
            found.update({f"{turn} state {k}": a.asnumpy() for k, a in one.aux_dict.items()})
        found.update({f"output {i} after backward": out.asnumpy() for i, out in enumerate(one.outputs)})
        found["next random number"] = mx.nd.random.uniform(shape=(1,), ctx=one.context).asnumpy()
        found.update({f"prediction {i}": out.asnumpy() for i, out in enumerate(one.forward())})
        # a run in another mode keeps the program of this one
        return found, dict(one.program(True).low.fired)


def _largest(values):
    return float(np.abs(np.where(np.isfinite(values), values, 0)).max(initial=0.0))


def assert_same(got, want, rtol, what=""):
    """Compare two results.

    Differences count relative to the largest number of an array; in a gradient that is small beside others, as that of
    a bias before BatchNorm, which is only rounding, relative to theirs.
    """
    assert got.keys() == want.keys()
    gradients = max([_largest(values) for name, values in want.items() if "gradient" in name], default=0.0)
    for name, values in want.items():
        assert got[name].shape == values.shape, f"{name} {what}"
        scale = max(_largest(values), 1e-3, 0.02 * gradients if "gradient" in name else 0.0)
        with np.errstate(invalid="ignore"):
            if np.abs(got[name] - values).max(initial=0) <= rtol * scale:
                continue  # an eighth of the time of assert_allclose
        np.testing.assert_allclose(
            got[name] / scale, values / scale, rtol=0, atol=rtol, err_msg=f"{name} {what}", equal_nan=True
        )


def same_with_and_without(net, shapes, *names, rtol=1e-6, **options):
    """Compare runs of a graph with passes on and off, and return how often each has fired where they were on."""
    got, counts = results(net, shapes, **options)
    want, without = results(net, shapes, names, **options)
    assert not set(names) & set(without)
    assert_same(got, want, rtol, str(names))
    return counts


def fired(net, shapes, is_train=True, ctx=None):
    """Return how many places each pass rewrites."""
    return dict(net.simple_bind(ctx or mx.cpu(), **shapes).program(is_train).low.fired)
