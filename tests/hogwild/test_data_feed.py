"""Files to batches: every line once, in order, for all kinds of files; errors name file, line and slot."""

import errno
import gzip
import itertools
import os
import random
import shlex
import sys

import pytest
import torch

import dpmodule as mx
from dpmodule.base import FileError, FileFormatError
from dpmodule.hogwild import FileBatches, FileRange, check_files, split_parts
from helpers.functors import backend as backend
from helpers.processes import descendants, until
from helpers.walk import walks

DESC = """
batch_size: %d
multi_slot_desc {
    slots { name: "words" type: "uint64" is_used: true }
    slots { name: "skipped" type: "float" }
    slots { name: "dense" type: "float" is_dense: true is_used: true }
    slots { name: "label" type: "uint64" is_dense: true is_used: true }
}
"""
GOOD = b"2 5 6 1 0.5 3 1 2 3 1 0\n"


def feed_of(batch_size=2, command=None):
    text = DESC % batch_size + (f"pipe_command: {mx.hogwild.prototxt.quoted(command)}" if command else "")
    return mx.DataFeedDesc(text, allow_pipe_command=command is not None)


def line_of(row):
    words, dense, label = (" ".join(map(str, (len(each), *each))) for each in (*row[:2], row[2:]))
    return f"{words} 1 0.5 {dense} {label}"


def random_rows(generator, count):
    rows = []
    for _ in range(count):
        words = [generator.randrange(10 ** generator.randint(1, 9)) for _ in range(generator.randint(0, 6))]
        rows.append((words, [generator.randrange(100) / 4 for _ in range(3)], generator.randrange(2)))
    return rows


def batches_of(desc, parts, *arguments, **keywords):
    left = iter([FileRange(part) if isinstance(part, str) else part for part in parts])
    return FileBatches(desc, lambda: next(left, None), *arguments, **keywords)


def rows_of(batch):
    """The rows of a batch, after a look at its form."""
    words, offsets = batch.slots["words"]
    assert (words.dtype, offsets.dtype, offsets.shape) == (torch.int64, torch.int64, (batch.num_lines + 1,))
    assert (int(offsets[0]), int(offsets[-1])) == (0, len(words))
    dense, label = batch.slots["dense"], batch.slots["label"]
    assert (dense.values.shape, label.values.shape) == ((batch.num_lines, 3), (batch.num_lines, 1))
    assert dense.offsets.tolist() == list(range(0, 3 * batch.num_lines + 1, 3))
    return [
        (words[a:b].tolist(), dense.values[i].tolist(), int(label.values[i, 0]))
        for i, (a, b) in enumerate(itertools.pairwise(offsets.tolist()))
    ]


def num_lines(batches):
    return [batch.num_lines for batch in batches]


