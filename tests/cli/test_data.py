"""Samples for the command line: digits, .npz and CSV."""

import argparse

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmodule.base import ArgumentError, FileFormatError, MXNetError, ShapeError
from dpmodule.cli import data, options


def arguments(*words):
    parser = argparse.ArgumentParser()
    options.add_data_options(parser)
    return parser.parse_args([str(word) for word in words])


def read(*words):
    return data.read(arguments(*words))


@pytest.fixture
def csv_file(tmp_path):
    def write(text):
        path = tmp_path / "data.csv"
        path.write_text(text)
        return path

    return write


def test_digits_are_images_from_0_to_1():
    samples = read()
    assert samples.x.shape == (1797, 1, 8, 8)
    assert (samples.x.min(), samples.x.max()) == (0, 1)
    assert samples.num_classes == 10
    assert samples.x.dtype == samples.y.dtype == np.float32


def test_npz(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.arange(8).reshape(2, 4), y=[1, 0])
    samples = read("--data", tmp_path / "d.npz", "--shape", "1,2,2", "--scale", 0.5)
    np.testing.assert_array_equal(samples.x[1, 0], [[2, 2.5], [3, 3.5]])
    np.testing.assert_array_equal(samples.y, [1, 0])


def test_npz_without_labels(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.ones((2, 4)))
    samples = read("--data", tmp_path / "d.npz")
    assert samples.y is None
    with pytest.raises(ArgumentError, match="no labels"):
        data.labelled(samples)


@pytest.mark.parametrize(
    ("text", "words", "x", "y"),
    [
        ("1,2,0\n3,4,1\n", [], [[1, 2], [3, 4]], [0, 1]),
        ("a,b,c\n1,2,0\n\n3,4,1\n", [], [[1, 2], [3, 4]], [0, 1]),
        ("a,b,c\n0,1,2\n1,3,4\n", ["--label-column", "a"], [[1, 2], [3, 4]], [0, 1]),
        ("1,0,2\n3,1,4\n", ["--label-column", "1"], [[1, 2], [3, 4]], [0, 1]),
        ("1,2\n3,4\n", ["--label-column", "none"], [[1, 2], [3, 4]], None),
    ],
)
def test_csv(csv_file, text, words, x, y):
    samples = read("--data", csv_file(text), *words)
    np.testing.assert_array_equal(samples.x, x)
    if y is None:
        assert samples.y is None
    else:
        np.testing.assert_array_equal(samples.y, y)


@pytest.mark.parametrize(
    ("text", "words", "error", "match"),
    [
        ("", [], FileFormatError, "no sample"),
        ("a,b\n", [], FileFormatError, "no sample"),
        ("1,2,0\n3,1\n", [], FileFormatError, "row 2 has 2 columns, expected 3"),
        ("a,b\n1,0\nx,1\n", [], FileFormatError, "row 3.*'x'"),
        ("1,2,0\n", ["--label-column", "z"], ArgumentError, "'z'.*numbers from 0 to 2"),
        ("a,b\n1,0\n", ["--label-column", "z"], ArgumentError, "'z'.*a, b"),
        ("1,2,0.5\n", [], ArgumentError, "0.5 is no class number"),
        ("1,2,-1\n", [], ArgumentError, "-1.0 is no class number"),
        ("1,2,nan\n", [], ArgumentError, "nan is no class number"),
        ("1,2,0\n", ["--shape", "3"], ShapeError, "has 3 values"),
    ],
)
def test_bad_csv_is_refused(csv_file, text, words, error, match):
    with pytest.raises(error, match=match):
        read("--data", csv_file(text), *words)


def test_binary_csv_is_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match=r"data\.csv: no readable CSV"):
        read("--data", path)


def test_bad_npz_is_refused(tmp_path):
    path = tmp_path / "d.npz"
    for content in (b"", b"no zip", b"PK\x03\x04 cut short"):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"d\.npz"):
            read("--data", path)
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(FileFormatError, match=r"d\.npz"):
        read("--data", path)
    np.savez(path, images=np.ones(3))
    with pytest.raises(FileFormatError, match="holds images"):
        read("--data", path)
    np.savez(path, x=np.ones((3, 2)), y=[1, 2])
    with pytest.raises(ShapeError, match="one class number per sample"):
        read("--data", path)
    np.savez(path, x=np.array([{}], dtype=object))
    with pytest.raises(MXNetError, match=r"d\.npz"):
        read("--data", path)


@given(st.integers(1, 60), st.floats(0, 1))
def test_split_keeps_every_sample_once(count, share):
    samples = data.Samples(np.arange(count), np.arange(count))
    training, validation = data.split(samples, share)
    assert len(validation.x) == round(count * share)
    assert sorted([*training.x, *validation.x]) == list(range(count))
    np.testing.assert_array_equal(training.x, training.y)
    again = data.split(samples, share)[1]
    np.testing.assert_array_equal(validation.x, again.x)
