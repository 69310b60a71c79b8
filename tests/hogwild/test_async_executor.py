"""`AsyncExecutor` with one worker in the calling thread: programs, fetches, results, early errors."""

import logging
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import (
    ArgumentError,
    BoundsError,
    FileError,
    FileFormatError,
    NonFiniteError,
    ShapeError,
    SignatureError,
    StateError,
)
from helpers.hogwild import (
    bag_net,
    dense_module,
    dense_net,
    described,
    loop_over,
    parameters,
    write_bags,
    write_dense,
)

ADAGRAD = {"optimizer": "adagrad", "optimizer_params": {"learning_rate": 0.1}}
DENSE = {"x": "float dense", "label": "uint64 dense"}
BAGS = {"words": "uint64", "label": "uint64 dense"}


@pytest.fixture
def run():
    with mx.AsyncExecutor() as executor:
        yield executor


@pytest.fixture
def dense(tmp_path):
    return write_dense(tmp_path)


@pytest.fixture
def bags(tmp_path):
    return write_bags(tmp_path)


def serial(run, program, feed, files, fetch=(), **more):
    return run.run_from_files(program, feed, files, 1, fetch, mode="serial", **more)


# what it computes


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize(
    "optimizer", [ADAGRAD, {"optimizer": "adam"}, {"optimizer": "sgd", "optimizer_params": {"momentum": 0.9}}]
)
def test_one_worker_equals_a_plain_loop_bit_for_bit(run, dense, dropout, optimizer):
    files, x, y = dense
    mx.random.seed(5)
    trained = dense_module(dropout)
    for _ in range(2):
        serial(run, trained, described(**DENSE), files, **optimizer)
    mx.random.seed(5)
    plain = loop_over(dense_module(dropout), x, y, 8, 2, **optimizer)
    for name, value in parameters(plain).items():
        assert np.array_equal(value, parameters(trained)[name]), name


def test_a_batch_runs_on_over_files_and_only_the_last_is_short(run, dense):
    found = serial(run, dense_module(), described(**DENSE), dense[0], "label")
    assert (found.examples, found.batches, found.workers, found.skipped) == (40, 5, 1, 0)
    assert found.seconds > 0
    assert found.metric == []
    assert found.stages == []


def test_fetches_are_means_over_batches_of_batches_means(run, dense):
    files, _, y = dense
    feed = described(16, **DENSE)
    found = serial(run, dense_module(), feed, files, ["label"])
    batches = [y[i : i + 16].mean() for i in range(0, 40, 16)]
    assert found == pytest.approx([np.mean(batches)])
    assert len(found) == 1
    assert found[0] == list(found)[0]
    assert found[:1] == list(found)


def test_fetches_are_names_of_outputs_nodes_slots_or_symbols(run, dense):
    net = dense_net()
    hit = mx.sym.mean(mx.sym.argmax(net, axis=1) == net.get_internals()["label"], name="hit")
    both = mx.sym.Group([net, mx.sym.BlockGrad(mx.sym.max(net, axis=1), name="best")])
    module = mx.mod.Module(both, ["x"], ["label"])
    found = serial(run, module, described(**DENSE), dense[0], ["best_output", "best", "label", hit])
    assert found[0] == found[1]
    assert 0.5 <= found[0] <= 1
    assert 0 <= found[3] <= 1
    alone = serial(run, module, described(**DENSE), dense[0], hit)
    assert found.names == ["best_output", "best", "label", "hit_output"]
    assert len(alone) == 1


def test_a_ragged_slot_trains_and_is_fetched(run, bags):
    net = bag_net()
    feed = described(16, **BAGS)
    first = serial(run, net, feed, bags, "words", eval_metric="auc", **ADAGRAD)
    for _ in range(15):
        last = serial(run, net, feed, bags, "words", eval_metric=["acc", "auc"])
    assert first == last
    assert last.examples == 160
    metric = dict(last.metric)
    assert metric["auc"] > 0.95 > dict(first.metric)["auc"]


def test_a_symbol_keeps_its_parameters_in_the_executor(run, bags):
    net = bag_net()
    serial(run, net, described(**BAGS), bags)
    module = run.module(net)
    assert module.symbol is net
    assert set(run.get_params(net)[0]) == set(module.param_names)
    other = net.get_internals()["fc_output"]
    rows = list(run.infer_from_files(other, described(**BAGS), bags[:1], 1, "fc"))
    assert len(rows) == 5
    assert run.module(other).store is module.store


