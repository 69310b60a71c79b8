"""The native engine: which graphs it takes, that it computes what a plain loop does, and what it says of bad input."""

import gzip
import random

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.base import ArgumentError, BoundsError, FileFormatError, NonFiniteError
from helpers.hogwild_nets import drawn, feed_text
from helpers.programs import run_program

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no extension")

WORDS = 40


def bow(pool="sum", dropout=0.0, words=WORDS, loss="softmax", sparse=True):
    data = mx.sym.Variable("words", stype="ragged")
    data = mx.sym.Embedding(data, input_dim=words, output_dim=6, sparse_grad=sparse, name="table")
    data = mx.sym.Activation(mx.sym.sequence_pool(data, pool_type=pool), act_type="tanh")
    data = mx.sym.Dropout(mx.sym.FullyConnected(data, num_hidden=5, name="fc1"), p=dropout)
    data = mx.sym.FullyConnected(data, num_hidden=2, name="fc2")
    return mx.sym.SoftmaxOutput(data, mx.sym.Variable("label"), name="p")


def bow_feed(batch_size=8):
    slots = [("words", False, None, WORDS), ("label", False, 1, 2)]
    return mx.DataFeedDesc(feed_text(slots, batch_size))


def bow_lines(count, generator, words=WORDS):
    lines = []
    for _ in range(count):
        ids = [generator.randrange(words) for _ in range(generator.randint(1, 9))]
        label = int(2 * sum(one % 2 for one in ids) > len(ids))
        lines.append(f"{len(ids)} {' '.join(map(str, ids))} 1 {label}")
    return lines


def bow_files(folder, counts=(37, 0, 21, 50), seed=0):
    generator = random.Random(seed)
    paths = []
    for i, count in enumerate(counts):
        path = folder / f"part-{i}"
        path.write_text("".join(line + "\n" for line in bow_lines(count, generator)))
        paths.append(str(path))
    return paths


def trained(
    symbol, feed, files, mode, workers=1, fetch=(), optimizer=("adagrad", {"learning_rate": 0.1}), **keywords
):
    """Return the parameters after one run from the same first values, and its results."""
    mx.random.seed(5)
    name, params = optimizer
    with mx.AsyncExecutor() as run:
        result = run.run_from_files(
            symbol,
            feed,
            files,
            workers,
            fetch,
            mode=mode,
            optimizer=name,
            optimizer_params=params,
            initializer=mx.init.Uniform(0.5),
            **keywords,
        )
        return {key: value.asnumpy() for key, value in run.get_params(symbol)[0].items()}, result


