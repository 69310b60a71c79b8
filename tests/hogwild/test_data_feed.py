"""Files to batches: every line once, in order, for all kinds of files; what is refused names file, line and slot."""

import errno
import gzip
import itertools
import os
import random
import shlex
import sys
import threading
import time

import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, FileError, FileFormatError
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


def feed_of(batch_size=2, command=None):
    text = DESC % batch_size + (f"pipe_command: {mx.hogwild.prototxt.quoted(command)}" if command else "")
    return mx.DataFeedDesc(text, allow_pipe_command=command is not None)


def line_of(row):
    words, dense, label = row
    return (
        f"{len(words)} {' '.join(map(str, words))} 1 0.5 {len(dense)} {' '.join(map(str, dense))} 1 {label}"
    )


def random_rows(generator, count):
    return [
        (
            [generator.randrange(10 ** generator.randint(1, 9)) for _ in range(generator.randint(0, 6))],
            [generator.randrange(100) / 4 for _ in range(3)],
            generator.randrange(2),
        )
        for _ in range(count)
    ]


def batches_of(desc, parts, *arguments, **keywords):
    left = iter(parts)
    return FileBatches(desc, lambda: next(left, None), *arguments, **keywords)


def rows_of(batch):
    """The rows of a batch, after a look at its form."""
    words, offsets = batch.slots["words"]
    assert (words.dtype, offsets.dtype, offsets.shape) == (torch.int64, torch.int64, (batch.num_lines + 1,))
    assert (int(offsets[0]), int(offsets[-1])) == (0, len(words))
    dense, label = batch.slots["dense"], batch.slots["label"]
    assert dense.values.shape == (batch.num_lines, 3)
    assert dense.offsets.tolist() == list(range(0, 3 * batch.num_lines + 1, 3))
    assert label.values.shape == (batch.num_lines, 1)
    return [
        (words[a:b].tolist(), dense.values[i].tolist(), int(label.values[i, 0]))
        for i, (a, b) in enumerate(itertools.pairwise(offsets.tolist()))
    ]


def put(path, data):
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def test_batches_run_on_over_files(tmp_path, backend):
    rows = random_rows(random.Random(0), 7)
    lines = [line_of(row).encode() + b"\n" for row in rows]
    paths = [
        put(tmp_path / name, data)
        for name, data in (
            ("a", b"".join(lines[:3])),
            ("b", b""),
            ("c.gz", lines[3]),
            ("d", b"".join(lines[4:])[:-1]),
        )
    ]
    with batches_of(feed_of(2), map(FileRange, paths)) as batches:
        found = list(batches)
    assert [batch.num_lines for batch in found] == [2, 2, 2, 1]
    assert [(os.path.basename(batch.file), batch.first_line) for batch in found] == [
        ("a", 1),
        ("a", 3),
        ("d", 1),
        ("d", 3),
    ]
    assert sum(map(rows_of, found), []) == rows
    assert list(found[0].slots) == ["words", "dense", "label"]


def write_files(generator, folder, trial):
    """Write random files of every kind; return their paths, rows, and the numbers of the lines."""
    paths, rows, places = [], [], []
    for k in range(generator.randint(1, 5)):
        mine = random_rows(generator, generator.choice([0, 0, 1, 2, 5, 17, 40]))
        path = folder / f"{trial}-{k}{generator.choice(['', '', '.txt', '.gz'])}"
        end = generator.choice(["\n", "\r\n"])
        text, number = [], 0
        for row in mine:
            for _ in range(generator.choice([0, 0, 0, 1, 2])):
                text.append(generator.choice(["", " ", "\t "]) + end)
                number += 1
            number += 1
            places.append((str(path), number))
            text.append(line_of(row) + end)
        data = "".join(text)
        if generator.random() < 0.5:
            data = data.removesuffix(end)
        paths.append(put(path, data.encode()))
        rows += mine
    return paths, rows, places


def check_counts(seed, trials, folder):
    """Read random files in every way of cutting; each line must be there once, in its place."""
    generator = random.Random(seed)
    for trial in range(trials):
        paths, rows, places = write_files(generator, folder, trial)
        for workers, size in itertools.product((1, 2, 3, 7), (1, 3, 64)):
            parts = split_parts(paths, workers)
            block_bytes = generator.choice([1, 16, 100, 1000, 1 << 20])
            for each in (parts, [FileRange(path) for path in paths]):
                found = list(batches_of(feed_of(size), each, block_bytes=block_bytes))
                assert sum(map(rows_of, found), []) == rows
                assert [batch.num_lines for batch in found[:-1]] == [size] * (len(found) - 1)
                assert [(batch.file, batch.first_line) for batch in found] == places[::size]
            shared = [list(batches_of(feed_of(size), parts[i::workers])) for i in range(workers)]
            got = sorted(row for mine in shared for batch in mine for row in rows_of(batch))
            assert got == sorted(rows)
        piped = batches_of(feed_of(3, "gzip -dcf"), map(FileRange, paths))
        assert sum(map(rows_of, piped), []) == rows
        for path in paths:
            os.unlink(path)


