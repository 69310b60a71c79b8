"""Samples for the command line, and which of them are for validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmodule.base import ArgumentError, ShapeError
from dpmodule.cli import data, fit_options, options


def arguments(*words):
    parser = options.CommandParser()
    fit_options.add_options(parser)
    return parser.parse_args([str(word) for word in words])


def read(*words):
    return data.read(arguments(*words))


def parts(*words):
    return data.read_both(arguments(*words))


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
        ([0, 0.5], ArgumentError, "the label 0.5 is no class number"),
        ([0, -1], ArgumentError, "the label -1 is no class number"),
        ([0, np.nan], ArgumentError, "the label nan is no class number"),
        ([0, np.inf], ArgumentError, "the label inf is no class number"),
        (["a", "b"], ArgumentError, "the label a is no class number"),
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
        (["--index-base", "1"], r"--index-base 1 is for LibSVM files; d.csv is none"),
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