def assert_close(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def compare(seed, folder):
    net = drawn(seed)
    generator = random.Random(seed)
    files = [net.write(folder / f"{seed}-{i}", count, generator) for i, count in enumerate((9, 5))]
    expected, slow = trained(net.symbol, net.feed, files, "serial", optimizer=net.optimizer)
    found, fast = trained(net.symbol, net.feed, files, "native", optimizer=net.optimizer)
    assert_close(found, expected)
    assert (fast.examples, fast.batches) == (slow.examples, slow.batches)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_takes_every_graph_of_its_family(first):
    for seed in range(first, first + 50):
        net = drawn(seed)
        with mx.AsyncExecutor() as run:  # parameters of one name are one array in it
            choice = run.explain(net.symbol, net.feed)
            assert choice.mode == "native", f"{seed}: {choice}"


@pytest.mark.parametrize("seed", range(12))
def test_equals_the_serial_engine(seed, tmp_path):
    compare(seed, tmp_path)


@pytest.mark.parametrize("pool", ["sum", "mean", "sqrt", "max", "first", "last"])
def test_slots_without_values_pool_to_zeros(pool, tmp_path):
    path = tmp_path / "lines"
    path.write_text("0 1 1\n2 3 4 1 0\n0 1 0\n1 3 1 1\n" + "0 1 1\n0 1 0\n" * 4)
    expected = trained(bow(pool), bow_feed(4), [str(path)], "serial", fetch="words")
    found = trained(bow(pool), bow_feed(4), [str(path)], "native", fetch="words")
    assert_close(found[0], expected[0])
    assert found[1][0] == pytest.approx(expected[1][0]) == pytest.approx(10 / 9)
    only = trained(bow(pool), bow_feed(4), [str(path)], "native", optimizer=("sgd", {"learning_rate": 0.0}))
    changed = (found[0]["table_weight"] != only[0]["table_weight"]).any(1)
    assert np.flatnonzero(changed).tolist() in ([3, 4], [3], [4])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_equals_the_serial_engine_for_every_graph(seed, tmp_path):
    compare(seed, tmp_path)


def slots_of(*more):
    return [("words", False, None, WORDS), ("label", False, 1, 2), *more]


def test_counts_are_exact_for_all_files_workers_and_batch_sizes(tmp_path):
    generator, expected = random.Random(1), 0
    lines = bow_lines(23, generator)
    contents = [
        "\n".join(lines),
        "",
        "\r\n".join(lines) + "\r\n",
        lines[0],
        "\n\n" + lines[0] + "\n \n",
        "\n".join(lines) + "\n",
    ]
    files = []
    for i, text in enumerate(contents):
        (tmp_path / f"{i}").write_text(text, newline="")
        files.append(str(tmp_path / f"{i}"))
    with gzip.open(tmp_path / "packed.gz", "wt") as file:
        file.write(contents[0])
    files.append(str(tmp_path / "packed.gz"))
    expected = 23 * 4 + 2
    symbol = bow()
    for batch_size in (1, 5, 64, 1000):
        for workers in (1, 3, 7):
            _, result = trained(symbol, bow_feed(batch_size), files, "native", workers)
            assert result.examples == expected
            least, most = -(-expected // batch_size), -(-expected // batch_size) + workers - 1
            assert least <= result.batches <= most


def test_parts_of_files_are_read_once(tmp_path):
    for seed in range(20):
        (path,) = bow_files(tmp_path, (200,), seed)
        _, result = trained(bow(), bow_feed(), [path], "native", 3, split_files=True)
        assert result.examples == 200


def test_several_workers_come_as_far(tmp_path):
    files = bow_files(tmp_path, (400, 400), 3)
    for workers in (1, 2):
        with mx.AsyncExecutor() as run:
            symbol = bow()
            for _ in range(15):
                result = run.run_from_files(
                    symbol,
                    bow_feed(),
                    files,
                    workers,
                    optimizer="adagrad",
                    optimizer_params={"learning_rate": 0.3},
                    eval_metric="acc",
                    mode="native",
                )
        assert result.metric[0][1] > 0.75


@pytest.mark.parametrize("metric", ["acc", "auc", "logloss", "ce", "f1"])
def test_metrics_are_those_of_the_serial_engine(metric, tmp_path):
    files = bow_files(tmp_path)
    _, slow = trained(bow(), bow_feed(), files, "serial", eval_metric=metric)
    _, fast = trained(bow(), bow_feed(), files, "native", eval_metric=metric)
    assert [name for name, _ in fast.metric] == [name for name, _ in slow.metric]
    assert fast.metric[0][1] == pytest.approx(slow.metric[0][1], abs=1e-6)


def test_fetches_are_those_of_the_serial_engine(tmp_path):
    files = bow_files(tmp_path)
    symbol = bow()
    label = mx.sym.Cast(symbol.get_internals()["label"], dtype="float32")
    right = mx.sym.broadcast_equal(mx.sym.argmax(symbol, axis=1), label)
    accuracy = mx.sym.mean(right, name="accuracy")
    fetch = [accuracy, "words", "label"]
    _, slow = trained(symbol, bow_feed(), files, "serial", fetch=fetch)
    _, fast = trained(symbol, bow_feed(), files, "native", fetch=fetch)
    np.testing.assert_allclose(list(fast), list(slow), atol=1e-6)


def test_a_number_of_each_line_is_compared_with_a_whole_row(tmp_path):
    files = bow_files(tmp_path)
    symbol = bow()
    label = mx.sym.Cast(symbol.get_internals()["label"], dtype="float32")
    hits = mx.sym.broadcast_equal(
        mx.sym.clip(symbol, a_min=1.0, a_max=1.0), mx.sym.expand_dims(label, axis=1)
    )
    fetch = [mx.sym.mean(hits, name="hits")]
    _, slow = trained(symbol, bow_feed(), files, "serial", fetch=fetch)
    _, fast = trained(symbol, bow_feed(), files, "native", fetch=fetch)
    np.testing.assert_allclose(list(fast), list(slow), atol=1e-6)


def test_a_schedule_follows_the_updates(tmp_path):
    files = bow_files(tmp_path, (100,))
    found = []
    for mode in ("serial", "native"):
        schedule = mx.lr_scheduler.FactorScheduler(step=3, factor=0.5, base_lr=1.0)
        found.append(
            trained(bow(), bow_feed(), files, mode, optimizer=("sgd", {"lr_scheduler": schedule}))[0]
        )
    assert_close(found[1], found[0])


def test_counts_go_on_from_run_to_run(tmp_path):
    files = bow_files(tmp_path, (30,))
    found = []
    for modes in (("serial", "serial"), ("native", "serial"), ("native", "native")):
        symbol = bow()
        mx.random.seed(5)
        with mx.AsyncExecutor() as run:
            for mode in modes:
                run.run_from_files(
                    symbol,
                    bow_feed(),
                    files,
                    1,
                    mode=mode,
                    optimizer="adam",
                    initializer=mx.init.Uniform(0.5),
                )
            found.append({key: value.asnumpy() for key, value in run.get_params(symbol)[0].items()})
    assert_close(found[1], found[0])
    assert_close(found[2], found[0])


def test_dropout_is_the_same_again_under_one_seed(tmp_path):
    files = bow_files(tmp_path, (64,))
    symbol = bow(dropout=0.5)
    first, again = (trained(symbol, bow_feed(), files, "native")[0] for _ in range(2))
    other = trained(bow(), bow_feed(), files, "native")[0]
    for name, value in first.items():
        assert np.array_equal(value, again[name])
    assert not np.allclose(first["table_weight"], other["table_weight"])


def test_fixed_parameters_stay(tmp_path):
    files = bow_files(tmp_path, (30,))
    module = mx.mod.Module(bow(), ["words"], ["label"], fixed_param_names=["table_weight"])
    with mx.AsyncExecutor() as run:
        run.run_from_files(module, bow_feed(), files, 1, mode="native", initializer=mx.init.Uniform(0.5))
        before = {name: value.asnumpy() for name, value in module.get_params()[0].items()}
        run.run_from_files(module, bow_feed(), files, 1, mode="native")
        after = {name: value.asnumpy() for name, value in module.get_params()[0].items()}
    assert np.array_equal(before["table_weight"], after["table_weight"])
    assert not np.array_equal(before["fc2_weight"], after["fc2_weight"])


def test_dense_gradients_of_tables_move_every_row(tmp_path):
    files = bow_files(tmp_path, (30,))
    for name, params in (
        ("sgd", {"momentum": 0.9}),
        ("adam", {}),
        ("rmsprop", {}),
        ("ftrl", {}),
        ("adagrad", {"wd": 0.1}),
    ):
        nets = [bow(sparse=False) for _ in range(2)]
        expected = trained(nets[0], bow_feed(), files, "serial", optimizer=(name, params))[0]
        assert_close(trained(nets[1], bow_feed(), files, "native", optimizer=(name, params))[0], expected)


def test_says_what_it_does_not_know(tmp_path):
    data = mx.sym.Embedding(
        mx.sym.Variable("words", stype="ragged"), input_dim=WORDS, output_dim=4, name="table"
    )
    odd = mx.sym.sequence_pool(mx.sym.sequence_softmax(data), pool_type="sum")
    symbol = mx.sym.SoftmaxOutput(odd, mx.sym.Variable("label", shape=(0,)), name="p")
    with mx.AsyncExecutor() as run:
        choice = run.explain(symbol, bow_feed())
        assert choice.mode != "native"
        assert "sequence_softmax" in choice.why
        with pytest.raises(ArgumentError, match="sequence_softmax"):
            run.run_from_files(symbol, bow_feed(), bow_files(tmp_path), 1, mode="native")
    with mx.AsyncExecutor() as run:
        plain = bow()
        run.run_from_files(plain, bow_feed(), bow_files(tmp_path), 1, optimizer="adamax")
        assert "Adamax has no native rule" in run.explain(plain).why


@pytest.mark.parametrize("where", ["operand", "weight", "fetch"])
def test_parameters_are_read_by_layers_only(where, tmp_path):
    one = mx.sym.Variable("one_weight", shape=(1, 2))
    table = mx.sym.Variable("table_weight")
    data = mx.sym.Embedding(
        mx.sym.Variable("words", stype="ragged"), table, input_dim=WORDS, output_dim=2, sparse_grad=True
    )
    data = mx.sym.sequence_pool(data, pool_type="sum")
    if where == "operand":
        data = mx.sym.broadcast_mul(data, one)
    weight = {"weight": mx.sym.concat(mx.sym.tanh(one), one, dim=0)} if where == "weight" else {}
    data = mx.sym.FullyConnected(data, num_hidden=2, name="fc", **weight)
    symbol = mx.sym.SoftmaxOutput(data, mx.sym.Variable("label", shape=(0,)), name="p")
    fetch = mx.sym.sum(table) if where == "fetch" else ()
    with mx.AsyncExecutor() as run:
        with pytest.raises(ArgumentError, match="reads a parameter"):
            run.run_from_files(symbol, bow_feed(), bow_files(tmp_path), 1, fetch, mode="native")
        assert run.run_from_files(symbol, bow_feed(), bow_files(tmp_path), 1, fetch, mode="serial").examples


def test_an_id_outside_its_table_names_file_line_and_slot(tmp_path):
    path = tmp_path / "bad"
    path.write_text("1 3 1 0\n\n2 5 40 1 1\n")
    with mx.AsyncExecutor() as run:
        symbol = bow()
        with pytest.raises(
            BoundsError, match=r"bad: line 3, slot 'words': found id 40, expected 0 to 39.*'table_weight'"
        ):
            run.run_from_files(symbol, bow_feed(), [str(path)], 1, mode="native")


def test_a_bad_line_names_file_line_and_slot_or_is_passed_over(tmp_path):
    path = tmp_path / "bad"
    path.write_text("1 3 1 0\n2 5 x 1 1\n1 4 1 1\n")
    with pytest.raises(FileFormatError, match="bad: line 2, slot 'words', value 2 of 2: found 'x'"):
        trained(bow(), bow_feed(), [str(path)], "native")
    _, result = trained(bow(), bow_feed(), [str(path)], "native", on_bad_line="skip")
    assert (result.examples, result.skipped) == (2, 1)


def test_the_line_of_a_part_counts_from_the_beginning_of_its_file(tmp_path):
    lines = bow_lines(2000, random.Random(2))
    lines[1234] = "2 5 x 1 1"
    path = tmp_path / "bad"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FileFormatError, match="bad: line 1235, slot 'words'"):
        trained(bow(), bow_feed(), [str(path)], "native", 2, split_files=True)


def test_what_is_not_finite_is_an_error_with_its_place(tmp_path):
    files = bow_files(tmp_path, (64,))
    symbol = bow()
    values = {"table_weight": mx.nd.full((WORDS, 6), 1.0)}
    values["table_weight"][7] = float("nan")
    with mx.AsyncExecutor() as run, pytest.raises(NonFiniteError, match="part-0") as caught:
        run.run_from_files(symbol, bow_feed(), files, 1, mode="native", arg_params=values)
    assert caught.value.file == files[0]
    assert caught.value.batch >= 0


def test_a_damaged_file_is_an_error(tmp_path):
    path = tmp_path / "packed.gz"
    with gzip.open(path, "wt") as file:
        file.write("\n".join(bow_lines(100, random.Random(0))))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileFormatError, match="packed.gz: not a complete gzip file"):
        trained(bow(), bow_feed(), [str(path)], "native")


