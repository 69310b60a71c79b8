"""Datasets: files as they are asked for, and lines in memory, shuffled and released."""

import gc
import gzip
import os
import subprocess
import sys

import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileError, FileFormatError, StateError
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


def files(folder):
    (folder / "a").write_bytes(lines(range(5))[:-1])
    (folder / "b").write_bytes(b"\n" + lines(range(5, 7)) + b"\r\n \n")
    (folder / "c.gz").write_bytes(gzip.compress(lines(range(7, 400))))
    (folder / "d").write_bytes(b"")
    return [str(folder / name) for name in ("a", "b", "c.gz", "d")]


def test_a_queue_of_files(tmp_path):
    dataset = mx.QueueDataset(feed_of())
    with pytest.raises(StateError, match=r"QueueDataset has no files yet; call set_filelist"):
        dataset.reading(2)
    dataset.set_filelist(files(tmp_path))
    assert dataset.filelist == files(tmp_path)
    assert [part.path for part in dataset.reading(2).parts] == dataset.filelist
    for split in (False, True):
        assert numbers_of(dataset.reading(3, split)) == list(range(400))
    os.unlink(dataset.filelist[1])
    with pytest.raises(FileError, match="No such file"):
        dataset.reading(2)


def test_lines_in_memory(tmp_path):
    dataset = mx.InMemoryDataset(feed_of())
    dataset.set_filelist(files(tmp_path))
    dataset.load_into_memory()
    for path in dataset.filelist:
        os.unlink(path)
    assert len(dataset) == 400
    for workers in (1, 2, 7):
        assert numbers_of(dataset.reading(workers)) == list(range(400))
    dataset.data_feed.set_batch_size(7)
    assert dataset.reading(1).desc.batch_size == 7


def test_a_seed_gives_the_same_order_again(tmp_path):
    orders = []
    for seed in (1, 1, 2, None, None):
        dataset = mx.InMemoryDataset(feed_of())
        dataset.set_filelist(files(tmp_path))
        dataset.load_into_memory()
        dataset.local_shuffle(seed)
        orders.append(tuple(numbers_of(dataset.reading(2))))
        assert sorted(orders[-1]) == list(range(400))
    assert orders[0] == orders[1]
    assert len(set(orders)) == 4
    dataset.local_shuffle()
    assert sorted(numbers_of(dataset.reading(2))) == list(range(400))
    assert len(dataset) == 400


def test_another_process_reads_the_lines(tmp_path):
    dataset = mx.InMemoryDataset(feed_of())
    dataset.set_filelist(files(tmp_path))
    dataset.load_into_memory()
    (part,) = dataset.reading(1).parts[:1]
    code = f"print(open({part.path!r}, 'rb').read({part.end or -1}).count(b' 0 1'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"1\n"


def test_files_go_through_their_program_once(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(lines(range(9))))
    dataset = mx.InMemoryDataset(feed_of("gzip -dc"))
    dataset.set_filelist([tmp_path / "a.gz"])
    dataset.load_into_memory()
    assert dataset.data_feed.pipe_command == "gzip -dc"
    assert dataset.reading(1).desc.pipe_command == "cat"
    assert numbers_of(dataset.reading(2)) == list(range(9))


def test_bad_lines_are_refused_or_left_out(tmp_path):
    (tmp_path / "a").write_bytes(lines(range(3)) + b"x\n\n2 1\n" + lines(range(3, 6)))
    dataset = mx.InMemoryDataset(feed_of())
    dataset.set_filelist([tmp_path / "a"])
    with pytest.raises(FileFormatError, match="a: line 4, slot 'a', count: found 'x'"):
        dataset.load_into_memory()
    assert len(dataset) == 0
    dataset.load_into_memory(on_bad_line="skip")
    assert (len(dataset), dataset.skipped) == (6, 2)
    assert numbers_of(dataset.reading(1)) == list(range(6))
    with pytest.raises(ArgumentError, match="load_into_memory: on_bad_line is 'no'"):
        dataset.load_into_memory("no")


def test_memory_is_released(tmp_path):
    dataset = mx.InMemoryDataset(feed_of())
    dataset.set_filelist(files(tmp_path))
    gc.collect()
    before = descriptors()
    for release in (dataset.release_memory, lambda: dataset.set_filelist(files(tmp_path))):
        dataset.load_into_memory()
        dataset.load_into_memory()
        dataset.local_shuffle(1)
        release()
        assert descriptors() == before
        assert len(dataset) == 0
        for call in (dataset.local_shuffle, lambda: dataset.reading(1)):
            with pytest.raises(StateError, match=r"no lines are loaded; call load_into_memory\(\) first"):
                call()
    assert not [name for name in os.listdir("/dev/shm") if "dpmodule-lines" in name]


def test_arguments_are_checked(tmp_path):
    for kind in (mx.QueueDataset, mx.InMemoryDataset):
        with pytest.raises(
            ArgumentError, match=f"{kind.__name__}: data_feed is 'x', expected a DataFeedDesc"
        ):
            kind("x")
        with pytest.raises(ArgumentError, match="filelist is 'part-0'"):
            kind(feed_of()).set_filelist("part-0")
        with pytest.raises(FileError, match="No such file"):
            kind(feed_of()).set_filelist([tmp_path / "none"])
    with pytest.raises(StateError, match=r"InMemoryDataset has no files yet; call set_filelist"):
        mx.InMemoryDataset(feed_of()).load_into_memory()
    empty = mx.InMemoryDataset(feed_of())
    empty.set_filelist(files(tmp_path)[3:])
    empty.load_into_memory()
    empty.local_shuffle(0)
    assert numbers_of(empty.reading(2)) == []
