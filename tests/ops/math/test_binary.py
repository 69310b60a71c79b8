"""Arithmetic of odd numbers and of integers, and of an array and a number."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.arrays import INF, NAN, f4, i1, i4, i8, u1
from helpers.op_case import OpCase, check_gradient, check_value, gradients_test, rules_test, values_test
from helpers.walk import walks


def points(*shape, low=0.3, high=2.9):
    return np.random.RandomState(len(shape)).uniform(low, high, shape)


LEFT, RIGHT = np.array([-7, -3, 1, 3, 7]), np.array([2, 2, 2, -2, -3])
SCALARS = {  # for integers and the number 2.5: what MXNet 1.9.1 answers, and the formula
    "_plus_scalar": ([-5, -1, 3, 5, 9], lambda x, s: x + s),
    "_minus_scalar": ([-9, -5, -1, 1, 5], lambda x, s: x - s),
    "_rminus_scalar": ([9, 5, 1, -1, -5], lambda x, s: s - x),
    "_mul_scalar": ([-14, -6, 2, 6, 14], lambda x, s: x * s),
    "_div_scalar": ([-3, -1, 0, 1, 3], lambda x, s: x / s),
    "_rdiv_scalar": ([0, 0, 2, 0, 0], lambda x, s: s / x),
    "_mod_scalar": ([1, 1, 1, 1, 1], lambda x, s: np.mod(x, s)),
    "_rmod_scalar": ([-5, -1, 0, 2, 2], lambda x, s: np.mod(s, x)),
    "_power_scalar": ([49, 9, 1, 9, 49], lambda x, s: np.power(x, s)),
    "_rpower_scalar": ([0, 0, 2, 8, 128], lambda x, s: np.power(s, x)),
    "_maximum_scalar": ([2, 2, 2, 3, 7], np.maximum),
    "_minimum_scalar": ([-7, -3, 1, 2, 2], np.minimum),
    "_hypot_scalar": ([7, 3, 2, 3, 7], np.hypot),
    "_equal_scalar": ([0, 0, 0, 0, 0], np.equal),
    "_not_equal_scalar": ([1, 1, 1, 1, 1], np.not_equal),
    "_greater_scalar": ([0, 0, 0, 1, 1], np.greater),
    "_greater_equal_scalar": ([0, 0, 0, 1, 1], np.greater_equal),
    "_lesser_scalar": ([1, 1, 1, 0, 0], np.less),
    "_lesser_equal_scalar": ([1, 1, 1, 0, 0], np.less_equal),
    "_logical_and_scalar": ([1, 1, 1, 1, 1], np.logical_and),
    "_logical_or_scalar": ([1, 1, 1, 1, 1], np.logical_or),
    "_logical_xor_scalar": ([0, 0, 0, 0, 0], np.logical_xor),
}


@walks(SCALARS)
def test_an_array_and_a_number(name):
    """The number is cut for integers unless it is declared none."""
    expected, formula = SCALARS[name]
    wide, positive, cut = points(3, 4).round(1).astype("f4"), i4(abs(LEFT)), {"scalar": 2.5}
    check_value(OpCase(name, (i4(LEFT),), cut, lambda x: i4(expected)))
    check_value(OpCase(name, (positive,), {**cut, "is_int": False}, lambda x: formula(x, 2.5).astype("f8")))
    check_value(OpCase(name, (wide,), {"scalar": 1.7}, lambda x: formula(x, np.float32(1.7)).astype("f4")))
    check_gradient(OpCase(name, (points(3, 4),), {"scalar": 1.7}))


ONES, ZEROS = f4([1, -1, 0]), np.zeros(3, "f4")
DIVISIONS = [("div", 0.0, [0] * 3), ("mod", 0.0, [0] * 3), ("rdiv", 9.0, [1, 1, 0]), ("rmod", 9.0, [4, 2, 0])]
WHOLE = {"elemwise_div": [-3, -1, 0, -1, -2], "_mod": [1, 1, 1, -1, -2], "_power": [49, 9, 1, 0, 0]}
# integers and bytes: what MXNet 1.9.1 answers
test_values = values_test(
    ("_maximum", (f4([NAN, 1, NAN]), f4([1, NAN, NAN])), {}, f4([NAN, NAN, NAN])),
    ("_minimum", (f4([NAN, 1, NAN]), f4([1, NAN, NAN])), {}, f4([NAN, NAN, NAN])),
    ("_maximum_scalar", (f4([NAN, 1, NAN]),), {"scalar": 2.0}, f4([NAN, 2, NAN])),
    *[  # numbers out of the range of the type wrap
        (f"_{name}_scalar", (u1([1, 2]),), {"scalar": number}, u1(wanted))
        for name, number, wanted in (
            ("maximum", 300.0, [44, 44]),
            ("minimum", 300.0, [1, 2]),
            ("mod", 256.0, [0, 0]),
            ("div", 256.0, [0, 0]),
            ("rdiv", 300.0, [44, 22]),
            ("logical_and", 300.0, [1, 1]),
            ("logical_xor", 256.0, [1, 1]),
        )
    ],
    ("elemwise_div", (ONES, ZEROS), {}, f4([INF, -INF, NAN])),
    ("_mod", (ONES, ZEROS), {}, ZEROS),
    ("_mod_scalar", (ONES,), {"scalar": 0.0}, ZEROS),
    ("_rmod_scalar", (f4([0, -1.5, 2]),), {"scalar": 1.0}, f4([0, -0.5, 1])),
    ("_mod", (f4([5, -5, 5]), f4([3, 3, -3])), {}, f4([2, 1, -1])),
    *[
        (name, (kind(LEFT), kind(RIGHT)), {}, kind(wanted))
        for kind in (i4, i8)
        for name, wanted in {**WHOLE, "_hypot": [7, 3, 2, 3, 7], "_greater": [0, 0, 0, 1, 1]}.items()
    ],
    ("_plus_scalar", (u1([3, 0]),), {"scalar": 254}, u1([1, 254])),
    ("_rminus_scalar", (u1([3, 0]),), {"scalar": 2}, u1([255, 2])),
    ("_mul_scalar", (u1([3, 0]),), {"scalar": 100}, u1([44, 0])),
    ("elemwise_div", (i4([5, -7, 0]), i4([0, 2, 0])), {}, i4([0, -3, 0])),
    *[
        (f"_{name}_scalar", (kind([5, 7, 0]),), {"scalar": scalar}, kind(wanted))
        for name, scalar, wanted in DIVISIONS
        for kind in (i1, u1, i4, i8)
    ],
    *[("_mod", (kind([5, 7, 0]), kind([0, 0, 0])), {}, kind([0, 0, 0])) for kind in (i1, u1, i4, i8)],
)
test_gradients_at_ties_and_zeros = gradients_test(
    ("_maximum", (f4([1, 2, 3]), f4([1, 1, 5])), {}, [[1, 1, 0], [0, 0, 1]]),
    ("_minimum", (f4([1, 2, 3]), f4([1, 1, 5])), {}, [[1, 0, 1], [0, 1, 0]]),
    ("_minimum_scalar", (f4([1, 2, 3]),), {"scalar": 2.0}, [[1, 1, 0]]),
    ("_mod", (f4([5, -5, 5]), f4([3, 3, -3])), {}, [[1, 1, 1], [-1, 2, 2]]),
    ("_power", (f4([0]), f4([0])), {}, [[0], [0]]),
    ("_power_scalar", (f4([0]),), {"scalar": 0.0}, [[0]]),
)
test_shapes = rules_test(
    ("elemwise_add", [(2, 0), None], {}, [(2, 3), (2, 3)], None, [(0, 3)]),
    ("broadcast_add", [(0, 4, 8), (1, 0, 1)], {}, None, [(0, 4, 8)]),
    ("broadcast_add", [None, (2,)], {}, None, [None]),
)


@pytest.mark.parametrize("number", [3.0, 0.1, 0.0, -0.0, 1e-45, 1e300, INF, NAN])
@pytest.mark.parametrize("name", [f"_{word}_scalar" for word in ("plus", "minus", "rminus", "mul", "div")])
def test_arithmetic_with_numbers_has_the_bits_of_torch(name, number):
    values = f4([0, -0.0, 1, -1.7, 3e38, 1e-40, INF, NAN])
    executor = getattr(mx.sym._internal, name)(mx.sym.Variable("x"), scalar=number).simple_bind(
        mx.cpu(), x=(8,)
    )
    with torch.inference_mode():  # the first use must not spoil later ones
        executor.forward(x=mx.nd.array(values))
    x = torch.tensor(values, requires_grad=True)
    expected = SCALARS[name][1](x, number)
    expected.backward(torch.arange(8.0))
    (found,) = executor.forward(is_train=True, x=mx.nd.array(values))
    executor.backward([mx.nd.arange(8)])
    assert found.asnumpy().tobytes() == expected.detach().numpy().tobytes()
    assert executor.grad_dict["x"].asnumpy().tobytes() == x.grad.numpy().tobytes()
