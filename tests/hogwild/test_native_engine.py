"""The native engine: which graphs it takes, that it computes what a plain loop does, and its errors."""

import copy
import gzip
import itertools
import random
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule import symbol as sym
from dpmodule.base import ArgumentError, BoundsError, FileFormatError, NonFiniteError
from helpers.both_backends import descriptors
from helpers.hogwild import BAGS, WORDS, bag_net, described, parameters, rows_of, write_bags

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no extension")

FEED = described(**BAGS)
ADAGRAD = ("adagrad", {"learning_rate": 0.1})


def trained(symbol, feed, files, mode, workers=1, fetch=(), optimizer=ADAGRAD, epochs=1, **keywords):
    """Return the parameters after runs from the same first values, and the results of the last."""
    mx.random.seed(5)
    settings = {"optimizer": optimizer[0], "optimizer_params": copy.deepcopy(optimizer[1])}
    modes = [mode] * epochs if isinstance(mode, str) else mode
    with mx.AsyncExecutor() as run:
        for each in modes:
            more = {"mode": each, "initializer": mx.init.Uniform(0.5), **settings, **keywords}
            result = run.run_from_files(symbol, feed, files, workers, fetch, **more)
        return parameters(run.module(symbol)), result


def assert_equal_engines(symbol, feed, files, mode="native", **keywords):
    """Compare parameters, fetches, metrics and counts of the native and the serial engine."""
    epochs = 1 if isinstance(mode, str) else len(mode)
    expected, slow = trained(symbol, feed, files, "serial", epochs=epochs, **keywords)
    found, fast = trained(symbol, feed, files, mode, **keywords)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
    assert (fast.examples, fast.batches) == (slow.examples, slow.batches)
    np.testing.assert_allclose(list(fast), list(slow), atol=1e-6)
    assert [name for name, _ in fast.metric] == [name for name, _ in slow.metric]
    assert [value for _, value in fast.metric] == pytest.approx([v for _, v in slow.metric], abs=1e-6)


# graphs drawn at random

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
    """A graph, its slots as (name, is float, number of values of a line or None, limit of the ids), an optimizer."""

    symbol: object
    batch_size: int
    slots: tuple
    optimizer: tuple

    @property
    def feed(self):
        slots = {name: "float" if is_float else "uint64" for name, is_float, _, _ in self.slots}
        return described(self.batch_size, **{s[0]: slots[s[0]] + " dense" * bool(s[2]) for s in self.slots})

    def write(self, path, lines, generator):
        text = ""
        for _ in range(lines):
            for _, is_float, width, limit in self.slots:
                count = width or generator.randint(0, 5)
                drawn = [
                    round(generator.random(), 3) if is_float else generator.randrange(limit)
                    for _ in range(count)
                ]
                text += " ".join(map(str, (count, *drawn))) + " "
            text += "\n"
        path.write_text(text)
        return str(path)


def drawn(seed, loss=None):
    """Draw a graph: slots over shared tables, joined, dense layers, a loss, an optimizer."""
    generator = random.Random(seed)
    width = generator.choice([1, 3, 8, 17])
    sizes = [generator.randint(3, 40) for _ in range(generator.randint(1, 3))]
    tables = [(sym.Variable(f"table{i}_weight"), rows) for i, rows in enumerate(sizes)]
    number = generator.choice([1, 2, 3, 5, 30])
    slots, parts = zip(*(_slot(generator, i, width, tables) for i in range(number)))
    data = _joined(generator, parts)
    for i in range(generator.randint(0, 4)):
        bias = generator.random() < 0.3
        data = sym.FullyConnected(data, num_hidden=generator.randint(1, 9), no_bias=bias, name=f"fc{i}")
        acts = ("relu", "sigmoid", "softrelu", "softsign", "tanh")
        data = sym.Activation(data, act_type=generator.choice(acts))
        data = sym.Dropout(data, p=0.0) if generator.random() < 0.2 else data
    symbol, label = _loss(generator, data, generator.randint(2, 4), loss or generator.choice(LOSSES))
    return Drawn(symbol, generator.choice([4, 7]), (*slots, label), generator.choice(OPTIMIZERS))


