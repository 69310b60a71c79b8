"""Running unrolled cells on given weights."""

import numpy as np

import dpmodule as mx


def random_args(shapes, seed=0):
    """Return random arrays by name."""
    random = np.random.RandomState(seed)
    return {name: mx.nd.array(random.uniform(-0.6, 0.6, shape)) for name, shape in shapes.items()}


def shapes_of(symbol, **given):
    """Return the shape of every argument by name."""
    return dict(zip(symbol.list_arguments(), symbol.infer_shape(**given)[0], strict=True))


def outputs_of(symbol, args, is_train=False):
    """Return the outputs as NumPy arrays; `args` may have more than the arguments."""
    args = {name: args[name] for name in symbol.list_arguments()}
    return [output.asnumpy() for output in symbol.bind(mx.cpu(), args).forward(is_train=is_train)]


def run(symbol, args):
    """Return the outputs, and gradients by name for head gradients that grow along every output, as NumPy arrays."""
    grads = {name: mx.nd.zeros(array.shape) for name, array in args.items()}
    executor = symbol.bind(mx.cpu(), dict(args), args_grad=grads)
    outputs = [output.asnumpy() for output in executor.forward(is_train=True)]
    executor.backward([mx.nd.array(np.linspace(0.5, 1.5, y.size).reshape(y.shape)) for y in outputs])
    return outputs, as_numpy(grads)


def close(found, want, rtol=1e-4, atol=1e-5):
    """Compare two lists or dicts of arrays."""
    if isinstance(want, dict):
        assert found.keys() == want.keys()
        found, want = [[each[name] for name in want] for each in (found, want)]
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol, atol)


def as_numpy(arrays):
    """Return NDArrays by name as NumPy arrays."""
    return {name: array.asnumpy() for name, array in arrays.items()}
