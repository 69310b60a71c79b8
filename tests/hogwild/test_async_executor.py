"""`AsyncExecutor` with one worker in the calling thread: programs, fetches and results."""

import os
import signal
import threading

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import NonFiniteError, StateError
from helpers.hogwild import BAGS, DENSE, bag_net, dense_module, dense_net, described, parameters

ADAGRAD = {"optimizer": "adagrad", "optimizer_params": {"learning_rate": 0.1}}


@pytest.fixture
def run():
    with mx.AsyncExecutor() as executor:
        yield executor


def serial(run, program, feed, files, fetch=(), **more):
    return run.run_from_files(program, feed, files, 1, fetch, mode="serial", **more)


# values


def test_a_batch_runs_on_over_files_and_only_the_last_is_short(run, dense, capfd):
    found = serial(run, dense_module(), described(**DENSE), dense[0], "label", debug=True)
    assert (found.examples, found.batches, found.workers, found.skipped) == (40, 5, 1, 0)
    assert found.seconds > 0
    assert "40 examples in 5 batches" in repr(found)
    (stages,) = found.stages
    assert set(stages) == {"parse", "read", "feed", "compute", "update", "fetch"}
    assert stages["compute"] > 0
    assert capfd.readouterr() == ("", ""), "nothing is printed"
    found = serial(run, dense_module(), described(**DENSE), dense[0], "label", progress=True)
    assert (found.metric, found.stages) == ([], [])
    assert "40 examples" in capfd.readouterr().err


def test_fetches_are_means_over_batches_of_batches_means(run, dense):
    files, _, y = dense
    found = serial(run, dense_module(), described(16, **DENSE), files, ["label"])
    assert found == pytest.approx([np.mean([y[i : i + 16].mean() for i in range(0, 40, 16)])])
    assert (len(found), found[0], found[:1]) == (1, list(found)[0], list(found))


def test_fetches_are_names_of_outputs_nodes_slots_or_symbols(run, dense):
    net = dense_net()
    hit = mx.sym.mean(mx.sym.argmax(net, axis=1) == net.get_internals()["label"], name="hit")
    both = mx.sym.Group([net, mx.sym.BlockGrad(mx.sym.max(net, axis=1), name="best")])
    module = mx.mod.Module(both, ["x"], ["label"])
    found = serial(run, module, described(**DENSE), dense[0], ["best_output", "best", "label", hit])
    assert found.names == ["best_output", "best", "label", "hit_output"]
    assert 0.5 <= found[0] == found[1] <= 1
    assert 0 <= found[3] <= 1


def test_a_ragged_slot_trains_and_is_fetched(run, bags):
    net, feed = bag_net(), described(16, **BAGS)
    first = serial(run, net, feed, bags, "words", eval_metric="auc", **ADAGRAD)
    for _ in range(15):
        last = serial(run, net, feed, bags, "words", eval_metric=["acc", "auc"])
    assert first == last
    assert last.examples == 160
    assert dict(last.metric)["auc"] > 0.95 > dict(first.metric)["auc"]
    module = run.module(net)  # a symbol keeps its parameters in the executor
    assert module.symbol is net
    assert set(run.get_params(net)[0]) == set(module.param_names)
    other = net.get_internals()["fc_output"]
    assert len(list(run.infer_from_files(other, described(**BAGS), bags[:1], 1, "fc"))) == 5
    assert run.module(other).store is module.store


# during a run


def test_a_callback_sees_examples_rates_fetches_and_the_metric(run, dense):
    seen = []

    def look(found):
        file = found.workers[0].file
        seen.append((found.examples, {*found.fetched}, found.metric[0][0], file, found.rate > 0))

    more = {"eval_metric": "acc", "callback": look, "callback_s": 1e-6}
    serial(run, dense_module(), described(2, **DENSE), dense[0], "label", **more)
    assert [each[0] for each in seen] == list(range(2, 42, 2))
    assert seen[-1][1:] == ({"label"}, "accuracy", dense[0][2], True)


def test_a_snapshot_is_a_checkpoint_of_the_moment(run, dense, tmp_path):
    module, prefix, threads = dense_module(), str(tmp_path / "now"), []

    def look(found):
        run.snapshot(prefix, found.batches)
        if found.batches == 2:  # another thread's waits for the batch
            threads.append(threading.Thread(target=run.snapshot, args=(str(tmp_path / "other"),)))
            threads[0].start()

    serial(run, module, described(**DENSE), dense[0], callback=look, callback_s=1e-6)
    threads[0].join()
    assert (tmp_path / "other-0000.params").exists()
    first, last = (mx.nd.load(f"{prefix}-{epoch:04d}.params")["arg:fc1_weight"].asnumpy() for epoch in (1, 5))
    assert not np.array_equal(first, last)
    assert np.array_equal(last, parameters(module)["fc1_weight"])


# inference