def _slot(generator, i, width, tables):
    name = f"slot{i}"
    if i and generator.random() < 0.15:
        data = sym.Variable(name, shape=(0, 2))
        return (name, True, 2, 0), sym.FullyConnected(data, num_hidden=width, name=f"dense{i}")
    weight, rows = generator.choice(tables)
    options = {"input_dim": rows, "output_dim": width, "weight": weight, "sparse_grad": True}
    if generator.random() < 0.2:
        found = sym.Embedding(sym.Variable(name, shape=(0, 2)), **options)
        return (name, False, 2, rows), generator.choice((sym.sum, sym.mean))(found, axis=1)
    found = sym.Embedding(sym.Variable(name, stype="ragged"), **options)
    pool = generator.choice(("sum", "mean", "sqrt", "max", "first", "last"))
    return (name, False, None, rows), sym.sequence_pool(found, pool_type=pool)


def _joined(generator, parts):
    kind = generator.choice(["concat", "add", "multiply", "factorization"])
    if len(parts) == 1:
        return parts[0]
    if kind == "concat":
        return sym.Concat(*parts, dim=1)
    total = sym.add_n(*parts)
    if kind == "factorization":
        return 0.5 * (sym.square(total) - sym.add_n(*map(sym.square, parts)))
    return total if kind == "add" else parts[0] * parts[1] + total


LOSSES = ("softmax", "logistic", "linear", "cross_entropy", "mean", "sum", "log_softmax")


def _loss(generator, data, classes, kind):
    label = sym.Variable("label", shape=(0,))
    is_regression = kind in ("logistic", "linear")
    data = sym.FullyConnected(data, num_hidden=1 if is_regression else classes, name="last")
    chosen = sym.log(sym.pick(sym.softmax(data), label) + 1e-6)
    symbol = {
        "softmax": lambda: sym.SoftmaxOutput(data, label, name="loss"),
        "logistic": lambda: sym.LogisticRegressionOutput(data, label, name="loss"),
        "linear": lambda: sym.LinearRegressionOutput(data, label, name="loss"),
        "cross_entropy": lambda: sym.MakeLoss(sym.softmax_cross_entropy(data, label), name="loss"),
        "mean": lambda: sym.MakeLoss(sym.mean(-chosen), name="loss"),
        "sum": lambda: sym.MakeLoss(sym.sum(-chosen), name="loss"),
        "log_softmax": lambda: sym.MakeLoss(-sym.pick(sym.log_softmax(data), label), name="loss"),
    }[kind]()
    return symbol, ("label", False, 1, 2 if is_regression else classes)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_takes_every_graph_of_its_family(first):
    for seed in range(first, first + 50):
        net = drawn(seed)
        with mx.AsyncExecutor() as run:  # parameters of one name are one array in it
            choice = run.explain(net.symbol, net.feed)
            assert choice.mode == "native", f"{seed}: {choice}"


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(i, marks=pytest.mark.slow) for i in range(12, 200))]
)
def test_equals_the_serial_engine(seed, tmp_path):
    net, generator = drawn(seed, LOSSES[seed % len(LOSSES)]), random.Random(seed)
    files = [net.write(tmp_path / f"{seed}-{i}", count, generator) for i, count in enumerate((9, 5))]
    assert_equal_engines(net.symbol, net.feed, files, optimizer=net.optimizer)


# special graphs and options


def logistic(score, shape=None):
    return sym.LogisticRegressionOutput(score, sym.Variable("label", shape=shape), name="p")


def factorization_machine():
    words = sym.Variable("words", stype="ragged")
    rows = rows_of(4, name="v", slot=words)
    total = sym.square(sym.sequence_pool(rows, pool_type="sum"))
    pairs = total - sym.sequence_pool(sym.square(rows), pool_type="sum")
    first = sym.sequence_pool(rows_of(1, name="w", slot=words), pool_type="sum")
    return logistic(first + 0.5 * sym.sum(pairs, axis=1, keepdims=True))


def label_of(net):
    return sym.Cast(net.get_internals()["label"], dtype="float32")


def fetched(net):
    """Return the accuracy, and hits of a number of each line in a whole row."""
    right = sym.broadcast_equal(sym.argmax(net, axis=1), label_of(net))
    hits = sym.broadcast_equal(sym.clip(net, a_min=1.0, a_max=1.0), sym.expand_dims(label_of(net), axis=1))
    return [sym.mean(right, name="accuracy"), sym.mean(hits, name="hits"), "words", "label"]


