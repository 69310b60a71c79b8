"""Files of lines in MultiSlot format, descriptions of them, and networks that train on them."""

import numpy as np

import dpmodule as mx

__all__ = [
    "WORDS",
    "bag_net",
    "described",
    "dense_module",
    "dense_net",
    "loop_over",
    "parameters",
    "write_bags",
    "write_dense",
]

WORDS = 50


def described(batch_size=8, **slots):
    """Return a description of slots given as ``name="uint64"``, ``"float"``, or with " dense" behind."""
    text = "".join(
        f'slots {{ name: "{name}" type: "{kind.split()[0]}" is_dense: {str("dense" in kind).lower()} is_used: true }}\n'
        for name, kind in slots.items()
    )
    return mx.DataFeedDesc(f"batch_size: {batch_size}\nmulti_slot_desc {{ {text} }}")


def write_dense(folder, counts=(20, 13, 7), width=4, seed=0):
    """Write files of `x` (floats) and `label` (0 or 1); returns their paths, and all that they hold."""
    rng = np.random.RandomState(seed)
    paths, every_x, every_y = [], [], []
    for number, count in enumerate(counts):
        x = rng.randn(count, width).astype(np.float32).round(3)
        y = (x.sum(1) > 0).astype(np.int64)
        lines = [f"{width} {' '.join(f'{v:.3f}' for v in row)} 1 {label}\n" for row, label in zip(x, y)]
        path = folder / f"part-{number}"
        path.write_text("".join(lines))
        paths.append(str(path))
        every_x.append(x)
        every_y.append(y)
    return paths, np.concatenate(every_x), np.concatenate(every_y)


def write_bags(folder, files=4, lines=40, seed=0, words=WORDS):
    """Write files of `words` (1 to 9 numbers) and `label`, which a bag of words can learn; returns their paths."""
    rng = np.random.RandomState(seed)
    score = np.random.RandomState(1).randn(words)
    paths = []
    for number in range(files):
        path = folder / f"bag-{number}"
        with path.open("w") as file:
            for _ in range(lines):
                found = rng.randint(0, words, rng.randint(1, 10))
                file.write(f"{len(found)} {' '.join(map(str, found))} 1 {int(score[found].sum() > 0)}\n")
        paths.append(str(path))
    return paths


def dense_net(dropout=0.0):
    """Return a net of two dense layers over `x`, whose output is `p_output`."""
    hidden = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=8, name="fc1")
    hidden = mx.sym.Activation(hidden, act_type="tanh", name="act")
    if dropout:
        hidden = mx.sym.Dropout(hidden, p=dropout, name="drop")
    last = mx.sym.FullyConnected(hidden, num_hidden=2, name="fc2")
    return mx.sym.SoftmaxOutput(last, mx.sym.Variable("label"), name="p")


def dense_module(dropout=0.0):
    """Return a module of `dense_net`."""
    return mx.mod.Module(dense_net(dropout), ["x"], ["label"])


def bag_net(words=WORDS, width=6):
    """Return a net over the ragged `words`: looked up, summed, and one dense layer."""
    found = mx.sym.Embedding(
        mx.sym.Variable("words", stype="ragged"),
        input_dim=words,
        output_dim=width,
        sparse_grad=True,
        name="table",
    )
    pooled = mx.sym.tanh(mx.sym.sequence_pool(found, pool_type="sum", name="pool"), name="act")
    return mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(pooled, num_hidden=2, name="fc"), mx.sym.Variable("label"), name="p"
    )


def bag_module():
    """Return a module of `bag_net`."""
    return mx.mod.Module(bag_net(), ["words"], ["label"])


def parameters(module):
    """Return a module's parameters and states as NumPy arrays."""
    arg_params, aux_params = module.get_params()
    return {name: array.asnumpy() for name, array in {**arg_params, **aux_params}.items()}


def loop_over(module, x, y, batch_size, epochs=1, **optimizer):
    """Train a module by a plain loop of `forward_backward` and `update`."""
    if not module.binded:
        module.bind([("x", (batch_size, x.shape[1]))], [("label", (batch_size,))])
        module.init_params(mx.init.Uniform(0.01))
        module.init_optimizer(None, **optimizer)
    for _ in range(epochs):
        for i in range(0, len(x), batch_size):
            rows = slice(i, i + batch_size)
            module.forward_backward(mx.io.DataBatch([mx.nd.array(x[rows])], [mx.nd.array(y[rows])]))
            module.update()
    return module
