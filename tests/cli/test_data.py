"""The samples of the command line: files that are read, and what is for validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmodule.base import ArgumentError, FileFormatError, MXNetError, ShapeError
from dpmodule.cli import data, option_types, options
from dpmodule.cli.data import format_of, read_csv, read_npz, read_sparse


def arguments(*words):
    parser = option_types.CommandParser()
    options.add_options(parser, "fit")
    return parser.parse_args([str(word) for word in words])


def read(*words):
    return data.read(arguments(*words))


def parts(*words):
    return data.read_train_and_validation(arguments(*words))


def test_digits_are_images_from_0_to_1():
    samples = read()
    assert samples.x.shape == (1797, 1, 8, 8)
    assert (samples.x.min(), samples.x.max()) == (0, 1)
    assert samples.x.dtype == samples.y.dtype == np.float32
    assert data.num_classes([samples], None) == 10


def test_shape_and_scale(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.arange(8).reshape(2, 4), y=[1, 0])
    samples = read("--data", tmp_path / "d.npz", "--shape", "1,2,2", "--scale", 0.5)
    np.testing.assert_array_equal(samples.x[1, 0], [[2, 2.5], [3, 3.5]])
    np.testing.assert_array_equal(samples.y, [1, 0])
    with pytest.raises(ShapeError, match=r"--shape \(3,\) has 3 values, but a sample of .*d.npz has 4"):
        read("--data", tmp_path / "d.npz", "--shape", 3)


@pytest.mark.parametrize(
    ("labels", "error", "match"),
    [
        ([0, 0.5], ArgumentError, "the label 0.5 is not a class number"),
        ([0, -1], ArgumentError, "the label -1 is not a class number"),
        ([0, np.nan], ArgumentError, "the label nan is not a class number"),
        ([0, np.inf], ArgumentError, "the label inf is not a class number"),
        (["a", "b"], ArgumentError, "the label a is not a class number"),
        ([0, 1, 2], ShapeError, "one class number per sample"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, error, match, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((2, 1)), y=labels)
    with pytest.raises(error, match=match):
        read("--data", tmp_path / "d.npz")


def test_labels_must_be_counted_from_0_without_a_gap():
    def count(given, *labels):
        return data.num_classes(
            [data.Samples(np.ones((len(each), 1)), np.array(each), "d.csv") for each in labels], given
        )

    assert count(None, [0, 2], [1]) == 3
    assert count(7, [0, 5]) == 7
    for labels in ([5, 0, 10**7], [1, 2, 10**7]):
        with pytest.raises(
            ArgumentError,
            match=f"d.csv: the labels are 3 different numbers, the smallest {min(labels)} and the largest 10000000; "
            "expected 0 to 2 for 3 classes.*--classes 10000001",
        ):
            count(None, labels)
    with pytest.raises(ArgumentError, match="--classes is 5, but d.csv has a label 5; expected at least 6"):
        count(5, [0, 5])


@given(st.integers(1, 60), st.floats(0, 1))
def test_split_keeps_every_sample_once(count, share):
    samples = data.Samples(np.arange(count), np.arange(count))
    training, validation = data.split(samples, share)
    assert len(validation.x) == round(count * share)
    assert sorted([*training.x, *validation.x]) == list(range(count))
    np.testing.assert_array_equal(training.x, training.y)
    again = data.split(samples, share)[1]
    np.testing.assert_array_equal(validation.x, again.x)


def test_validation_by_share_column_or_file(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(10), y=np.arange(10) % 2, part=np.arange(10) < 3)
    np.savez(tmp_path / "b.npz", x=np.arange(4), y=[0, 1, 0, 1])
    words = ("--data", tmp_path / "a.npz")
    for more, sizes in [
        ((), [8, 2]), (("--validation", 0.5), [5, 5]), (("--validation", 0), [10]),
        (("--validation-column", "part"), [7, 3]), (("--validation-data", tmp_path / "b.npz"), [10, 4]),
    ]:  # fmt: skip
        assert [len(each.x) for each in parts(*words, *more)] == sizes
    assert sorted(parts(*words, "--validation-column", "part")[1].x[:, 0]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--validation", "0.99"], "--validation 0.99 of 2 samples leaves none for training"),
        (["--validation-column", "all"], "--validation-column all marks every sample"),
        (["--validation-column", "none"], "--validation-column none marks no sample"),
        (["--validation-data", "other.csv"], r"has the columns b, a, expected a, b as in"),
        (["--label-column", "none"], r"d.csv has no labels; give"),
        (["--index-base", "1"], r"--index-base 1 is for LibSVM files, and d.csv is not one"),
        (["--format", "npz"], r"--validation-column|d.csv: not a readable .npz file"),
        (["--format", "libsvm", "--label-column", "1"], "--label-column and --validation-column are for tables"),
    ],
)  # fmt: skip
def test_parts_that_make_no_sense_are_refused(words, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text("a,b,all,none,y\n1,2,1,0,0\n3,4,1,0,1\n")
    (tmp_path / "other.csv").write_text("b,a,all,none,y\n1,2,1,0,0\n")
    if "--validation-data" in words:
        (tmp_path / "d.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
        (tmp_path / "other.csv").write_text("b,a,y\n1,2,0\n")
    with pytest.raises(ValueError, match=match):
        parts("--data", "d.csv", *words)


@pytest.mark.parametrize("words", [["--label-column", "1"], ["--format", "csv"], ["--index-base", "0"]])
def test_the_digits_are_no_file(words):
    with pytest.raises(ArgumentError, match=f"{words[0]} {words[1]} needs --data"):
        read(*words)


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
    assert table.validation.tolist() == [False, True, False, True]
    table = read_csv(written("a,k,part\n1,0,val\n2,1,train\n"), None, "part")
    assert (table.y.tolist(), table.columns) == ([0, 1], ("a",))


@pytest.mark.parametrize(
    ("text", "label", "held", "error", "match"),
    [
        ("", None, None, FileFormatError, "no sample"),
        ("a,b\n", None, None, FileFormatError, "no sample"),
        ("1,2,0\n\n3,1\n", None, None, FileFormatError, "line 3 has 2 columns, expected 3"),
        ("a,b\n1,0\nx,1\n", None, None, FileFormatError, "line 3, column 0 'a': 'x' is not a number"),
        (
            "a,b\n1,cat\n",
            None,
            None,
            FileFormatError,
            "line 2, column 1 'b': 'cat' is not a number; expected a class",
        ),
        (
            "a,b,c\n1,y,0\n",
            None,
            "b",
            FileFormatError,
            "line 2, column 1 'b': 'y' is not a number; expected 1 or 'val",
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
    with pytest.raises(FileFormatError, match=r"data\.csv: not a readable CSV"):
        read_csv(str(path), None, None)


def test_npz(tmp_path):
    path = str(tmp_path / "d.npz")
    np.savez(path, x=np.arange(4), y=[1, 0, 1, 1], part=[0, 1, 0, 1])
    table = read_npz(path, "part")
    assert table.x.tolist() == [[0], [1], [2], [3]]
    assert (table.y.tolist(), table.validation.tolist()) == ([1, 0, 1, 1], [False, True, False, True])
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
