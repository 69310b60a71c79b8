"""What arrays show in notebooks."""

from xml.etree import ElementTree

import pytest

import dpmodule as mx


def shown(array):
    """Return the line about an array, the cells of its table, the number of plots, and all text."""
    root = ElementTree.fromstring(f"<div>{array._repr_html_()}</div>")
    cells = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    plots = len(list(root.iter("{http://www.w3.org/2000/svg}svg")))
    return "".join(root[0].itertext()), cells, plots, " ".join(root.itertext())


ODD_ARRAYS = [
    (mx.nd.arange(2000).reshape((100, 20)), "NDArray 100x20 float32", "from 0 to 1999, mean 999.5"),
    (mx.nd.full((0, 3), 1), "NDArray 0x3 float32", ""),
    (mx.nd.full((20,), float("nan")), "NDArray 20 float32", "no finite numbers"),
    (
        mx.nd.array([1.0, float("inf"), 3.0] * 5),
        "NDArray 15 float32",
        "from 1 to 3, mean 2, 5 not finite",
    ),
    (mx.nd.array([True, False] * 8, dtype="bool"), "NDArray 16 bool", "False"),
    (mx.nd.full((3, 9), 1.5, dtype="bfloat16"), "NDArray 3x9 bfloat16", "1.5"),
    (mx.nd.array([0.0, 1e308, -1e308] * 9, dtype="float64"), "NDArray 27 float64", "to 1e+308"),
    (mx.nd.ones((3, 4)).tostype("csr"), "<CSRNDArray 3x4 @cpu(0)>", ""),
]


@pytest.mark.parametrize(("array", "head", "words"), ODD_ARRAYS)
def test_odd_arrays(array, head, words):
    line, _, _, text = shown(array)
    assert line.startswith(head)
    assert words in text


def test_a_large_array_is_sampled():
    _, _, plots, words = shown(mx.nd.zeros((2000, 400)) + 1)
    assert "(of 200000 numbers)" in words
    assert plots == 0