NET = bag_net()
SCHEDULE = {"lr_scheduler": mx.lr_scheduler.FactorScheduler(step=3, factor=0.5, base_lr=1.0)}


@pytest.mark.parametrize(
    ("net", "options"),
    [
        (NET, {"eval_metric": ["acc", "auc", "logloss", "ce", "f1"]}),
        (NET, {"fetch": fetched(NET)}),
        (NET, {"optimizer": ("sgd", SCHEDULE)}),
        (NET, {"optimizer": ("adam", {}), "mode": ("native", "serial")}),  # counts go on from run to run
        (NET, {"optimizer": ("adam", {}), "mode": ("native", "native")}),
        *((bag_net(sparse=False), {"optimizer": rule}) for rule in OPTIMIZERS[1:]),
        (factorization_machine(), {"optimizer": ("adam", {})}),
    ],
)
def test_special_graphs_and_options_equal_the_serial_engine(net, options, tmp_path):
    options = {**options, "optimizer": (options.get("optimizer") or ADAGRAD)}
    assert_equal_engines(net, FEED, write_bags(tmp_path), **options)


def test_skip_gram_of_dense_slots(tmp_path):
    rows = {"input_dim": WORDS, "output_dim": 5, "sparse_grad": True}
    one = sym.Embedding(sym.Variable("centre", shape=(0,)), name="in", **rows)
    other = sym.Embedding(sym.Variable("context", shape=(0, 3)), name="out", **rows)
    context = sym.Reshape(sym.sum(other, axis=1), shape=(0, 1, -1))
    product = sym.broadcast_mul(sym.expand_dims(one, axis=1), context)
    net = logistic(sym.sum(product, axis=(1, 2), keepdims=False), (0,))
    slots = (("centre", False, 1, WORDS), ("context", False, 3, WORDS), ("label", False, 1, 2))
    made = Drawn(net, 8, slots, ADAGRAD)
    assert_equal_engines(net, made.feed, [made.write(tmp_path / "pairs", 50, random.Random(4))])


@pytest.mark.parametrize("pool", ["mean", "max", "last"])
def test_slots_without_values_pool_to_zeros(pool, tmp_path):
    path = tmp_path / "lines"
    path.write_text("0 1 1\n2 3 4 1 0\n0 1 0\n1 3 1 1\n" + "0 1 1\n0 1 0\n" * 4)
    net, feed = bag_net(pool=pool), described(4, **BAGS)
    assert_equal_engines(net, feed, [str(path)], fetch="words")
    found, result = trained(net, feed, [str(path)], "native", fetch="words")
    assert result[0] == pytest.approx(10 / 9)
    first, _ = trained(net, feed, [str(path)], "native", optimizer=("sgd", {"learning_rate": 0.0}))
    changed = (found["table_weight"] != first["table_weight"]).any(1)
    assert np.flatnonzero(changed).tolist() in ([3, 4], [3], [4])


# counts