def test_what_has_a_symbol_a_store_and_an_optimizer_is_a_program(run, dense):
    class Own:
        symbol = dense_net()
        optimizer = mx.optimizer.create("adagrad", learning_rate=0.1)

    from dpmodule.params import ParamStore

    program = Own()
    program.store = ParamStore([mx.cpu()])
    serial(run, program, described(**DENSE), dense[0])
    before = parameters(run.module(program))
    serial(run, program, described(**DENSE), dense[0])
    assert run.module(program).store is program.store
    assert run.module(program).optimizer is program.optimizer
    assert any(
        not np.array_equal(before[name], value) for name, value in parameters(run.module(program)).items()
    )
    program.optimizer = None
    with pytest.raises(StateError, match="no optimizer"):
        serial(run, program, described(**DENSE), dense[0])


def test_program_feed_files_and_fetch_may_change_between_calls(run, dense, bags):
    module = dense_module()
    assert serial(run, module, described(**DENSE), dense[0]).examples == 40
    assert serial(run, bag_net(), described(16, **BAGS), bags, "label").batches == 10
    assert serial(run, module, described(5, **DENSE), dense[0][:1], "label").batches == 4


def test_a_trained_module_is_saved_and_served(run, bags, tmp_path):
    net = bag_net()
    serial(run, net, described(**BAGS), bags, **ADAGRAD)
    run.module(net).save_checkpoint(str(tmp_path / "model"), 1)
    served = mx.mod.Module.load(str(tmp_path / "model"), 1, data_names=["words"], label_names=["label"])
    served.bind([mx.io.DataDesc("words", (8,), "int64", stype="ragged")], None, for_training=False)
    (_, _, (expected,)), *_ = run.infer_from_files(net, described(**BAGS), bags, 1, "p")
    lines = [line.split() for line in Path(bags[0]).read_text().splitlines()[:8]]
    rows = [list(map(int, line[1 : 1 + int(line[0])])) for line in lines]
    served.forward(mx.io.DataBatch([mx.nd.ragged_array(rows, dtype="int64")]), is_train=False)
    assert np.allclose(served.get_outputs()[0].asnumpy(), expected.asnumpy())


# what it tells meanwhile


def test_a_callback_sees_examples_rates_fetches_and_the_metric(run, dense):
    seen = []
    serial(
        run,
        dense_module(),
        described(2, **DENSE),
        dense[0],
        "label",
        eval_metric="acc",
        callback=lambda found: seen.append(
            (found.examples, found.fetched, found.metric, found.workers[0].file, found.rate)
        ),
        callback_s=1e-6,
    )
    assert len(seen) == 20
    assert [each[0] for each in seen] == list(range(2, 42, 2))
    _, fetched, metric, file, rate = seen[-1]
    assert set(fetched) == {"label"}
    assert metric[0][0] == "accuracy"
    assert file == dense[0][2]
    assert rate > 0


def test_debug_gives_seconds_by_stage_and_nothing_is_printed(run, dense, capfd):
    found = serial(run, dense_module(), described(**DENSE), dense[0], debug=True)
    (stages,) = found.stages
    assert set(stages) == {"parse", "read", "feed", "compute", "update", "fetch"}
    assert stages["compute"] > 0
    assert capfd.readouterr() == ("", "")
    assert "40 examples in 5 batches" in repr(found)


def test_progress_shows_a_bar(run, dense, capfd):
    serial(run, dense_module(), described(**DENSE), dense[0], "label", progress=True)
    assert "40 examples" in capfd.readouterr().err


def test_a_snapshot_is_a_checkpoint_of_the_moment(run, dense, tmp_path):
    module = dense_module()
    serial(
        run,
        module,
        described(**DENSE),
        dense[0],
        callback=lambda found: run.snapshot(str(tmp_path / "now"), found.batches),
        callback_s=1e-6,
    )
    loaded = [
        mx.mod.Module.load(str(tmp_path / "now"), epoch, label_names=["label"], data_names=["x"])
        for epoch in (1, 5)
    ]
    assert not np.array_equal(*(each.preloaded[0]["fc1_weight"].asnumpy() for each in loaded))
    assert np.array_equal(loaded[1].preloaded[0]["fc1_weight"].asnumpy(), parameters(module)["fc1_weight"])


def test_a_snapshot_by_another_thread_waits_for_the_batch(run, dense, tmp_path):
    threads = []

    def look(found):
        if found.batches == 1:
            threads.append(threading.Thread(target=run.snapshot, args=(str(tmp_path / "now"),)))
            threads[0].start()

    serial(run, dense_module(), described(1, **DENSE), dense[0] * 5, callback=look, callback_s=1e-6)
    threads[0].join()
    assert (tmp_path / "now-0000.params").exists()


# inference


