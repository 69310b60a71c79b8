"""Reading CSV, .npz and LibSVM files."""

import numpy as np
import pytest

from dpmodule.base import ArgumentError, FileFormatError, MXNetError
from dpmodule.cli.tables import format_of, read_csv, read_npz, read_sparse


@pytest.fixture
def written(tmp_path):
    def write(text, name="data.csv"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_formats_go_by_the_ending():
    names = ["a.csv", "a.NPZ", "a.libsvm", "a.svm", "a.svmlight", "a", "a.txt"]
    assert [format_of(name) for name in names] == ["csv", "npz", "libsvm", "libsvm", "libsvm", "csv", "csv"]


@pytest.mark.parametrize(
    ("text", "label", "x", "y"),
    [
        ("1,2,0\n3,4,1\n", None, [[1, 2], [3, 4]], [0, 1]),
        ("a,b,c\n1,2,0\n\n3,4,1\n", None, [[1, 2], [3, 4]], [0, 1]),
        ("\ufeffa,b,c\n0,1,2\n1,3,4\n", "a", [[1, 2], [3, 4]], [0, 1]),
        ("1,0,2\n3,1,4\n", "1", [[1, 2], [3, 4]], [0, 1]),
        ("1,2,0\n3,4,1\n", "-1", [[1, 2], [3, 4]], [0, 1]),
        ("1,2\n3,4\n", "none", [[1, 2], [3, 4]], None),
    ],
)
def test_csv(text, label, x, y, written):
    table = read_csv(written(text), label, None)
    np.testing.assert_array_equal(table.x, x)
    assert table.y is y is None or list(table.y) == y


def test_csv_with_marks_for_validation(written):
    text = "1,train,2,0\n3, Validation,4,1\n5,0,6,1\n7,1,8,0\n"
    table = read_csv(written(text), None, "1")
    np.testing.assert_array_equal(table.x, [[1, 2], [3, 4], [5, 6], [7, 8]])
    assert table.held.tolist() == [False, True, False, True]
    table = read_csv(written("a,k,part\n1,0,val\n2,1,train\n"), None, "part")
    assert (table.y.tolist(), table.names) == ([0, 1], ("a",))


@pytest.mark.parametrize(
    ("text", "label", "held", "error", "match"),
    [
        ("", None, None, FileFormatError, "no sample"),
        ("a,b\n", None, None, FileFormatError, "no sample"),
        ("1,2,0\n\n3,1\n", None, None, FileFormatError, "line 3 has 2 columns, expected 3"),
        ("a,b\n1,0\nx,1\n", None, None, FileFormatError, "line 3, column 0 'a': 'x' is no number"),
        (
            "a,b\n1,cat\n",
            None,
            None,
            FileFormatError,
            "line 2, column 1 'b': 'cat' is no number; expected a class",
        ),
        (
            "a,b,c\n1,y,0\n",
            None,
            "b",
            FileFormatError,
            "line 2, column 1 'b': 'y' is no number; expected 1 or 'val",
        ),
        ("1,2,0\n", "z", None, ArgumentError, "--label-column is 'z'.*a number from 0 to 2"),
        ("a,b\n1,0\n", "z", None, ArgumentError, "--label-column is 'z'.*has a, b"),
        ("a,b\n1,0\n", "9" * 5000, None, ArgumentError, "--label-column is '9999.*has a, b"),
        ("a,b\n1,0\n", None, "c", ArgumentError, "--validation-column is 'c'.*has a, b"),
        ("a,b\n1,0\n", "b", "b", ArgumentError, "the same column"),
        ("a,b\n1,0\n2,1\n", None, "a", ArgumentError, "holds 2.0, expected 1 or 'validation'"),
    ],
)
def test_bad_csv_is_refused(text, label, held, error, match, written):
    with pytest.raises(error, match=match):
        read_csv(written(text), label, held)


def test_binary_csv_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match=r"data\.csv: no readable CSV"):
        read_csv(str(path), None, None)


def test_npz(tmp_path):
    path = str(tmp_path / "d.npz")
    np.savez(path, x=np.arange(4), y=[1, 0, 1, 1], part=[0, 1, 0, 1])
    table = read_npz(path, "part")
    assert table.x.tolist() == [[0], [1], [2], [3]]
    assert (table.y.tolist(), table.held.tolist()) == ([1, 0, 1, 1], [False, True, False, True])
    for held, match in [("c", "--validation-column is 'c'.*holds x, y, part"), ("x", "holds 2, expected 1")]:
        with pytest.raises(ArgumentError, match=match):
            read_npz(path, held)
    np.savez(path, x=np.ones((2, 4)))
    assert read_npz(path, None).y is None


def test_bad_npz_is_refused(tmp_path):
    path = tmp_path / "d.npz"
    for content in (b"", b"no zip", b"PK\x03\x04 cut short"):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"d\.npz.*" + ("" if content else "the file is empty")):
            read_npz(str(path), None)
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(FileFormatError, match=r"d\.npz"):
        read_npz(str(path), None)
    for arrays, match in [
        ({"images": np.ones(3)}, "holds images"),
        ({"x": np.array(["a"])}, "expected numbers"),
        ({"x": np.array(3.0)}, "expected numbers"),
        ({"x": np.array([{}], dtype=object)}, r"d\.npz"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(MXNetError, match=match):
            read_npz(str(path), None)


ZERO = "1 0:1.5 2:2 # note\n0 1:4\n"
ONE = "1 qid:3 1:1.5 3:2\n0 qid:4 2:4\n"


def test_libsvm_columns_count_from_0_or_1(written):
    zero, one = written(ZERO, "zero"), written(ONE, "one")
    for paths, base, width, first in [
        ([zero], None, None, 0), ([one], None, None, 1), ([zero], 0, 3, 0), ([one], 1, 3, 1),
    ]:  # fmt: skip
        (table,), found = read_sparse(paths, base, width)
        assert found == first
        assert table.x.tolist() == [[1.5, 0, 2], [0, 4, 0]]
        assert table.y.tolist() == [1, 0]
    (table,), _ = read_sparse([one], 0, 5)
    assert table.x.tolist() == [[0, 1.5, 0, 2, 0], [0, 0, 4, 0, 0]]


def test_libsvm_files_are_counted_alike(written):
    tables, first = read_sparse([written(ZERO, "zero"), written(ONE, "one")], None, None)
    assert first == 0
    assert [table.x.shape for table in tables] == [(2, 4), (2, 4)]


@pytest.mark.parametrize(
    ("text", "base", "width", "match"),
    [
        (ZERO, 1, None, "names column 0, but --index-base 1"),
        (ONE, None, 2, r"names column 3, but a sample has 2 values: columns 1 to 2, counted from 1"),
        ("1 99999999999:1\n" * 1000, None, None, "more than this machine has"),
        ("1 1:1 1e300:1\n", None, None, "line 1: '1e300:1'"),
        ("1 1:1 qid:2\n", None, None, "line 1: 'qid:2'"),
    ],
)
def test_bad_libsvm_is_refused(text, base, width, match, written):
    with pytest.raises(FileFormatError, match=match):
        read_sparse([written(text)], base, width)