def test_snapshots_are_taken_between_batches(tmp_path):
    files = bow_files(tmp_path, (2000, 2000))
    symbol, seen = bow(), []
    with mx.AsyncExecutor() as run:

        def look(progress):
            run.snapshot(str(tmp_path / "model"))
            seen.append(progress.examples)

        while not seen:  # a run may be over before its first report
            files *= 4
            run.run_from_files(symbol, bow_feed(1), files, 2, mode="native", callback=look, callback_s=0.02)
        assert (
            mx.mod.Module.load(str(tmp_path / "model"), 0, data_names=["words"], label_names=["label"])
            is not None
        )


def test_lines_longer_than_a_block(tmp_path):
    path = tmp_path / "long"
    ids = " ".join(str(i % WORDS) for i in range(500_000))
    path.write_text(f"500000 {ids} 1 1\n1 3 1 0\n500000 {ids} 1 0")
    for split in (False, True):
        _, result = trained(
            bow("mean"), bow_feed(), [str(path)], "native", 2 if split else 1, split_files=split
        )
        assert result.examples == 3


def skip_gram():
    rows = {"input_dim": WORDS, "output_dim": 5, "sparse_grad": True}
    one = mx.sym.Embedding(mx.sym.Variable("centre", shape=(0,)), name="in", **rows)
    other = mx.sym.Embedding(mx.sym.Variable("context", shape=(0, 3)), name="out", **rows)
    product = mx.sym.sum(
        mx.sym.broadcast_mul(
            mx.sym.expand_dims(one, axis=1), mx.sym.Reshape(mx.sym.sum(other, axis=1), shape=(0, 1, -1))
        ),
        axis=(1, 2),
        keepdims=False,
    )
    return mx.sym.LogisticRegressionOutput(product, mx.sym.Variable("label", shape=(0,)), name="p")


