"""Constants, random numbers and hashes as layers."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import run, values

layers = fluid.layers
WORDS = [[1, 2, 3], [4], [2, 2]]
PLACES = np.array([[0], [0], [1]])
NUMBERS = [np.arange(2.0 * len(row)).reshape(-1, 2) for row in WORDS]


def inputs():
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    return words, layers.data("numbers", [2], lod_level=1), layers.data("places", [1], dtype="int64")


def listed(found):
    return [np.asarray(row).tolist() for row in found.tolist()]


def test_constants_and_numbers_of_the_batch_size():
    words, numbers, places = inputs()
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


def test_parts_by_indices_as_in_numpy():
    array = np.arange(24.0, dtype="float32").reshape(2, 3, 4)
    x, (_, numbers, _) = layers.data("x", [3, 4]), inputs()
    table = layers.create_parameter([3, 2], "float32", name="table")
    first = [np.s_[:, 1], np.s_[:, 1:, -1], np.s_[..., 2], np.s_[:, ::2, 3:0:-2]]
    cases = [*first, np.s_[0], np.s_[1, :2], np.s_[:, -2:, 1:3]]
    parts = [*(x[case] for case in cases), table[1], table[2, 1], numbers[:, 1:]]
    found = run({"x": array, "numbers": NUMBERS[:2]}, parts, return_numpy=False)
    (rows,) = values("table")
    expected = [*(array[case] for case in cases), rows[1], rows[2, 1:], np.concatenate(NUMBERS[:2])[:, 1:]]
    for part, one, wanted in zip(parts, found, expected):
        np.testing.assert_array_equal(np.array(one), wanted)
        assert part.shape[1:] == np.shape(wanted)[1:]
    with pytest.raises(TypeError, match="not iterable"):
        iter(x)


def test_the_shape_of_a_variable_is_a_size_of_a_constant():
    words, numbers, places = inputs()
    lengths = layers.shape(places)
    like = [layers.fill_constant([layers.shape(each)[0], 2], "float32", 1.5) for each in (places, numbers)]
    wide = layers.fill_constant([2, lengths[-2]], "int64", 4)
    feed = {"numbers": NUMBERS, "places": PLACES}
    found = run(feed, [lengths, lengths[0], *like, wide, lengths[0:1]])
    for one, wanted in zip(found, [[3, 1], [3], [[1.5] * 2] * 3, [[1.5] * 2] * 3, [[4] * 3] * 2, [3]]):
        np.testing.assert_array_equal(one, wanted)
    assert (lengths.dtype, like[0].shape, wide.shape) == ("int32", (-1, 2), (2, -1))


def test_random_sequences_and_arrays_of_tensors():
    given = fluid.create_random_int_lodtensor([[2, 0, 3]], [1], fluid.CPUPlace(), low=4, high=5)
    assert given.values.shape == (5, 1)
    assert set(given.values.asnumpy().ravel()) <= {4, 5}
    assert fluid.core.LoDTensorArray([fluid.LoDTensor()])[0]._is_initialized() is False
    (found,) = run({"words": WORDS}, [layers.scale(inputs()[0])], return_numpy=False)
    assert found._is_initialized()
