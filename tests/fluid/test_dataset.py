"""Datasets of fluid: exact counts, shuffles, what they print, and errors; over real processes, too."""

import random
import re

import numpy as np
import pytest

import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError, FileFormatError, StateError
from helpers.programs import TESTS
from helpers.ranks import run_ranks

LINES = 200


@pytest.fixture
def files(tmp_path):
    draw = random.Random(0)
    paths = []
    for part in range(2):
        labels = [number % 2 for number in range(LINES // 2)]
        rows = [
            f"2 {50 * label + draw.randrange(50)} {50 * label + draw.randrange(50)} 1 {label} 2 0.5 {label}\n"
            for label in labels
        ]
        paths.append(str(tmp_path / f"part-{part}"))
        (tmp_path / f"part-{part}").write_text("".join(rows))
    return paths


@pytest.fixture
def program():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        words = fluid.layers.data("words", shape=[1], dtype="int64", lod_level=1)
        label = fluid.layers.data("label", shape=[1], dtype="int64")
        dense = fluid.layers.data("dense", shape=[2], dtype="float32")
        rows = fluid.layers.embedding(words, size=[100, 4], is_sparse=True)
        joined = fluid.layers.concat([fluid.layers.sequence_pool(rows, "sum"), dense], axis=1)
        prediction = fluid.layers.fc(joined, size=2, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
        accuracy = fluid.layers.accuracy(prediction, label)
        fluid.optimizer.Adagrad(learning_rate=0.1).minimize(loss)
    return main, startup, [words, label, dense], [loss, accuracy]


def dataset_of(kind, files, variables, **options):
    dataset = fluid.DatasetFactory(**options).create_dataset(kind)
    dataset.set_batch_size(8)
    dataset.set_thread(2)
    dataset.set_filelist(files)
    dataset.set_use_var(variables)
    dataset.set_pipe_command("cat")
    return dataset


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset"])
def test_every_line_is_trained_on_once(kind, files, program, capsys):
    main, startup, variables, fetches = program
    dataset = dataset_of(kind, files, variables)
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
        assert dataset.get_memory_data_size() == LINES
        dataset.local_shuffle()
        dataset.global_shuffle()
    with fluid.Executor(fluid.CPUPlace()) as executor:
        executor.run(startup)
        for _ in range(4):
            result = executor.train_from_dataset(main, dataset, fetch_list=fetches)
            assert result.examples == LINES
            assert result.workers == 2
        assert result[1] > 0.95
        capsys.readouterr()
        found = executor.infer_from_dataset(
            main, dataset, fetch_list=fetches, fetch_info=["the loss", "share"], print_period=5
        )
        assert found[1] > 0.95
        assert "batch 5, the loss: " in capsys.readouterr().out
        again = executor.infer_from_dataset(main, dataset, fetch_list=fetches)
    np.testing.assert_allclose(again, found, rtol=1e-5)  # nothing was trained
    if kind == "InMemoryDataset":
        dataset.release_memory()
        assert dataset.get_memory_data_size() == 0


def test_training_prints_averages(files, program, capsys):
    main, startup, variables, fetches = program
    with fluid.Executor() as executor:
        executor.run(startup)
        dataset = dataset_of("QueueDataset", files * 200, variables)
        executor.train_from_dataset(
            main, dataset, fetch_list=fetches, fetch_info=["loss", "share"], print_period=2
        )
    lines = capsys.readouterr().out.splitlines()
    assert lines
    for line in lines:
        batches, loss, share = re.fullmatch(r"batch (\d+), loss: (\S+), share: (\S+)", line).groups()
        assert int(batches) <= 200 * LINES // 8 + 2  # the last of a worker may be short
        assert float(loss) > 0
        assert 0 <= float(share) <= 1


def test_losses_are_those_of_run_from_files(files, program):
    main, startup, variables, fetches = program
    found = []
    for use in ("files", "dataset"):
        with fluid.Executor() as executor:
            startup.random_seed = 5
            executor.run(startup)
            dataset = dataset_of("QueueDataset", files, variables)
            if use == "files":
                feed = fluid.DataFeedDesc(dataset.desc())
                result = executor.run_from_files(main, feed, files, 1, fetches)
            else:
                result = executor.train_from_dataset(main, dataset, thread=1, fetch_list=fetches)
            found.append(list(result))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_lines_are_distributed_over_processes(tmp_path):
    run_ranks(TESTS / "programs" / "dist_dataset.py", 3, kind="file", cwd=tmp_path)


def test_what_cannot_be_is_an_error(files, program, monkeypatch):
    main, startup, variables, fetches = program
    factory = fluid.DatasetFactory()
    with pytest.raises(
        ArgumentError, match="'QueueDateset', expected QueueDataset or InMemoryDataset.*QueueDataset"
    ):
        factory.create_dataset("QueueDateset")
    queue = factory.create_dataset()
    executor = fluid.Executor()
    executor.run(startup)
    for call in (queue.load_into_memory, queue.local_shuffle, queue.get_memory_data_size):
        with pytest.raises(StateError, match="a QueueDataset holds no lines"):
            call()
    with pytest.raises(StateError, match=r"no variables yet; call set_use_var"):
        executor.train_from_dataset(main, queue)
    queue.set_use_var(variables)
    with pytest.raises(StateError, match="no files yet"):
        executor.train_from_dataset(main, queue)
    with pytest.raises(ArgumentError, match=r"set_use_var: .* is of type float32"):
        queue.set_use_var([fetches[0]])
    with pytest.raises(ArgumentError, match="expected an integer from 1"):
        queue.set_batch_size(0)
    with pytest.raises(
        ArgumentError, match="set_pipe_command: 'python reader.py' is a program.*allow_pipe_command"
    ):
        queue.set_pipe_command("python reader.py")
    monkeypatch.setenv("DPMODULE_ALLOW_PIPE_COMMAND", "1")
    queue.set_pipe_command("sed s/^/2/")
    dataset = dataset_of("InMemoryDataset", files, variables, allow_pipe_command=True)
    dataset.set_pipe_command("head -n 3")
    dataset.load_into_memory()
    assert dataset.get_memory_data_size() == 6
    with pytest.raises(ArgumentError, match="expected a result of fluid.DatasetFactory"):
        executor.train_from_dataset(main, files)
    with pytest.raises(ArgumentError, match="fetch_info has 1 texts for 2 of fetch_list"):
        executor.train_from_dataset(main, dataset, fetch_list=fetches, fetch_info=["loss"])
    with pytest.raises(ArgumentError, match="print_period is 0"):
        executor.train_from_dataset(main, dataset, fetch_list=fetches, print_period=0)
    with pytest.raises(ArgumentError, match="fetch_list is empty"):
        executor.infer_from_dataset(main, dataset)
    wrong = dataset_of("QueueDataset", files, variables[::-1])
    with pytest.raises(FileFormatError, match="part-[01]: line 1, slot"):
        executor.train_from_dataset(main, wrong, fetch_list=fetches)
    executor.close()