def test_inference_is_in_the_order_of_the_files_and_changes_nothing(run, dense):
    files, x, _ = dense
    module = dense_module()
    serial(run, module, described(**DENSE), files, **ADAGRAD)
    before, count = parameters(module), module.optimizer.num_update
    found = list(run.infer_from_files(module, described(**DENSE), files, 1, ["p", "x"]))
    assert [(os.path.basename(file), line) for file, line, _ in found] == [
        ("part-0", 1),
        ("part-0", 9),
        ("part-0", 17),
        ("part-1", 1),
        ("part-1", 9),
        ("part-2", 1),
    ]
    assert np.array_equal(np.concatenate([arrays[1].asnumpy() for _, _, arrays in found]), x)
    assert all(np.array_equal(before[name], value) for name, value in parameters(module).items())
    assert module.optimizer.num_update == count
    expected = module.predict(mx.io.NDArrayIter(x, batch_size=8, data_name="x")).asnumpy()
    assert np.allclose(np.concatenate([arrays[0].asnumpy() for _, _, arrays in found]), expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_inputs_of_a_bound_module_may_have_other_types_than_slots(run, bags, mode):
    module = mx.mod.Module(bag_net(), ["words"], ["label"])
    module.bind([mx.io.DataDesc("words", (8,), stype="ragged")], [("label", (8,))])  # float32, as in MXNet
    module.init_params()
    feed, files = described(**BAGS), bags
    assert run.run_from_files(module, feed, files, 1, mode=mode).examples > 8
    assert list(run.infer_from_files(module, feed, files, 1, "p"))


def test_inference_needs_parameters(run, dense):
    with pytest.raises(StateError, match="no parameters yet"):
        run.infer_from_files(dense_module(), described(**DENSE), dense[0], 1, "p")


def test_a_module_that_has_inferred_can_be_trained(run, dense, tmp_path):
    module = dense_module()
    serial(run, module, described(**DENSE), dense[0])
    module.save_checkpoint(str(tmp_path / "model"), 0)
    again = mx.mod.Module.load(str(tmp_path / "model"), 0, data_names=["x"], label_names=["label"])
    assert len(list(run.infer_from_files(again, described(**DENSE), dense[0], 1, "p"))) == 6
    before = parameters(again)
    serial(run, again, described(**DENSE), dense[0])
    assert not np.array_equal(before["fc1_weight"], parameters(again)["fc1_weight"])


# datasets


def test_datasets_train_and_infer(run, bags):
    queue, memory = mx.QueueDataset(described(**BAGS)), mx.InMemoryDataset(described(**BAGS))
    queue.set_filelist(bags)
    memory.set_filelist(bags)
    memory.load_into_memory()
    memory.local_shuffle(seed=1)
    net = bag_net()
    for dataset in (queue, memory):
        found = run.train_from_dataset(net, dataset, 1, "label", mode="serial", eval_metric="acc")
        assert found.examples == 160
        assert found.batches == 20
        rows = run.infer_from_dataset(net, dataset, 1, "p")
        assert sum(len(arrays[0]) for _, _, arrays in rows) == 160
    with pytest.raises(SignatureError, match="did you mean eval_metric"):
        run.train_from_dataset(net, queue, 1, "label", eval_metrik="acc")
    with pytest.raises(ArgumentError, match="QueueDataset"):
        run.train_from_dataset(net, bags, 1, "label")


# counts


def lines_of(rng):
    """Return the text of a file of some lines, and how many they are."""
    count = int(rng.choice([0, 0, 1, 2, 5, 9, 30]))
    end = str(rng.choice(["\n", "\r\n"]))
    text = "".join(f"1 0.5 1 {i % 2}{end}{end if rng.rand() < 0.1 else ''}" for i in range(count))
    return text.rstrip("\r\n") if rng.rand() < 0.3 else text, count


@pytest.mark.parametrize("seed", range(4))
def test_every_line_counts_once(run, tmp_path, seed):
    """For files that are empty, end without a line's end, have other ends of lines: 50 draws each."""
    rng = np.random.RandomState(seed)
    net = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.Variable("x", shape=(0, 1)), num_hidden=1, name="fc"),
        mx.sym.Variable("y"),
        name="o",
    )
    for draw in range(50):
        files, total = [], 0
        for number in range(rng.randint(1, 5)):
            text, count = lines_of(rng)
            files.append(tmp_path / f"{draw}-{number}")
            files[-1].write_bytes(text.encode())
            total += count
        size = int(rng.randint(1, 12))
        feed = described(size, x="float dense", y="uint64 dense")
        found = serial(run, net, feed, files, "y", split_files=bool(rng.rand() < 0.5))
        assert (found.examples, found.batches) == (total, -(-total // size))
        assert bool(np.isnan(found[0])) == (total == 0)


# bad input


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"filelist": []}, ArgumentError, "empty"),
        ({"filelist": "part-0"}, ArgumentError, "expected a list of paths"),
        ({"filelist": ["no such file"]}, FileError, "no such file"),
        ({"thread_num": 0}, ArgumentError, "thread_num is 0"),
        ({"thread_num": "2"}, ArgumentError, "thread_num is '2'"),
        ({"data_feed": "data.prototxt"}, ArgumentError, "expected a DataFeedDesc"),
        ({"program": "net"}, ArgumentError, "of type str"),
        ({"fetch": ["fc2"]}, ShapeError, r"'fc2' has shape \(8, 2\)"),
        ({"fetch": "p_output"}, ShapeError, r"'p_output' has shape \(8, 2\)"),
        ({"fetch": ["x"]}, ShapeError, r"'x' has shape \(8, 4\)"),
        ({"fetch": ["lable"]}, ArgumentError, "did you mean label"),
        ({"fetch": [3]}, ArgumentError, "of type int"),
        ({"fetch": mx.sym.Variable("other")}, ArgumentError, "depends on other"),
        ({"mode": "fast"}, ArgumentError, "mode is 'fast'"),
        ({"on_bad_line": "ignore"}, ArgumentError, "on_bad_line is 'ignore'"),
        ({"callback": 1}, ArgumentError, "callback is 1"),
        ({"callback_s": 0}, ArgumentError, "callback_s is 0"),
        ({"eval_metric": "acuracy"}, ArgumentError, "acuracy"),
        ({"optimizer": "no"}, ArgumentError, "no"),
        (
            {"data_feed": described(x="float dense")},
            ArgumentError,
            "there is no slot label; the feed has the slots x, the network the variables x, label",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_mistakes_are_found_before_any_worker_starts(run, dense, change, error, text):
    given = {
        "program": dense_module(),
        "data_feed": described(**DENSE),
        "filelist": dense[0],
        "thread_num": 2,
        "fetch": (),
    }
    with pytest.raises(error, match=text):
        run.run_from_files(**{"mode": "process", **given, **change})


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        (
            {"word": "uint64", "label": "uint64 dense"},
            "no slot words; .* slots word, label,.*; did you mean word",
        ),
        (
            {"words": "uint64", "lable": "uint64 dense"},
            "no slot label; .* variables words, label; did you mean lable",
        ),
        (
            {"a": "uint64", "b": "uint64 dense"},
            "no slot words or label; the feed has the slots a, b, the network the",
        ),
    ],
)
def test_slots_and_variables_of_other_names_are_listed(run, bags, feed, text):
    desc = described(**feed)
    for call in (
        lambda program: run.run_from_files(program, desc, bags, 1),
        lambda program: run.explain(program, desc),
        lambda program: list(run.infer_from_files(program, desc, bags, 1, [])),
    ):
        with pytest.raises(ArgumentError, match=text):
            call(bag_net())
    learned = mx.sym.broadcast_mul(mx.sym.Variable("x"), mx.sym.Variable("y"))
    net = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(learned, num_hidden=1), mx.sym.Variable("label")
    )
    with pytest.raises(
        ArgumentError, match="no slot y; .* slots x, label, the network the variables x, y, label"
    ):
        run.run_from_files(net, described(**DENSE), bags, 1)
    net = mx.sym.broadcast_mul(
        mx.sym.Variable("x", shape=(0, 4)), mx.sym.Variable("scale_weight", shape=(1, 4))
    )
    net = mx.sym.LinearRegressionOutput(mx.sym.sum(net, axis=1), mx.sym.Variable("label"))
    run.explain(net, described(**DENSE))  # a parameter of the user's own needs no slot


