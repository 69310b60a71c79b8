"""Random numbers in ONNX, told by their moments; densities."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.onnx_runs import exported, runtime_outputs, symbol_of

COUNT = 40_000

# parameters, mean and variance
DISTRIBUTIONS = {
    **{"uniform": ({"low": -1, "high": 3}, 1, 16 / 12), "normal": ({"loc": 2, "scale": 3}, 2, 9)},
    **{"exponential": ({"lam": 4}, 1 / 4, 1 / 16), "gamma": ({"alpha": 2.5, "beta": 2}, 5, 10)},
    **{"poisson": ({"lam": 7}, 7, 7), "negative_binomial": ({"k": 3, "p": 0.4}, 4.5, 4.5 / 0.4)},
    "generalized_negative_binomial": ({"mu": 4, "alpha": 0.5}, 4, 4 + 0.5 * 16),
}


def check(found, mean, variance):
    found = found.astype("float64")
    assert abs(found.mean() - mean) < 6 * (variance / found.size) ** 0.5
    assert abs(found.var() / variance - 1) < 0.12


def drawn(name, attrs, *inputs, params=(), dynamic=False, opset=17):
    arrays = {f"x{i}": np.asarray(each) for i, each in enumerate(inputs)}
    model = exported(symbol_of(name, len(inputs), attrs), arrays, params, dynamic=dynamic, opset=opset)
    return runtime_outputs(model, arrays)


@pytest.mark.parametrize("short", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments(short, dtype):
    attrs, *moments = DISTRIBUTIONS[short]
    shape = (COUNT // 4, 4)
    found = drawn(f"_random_{short}", {**attrs, "shape": shape, "dtype": dtype})
    found += drawn(f"_random_{short}_like", attrs, np.zeros(shape, dtype), dynamic={"x0": {0: "batch"}})
    for each in found:
        assert (each.shape, each.dtype) == (shape, dtype)
        check(each, *moments)
    for opset in (13, 21):
        check(drawn(f"_random_{short}", {**attrs, "shape": (COUNT,)}, opset=opset)[0], *moments)
    values = [np.array([value, value], "float32") for value in attrs.values()]
    counts = short not in ("uniform", "normal", "exponential", "gamma")
    params = [f"x{i}" for i in range(len(values))] if counts else ()
    (found,) = drawn(f"_sample_{short}", {"shape": (COUNT,)}, *values, params=params)
    assert found.shape == (2, COUNT)
    for row in found:
        check(row, *moments)


def test_whole_numbers():
    (found,) = drawn("_random_randint", {"low": -2, "high": 3, "shape": (COUNT,)})
    assert (found.dtype, set(found)) == ("int32", {-2, -1, 0, 1, 2})
    check(found, 0, 2)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "uint8"])
def test_classes_by_their_chances(dtype):
    chances = np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]], "float32")
    attrs = {"shape": (COUNT // 4,), "get_prob": True, "dtype": dtype}
    found, logs = drawn("_sample_multinomial", attrs, chances)
    assert (found.dtype, [set(row) for row in found]) == (dtype, [{0, 2}, {1}])
    assert abs((found[0] == 0).mean() - 0.5) < 0.05
    np.testing.assert_allclose(logs, np.log(chances[[[0], [1]], found.astype(int)]), rtol=1e-5)
    for attrs, shape in (({"shape": (2, 3)}, (2, 3)), ({}, (1,))):
        assert drawn("_sample_multinomial", attrs, chances[0])[0].shape == shape


def test_a_shuffle_keeps_the_rows():
    x = np.arange(200, dtype="float32").reshape(100, 2)
    (found,) = drawn("_shuffle", {}, x, dynamic={"x0": {0: "batch"}})
    assert not np.array_equal(found, x)
    assert np.array_equal(found[found[:, 0].argsort()], x)


def test_distinct_numbers_of_zipf():
    for range_max, wanted in ((1000, 30), (5, 5)):
        net = symbol_of("_sample_unique_zipfian", 0, {"range_max": range_max, "shape": (300, wanted)})
        numbers, tries = runtime_outputs(exported(net, {}), {})
        made = mx.nd._internal._sample_unique_zipfian(range_max=range_max, shape=(300, wanted))
        ours, our_tries = (x.asnumpy() for x in made)
        assert (numbers.dtype, tries.dtype) == (ours.dtype, our_tries.dtype)
        assert all(len(set(row)) == wanted for row in numbers)
        assert 0 <= numbers.min() <= numbers.max() < range_max
        assert abs(np.log(tries).mean() - np.log(our_tries).mean()) < 0.15
        assert abs((numbers[:, 0] == 0).mean() - (ours[:, 0] == 0).mean()) < 0.12
