"""Random numbers in ONNX, told by their moments; densities."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.onnx_runs import check_op, exported, runtime_outputs, symbol_of

COUNT = 40_000

# parameters, mean and variance
DISTRIBUTIONS = {
    "uniform": ({"low": -1, "high": 3}, 1, 16 / 12),
    "normal": ({"loc": 2, "scale": 3}, 2, 9),
    "exponential": ({"lam": 4}, 1 / 4, 1 / 16),
    "gamma": ({"alpha": 2.5, "beta": 2}, 5, 10),
    "poisson": ({"lam": 7}, 7, 7),
    "negative_binomial": ({"k": 3, "p": 0.4}, 4.5, 4.5 / 0.4),
    "generalized_negative_binomial": ({"mu": 4, "alpha": 0.5}, 4, 4 + 0.5 * 16),
}
INPUTS = {"loc": "mu", "scale": "sigma"}


def told(found, mean, variance):
    found = found.astype("float64")
    assert abs(found.mean() - mean) < 6 * (variance / found.size) ** 0.5
    assert abs(found.var() / variance - 1) < 0.12


def drawn(name, attrs, *inputs, params=(), dynamic=False, opset=17):
    arrays = {f"x{i}": np.asarray(each) for i, each in enumerate(inputs)}
    symbol = symbol_of(name, len(inputs), attrs)
    model = exported(symbol, arrays, params, dynamic=dynamic, opset=opset)
    return runtime_outputs(model, arrays)


@pytest.mark.parametrize("short", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments(short, dtype):
    attrs, mean, variance = DISTRIBUTIONS[short]
    (found,) = drawn(f"_random_{short}", {**attrs, "shape": (COUNT // 4, 4), "dtype": dtype})
    assert found.shape == (COUNT // 4, 4)
    assert found.dtype == dtype
    told(found, mean, variance)
    (like,) = drawn(f"_random_{short}_like", attrs, np.zeros((COUNT, 1), dtype), dynamic={"x0": {0: "batch"}})
    assert like.shape == (COUNT, 1)
    assert like.dtype == dtype
    told(like, mean, variance)


@pytest.mark.parametrize("short", DISTRIBUTIONS)
def test_moments_by_arrays_of_parameters(short):
    attrs, mean, variance = DISTRIBUTIONS[short]
    values = [np.array([value, value], "float32") for value in attrs.values()]
    names = [f"x{i}" for i in range(len(values))]
    counts = short not in ("uniform", "normal", "exponential", "gamma")
    (found,) = drawn(f"_sample_{short}", {"shape": (COUNT,)}, *values, params=names if counts else ())
    assert found.shape == (2, COUNT)
    for row in found:
        told(row, mean, variance)


def test_gamma_below_one_and_poisson_of_small_and_great_means():
    told(drawn("_random_gamma", {"alpha": 0.3, "shape": (COUNT,)})[0], 0.3, 0.3)
    told(drawn("_random_poisson", {"lam": 0.02, "shape": (COUNT,)})[0], 0.02, 0.02)
    told(drawn("_random_poisson", {"lam": 300, "shape": (COUNT,)})[0], 300, 300)
    assert not drawn("_random_poisson", {"lam": 0, "shape": (9,)})[0].any()


def test_counts_that_are_not_known_are_refused():
    net = symbol_of("_sample_poisson", 1, {"shape": (2,)})
    with pytest.raises(ArgumentError, match="'x0' is not a parameter"):
        exported(net, {"x0": np.ones(2, "float32")})
    with pytest.raises(ArgumentError, match="reach about .*at most 4096"):
        drawn("_random_poisson", {"lam": 1e6, "shape": (2,)})


def test_whole_numbers():
    (found,) = drawn("_random_randint", {"low": -2, "high": 3, "shape": (COUNT,)})
    assert found.dtype == "int32"
    assert set(found) == {-2, -1, 0, 1, 2}
    told(found, 0, 2)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "uint8"])
def test_classes_by_their_chances(dtype):
    chances = np.array([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0]], "float32")
    found, logs = drawn(
        "_sample_multinomial", {"shape": (COUNT // 4,), "get_prob": True, "dtype": dtype}, chances
    )
    assert found.dtype == dtype
    assert set(found[0]) == {0, 2}
    assert set(found[1]) == {1}
    assert abs((found[0] == 0).mean() - 0.5) < 0.05
    np.testing.assert_allclose(logs, np.log(chances[[[0], [1]], found.astype(int)]), rtol=1e-5)
    assert drawn("_sample_multinomial", {"shape": (2, 3)}, chances[0])[0].shape == (2, 3)
    assert drawn("_sample_multinomial", {}, chances[0])[0].shape == (1,)


def test_a_shuffle_keeps_the_rows():
    x = np.arange(200, dtype="float32").reshape(100, 2)
    (found,) = drawn("_shuffle", {}, x, dynamic={"x0": {0: "batch"}})
    assert not np.array_equal(found, x)
    assert np.array_equal(found[found[:, 0].argsort()], x)


def test_distinct_numbers_of_zipf():
    for range_max, wanted in ((1000, 30), (5, 5)):
        net = symbol_of("_sample_unique_zipfian", 0, {"range_max": range_max, "shape": (300, wanted)})
        numbers, tries = runtime_outputs(exported(net, {}), {})
        ours, our_tries = (
            x.asnumpy()
            for x in mx.nd._internal._sample_unique_zipfian(range_max=range_max, shape=(300, wanted))
        )
        assert numbers.dtype == ours.dtype
        assert tries.dtype == our_tries.dtype
        assert all(len(set(row)) == wanted for row in numbers)
        assert 0 <= numbers.min() <= numbers.max() < range_max
        assert abs(np.log(tries).mean() - np.log(our_tries).mean()) < 0.15
        assert abs((numbers[:, 0] == 0).mean() - (ours[:, 0] == 0).mean()) < 0.12


@pytest.mark.parametrize("opset", [13, 21])
def test_other_versions(opset):
    for short, (attrs, mean, variance) in DISTRIBUTIONS.items():
        told(drawn(f"_random_{short}", {**attrs, "shape": (COUNT,)}, opset=opset)[0], mean, variance)


@pytest.mark.parametrize("is_log", [True, False])
def test_densities(is_log):
    draw = np.random.RandomState(1)
    values = draw.uniform(0.2, 2, (3, 4, 2)).astype("float32")
    counts = draw.randint(0, 9, (3, 4, 2)).astype("float32")
    first, second = np.full(3, 0.4, "float32"), np.array([0.3, 0.7, 0.9], "float32")
    rows = np.full((3, 2), 0.5, "float32")
    attrs = {"is_log": is_log}
    check_op("_random_pdf_uniform", values, first * 0, first + 3, attrs=attrs)
    check_op("_random_pdf_normal", values, first, second, attrs=attrs)
    check_op("_random_pdf_gamma", values, first, second, attrs=attrs)
    check_op("_random_pdf_exponential", values, second, attrs=attrs)
    check_op("_random_pdf_poisson", counts, second * 4, attrs=attrs)
    check_op("_random_pdf_negative_binomial", counts, second * 5, second, attrs=attrs)
    check_op("_random_pdf_generalized_negative_binomial", counts, second * 5, first, attrs=attrs)
    check_op("_random_pdf_dirichlet", values / values.sum(-1, keepdims=True), rows, attrs=attrs)