def test_counts_are_exact_for_all_files_workers_and_batch_sizes(tmp_path):
    files = write_bags(tmp_path, 1, 23)
    lines = Path(files[0]).read_text().splitlines()
    contents = ["\n".join(lines), "", "\r\n".join(lines) + "\r\n", lines[0], "\n\n" + lines[0] + "\n \n"]
    for i, text in enumerate(contents):
        (tmp_path / f"{i}").write_text(text, newline="")
        files.append(str(tmp_path / f"{i}"))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(contents[0].encode()))
    files.append(str(tmp_path / "packed.gz"))
    expected = 23 * 4 + 2
    for batch_size, workers in itertools.product((1, 64), (1, 3, 7)):
        _, result = trained(bag_net(), described(batch_size, **BAGS), files, "native", workers)
        least = -(-expected // batch_size)
        assert result.examples == expected
        assert least <= result.batches <= least + workers - 1


def test_parts_of_files_are_read_once(tmp_path):
    files = write_bags(tmp_path, 1, 200)
    for workers in (2, 3, 7):
        assert trained(NET, FEED, files, "native", workers, split_files=True)[1].examples == 200
    lines = (tmp_path / "bag-0").read_text().splitlines() * 10
    lines[1234] = "2 5 x 1 1"
    (tmp_path / "bad").write_text("\n".join(lines) + "\n")
    with pytest.raises(FileFormatError, match="bad: line 1235, slot 'words'"):
        trained(NET, FEED, [str(tmp_path / "bad")], "native", 2, split_files=True)
    ids = " ".join(str(i % WORDS) for i in range(500_000))  # lines longer than a block
    (tmp_path / "long").write_text(f"500000 {ids} 1 1\n1 3 1 0\n500000 {ids} 1 0")
    net = bag_net(pool="mean")
    assert trained(net, FEED, [str(tmp_path / "long")], "native", 2, split_files=True)[1].examples == 3


def test_dropout_is_the_same_again_under_one_seed(tmp_path):
    files = write_bags(tmp_path)
    first, again = (trained(bag_net(dropout=0.5), FEED, files, "native")[0] for _ in range(2))
    other = trained(bag_net(), FEED, files, "native")[0]
    assert all(np.array_equal(value, again[name]) for name, value in first.items())
    assert not np.allclose(first["table_weight"], other["table_weight"])


def test_fixed_parameters_stay(tmp_path):
    files = write_bags(tmp_path)
    module = mx.mod.Module(bag_net(), ["words"], ["label"], fixed_param_names=["table_weight"])
    with mx.AsyncExecutor() as run:
        run.run_from_files(module, FEED, files, 1, mode="native", initializer=mx.init.Uniform(0.5))
        before = parameters(module)
        run.run_from_files(module, FEED, files, 1, mode="native")
    assert np.array_equal(before["table_weight"], parameters(module)["table_weight"])
    assert not np.array_equal(before["fc_weight"], parameters(module)["fc_weight"])


# graphs and lines that it refuses


@pytest.mark.parametrize("where", ["operand", "weight", "fetch"])
def test_parameters_are_read_by_layers_only(where, tmp_path):
    one, table = sym.Variable("one_weight", shape=(1, 2)), sym.Variable("table_weight")
    words = sym.Variable("words", stype="ragged")
    data = sym.Embedding(words, table, input_dim=WORDS, output_dim=2, sparse_grad=True)
    data = sym.sequence_pool(data, pool_type="sum")
    data = sym.broadcast_mul(data, one) if where == "operand" else data
    weight = {"weight": sym.concat(sym.tanh(one), one, dim=0)} if where == "weight" else {}
    data = sym.FullyConnected(data, num_hidden=2, name="fc", **weight)
    net = sym.SoftmaxOutput(data, sym.Variable("label", shape=(0,)), name="p")
    fetch = sym.sum(table) if where == "fetch" else ()
    with pytest.raises(ArgumentError, match="reads a parameter"):
        trained(net, FEED, write_bags(tmp_path), "native", fetch=fetch)
    assert trained(net, FEED, write_bags(tmp_path), "serial", fetch=fetch)[1].examples


LACKING = {
    "the power 3.0; only squares are supported": lambda p, rows: p**3,
    r"axes=\(0,\)": lambda p, rows: sym.Dropout(p, p=0.5, axes=(0,)),
    r"axis=\(0,\)": lambda p, rows: sym.broadcast_mul(p, sym.sum(p, axis=0, keepdims=True)),
    "exclude": lambda p, rows: sym.broadcast_mul(p, sym.sum(p, axis=0, exclude=True, keepdims=True)),
    "only the last axis, without temperature": lambda p, rows: sym.softmax(p, temperature=2.0),
    "not begin with the batch": lambda p, rows: sym.Reshape(sym.Reshape(p, shape=(-1,)), shape=(-1, 4)),
    "dim=0 of 2 axes": lambda p, rows: sym.slice_axis(sym.Concat(p, p, dim=0), axis=0, begin=0, end=8),
    "max pooling of squares": lambda p, rows: sym.sequence_pool(sym.square(rows), pool_type="max"),
    "its input is ragged; use an": lambda p, rows: sym.sequence_pool(
        sym.FullyConnected(rows, flatten=False, num_hidden=3)
    ),
    "normalization='valid'": {"normalization": "valid"},
    "multi_output=True": {"multi_output": True},
}


@pytest.mark.parametrize("told", LACKING)
def test_operators_that_it_lacks(told):
    words, what = sym.Variable("words", stype="ragged"), LACKING[told]
    data = sym.sequence_pool(rows_of(4, slot=words), pool_type="sum")
    loss = what if isinstance(what, dict) else {}
    data = data if loss else what(data, rows_of(4, name="other", slot=words))
    data = sym.FullyConnected(data, num_hidden=2, name="fc")
    net = sym.SoftmaxOutput(data, sym.Variable("label", shape=(0,)), name="p", **loss)
    with mx.AsyncExecutor() as run:
        choice = run.explain(net, FEED)
    assert choice.mode != "native"
    assert re.search(f"not supported by the native engine: .*{told}", choice.why)


def test_names_operators_and_rules_that_it_lacks(tmp_path):
    odd = sym.sequence_pool(sym.sequence_softmax(rows_of(4)), pool_type="sum")
    net = sym.SoftmaxOutput(odd, sym.Variable("label", shape=(0,)), name="p")
    with mx.AsyncExecutor() as run:
        choice = run.explain(net, FEED)
        assert choice.mode != "native"
        assert "sequence_softmax" in choice.why
        with pytest.raises(ArgumentError, match="sequence_softmax"):
            run.run_from_files(net, FEED, write_bags(tmp_path), 1, mode="native")
    with mx.AsyncExecutor() as run:
        run.run_from_files(NET, FEED, write_bags(tmp_path), 1, optimizer="adamax")
        assert "Adamax has no native rule" in run.explain(NET).why


def test_an_id_outside_its_table_names_file_line_and_slot(tmp_path):
    path = tmp_path / "bad"
    path.write_text("1 3 1 0\n\n2 5 50 1 1\n")
    told = r"bad: line 3, slot 'words': found id 50, expected 0 to 49.*'table_weight'"
    with pytest.raises(BoundsError, match=told):
        trained(NET, FEED, [str(path)], "native")


def test_a_bad_line_names_file_line_and_slot_or_is_skipped(tmp_path):
    path, packed = tmp_path / "bad", tmp_path / "packed.gz"
    path.write_text("1 3 1 0\n2 5 x 1 1\n1 4 1 1\n")
    with pytest.raises(FileFormatError, match="bad: line 2, slot 'words', value 2 of 2: found 'x'"):
        trained(NET, FEED, [str(path)], "native")
    _, result = trained(NET, FEED, [str(path)], "native", on_bad_line="skip")
    assert (result.examples, result.skipped) == (2, 1)
    packed.write_bytes(gzip.compress(b"1 3 1 0\n" * 100)[:-9])
    with pytest.raises(FileFormatError, match="packed.gz: not a complete gzip file"):
        trained(NET, FEED, [str(packed)], "native")


def test_values_that_are_not_finite_are_an_error_with_their_place(tmp_path):
    files = write_bags(tmp_path, 1, 64)
    values = {"table_weight": mx.nd.full((WORDS, 6), 1.0)}
    values["table_weight"][7] = float("nan")
    with pytest.raises(NonFiniteError, match="bag-0") as caught:
        trained(NET, FEED, files, "native", arg_params=values)
    assert caught.value.file == files[0]
    assert caught.value.batch >= 0


def test_snapshots_are_taken_between_batches(tmp_path):
    files, prefix, net, seen = write_bags(tmp_path, 2, 2000), str(tmp_path / "model"), bag_net(), []
    feed = described(1, **BAGS)
    with mx.AsyncExecutor() as run:

        def look(progress):
            run.snapshot(prefix)
            seen.append(progress.examples)

        while not seen:  # a run may be over before its first report
            files *= 4
            run.run_from_files(net, feed, files, 2, mode="native", callback=look, callback_s=0.02)
    assert set(mx.nd.load(f"{prefix}-0000.params")) == {"arg:fc_bias", "arg:fc_weight", "arg:table_weight"}


def test_files_are_closed_and_one_byte_is_a_line(tmp_path):
    files, before = write_bags(tmp_path, files=8), descriptors()
    trained(bag_net(), FEED, files, "native")
    assert descriptors() == before
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(FileFormatError, match="short.*line 1"):
        trained(bag_net(), FEED, [str(tmp_path / "short")], "native")