def factorization_machine():
    words = mx.sym.Variable("words", stype="ragged")
    rows = mx.sym.Embedding(words, input_dim=WORDS, output_dim=4, sparse_grad=True, name="v")
    first = mx.sym.Embedding(words, input_dim=WORDS, output_dim=1, sparse_grad=True, name="w")
    total = mx.sym.square(mx.sym.sequence_pool(rows, pool_type="sum"))
    pairs = total - mx.sym.sequence_pool(mx.sym.square(rows), pool_type="sum")
    second = 0.5 * mx.sym.sum(pairs, axis=1, keepdims=True)
    score = mx.sym.sequence_pool(first, pool_type="sum") + second
    return mx.sym.LogisticRegressionOutput(score, mx.sym.Variable("label"), name="p")


@pytest.mark.parametrize(
    "optimizer", [("sgd", {"learning_rate": 0.5}), ("adam", {}), ("adagrad", {"wd": 0.01})]
)
def test_factorization_machines_with_squares_of_ragged_rows(optimizer, tmp_path):
    files = bow_files(tmp_path)
    expected = trained(factorization_machine(), bow_feed(), files, "serial", optimizer=optimizer)[0]
    assert_close(
        trained(factorization_machine(), bow_feed(), files, "native", optimizer=optimizer)[0], expected
    )