def test_every_line_is_read_once(tmp_path, backend):
    check_counts(0, 9 if backend == "native" else 3, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_line_is_read_once_at_length(tmp_path, backend):
    check_counts(1, 200, tmp_path)


def test_every_cut_by_bytes(tmp_path, backend):
    rows = random_rows(random.Random(1), 5)
    text = "\r\n".join(map(line_of, rows)).encode()
    path = put(tmp_path / "a", text)
    for cut in range(len(text) + 2):
        parts = [FileRange(path, 0, cut), FileRange(path, cut, None)]
        found = [list(batches_of(feed_of(9), [part], block_bytes=64)) for part in parts]
        assert sum((rows_of(batch) for mine in found for batch in mine), []) == rows
        before = text[: max(0, cut - 1)].count(b"\n") + (text[cut - 1 : cut] == b"\n") if cut else 0
        assert [mine[0].first_line for mine in found if mine][-1] == (
            1 if not found[1] else before + 1 if cut == 0 or text[cut - 1 : cut] == b"\n" else before + 2
        )


def test_parts_keep_workers_busy(tmp_path):
    path = put(tmp_path / "a", b"x" * 100_000)
    small, packed = put(tmp_path / "b", b"x" * 10), put(tmp_path / "c.gz", b"x" * 10**6)
    parts = split_parts([path, small, packed], 2)
    assert [(part.path, part.begin) for part in parts[:2]] == [(path, 0), (path, parts[0].end)]
    assert 8 <= len(parts) <= 11
    assert parts[-2:] == [FileRange(small), FileRange(packed)]
    sizes = [(part.end or 100_000) - part.begin for part in parts[:-2]]
    assert sum(sizes) == 100_000
    assert max(sizes) - min(sizes) <= 1
    assert split_parts([path], 4, "zcat") == [FileRange(path)]
    assert len(split_parts([small], 3)) == 3
    assert split_parts([put(tmp_path / "d", b"")], 3) == [FileRange(str(tmp_path / "d"))]


GOOD = b"2 5 6 1 0.5 3 1 2 3 1 0\n"
BAD = [
    (b"-1 1 0.5 3 1 2 3 1 0", "slot 'words', count: found '-1'"),
    (b"2 5", "slot 'words', value 2 of 2: found the end of the line"),
    (b"1 -1 1 0.5 3 1 2 3 1 0", "slot 'words', value 1 of 1: found '-1'"),
    (b"1 5 1 x 3 1 2 3 1 0", "slot 'skipped', value 1 of 1: found 'x'"),
    (b"1 5 1 0.5 3 1 nan 3 1 0", "slot 'dense', value 2 of 3: found 'nan'"),
    (b"1 5 1 0.5 2 1 2 1 0", "slot 'dense': found 2 values, expected 3"),
    (b"1 5 1 0.5 3 1 2 3 1 0 9", "found '9' after the last slot 'label'"),
]


@walks(list(itertools.product(BAD, [0, 1, 7, 150], ["", ".gz"], [50, 1 << 20])))
def test_bad_lines_name_file_line_and_slot(bad, where, suffix, block_bytes, tmp_path, backend):
    line, text = bad
    before = GOOD * 3
    path = put(tmp_path / f"bad{suffix}", b"\n".join([GOOD * where + b"\n", line, GOOD * 2]))
    first = put(tmp_path / "first", before)
    number = (GOOD * where + b"\n\n").count(b"\n") + 1
    with pytest.raises(FileFormatError, match=f"^{path}: line {number}(: |, ){text}"):
        list(batches_of(feed_of(2), [FileRange(first), FileRange(path)], block_bytes=block_bytes))
    batches = batches_of(feed_of(2), [FileRange(first), FileRange(path)], "skip", block_bytes=block_bytes)
    assert sum(batch.num_lines for batch in batches) == 3 + where + 2
    assert batches.skipped == 1
    if not suffix and (where > 1 or "dense" not in text):  # else that line says how many there are
        with pytest.raises(FileFormatError, match=f"^{path}: line {number}(: |, ){text}"):
            list(
                batches_of(
                    feed_of(2), [FileRange(path, 1), FileRange(path)][where == 0 :], block_bytes=block_bytes
                )
            )


def test_the_width_of_dense_slots_is_that_of_the_first_line_of_all_files(tmp_path, backend):
    first, second = put(tmp_path / "a", GOOD), put(tmp_path / "b", b"1 5 1 0.5 2 1 2 1 0\n")
    with pytest.raises(FileFormatError, match=f"{second}: line 1, slot 'dense': found 2 values, expected 3"):
        list(batches_of(feed_of(), [FileRange(first), FileRange(second)]))
    with pytest.raises(FileFormatError, match=f"{first}: line 1, slot 'dense': found 3 values, expected 2"):
        list(batches_of(feed_of(), [FileRange(first)], widths={"dense": 2}))
    bad_first = put(tmp_path / "c", b"1 5 1 0.5 2 1 2 1 x\n" + GOOD)
    batches = batches_of(feed_of(), [FileRange(bad_first), FileRange(second)], "skip")
    assert [batch.num_lines for batch in batches] == [1]
    assert batches.skipped == 2


def test_values_may_be_written_and_belong_to_one_batch(tmp_path):
    path = put(tmp_path / "a", GOOD * 5)
    found = list(batches_of(feed_of(2), [FileRange(path)]))
    found[0].slots["words"].values.zero_()
    assert found[1].slots["words"].values.tolist() == [5, 6, 5, 6]


def test_arguments_are_checked(tmp_path):
    with pytest.raises(ArgumentError, match="on_bad_line is 'ignore', expected 'error' or 'skip'"):
        batches_of(feed_of(), [], "ignore")
    unused = mx.DataFeedDesc('multi_slot_desc { slots { name: "a" type: "float" } }')
    with pytest.raises(ArgumentError, match=r"no slot of \['a'\] is used; call set_use_slots"):
        batches_of(unused, [])
    path = put(tmp_path / "a.gz", GOOD)
    with pytest.raises(
        ArgumentError, match="bytes 3 to None cannot be read alone, since the file is compressed"
    ):
        list(batches_of(feed_of(), [FileRange(path, 3)]))
    with pytest.raises(ArgumentError, match="is read by a program"):
        list(batches_of(feed_of(command="tac"), [FileRange(path, 0, 7)]))


def test_lists_of_files_are_checked(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    assert check_files([path]) == [str(path)] == check_files(iter((str(path),)))
    for wrong in ("part-0", b"part-0", path, 7, None):
        with pytest.raises(ArgumentError, match=r"filelist is .*, expected a list of paths, such as \["):
            check_files(wrong)
    with pytest.raises(ArgumentError, match="filelist is empty"):
        check_files([])
    for wrong in (7, b"a", None, ""):
        with pytest.raises(ArgumentError, match="filelist contains .*, expected paths"):
            check_files([path, wrong])
    for missing, number in (("none", errno.ENOENT), (".", errno.EISDIR), ("a/b", errno.ENOTDIR), ("x\0", 0)):
        with pytest.raises(FileError) as found:
            check_files([path, os.path.join(tmp_path, missing)])
        assert found.value.errno == number
        assert found.value.filename == os.path.join(tmp_path, missing)


def test_a_file_that_goes_away_or_is_no_gzip(tmp_path):
    with pytest.raises(FileError, match=r"No such file.*none"):
        list(batches_of(feed_of(), [FileRange(str(tmp_path / "none"))]))
    with pytest.raises(FileError, match=r"No such file.*none"):
        list(batches_of(feed_of(), [FileRange(str(tmp_path / "none"), 5)]))
    whole = gzip.compress(GOOD * 1000)
    for data in (b"plain", whole[:-3], whole[:40], whole[:40] + b"xxxx" + whole[44:], whole + b"rest"):
        path = tmp_path / "a.gz"
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=f"{path}: not a complete gzip file"):
            list(batches_of(feed_of(), [FileRange(str(path))]))
    path.write_bytes(whole + gzip.compress(GOOD))
    assert sum(batch.num_lines for batch in batches_of(feed_of(), [FileRange(str(path))])) == 1001
    path.write_bytes(b"")
    assert list(batches_of(feed_of(), [FileRange(str(path))])) == []


# --- programs


def program(folder, text):
    """Write a program of Python; return the command that runs it."""
    path = folder / "program with blanks.py"
    path.write_text("import sys, os, time\n" + text)
    return shlex.join([sys.executable, "-S", str(path)])


def test_files_go_through_a_program(tmp_path):
    doubled = program(tmp_path, "for line in sys.stdin: sys.stdout.write(line * 2)")
    paths = [put(tmp_path / "a", GOOD * 3), put(tmp_path / "b", GOOD[:-1])]
    found = batches_of(feed_of(4, doubled), map(FileRange, paths), "skip")
    assert [batch.num_lines for batch in found] == [4, 2]
    assert found.skipped == 1  # twice the line without an end
    assert sum(batch.num_lines for batch in batches_of(feed_of(3, "cat -"), map(FileRange, paths))) == 4


def test_no_shell_sees_the_command(tmp_path):
    path = put(tmp_path / "a", GOOD)
    with pytest.raises(FileError, match="ended with exit status"):
        list(batches_of(feed_of(2, f"cat > {tmp_path}/made; true"), [FileRange(path)]))
    assert not os.path.exists(tmp_path / "made")


def test_a_program_that_fails_is_shown(tmp_path):
    path = put(tmp_path / "a", GOOD)
    fails = program(
        tmp_path, "sys.stderr.write('x' * 9999 + ' no such column\\n'); print(sys.stdin.read()); sys.exit(3)"
    )
    with pytest.raises(
        FileError, match=f"^{path}: pipe_command .* ended with exit status 3; it .* no such column$"
    ):
        list(batches_of(feed_of(2, fails), [FileRange(path)]))
    killed = program(tmp_path, "os.kill(os.getpid(), 9)")
    with pytest.raises(FileError, match="was killed by signal 9; it wrote nothing to stderr"):
        list(batches_of(feed_of(2, killed), [FileRange(path)]))
    for command in ("no-such-program -x", str(tmp_path)):
        with pytest.raises(FileError, match=f"{path}: pipe_command '{command}' cannot be started"):
            list(batches_of(feed_of(2, command), [FileRange(path)]))


def test_a_program_that_does_not_end_with_its_output_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("dpmodule.hogwild.data_files._EXIT_TIMEOUT_S", 0.1)
    path = put(tmp_path / "a", GOOD)
    before = descendants()
    lasting = program(tmp_path, "os.close(0); os.close(1); time.sleep(100)")
    with pytest.raises(
        FileError, match=f"^{path}: pipe_command .* closed its output but did not end within 0.1 s"
    ):
        list(batches_of(feed_of(2, lasting), [FileRange(path)]))
    until(lambda: descendants() <= before)


def test_a_program_is_ended_with_the_iteration(tmp_path):
    path, note = put(tmp_path / "a", GOOD), tmp_path / "pid"
    endless = program(
        tmp_path,
        f"open({str(note)!r}, 'w').write(str(os.getpid()))\nwhile True: sys.stdout.write({GOOD.decode()!r} * 100)",
    )
    for way in ("close", "with", "drop", "error"):
        batches = batches_of(feed_of(2, endless), [FileRange(path)], block_bytes=100)
        iteration = iter(batches)
        next(iteration)
        pid = int(note.read_text())
        if way == "close":
            batches.close()
            batches.close()
        elif way == "with":
            with batches:
                pass
        elif way == "drop":
            del iteration
        else:
            with pytest.raises(ZeroDivisionError):
                iteration.throw(ZeroDivisionError())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_pipe_can_be_a_file(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)

    def write():
        with open(path, "wb") as file:
            for piece in (GOOD[:9], GOOD[9:], GOOD):
                file.write(piece)
                file.flush()
                time.sleep(0.02)

    writer = threading.Thread(target=write, name="writer")
    writer.start()
    assert [batch.num_lines for batch in batches_of(feed_of(2), [FileRange(str(path))])] == [2]
    writer.join()


# --- fuzzed lines


def fuzz(seed, lines, folder):
    """Read random lines, good and bad, in skip mode; compare with reading each alone in error mode."""
    generator, bad = random.Random(seed), 0
    while lines > 0:
        texts = []
        for row in random_rows(generator, min(lines, 200)):
            text = bytearray(line_of(row).encode())
            if generator.random() < 0.3:
                for _ in range(generator.randint(1, 3)):
                    text[generator.randrange(len(text))] = generator.choice(b"0123456789 \t\r.-+exn\x00\xff")
            texts.append(bytes(text) if generator.random() < 0.95 else bytes(generator.choices(b" 1.", k=9)))
        lines -= len(texts)
        path = put(folder / "lines", b"\n".join(texts))
        expected = {"good": 0, "bad": 0}
        for text in texts:
            if not text.split():
                continue
            try:
                slots = [
                    mx.hogwild.data_feed.with_width(slot, 3 if slot.name == "dense" else 1)
                    for slot in FUZZED.slots
                ]
                mx.streams.MultiSlotFunctor(text, slots).run()
                expected["good"] += 1
            except FileFormatError:
                expected["bad"] += 1
        batches = batches_of(
            FUZZED,
            [FileRange(path)],
            "skip",
            block_bytes=generator.choice([50, 5000]),
            widths={"dense": 3, "label": 1},
        )
        good = sum(batch.num_lines for batch in batches)
        assert (good, batches.skipped) == (expected["good"], expected["bad"])
        bad += expected["bad"]
    return bad


FUZZED = feed_of(16)


def test_random_lines(tmp_path, backend):
    assert fuzz(0, 2000 if backend == "native" else 400, tmp_path) > 40


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_random_lines_at_length(tmp_path, backend):
    assert fuzz(1, 100_000, tmp_path) > 10_000