def put(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def write_files(generator, folder, trial):
    """Write random files of every kind; return their paths, rows, and the numbers of the lines."""
    paths, rows, places = [], [], []
    for k in range(generator.randint(1, 5)):
        mine = random_rows(generator, generator.choice([0, 0, 1, 2, 5, 17, 40]))
        path = folder / f"{trial}-{k}{generator.choice(['', '', '.txt', '.gz'])}"
        end = generator.choice(["\n", "\r\n"])
        text = []
        for row in mine:
            blank = [generator.choice(["", " ", "\t "]) for _ in range(generator.choice([0, 0, 0, 1, 2]))]
            text += [line + end for line in (*blank, line_of(row))]
            places.append((str(path), len(text)))
        data = "".join(text)
        if generator.random() < 0.5:
            data = data.removesuffix(end)
        paths.append(put(path, data.encode()))
        rows += mine
    return paths, rows, places


@pytest.mark.parametrize(
    ("seed", "trials"), [(0, 5), pytest.param(1, 200, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_every_line_is_read_once(seed, trials, tmp_path, backend):
    """Read random files in every way of cutting; each line must be there once, in its place."""
    generator = random.Random(seed)
    for trial in range(trials if backend == "native" else 3):
        paths, rows, places = write_files(generator, tmp_path, trial)
        for workers, size in itertools.product((1, 2, 3, 7), (1, 3, 64)):
            parts = split_parts(paths, workers)
            block_bytes = generator.choice([1, 16, 100, 1000, 1 << 20])
            for each in (parts, paths):
                found = list(batches_of(feed_of(size), each, block_bytes=block_bytes))
                assert sum(map(rows_of, found), []) == rows
                assert num_lines(found[:-1]) == [size] * (len(found) - 1)
                assert [(batch.file, batch.first_line) for batch in found] == places[::size]
            shared = [list(batches_of(feed_of(size), parts[i::workers])) for i in range(workers)]
            got = sorted(row for mine in shared for batch in mine for row in rows_of(batch))
            assert got == sorted(rows)
        assert sum(map(rows_of, batches_of(feed_of(3, "gzip -dcf"), paths)), []) == rows


def test_every_cut_by_bytes(tmp_path, backend):
    rows = random_rows(random.Random(1), 5)
    text = "\r\n".join(map(line_of, rows)).encode()
    path = put(tmp_path / "a", text)
    for cut in range(len(text) + 2):
        parts = [FileRange(path, 0, cut), FileRange(path, cut, None)]
        found = [list(batches_of(feed_of(9), [part], block_bytes=64)) for part in parts]
        assert sum((rows_of(batch) for mine in found for batch in mine), []) == rows
        begun = text[: max(cut - 1, 0)].count(b"\n") + (cut > 0)  # lines that begin before the cut
        assert [mine[0].first_line for mine in found if mine][-1] == (begun + 1 if found[1] else 1)


def test_parts_keep_workers_busy(tmp_path):
    contents = {"a": b"x" * 100_000, "b": b"x" * 10, "c.gz": b"x" * 10**6, "d": b""}
    path, small, packed, empty = (put(tmp_path / name, content) for name, content in contents.items())
    parts = split_parts([path, small, packed], 2)
    assert [(part.path, part.begin) for part in parts[:2]] == [(path, 0), (path, parts[0].end)]
    assert 8 <= len(parts) <= 11
    assert parts[-2:] == [FileRange(small), FileRange(packed)]
    sizes = [(part.end or 100_000) - part.begin for part in parts[:-2]]
    assert (sum(sizes), max(sizes) - min(sizes) <= 1) == (100_000, True)
    assert split_parts([path], 4, "zcat") == [FileRange(path)]
    assert len(split_parts([small], 3)) == 3
    assert split_parts([empty], 3) == [FileRange(empty)]


BAD = [
    (b"2 5", "slot 'words', value 2 of 2: found the end of the line"),
    (b"1 5 1 x 3 1 2 3 1 0", "slot 'skipped', value 1 of 1: found 'x'"),
    (b"1 5 1 0.5 3 1 nan 3 1 0", "slot 'dense', value 2 of 3: found 'nan'"),
    (b"1 5 1 0.5 2 1 2 1 0", "slot 'dense': found 2 values, expected 3"),
    (b"1 5 1 0.5 3 1 2 3 1 0 9", "found '9' after the last slot 'label'"),
]


@walks(list(itertools.product(BAD, [0, 1, 7, 150], ["", ".gz"], [50, 1 << 20])))
def test_bad_lines_name_file_line_and_slot(bad, where, suffix, block_bytes, tmp_path, backend):
    line, text = bad
    path = put(tmp_path / f"bad{suffix}", b"\n".join([GOOD * where + b"\n", line, GOOD * 2]))
    first = put(tmp_path / "first", GOOD * 3)
    number = (GOOD * where + b"\n\n").count(b"\n") + 1
    told = f"^{path}: line {number}(: |, ){text}"
    with pytest.raises(FileFormatError, match=told):
        list(batches_of(feed_of(2), [first, path], block_bytes=block_bytes))
    batches = batches_of(feed_of(2), [first, path], "skip", block_bytes=block_bytes)
    assert sum(num_lines(batches)) == 3 + where + 2
    assert batches.skipped == 1
    if not suffix and (where > 1 or "dense" not in text):  # else that line sets the width
        parts = [FileRange(path, 1), FileRange(path)][where == 0 :]
        with pytest.raises(FileFormatError, match=told):
            list(batches_of(feed_of(2), parts, block_bytes=block_bytes))


def test_the_width_of_dense_slots_is_that_of_the_first_line_of_all_files(tmp_path, backend):
    first, second = put(tmp_path / "a", GOOD), put(tmp_path / "b", b"1 5 1 0.5 2 1 2 1 0\n")
    with pytest.raises(FileFormatError, match=f"{second}: line 1, slot 'dense': found 2 values, expected 3"):
        list(batches_of(feed_of(), [first, second]))
    with pytest.raises(FileFormatError, match=f"{first}: line 1, slot 'dense': found 3 values, expected 2"):
        list(batches_of(feed_of(), [first], widths={"dense": 2}))
    bad_first = put(tmp_path / "c", b"1 5 1 0.5 2 1 2 1 x\n" + GOOD)
    batches = batches_of(feed_of(), [bad_first, second], "skip")
    assert (num_lines(batches), batches.skipped) == ([1], 2)


def test_lists_of_files_are_checked(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    assert check_files([path]) == [str(path)] == check_files(iter((str(path),)))
    for missing, number in (("none", errno.ENOENT), (".", errno.EISDIR), ("a/b", errno.ENOTDIR), ("x\0", 0)):
        with pytest.raises(FileError) as found:
            check_files([path, os.path.join(tmp_path, missing)])
        assert (found.value.errno, found.value.filename) == (number, os.path.join(tmp_path, missing))


# --- programs


def program(folder, text):
    """Write a program of Python; return the command that runs it."""
    path = folder / "program with blanks.py"
    path.write_text("import sys, os, time\n" + text)
    return shlex.join([sys.executable, "-S", str(path)])


def test_files_go_through_a_program(tmp_path):
    doubled = program(tmp_path, "for line in sys.stdin: sys.stdout.write(line * 2)")
    paths = [put(tmp_path / "a", GOOD * 3), put(tmp_path / "b", GOOD[:-1])]
    found = batches_of(feed_of(4, doubled), paths, "skip")
    assert (num_lines(found), found.skipped) == ([4, 2], 1)  # twice the line without an end is bad
    packed = tmp_path / "a.gz"
    for data, lines in ((gzip.compress(GOOD * 1000) + gzip.compress(GOOD), 1001), (b"", 0)):
        packed.write_bytes(data)  # several members, and none
        assert sum(num_lines(batches_of(feed_of(), [str(packed)]))) == lines


def test_no_shell_sees_the_command(tmp_path):
    path = put(tmp_path / "a", GOOD)
    with pytest.raises(FileError, match="ended with exit status"):
        list(batches_of(feed_of(2, f"cat > {tmp_path}/made; true"), [path]))
    assert not os.path.exists(tmp_path / "made")


LONG = r"sys.stderr.write('x' * 9999 + ' no such column\n'); print(sys.stdin.read()); sys.exit(3)"


def test_a_program_that_fails_is_shown_and_ended(tmp_path, monkeypatch):
    path, before = put(tmp_path / "a", GOOD), descendants()
    for text, told in (
        (LONG, "ended with exit status 3; it .* no such column$"),
        ("os.kill(os.getpid(), 9)", "was killed by signal 9; it wrote nothing to stderr"),
        ("os.close(0); os.close(1); time.sleep(100)", "closed its output but did not end within 0.1 s"),
    ):
        monkeypatch.setattr("dpmodule.hogwild.data_files._EXIT_TIMEOUT_S", 0.1 if "close" in text else 60)
        with pytest.raises(FileError, match=f"^{path}: pipe_command .* {told}"):
            list(batches_of(feed_of(2, program(tmp_path, text)), [path]))
        until(lambda: descendants() <= before)


@pytest.mark.parametrize("way", ["close", "drop", "error"])
def test_a_program_is_ended_with_the_iteration(way, tmp_path):
    path, note = put(tmp_path / "a", GOOD), tmp_path / "pid"
    text = f"open({str(note)!r}, 'w').write(str(os.getpid()))\nwhile True: sys.stdout.write({GOOD.decode()!r} * 100)"
    batches = batches_of(feed_of(2, program(tmp_path, text)), [path], block_bytes=100)
    iteration = iter(batches)
    next(iteration)
    if way == "close":
        with batches:
            batches.close()
    elif way == "error":
        with pytest.raises(ZeroDivisionError):
            iteration.throw(ZeroDivisionError())
    del iteration
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


# --- fuzzed lines
