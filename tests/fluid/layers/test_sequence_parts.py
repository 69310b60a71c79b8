"""Parts of sequences as layers, against lists."""

import numpy as np

import dpmodule.fluid as fluid
from helpers.fluid_programs import run

layers = fluid.layers
WORDS = [[1, 2, 3], [4], [2, 2]]
PLACES = np.array([[0], [0], [1]])
COUNTS = np.array([[2], [1], [1]])
NUMBERS = [np.arange(2.0 * len(row)).reshape(-1, 2) for row in WORDS]


def inputs():
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    numbers = layers.data("numbers", [2], lod_level=1)
    return words, numbers, *(layers.data(name, [1], dtype="int64") for name in ("places", "counts"))


def listed(found):
    return [np.asarray(row).tolist() for row in found.tolist()]


def test_parts_of_sequences():
    words, numbers, places, counts = inputs()
    windows = layers.sequence_enumerate(words, 2, pad_value=7)
    table = fluid.ParamAttr(
        initializer=fluid.initializer.NumpyArrayInitializer(np.arange(20.0).reshape(10, 2))
    )
    cases = {
        layers.sequence_concat([numbers, numbers]): [[*row, *row] for row in NUMBERS],
        layers.sequence_slice(numbers, places, counts): [
            row[p : p + n] for row, (p,), (n,) in zip(NUMBERS, PLACES, COUNTS)
        ],
        windows: [[[1, 2], [2, 3], [3, 7]], [[4, 7]], [[2, 2], [2, 7]]],
        layers.embedding(windows, [10, 2], param_attr=table): [
            [[[2 * n, 2 * n + 1] for n in pair] for pair in row]
            for row in ([[1, 2], [2, 3], [3, 7]], [[4, 7]], [[2, 2], [2, 7]])
        ],
        layers.sequence_erase(words, [2]): [[[1], [3]], [[4]], []],
        layers.sequence_reshape(numbers, 1): [row.reshape(-1, 1) for row in NUMBERS],
        layers.sequence_expand_as(places, words): [[[0]] * 3, [[0]], [[1]] * 2],
    }
    padded, lengths = layers.sequence_pad(numbers, layers.fill_constant([1], "float32", -1.0), maxlen=4)
    dense = {
        padded: np.stack([np.pad(row, [(0, 4 - len(row)), (0, 0)], constant_values=-1) for row in NUMBERS]),
        lengths: [3, 1, 2],
        layers.sequence_mask(counts, 3, "float32"): [[1, 1, 0], [1, 0, 0], [1, 0, 0]],
    }
    cases[layers.sequence_unpad(padded, counts)] = [row[:n] for row, (n,) in zip(dense[padded], COUNTS)]
    feed = {"words": WORDS, "numbers": NUMBERS, "places": PLACES, "counts": COUNTS}
    found = run(feed, [*cases, *dense], return_numpy=False)
    for (variable, expected), one in zip(cases.items(), found):
        assert listed(one) == [np.asarray(row).tolist() for row in expected], variable
        assert (variable.lod_level, variable.dtype) == (1, str(one.dtype.__name__)), variable
        assert variable.shape[1:] == tuple(one.shape()[1:]), variable
    for (variable, expected), one in zip(dense.items(), found[len(cases) :]):
        np.testing.assert_array_equal(one.asnumpy(), expected)
        assert (variable.lod_level, variable.shape[1:]) == (0, tuple(one.shape()[1:])), variable
