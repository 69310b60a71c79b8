import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import MXNetError, NotImplementedForSymbol
from helpers.walk import walks

S = mx.sym
A = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
B = np.array([[2.0, 3.0, -1.5], [0.5, 1.0, 2.5]], np.float32)


def value(make):
    out = make(S.Variable("a"), S.Variable("b"))
    given = {"a": mx.nd.array(A), "b": mx.nd.array(B)}
    return out.eval(**{k: given[k] for k in out.list_arguments()})[0].asnumpy()


@walks(
    [
        (lambda a, b: a + b, A + B),
        (lambda a, b: a - b, A - B),
        (lambda a, b: a * b, A * B),
        (lambda a, b: a / b, A / B),
        (lambda a, b: a % b, np.mod(A, B)),
        (lambda a, b: abs(a) ** b, np.abs(A) ** B),
        (lambda a, b: a + 1, A + 1),
        (lambda a, b: 1 + a, A + 1),
        (lambda a, b: a - 1.5, A - 1.5),
        (lambda a, b: 1.5 - a, 1.5 - A),
        (lambda a, b: a * 2, A * 2),
        (lambda a, b: np.float64(2) * a, A * 2),
        (lambda a, b: a / 2, A / 2),
        (lambda a, b: 2 / a, 2 / A),
        (lambda a, b: a % 2, np.mod(A, 2)),
        (lambda a, b: 2 % a, np.mod(2, A)),
        (lambda a, b: a**2, A**2),
        (lambda a, b: np.float32(2) ** a, 2.0**A),
        (lambda a, b: -a, -A),
        (lambda a, b: a == b, A == B),
        (lambda a, b: a != b, A != B),
        (lambda a, b: a > b, A > B),
        (lambda a, b: a >= b, A >= B),
        (lambda a, b: a < b, A < B),
        (lambda a, b: a <= b, A <= B),
        (lambda a, b: a == 0.5, A == 0.5),
        (lambda a, b: a != 0.5, A != 0.5),
        (lambda a, b: 0.5 < a, A > 0.5),  # noqa: SIM300 (the number's side is the point)
        (lambda a, b: a <= 0.5, A <= 0.5),
        (lambda a, b: S.maximum(a, b), np.maximum(A, B)),
        (lambda a, b: S.maximum(1, a), np.maximum(A, 1)),
        (lambda a, b: S.minimum(a, 1), np.minimum(A, 1)),
        (lambda a, b: S.power(2, a), 2.0**A),
        (lambda a, b: S.hypot(a, b), np.hypot(A, B)),
    ]
)
def test_values(make, want):
    np.testing.assert_allclose(value(make), want.astype(np.float32), rtol=1e-6, atol=1e-6)


def test_division_by_minus_zero_is_not_division_by_zero():
    with mx.name.NameManager():
        plus = (S.Variable("a") / 0.0).eval(a=mx.nd.ones((1,)))[0].asscalar()
    with mx.name.NameManager():
        minus = (S.Variable("a") / -0.0).eval(a=mx.nd.ones((1,)))[0].asscalar()
    assert (plus, minus) == (np.inf, -np.inf)


def test_two_numbers_need_no_symbol():
    assert (S.maximum(3, 4), S.minimum(3, 4), S.power(2, 3), S.pow(2, 3), S.hypot(3, 4)) == (4, 3, 8, 8, 5)


@pytest.mark.parametrize("other", ["x", None, [1], mx.nd.ones((2,)), np.ones(2), 1j])
def test_other_operands_are_type_errors(other):
    a = S.Variable("a")
    with pytest.raises(TypeError):
        a + other
    with pytest.raises(TypeError):
        a - other
    with pytest.raises(TypeError):
        S.maximum(a, other)


def test_shapes_do_not_broadcast():
    with pytest.raises(MXNetError, match="disagree"):
        (S.Variable("a") + S.Variable("b")).infer_shape(a=(2, 3), b=(1, 3))


def test_what_needs_values_is_refused_with_a_way_out():
    a, b = S.Variable("a"), S.Variable("b")
    with pytest.raises(NotImplementedForSymbol, match="__bool__"):
        bool(a)
    for statement in ("a += b", "a -= b", "a *= b", "a /= b"):
        with pytest.raises(NotImplementedForSymbol, match="a = a"):
            exec(statement, {"a": a, "b": b})


def test_symbols_are_hashable_and_differ_from_other_things():
    a = S.Variable("a")
    assert len({a, a, S.Variable("a")}) == 2
    assert (a == "a") is False
    assert (a != None) is True  # noqa: E711
