"""Numbers in text files: what they mean, how files are cut, and what is said of bad ones; with and without C++."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import native
from dpmodule.base import FileError, FileFormatError
from dpmodule.io import parsing
from dpmodule.io.parsing import read_csv, read_libsvm
from helpers.both_backends import in_native
from helpers.programs import again_without_native

FORMS = ("{!r}", "{:.17g}", "{:.6g}", "{:e}", "{:+.3f}", "{:.20E}", " {:g}\t")
FLOATS = st.builds(lambda form, value: form.format(value), st.sampled_from(FORMS), st.floats(width=64))
WHOLE = st.integers(0, 10**25).map(str)
SIGNS, POINTS = st.sampled_from(["", "+", "-", "-00"]), st.sampled_from(["", ".", ".0000", ".10"])
DIGITS = st.builds("".join, st.tuples(SIGNS, WHOLE, POINTS, WHOLE))
NAMES = st.sampled_from(["nan", "NaN", "-nan", "inf", "+Inf", "-INFINITY", "infinity"])
WITH_POWER = st.builds("{}e{}".format, DIGITS, st.integers(-345, 320))
NUMBERS = FLOATS | DIGITS | WITH_POWER | NAMES
ENDS = st.sampled_from(["\n", "\r\n"])
PLAIN = st.floats(-1e6, 1e6, width=32).map(repr)


@pytest.fixture(params=[300, parsing._CHUNK_BYTES], ids=["short pieces", "pieces"])
def piece(request, monkeypatch):
    monkeypatch.setattr(parsing, "_CHUNK_BYTES", request.param)


def rounded(words, dtype):
    with np.errstate(over="ignore"):
        return np.array([float(word) for word in words]).astype(dtype)


def same(found, expected):
    """Say whether numbers have the same bits; any NaN is one."""
    missing = np.isnan(expected)
    return (np.isnan(found) == missing).all() and (found[~missing].tobytes() == expected[~missing].tobytes())


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5), end=ENDS)
def test_csv_numbers_are_those_of_pythons_float(tmp_path_factory, rows, end):
    path = tmp_path_factory.getbasetemp() / "numbers.csv"
    path.write_bytes(end.join(map(",".join, rows)).encode())
    for dtype in (np.float32, np.float64):
        expected = rounded([word for row in rows for word in row], dtype).reshape(-1, 2)
        assert same(read_csv(str(path), 2, dtype), expected)


ENTRIES = st.dictionaries(st.integers(0, 99), PLAIN, max_size=3)
LINES = st.tuples(PLAIN, ENTRIES, st.sampled_from(["", " # note 1:2", "  "]))


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(LINES, min_size=1, max_size=4))
def test_libsvm_rows_are_those_of_scikit_learn(tmp_path_factory, rows):
    sklearn = pytest.importorskip("sklearn.datasets")
    path = tmp_path_factory.getbasetemp() / "rows.libsvm"
    texts = [" ".join(f"{at}:{entries[at]}" for at in sorted(entries)) for _, entries, _ in rows]
    path.write_text("\n".join(f"{row[0]} {text}{row[2]}" for row, text in zip(rows, texts)))
    values, labels = sklearn.load_svmlight_file(str(path), n_features=100, dtype=np.float32, zero_based=True)
    found = read_libsvm(str(path), 100)
    np.testing.assert_array_equal(found.labels, labels.astype(np.float32))
    np.testing.assert_array_equal(found.starts, values.indptr)
    np.testing.assert_array_equal(found.columns, values.indices)
    np.testing.assert_array_equal(found.values, values.data)


TEXTS = st.text("01,:.-+e \t\r\n\v#qidnaf_x\0é", max_size=40).map(str.encode)
READERS = (
    lambda path: [read_csv(path, 2, np.float32)],
    lambda path: [read_csv(path, 1, np.int32)],
    lambda path: list(read_libsvm(path, 12)),
)


def outcome(read, path):
    try:
        return [(array.shape, array.dtype, np.nan_to_num(array).tolist()) for array in read(path)]
    except FileFormatError as error:
        return str(error)


@in_native
@pytest.mark.parametrize("count", [200, pytest.param(20000, marks=pytest.mark.slow)])
def test_any_text_means_the_same_without_the_extension(tmp_path, count):
    """Whatever a text holds, it is read the same way, or refused in the same words."""

    @settings(max_examples=count, deadline=None)
    @given(text=TEXTS)
    def check(text):
        path.write_bytes(text)
        for read in READERS:
            native_one = outcome(read, str(path))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(native, "core", None)
                patch.setattr(native, "report", lambda: None)
                assert outcome(read, str(path)) == native_one

    path = tmp_path / "any.txt"
    check()


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pieces_come_together_in_order(tmp_path, threads):
    lines = [" ".join([f"{i}", *(f"{k}:{i}" for k in range(i % 5))]) for i in range(500)]
    (tmp_path / "a.svm").write_text("\n".join(lines))
    rows = read_libsvm(str(tmp_path / "a.svm"), 5, threads)
    assert rows.labels.tolist() == list(range(500))
    assert np.diff(rows.starts).tolist() == [i % 5 for i in range(500)]
    assert rows.columns.tolist() == [k for i in range(500) for k in range(i % 5)]


def test_a_file_larger_than_a_piece_is_the_same_with_any_number_of_threads(tmp_path):
    numbers = np.random.default_rng(0).standard_normal((30000, 5)).astype(np.float32)
    path = tmp_path / "a.csv"
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in numbers.tolist()))
    assert path.stat().st_size > 2 * parsing._CHUNK_BYTES
    for threads in (1, 4):
        it = mx.io.CSVIter(data_csv=path, data_shape=(5,), batch_size=30000, preprocess_threads=threads)
        np.testing.assert_array_equal(it.next().data[0].asnumpy(), numbers)
    with open(path, "a") as file:
        file.write("1,2,3,4\n")
    with pytest.raises(FileFormatError, match=r"a\.csv: line 30001: 4 numbers, expected 5"):
        mx.io.CSVIter(data_csv=path, data_shape=(5,), batch_size=1)
    assert not [each for each in threading.enumerate() if each.name.startswith("dpmodule-text")]


BAD_CSV = [
    (b"1,2\n3,4\n5", 3, "1 numbers, expected 2"),
    (b"1,2\n\n3,4,5\n", 3, "3 numbers, expected 2"),
    (b"1,2\n3,4\0\n", 2, ".* is not a number of type float32; it is number 2 of the line"),
    (b"1,2\r\n\r\n3,x\r\n", 3, "'x' is not a number of type float32; it is number 2 of the line"),
    *[(f"1,{word}\n".encode(), 1, f"'{word}' is no") for word in ("1.2.3", "--1", "4e", "0x10", "1_0", "١")],
    (b"1,2,\n", 1, "3 numbers"),
]


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize(("text", "line", "message"), BAD_CSV)
def test_a_bad_csv_file_is_told_with_line_and_column(tmp_path, text, line, message):
    (tmp_path / "a.csv").write_bytes(b"1,2\n" * 3 + text)
    with pytest.raises(FileFormatError, match=rf"a\.csv: line {line + 3}: {message}"):
        read_csv(str(tmp_path / "a.csv"), 2, np.float32, 2)


def test_huge_and_tiny_numbers_are_rounded_and_integers_refused_beyond_their_type(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"{'9' * 400},0.{'0' * 400}1\n")
    assert read_csv(str(path), 2, np.float32).tolist() == [[np.inf, 0]]
    for word in ("2147483648", "-2147483649", "9" * 30, "1.0", "nan"):
        path.write_text(f"1\n{word}\n")
        with pytest.raises(FileFormatError, match=rf"line 2: '{word}' is not a number of type int32"):
            read_csv(str(path), 1, np.int32)


@pytest.mark.parametrize("text", ["", "\n", " \r\n\n"])
def test_a_file_of_blank_lines_has_no_rows(tmp_path, text):
    (tmp_path / "a").write_text(text, newline="")
    assert read_csv(str(tmp_path / "a"), 3, np.float32).shape == (0, 3)
    assert [len(array) for array in read_libsvm(str(tmp_path / "a"), 3)] == [0, 0, 0, 1]


def test_lines_may_be_of_any_kind_of_end_and_length(tmp_path, monkeypatch):
    monkeypatch.setattr(parsing, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(parsing, "_TAIL", 8)
    (tmp_path / "a").write_bytes(b"1,2\r3,4\r5,6\n" + b" " * 500 + b"7," + b"0" * 900 + b"8\n9,10")
    found = read_csv(str(tmp_path / "a"), 2, np.float32, 2)
    assert found.ravel().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_read_as_a_file_is(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("1,2\n3,4\n",))
    writer.start()
    assert read_csv(str(path), 2, np.float32, 2).tolist() == [[1, 2], [3, 4]]
    writer.join()


def test_several_files_are_one_and_a_missing_one_is_told_first(tmp_path):
    (tmp_path / "a").write_text("1:7 0:1\n2 1:x")
    with pytest.raises(FileError, match="No such file"):
        read_libsvm(f"{tmp_path}/a;{tmp_path}/b", 3)
    (tmp_path / "a").write_text("1:7 0:1\n2 1:5")
    (tmp_path / "b").write_text("\n3\n")
    rows = read_libsvm(f"{tmp_path}/a;{tmp_path}/b", 3, 2)
    assert [array.tolist() for array in rows] == [[1, 2, 3], [1, 5], [0, 1], [0, 1, 2, 2]]


@pytest.mark.timeout(150)
def test_everything_again_without_the_extension():
    again_without_native(__file__, "-k", "bad_csv or huge or blank or kind or several or together")