def test_inference_is_in_the_order_of_the_files_and_changes_nothing(run, dense):
    files, x, _ = dense
    module = dense_module()
    serial(run, module, described(**DENSE), files, **ADAGRAD)
    before = parameters(module)
    found = list(run.infer_from_files(module, described(**DENSE), files, 1, ["p", "x"]))
    places = [(os.path.basename(file)[-1], line) for file, line, _ in found]
    assert places == [("0", 1), ("0", 9), ("0", 17), ("1", 1), ("1", 9), ("2", 1)]
    assert np.array_equal(np.concatenate([arrays[1].asnumpy() for _, _, arrays in found]), x)
    assert all(np.array_equal(before[name], value) for name, value in parameters(module).items())
    assert module.optimizer.num_update == 5
    expected = module.predict(mx.io.NDArrayIter(x, batch_size=8, data_name="x")).asnumpy()
    assert np.allclose(np.concatenate([arrays[0].asnumpy() for _, _, arrays in found]), expected, atol=1e-6)


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_inputs_of_a_bound_module_may_have_other_types_than_slots(run, bags, mode):
    module = mx.mod.Module(bag_net(), ["words"], ["label"])
    module.bind([mx.io.DataDesc("words", (8,), stype="ragged")], [("label", (8,))])  # float32, as in MXNet
    module.init_params()
    assert run.run_from_files(module, described(**BAGS), bags, 1, mode=mode).examples > 8
    assert list(run.infer_from_files(module, described(**BAGS), bags, 1, "p"))


@pytest.mark.parametrize("kind", [mx.QueueDataset, mx.InMemoryDataset])
def test_datasets_train_and_infer(run, bags, kind):
    dataset = kind(described(**BAGS))
    dataset.set_filelist(bags)
    if kind is mx.InMemoryDataset:
        dataset.load_into_memory()
        dataset.local_shuffle(seed=1)
    net = bag_net()
    found = run.train_from_dataset(net, dataset, 1, "label", mode="serial", eval_metric="acc")
    assert (found.examples, found.batches) == (160, 20)
    rows = run.infer_from_dataset(net, dataset, 1, "p")
    assert sum(len(arrays[0]) for _, _, arrays in rows) == 160


# bad input


def test_messages_of_the_log(run, dense, tmp_path, caplog):
    module = dense_module()
    for _ in range(2):
        serial(run, module, described(**DENSE), dense[0], **ADAGRAD)
    assert not caplog.records
    serial(run, module, described(**DENSE), dense[0], optimizer="adam")
    assert "optimizer is used only in a program's first run" in caplog.text
    assert type(module.optimizer).__name__ == "AdaGrad"
    other = dense_module()
    for _ in range(2):  # each time with new arrays
        serial(run, other, described(**DENSE), dense[0], arg_params=module.get_params()[0], **ADAGRAD)
    assert "arg_params is used only in a program's first run" in caplog.text
    (tmp_path / "blank").write_text("\n\n")
    files = [str(tmp_path / "blank")]
    more = {"mode": "serial", "check_labels": "ignore"}
    found = run.run_from_files(bag_net(), described(**BAGS), files, 4, "label", **more)
    assert (found.examples, found.workers, bool(np.isnan(found[0]))) == (0, 1, True)
    assert "thread_num is reduced from 4 to 1" in caplog.text
    assert "run_from_files: the files have no lines, so nothing was trained" in caplog.text


def test_what_is_not_finite_names_file_and_batch_and_changes_nothing(run, tmp_path):
    path = tmp_path / "part"
    path.write_text("4 1 2 3 4 1 0\n" * 8 + "4 1e38 1e38 1e38 1e38 1 0\n" * 8)
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=8, name="fc1")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, mx.sym.Variable("label"), name="p"), ["x"], ["label"])
    given = {"fc1_weight": mx.nd.ones((8, 4)) * 1e10}
    told = "in batch 1 of worker 0, which begins in line 9 of .*part"
    with pytest.raises(NonFiniteError, match=told) as caught:
        serial(run, module, described(**DENSE), [path], arg_params=given)
    assert (caught.value.file, caught.value.batch) == (str(path), 1)
    assert all(np.isfinite(value).all() for value in parameters(module).values())


def test_ctrl_c_ends_the_run_after_the_batch(run, dense):
    module, seen = dense_module(), []

    def interrupt(found):
        seen.append(found.batches)
        with pytest.raises(StateError, match="is running"):
            run.run_from_files(module, described(**DENSE), dense[0], 1)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        serial(run, module, described(**DENSE), dense[0], callback=interrupt, callback_s=1e-6)
    assert seen == [1]
    assert module.optimizer.num_update == 1
    assert serial(run, module, described(**DENSE), dense[0]).examples == 40
    run.close()
    run.close()


def test_explain_names_the_engine_and_says_why(run, bags):
    net = bag_net()
    found = run.explain(net, described(**BAGS), 1)
    assert found.mode in ("native", "serial")
    assert found.why
    assert str(found) == f"{found.mode}: {found.why}"
    serial(run, net, described(**BAGS), bags)
    assert run.explain(net).mode in ("native", "process")
    scale = mx.sym.Variable("scale_weight", shape=(1, 4))  # a parameter of the user's own needs no slot
    net = mx.sym.sum(mx.sym.broadcast_mul(mx.sym.Variable("x", shape=(0, 4)), scale), axis=1)
    run.explain(mx.sym.LinearRegressionOutput(net, mx.sym.Variable("label")), described(**DENSE))
