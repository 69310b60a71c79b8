"""Graphs of the kinds that the native Hogwild engine has, drawn at random, and files for them."""

import random
from dataclasses import dataclass

import dpmodule as mx

POOLS = ("sum", "mean", "sqrt", "max", "first", "last")
ACTIVATIONS = ("relu", "sigmoid", "softrelu", "softsign", "tanh")
LOSSES = ("softmax", "logistic", "linear", "cross_entropy", "mean")
OPTIMIZERS = (
    ("sgd", {"learning_rate": 0.1}),
    ("sgd", {"learning_rate": 0.1, "wd": 0.01}),
    ("sgd", {"learning_rate": 0.05, "momentum": 0.9}),
    ("adagrad", {"learning_rate": 0.05}),
    ("adam", {"learning_rate": 0.01}),
    ("rmsprop", {"learning_rate": 0.01}),
    ("ftrl", {"learning_rate": 0.1}),
)


@dataclass(frozen=True)
class Drawn:
    """A graph, the feed for it, and how a line is made."""

    symbol: object
    feed: object
    slots: tuple  # (name, is_float, values of a line or None for any number, limit of the ids)
    optimizer: tuple

    def write(self, path, lines, generator):
        with open(path, "w") as file:
            for _ in range(lines):
                words = []
                for _, is_float, width, limit in self.slots:
                    count = width or generator.randint(0, 5)
                    numbers = [
                        round(generator.random(), 3) if is_float else generator.randrange(limit)
                        for _ in range(count)
                    ]
                    words += [count, *numbers]
                file.write(" ".join(map(str, words)) + "\n")
        return str(path)


def feed_text(slots, batch_size):
    rows = []
    for name, is_float, width, _ in slots:
        kind, dense = "float" if is_float else "uint64", str(bool(width)).lower()
        rows.append(f'  slots {{ name: "{name}" type: "{kind}" is_dense: {dense} is_used: true }}')
    return "\n".join([f"batch_size: {batch_size}", "multi_slot_desc {", *rows, "}"])


def drawn(seed, dropout=False):
    """Draw a graph: slots over shared tables, joined, dense layers, a loss, an optimizer."""
    generator = random.Random(seed)
    width = generator.choice([1, 3, 8, 17])
    sizes = [generator.randint(3, 40) for _ in range(generator.randint(1, 3))]
    tables = [(mx.sym.Variable(f"table{i}_weight"), rows) for i, rows in enumerate(sizes)]
    slots, parts = [], []
    for i in range(generator.choice([1, 2, 3, 5, 30])):
        slot, part = _slot(generator, i, width, tables)
        slots.append(slot)
        parts.append(part)
    data = _joined(generator, parts)
    for i in range(generator.randint(0, 4)):
        data = mx.sym.FullyConnected(
            data, num_hidden=generator.randint(1, 9), no_bias=generator.random() < 0.3, name=f"fc{i}"
        )
        data = mx.sym.Activation(data, act_type=generator.choice(ACTIVATIONS))
        if dropout or generator.random() < 0.2:
            data = mx.sym.Dropout(data, p=0.3 if dropout else 0.0)
    classes = generator.randint(2, 4)
    symbol, label = _loss(generator.choice(LOSSES), data, classes)
    slots.append(label)
    feed = mx.DataFeedDesc(feed_text(slots, generator.choice([4, 7])))
    return Drawn(symbol, feed, tuple(slots), generator.choice(OPTIMIZERS))


def _slot(generator, i, width, tables):
    name = f"slot{i}"
    if i and generator.random() < 0.15:
        return (name, True, 2, 0), mx.sym.FullyConnected(
            mx.sym.Variable(name, shape=(0, 2)), num_hidden=width, name=f"dense{i}"
        )
    weight, rows = generator.choice(tables)
    options = {"input_dim": rows, "output_dim": width, "weight": weight, "sparse_grad": True}
    if generator.random() < 0.2:
        found = mx.sym.Embedding(mx.sym.Variable(name, shape=(0, 2)), **options)
        return (name, False, 2, rows), mx.sym.sum(found, axis=1)
    found = mx.sym.Embedding(mx.sym.Variable(name, stype="ragged"), **options)
    return (name, False, None, rows), mx.sym.sequence_pool(found, pool_type=generator.choice(POOLS))


def _joined(generator, parts):
    if len(parts) == 1:
        return parts[0]
    kind = generator.choice(["concat", "add", "multiply", "factorization"])
    if kind == "concat":
        return mx.sym.Concat(*parts, dim=1)
    total = mx.sym.add_n(*parts)
    if kind == "add":
        return total
    if kind == "multiply":
        return parts[0] * parts[1] + total
    return 0.5 * (mx.sym.square(total) - mx.sym.add_n(*map(mx.sym.square, parts)))


def _loss(kind, data, classes):
    label = mx.sym.Variable("label", shape=(0,))
    if kind in ("logistic", "linear"):
        data = mx.sym.FullyConnected(data, num_hidden=1, name="last")
        make = mx.sym.LogisticRegressionOutput if kind == "logistic" else mx.sym.LinearRegressionOutput
        return make(data, label, name="loss"), ("label", False, 1, 2)
    data = mx.sym.FullyConnected(data, num_hidden=classes, name="last")
    slot = ("label", False, 1, classes)
    if kind == "softmax":
        return mx.sym.SoftmaxOutput(data, label, name="loss"), slot
    if kind == "cross_entropy":
        return mx.sym.MakeLoss(mx.sym.softmax_cross_entropy(data, label), name="loss"), slot
    chosen = mx.sym.pick(mx.sym.softmax(data), label)
    return mx.sym.MakeLoss(mx.sym.mean(-mx.sym.log(chosen + 1e-6)), name="loss"), slot
