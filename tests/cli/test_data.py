"""The samples of the command line: files that are read, and what is for validation."""

import numpy as np
import pytest

from dpmodule.base import ArgumentError
from dpmodule.cli import data, option_types, options
from dpmodule.cli.data import read_csv, read_npz, read_sparse


def arguments(*words):
    parser = option_types.CommandParser()
    options.add_options(parser, "fit")
    return parser.parse_args([str(word) for word in words])


def test_shape_and_scale(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.arange(8).reshape(2, 4), y=[1, 0])
    samples = data.read(arguments("--data", tmp_path / "d.npz", "--shape", "1,2,2", "--scale", 0.5))
    np.testing.assert_array_equal(samples.x[1, 0], [[2, 2.5], [3, 3.5]])
    np.testing.assert_array_equal(samples.y, [1, 0])
    samples = data.read(arguments())
    assert (samples.x.shape, samples.x.min(), samples.x.max()) == ((1797, 1, 8, 8), 0, 1)


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ((), [8, 2]),
        (("--validation", 0.5), [5, 5]),
        (("--validation", 0), [10]),
        (("--validation-column", "part"), [7, 3]),
        (("--validation-data", "b.npz"), [10, 4]),
    ],
)
def test_validation_by_share_column_or_file(words, sizes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", x=np.arange(10), y=np.arange(10) % 2, part=np.arange(10) < 3)
    np.savez("b.npz", x=np.arange(4), y=[0, 1, 0, 1])
    parts = data.read_train_and_validation(arguments("--data", "a.npz", *words))
    assert [len(each.x) for each in parts] == sizes
    if "part" in words:
        assert sorted(parts[1].x[:, 0]) == [0, 1, 2]


@pytest.fixture
def written(tmp_path):
    def write(text, name="data.csv"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


ROWS = [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "label", "held", "x", "y", "validation"),
    [
        ("1,2,0\n3,4,1\n", None, None, ROWS, [0, 1], None),
        ("a,b,c\n1,2,0\n\n3,4,1\n", None, None, ROWS, [0, 1], None),
        ("\ufeffa,b,c\n0,1,2\n1,3,4\n", "a", None, ROWS, [0, 1], None),
        ("1,0,2\n3,1,4\n", "1", None, ROWS, [0, 1], None),
        ("1,2,0\n3,4,1\n", "-1", None, ROWS, [0, 1], None),
        ("1,2\n3,4\n", "none", None, ROWS, None, None),
        ("1,train,2,0\n3, Validation,4,1\n5,0,6,1\n7,1,8,0\n", None, "1", [*ROWS, [5, 6], [7, 8]], [0, 1, 1, 0],
         [False, True, False, True]),
        ("a,k,part\n1,0,val\n2,1,train\n", None, "part", [[1], [2]], [0, 1], [True, False]),
    ],
)  # fmt: skip
def test_csv(text, label, held, x, y, validation, written):
    table = read_csv(written(text), label, held)
    np.testing.assert_array_equal(table.x, x)
    assert (table.y is None and y is None) or list(table.y) == y
    assert validation is None or table.validation.tolist() == validation


def test_npz(tmp_path):
    path = str(tmp_path / "d.npz")
    np.savez(path, x=np.arange(4), y=[1, 0, 1, 1], part=[0, 1, 0, 1])
    table = read_npz(path, "part")
    assert table.x.tolist() == [[0], [1], [2], [3]]
    assert (table.y.tolist(), table.validation.tolist()) == ([1, 0, 1, 1], [False, True, False, True])
    with pytest.raises(ArgumentError, match="holds 2, expected 1"):
        read_npz(path, "x")
    np.savez(path, x=np.ones((2, 4)))
    assert read_npz(path, None).y is None


ZERO = "1 0:1.5 2:2 # note\n0 1:4\n"
ONE = "1 qid:3 1:1.5 3:2\n0 qid:4 2:4\n"


@pytest.mark.parametrize(
    ("texts", "base", "width", "first", "x"),
    [
        ([ZERO], None, None, 0, [[1.5, 0, 2], [0, 4, 0]]),
        ([ONE], None, None, 1, [[1.5, 0, 2], [0, 4, 0]]),
        ([ZERO], 0, 3, 0, [[1.5, 0, 2], [0, 4, 0]]),
        ([ONE], 1, 3, 1, [[1.5, 0, 2], [0, 4, 0]]),
        ([ONE], 0, 5, 0, [[0, 1.5, 0, 2, 0], [0, 0, 4, 0, 0]]),
        ([ONE, ZERO], None, None, 0, [[0, 1.5, 0, 2], [0, 0, 4, 0]]),  # files are counted alike
    ],
)
def test_libsvm_columns_count_from_0_or_1(texts, base, width, first, x, written):
    tables, found = read_sparse([written(text, str(i)) for i, text in enumerate(texts)], base, width)
    assert (found, tables[0].x.tolist()) == (first, x)
    assert all(table.y.tolist() == [1, 0] for table in tables)
    assert {table.x.shape for table in tables} == {(2, len(x[0]))}
