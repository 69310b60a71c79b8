"""Parts of sequences, constants, random numbers and hashes as layers."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import run, values

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
        assert variable.shape[1:] == one.shape[1:], variable
    for (variable, expected), one in zip(dense.items(), found[len(cases) :]):
        np.testing.assert_array_equal(one.asnumpy(), expected)
        assert (variable.lod_level, variable.shape[1:]) == (0, one.shape[1:]), variable


def test_constants_and_numbers_of_the_batch_size():
    words, numbers, places, _ = inputs()
    array = np.array([[1.5, 2.5]])
    cases = {
        layers.fill_constant([2, 1], "int64", 3): [[3], [3]],
        layers.zeros([2], "float32"): [0, 0],
        layers.ones([1, 2], "int64"): [[1, 1]],
        layers.zeros_like(places): PLACES * 0,
        layers.ones_like(places): PLACES * 0 + 1,
        layers.assign(places): PLACES,
        layers.assign(array) * 2.0: array * 2,
        layers.create_global_var([2], 0.5, "float32", name="shift") + 1.0: [1.5, 1.5],
        layers.fill_constant_batch_size_like(places, [9, 2], "float32", 4.0): [[4, 4]] * 3,
        layers.fill_constant_batch_size_like(numbers, [-1, 2], "int64", 4): [[4, 4]] * 3,
        layers.fill_constant_batch_size_like(places, [2, -1], "int64", 4, output_dim_idx=1): [[4] * 3] * 2,
    }
    found = run({"words": WORDS, "numbers": NUMBERS, "places": PLACES}, list(cases))
    for (variable, expected), one in zip(cases.items(), found):
        np.testing.assert_array_equal(one, expected)
        assert (variable.shape, variable.dtype) == (
            tuple(-1 if n == 3 else n for n in one.shape),
            str(one.dtype),
        )
    assert values("shift")[0].tolist() == [0.5, 0.5]


def test_untrained_variables_are_saved_but_not_trained(tmp_path):
    x = layers.data("x", [2])
    shift = layers.create_global_var([2], 0.5, "float32", persistable=True, name="shift")
    loss = layers.mean(layers.square(layers.fc(x, 2) + shift))
    fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(5.0)).minimize(loss)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    for _ in range(3):
        executor.run(feed={"x": np.ones((4, 2))})
    assert values("shift")[0].tolist() == [0.5, 0.5]
    tensor = fluid.global_scope().find_var("shift").get_tensor()
    tensor.set(np.array([2.0, 3.0]))
    fluid.io.save_persistables(executor, tmp_path)
    tensor.set(np.zeros(2))
    fluid.io.load_persistables(executor, tmp_path)
    assert np.array(tensor).tolist() == [2.0, 3.0]


def test_random_numbers():
    x = layers.data("x", [1])
    outs = [
        layers.uniform_random([4000], min=1.0, max=3.0),
        layers.gaussian_random([4000], mean=1.0, std=2.0),
        layers.uniform_random_batch_size_like(x, [-1, 2000], min=1.0, max=3.0),
        layers.gaussian_random_batch_size_like(x, [-1, 2000], mean=1.0, std=2.0),
    ]
    mx.random.seed(3)
    first = run({"x": np.zeros((2, 1))}, outs)
    second = fluid.Executor().run(feed={"x": np.zeros((2, 1))}, fetch_list=outs)
    for one, other, (mean, deviation) in zip(first, second, [(2.0, 2 / 12**0.5), (1.0, 2.0)] * 2):
        assert (one != other).any()
        assert one.mean() == pytest.approx(mean, abs=0.15)
        assert one.std() == pytest.approx(deviation, rel=0.05)
    assert first[0].min() >= 1.0 > first[0].max() - 2.0


def test_hashes_are_those_of_xxhash():
    """Recorded from the Python package xxhash 3.6: xxh64 of the numbers as 8 bytes each, with the seeds 0 and 1."""
    one, several = (
        layers.data("one", [1], dtype="int64", lod_level=1),
        layers.data("several", [6], dtype="int64"),
    )
    hashed = layers.hash(one, 1000003, num_hash=2), layers.hash(several, 1000003, num_hash=2)
    feed = {"one": [[1, 2], [-5]], "several": [[1, 2, 3, 4, 5, 6]]}
    assert layers.embedding(hashed[0], [1000003, 1]).shape == (-1, 2, 1)
    found = fluid.Executor()
    found.run(fluid.default_startup_program())
    a = found.run(
        feed={"one": feed["one"], "several": feed["several"] * 2}, fetch_list=list(hashed), return_numpy=False
    )
    assert listed(a[0]) == [[[[595905], [267482]], [[797950], [378533]]], [[[757017], [270296]]]]
    assert a[1].asnumpy().tolist() == [[[628849], [245107]]] * 2
