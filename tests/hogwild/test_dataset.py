"""Datasets: files as they are asked for, and lines in memory, shuffled and released."""

import gc
import gzip
import os
import subprocess
import sys

import pytest

import dpmodule as mx
from dpmodule.base import FileError, StateError
from dpmodule.hogwild import FileBatches
from helpers.both_backends import descriptors

DESC = 'batch_size: 4 multi_slot_desc { slots { name: "a" type: "uint64" is_used: true } }'


def feed_of(command=None):
    text = DESC + (f"pipe_command: '{command}'" if command else "")
    return mx.DataFeedDesc(text, allow_pipe_command=True)


def lines(numbers):
    return "".join(f"2 {n} {n + 1}\n" for n in numbers).encode()


def numbers_of(reading):
    left = iter(reading.parts)
    found = []
    for batch in FileBatches(reading.desc, lambda: next(left, None)):
        values = batch.slots["a"].values.view(-1, 2)
        assert (values[:, 1] - values[:, 0]).eq(1).all()
        found += values[:, 0].tolist()
    return found


@pytest.fixture
def files(tmp_path):
    contents = {"a": lines(range(5))[:-1], "b": b"\n" + lines(range(5, 7)) + b"\r\n \n"}
    contents |= {"c.gz": gzip.compress(lines(range(7, 400))), "d": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return [str(tmp_path / name) for name in contents]


def loaded(files, command=None):
    dataset = mx.InMemoryDataset(feed_of(command))
    dataset.set_filelist(files)
    dataset.load_into_memory()
    return dataset


def test_a_queue_of_files(files):
    dataset = mx.QueueDataset(feed_of())
    dataset.set_filelist(files)
    assert [part.path for part in dataset.reading(2).parts] == dataset.filelist == files
    for split in (False, True):
        assert numbers_of(dataset.reading(3, split)) == list(range(400))
    os.unlink(files[1])
    with pytest.raises(FileError, match="No such file"):
        dataset.reading(2)


def test_lines_in_memory(files, tmp_path):
    dataset = loaded(files)
    for path in files:
        os.unlink(path)
    assert len(dataset) == 400
    for workers in (1, 2, 7):
        assert numbers_of(dataset.reading(workers)) == list(range(400))
    dataset.data_feed.set_batch_size(7)
    (part,) = dataset.reading(1).parts
    assert dataset.reading(1).desc.batch_size == 7
    code = f"print(open({part.path!r}, 'rb').read({part.end or -1}).count(b' 0 1'))"  # by another process
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"1\n"
    (tmp_path / "a").write_bytes(lines(range(3)) + b"x\n\n2 1\n" + lines(range(3, 6)))
    dataset.set_filelist([tmp_path / "a"])
    dataset.load_into_memory(on_bad_line="skip")
    assert (len(dataset), dataset.skipped) == (6, 2)
    assert numbers_of(dataset.reading(1)) == list(range(6))


def test_a_seed_gives_the_same_order_again(files):
    orders = []
    for seed in (1, 1, 2, None, None):
        dataset = loaded(files)
        dataset.local_shuffle(seed)
        orders.append(tuple(numbers_of(dataset.reading(2))))
        assert sorted(orders[-1]) == list(range(400))
    assert orders[0] == orders[1]
    assert len(set(orders)) == 4
    dataset.local_shuffle()
    assert sorted(numbers_of(dataset.reading(2))) == list(range(400))
    empty = loaded(files[3:])
    empty.local_shuffle(0)
    assert numbers_of(empty.reading(2)) == []


def test_files_go_through_their_program_once(files):
    dataset = loaded(files[2:3], "gzip -dc")
    assert (dataset.data_feed.pipe_command, dataset.reading(1).desc.pipe_command) == ("gzip -dc", "cat")
    assert numbers_of(dataset.reading(2)) == list(range(7, 400))


def test_memory_is_released(files):
    dataset = loaded(files)
    dataset.release_memory()
    gc.collect()
    before = descriptors()
    for release in (dataset.release_memory, lambda: dataset.set_filelist(files)):
        dataset.load_into_memory()
        dataset.load_into_memory()
        dataset.local_shuffle(1)
        release()
        assert (descriptors(), len(dataset)) == (before, 0)
        with pytest.raises(StateError, match=r"no lines are loaded; call load_into_memory\(\) first"):
            dataset.reading(1)
    assert not [name for name in os.listdir("/dev/shm") if "dpmodule-lines" in name]