def test_files_without_lines_are_told(run, tmp_path, caplog):
    (tmp_path / "empty").touch()
    (tmp_path / "blank").write_text("\n\n")
    files = [str(tmp_path / name) for name in ("empty", "blank")]
    assert run.run_from_files(bag_net(), described(**BAGS), files, 1, check_labels="ignore").examples == 0
    assert "run_from_files: the files have no lines, so nothing was trained" in caplog.text


@pytest.mark.parametrize("context", [mx.gpu(0), [mx.cpu(0), mx.cpu(1)]])
def test_programs_elsewhere_than_on_one_cpu_are_refused(run, dense, context):
    if context == mx.gpu(0):
        with pytest.raises(ArgumentError, match="train on the CPU"):
            mx.AsyncExecutor(context)
        return
    module = mx.mod.Module(dense_net(), ["x"], ["label"], context=context)
    with pytest.raises(ArgumentError, match="one CPU"):
        serial(run, module, described(**DENSE), dense[0])


def test_a_bad_line_names_file_line_and_slot_or_is_passed_over(run, dense, tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("4 1 2 3 4 1 0\n4 1 2 3 1 0\n4 1 2 3 4 1 1\n")
    with pytest.raises(FileFormatError, match=r"bad: line 2, slot"):
        serial(run, dense_module(), described(**DENSE), [*dense[0], bad])
    found = serial(run, dense_module(), described(**DENSE), [*dense[0], bad], on_bad_line="skip")
    assert (found.examples, found.skipped) == (42, 1)
    assert "1 bad lines skipped" in repr(found)


def test_a_number_that_is_no_row_of_its_table_is_named(run, tmp_path):
    path = tmp_path / "words"
    path.write_text("2 1 2 1 0\n1 3 1 0\n3 4 50 2 1 1\n")
    net = bag_net()
    with pytest.raises(
        BoundsError, match="slot 'words' has the value 50, .* 'table_weight' with 50 rows.* row 2 .*words"
    ):
        serial(run, net, described(**BAGS), [path])


def test_what_is_not_finite_names_file_and_batch_and_changes_nothing(run, tmp_path):
    path = tmp_path / "part"
    path.write_text("4 1 2 3 4 1 0\n" * 8 + "4 1e38 1e38 1e38 1e38 1 0\n" * 8)
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=8, name="fc1")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, mx.sym.Variable("label"), name="p"), ["x"], ["label"])
    given = {"fc1_weight": mx.nd.ones((8, 4)) * 1e10}
    with pytest.raises(
        NonFiniteError, match="in batch 1 of worker 0, which begins in line 9 of .*part"
    ) as caught:
        serial(run, module, described(**DENSE), [path], arg_params=given)
    assert (caught.value.file, caught.value.batch) == (str(path), 1)
    assert all(np.isfinite(value).all() for value in parameters(module).values())