def test_skip_gram_of_dense_slots(tmp_path):
    generator = random.Random(4)
    path = tmp_path / "pairs"
    lines = [
        [1, *generator.sample(range(WORDS), 1), 3, *generator.sample(range(WORDS), 3), 1, 0]
        for _ in range(50)
    ]
    path.write_text("\n".join(" ".join(map(str, line)) for line in lines))
    feed = mx.DataFeedDesc(
        feed_text([("centre", False, 1, WORDS), ("context", False, 3, WORDS), ("label", False, 1, 2)], 8)
    )
    expected = trained(skip_gram(), feed, [str(path)], "serial")[0]
    assert_close(trained(skip_gram(), feed, [str(path)], "native")[0], expected)


CTRL_C = """
import os, signal, threading
from pathlib import Path
import dpmodule as mx
from hogwild.test_native_engine import bow, bow_feed, bow_files

files = bow_files(Path(FOLDER), (2000,) * 4)
with mx.AsyncExecutor() as run:
    symbol = bow()
    run.run_from_files(symbol, bow_feed(), files[:1], 1, mode="native")
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        while True:
            run.run_from_files(symbol, bow_feed(1), files, 2, mode="native")
    except KeyboardInterrupt:
        print("interrupted")
    print(run.run_from_files(symbol, bow_feed(), files[:1], 1, mode="native").examples)
"""


def test_ctrl_c_ends_the_run_after_a_batch(tmp_path):
    program = run_program(CTRL_C.replace("FOLDER", repr(str(tmp_path))))
    assert program.stdout.split() == ["interrupted", "2000"]
