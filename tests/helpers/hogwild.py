"""Files of lines in MultiSlot format, descriptions of them, and networks that train on them."""

import time

import numpy as np

import dpmodule as mx

WORDS = 50
BAGS = {"words": "uint64", "label": "uint64 dense"}
DENSE = {"x": "float dense", "label": "uint64 dense"}
RATE = 2.0
"""With batches of four, an update moves a number half of the way to its target."""


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
    paths, xs, ys = [], [], []
    for number, count in enumerate(counts):
        xs.append(rng.randn(count, width).astype(np.float32).round(3))
        ys.append((xs[-1].sum(1) > 0).astype(np.int64))
        rows = zip(xs[-1], ys[-1])
        path = folder / f"part-{number}"
        path.write_text("".join(f"{width} {' '.join(f'{v:.3f}' for v in row)} 1 {y}\n" for row, y in rows))
        paths.append(str(path))
    return paths, np.concatenate(xs), np.concatenate(ys)


def write_bags(folder, files=4, lines=40, seed=0, words=WORDS, noise=0.0):
    """Write files of `words` (1 to 9 numbers) and `label`, which a bag of words can learn; returns their paths."""
    rng = np.random.RandomState(seed)
    score = np.random.RandomState(1).randn(words)
    paths = []
    for number in range(files):
        path = folder / f"bag-{number}"
        with path.open("w") as file:
            for _ in range(lines):
                found = rng.randint(0, words, rng.randint(1, 10))
                label = int(score[found].sum() > (noise and noise * rng.logistic()))
                file.write(f"{len(found)} {' '.join(map(str, found))} 1 {label}\n")
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


def rows_of(width, words=WORDS, name="table", slot="words", sparse=True):
    """Return the rows of a table for a ragged slot, which is a name or a variable."""
    data = mx.sym.Variable(slot, stype="ragged") if isinstance(slot, str) else slot
    return mx.sym.Embedding(data, input_dim=words, output_dim=width, sparse_grad=sparse, name=name)


def bag_net(words=WORDS, width=6, pool="sum", dropout=0.0, sparse=True):
    """Return a net over the ragged `words`: looked up, summed, and one dense layer."""
    data = mx.sym.tanh(mx.sym.sequence_pool(rows_of(width, words, sparse=sparse), pool_type=pool), name="act")
    if dropout:
        data = mx.sym.Dropout(data, p=dropout)
    last = mx.sym.FullyConnected(data, num_hidden=2, name="fc")
    return mx.sym.SoftmaxOutput(last, mx.sym.Variable("label"), name="p")


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


# files whose lines each move a number of their own, which shows how often a line has been trained on


def counting_net(lines):
    """Return the net; its table has a row for each line."""
    pooled = mx.sym.sequence_pool(rows_of(1, lines, slot="line"), pool_type="sum")
    return mx.sym.LinearRegressionOutput(pooled, mx.sym.Variable("label"), name="o")


def write_lines(folder, counts):
    """Write files of lines with numbers of their own, and blank ones among them; returns their paths."""
    paths, first = [], 0
    for number, count in enumerate(counts):
        path = folder / f"lines-{number}"
        path.write_text("".join(f"1 {first + i} 1 1\n" + "\n" * (i % 7 == 0) for i in range(count)))
        paths.append(str(path))
        first += count
    return paths


def train(run, net, files, workers, mode, slow=False, **more):
    """Train on the files once; a schedule, which runs in Python, makes native workers slow."""
    schedule = mx.lr_scheduler.FactorScheduler(10**9, base_lr=RATE)
    rate = {"lr_scheduler": schedule} if slow else {"learning_rate": RATE}
    more = {"initializer": mx.init.Zero(), "optimizer": "sgd", "optimizer_params": rate, **more}
    feed = described(4, line="uint64", label="uint64 dense")
    return run.run_from_files(net, feed, files, workers, mode=mode, **more)


def counts(run, net):
    """Return how often each line has been trained on: 0, 1, or a number with a fraction."""
    return run.get_params(net)[0]["table_weight"].asnumpy()[:, 0] / 0.5


def await_newer(path, program, is_enough=lambda: True):
    """Wait until a file is written anew and is enough, or the program has printed its result."""

    def written():
        return path.stat().st_mtime_ns if path.exists() else None

    newest, end = written(), time.monotonic() + 60
    while time.monotonic() < end and not program.output()[0] and (written() == newest or not is_enough()):
        time.sleep(0.001)