def test_ctrl_c_ends_the_run_after_the_batch(run, dense):
    module, seen = dense_module(), []

    def interrupt(found):
        seen.append(found.batches)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        serial(run, module, described(**DENSE), dense[0], callback=interrupt, callback_s=1e-6)
    assert seen == [1]
    assert module.optimizer.num_update == 1
    assert serial(run, module, described(**DENSE), dense[0]).examples == 40


def test_what_counts_at_the_first_run_only_is_told_later(run, dense, caplog):
    module = dense_module()
    for _ in range(2):
        serial(run, module, described(**DENSE), dense[0], **ADAGRAD)
    assert not caplog.records
    serial(run, module, described(**DENSE), dense[0], optimizer="adam")
    assert "optimizer is used only in a program's first run" in caplog.text
    assert type(module.optimizer).__name__ == "AdaGrad"


def test_more_threads_than_files_are_reduced_with_a_message(run, dense, caplog):
    with caplog.at_level(logging.WARNING):
        found = run.run_from_files(dense_module(), described(**DENSE), dense[0][:1], 4, mode="serial")
    assert found.workers == 1
    assert "thread_num is reduced from 4 to 1" in caplog.text


def test_a_closed_executor_and_one_that_runs_refuse(dense):
    run = mx.AsyncExecutor()
    module, feed = dense_module(), described(**DENSE)

    def again(found):
        with pytest.raises(StateError, match="is running"):
            run.run_from_files(module, feed, dense[0], 1)

    serial(run, module, feed, dense[0], callback=again, callback_s=1e-6)
    run.close()
    run.close()
    with pytest.raises(StateError, match="closed"):
        serial(run, module, feed, dense[0])
    with pytest.raises(ArgumentError, match="timeout_s"):
        mx.AsyncExecutor(timeout_s=-1)
    with pytest.raises(ArgumentError, match="start_method"):
        mx.AsyncExecutor(start_method="thread")


def test_what_has_not_been_run_has_neither_module_nor_snapshot_nor_explanation(run, tmp_path):
    for call in (
        lambda: run.module(bag_net()),
        lambda: run.snapshot(str(tmp_path / "a")),
        lambda: run.explain(bag_net()),
    ):
        with pytest.raises(StateError, match="has not been run|there was no run"):
            call()


def test_explain_names_the_engine_and_says_why(run, bags):
    net = bag_net()
    found = run.explain(net, described(**BAGS), 1)
    assert found.mode in ("native", "serial")
    assert found.why
    assert str(found) == f"{found.mode}: {found.why}"
    serial(run, net, described(**BAGS), bags)
    assert run.explain(net).mode in ("native", "process")
