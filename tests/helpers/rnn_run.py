"""Running unrolled cells on given weights."""

import numpy as np

import dpmodule as mx


def random_args(shapes, seed=0, low=-0.6, high=0.6):
    """Return random arrays by name."""
    random = np.random.RandomState(seed)
    return {
        name: mx.nd.array(random.uniform(low, high, shape).astype("float32"))
        for name, shape in shapes.items()
    }


def shapes_of(symbol, **given):
    """Return the shape of every argument by name."""
    return dict(zip(symbol.list_arguments(), symbol.infer_shape(**given)[0], strict=True))


def run(symbol, args, heads=None):
    """Run forward and backward; return the outputs and the gradients by name, as NumPy arrays.

    Args:
        symbol: the network.
        args: every argument by name.
        heads: head gradients; ones that grow along every output if None.
    """
    grads = {name: mx.nd.zeros(array.shape) for name, array in args.items()}
    executor = symbol.bind(mx.cpu(), dict(args), args_grad=grads)
    outputs = [output.asnumpy() for output in executor.forward(is_train=True)]
    if heads is None:
        heads = [np.linspace(0.5, 1.5, output.size).reshape(output.shape) for output in outputs]
    executor.backward([mx.nd.array(head) for head in heads])
    return outputs, {name: grad.asnumpy() for name, grad in grads.items()}


def close(found, want, rtol=1e-4, atol=1e-5):
    """Compare two lists or dicts of arrays."""
    if isinstance(want, dict):
        assert found.keys() == want.keys()
        for name in want:
            np.testing.assert_allclose(found[name], want[name], rtol, atol, err_msg=name)
        return
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol, atol)


def as_arrays(values):
    """Return NumPy arrays by name as NDArrays."""
    return {name: mx.nd.array(value) for name, value in values.items()}


def as_numpy(arrays):
    """Return NDArrays by name as NumPy arrays."""
    return {name: array.asnumpy() for name, array in arrays.items()}
