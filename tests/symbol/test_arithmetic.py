import numpy as np
import pytest

import dpmodule as mx

S = mx.sym
A = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
B = np.array([[2.0, 3.0, -1.5], [0.5, 1.0, 2.5]], np.float32)
VALUES = """
a+b a-b a*b a/b a%b abs(a)**b a+1 1+a a-1.5 1.5-a a*2 N(2)*a a/2 2/a a%2 2%a a**2 N(2)**a -a a==b a!=b a>b a>=b a<b
a<=b a==0.5 a!=0.5 0.5<a a<=0.5 maximum(a,b) maximum(1,a) minimum(a,1) power(2.0,a) hypot(a,b)
"""
FUNCTIONS = ("maximum", "minimum", "power", "hypot")


@pytest.mark.parametrize("text", VALUES.split())
def test_values(text):
    a, b = S.Variable("a"), S.Variable("b")
    made, want = (
        eval(text, {"a": one, "b": two, "N": np.float64, **{n: getattr(space, n) for n in FUNCTIONS}})
        for space, one, two in ((S, a, b), (np, A, B))
    )
    given = {"a": mx.nd.array(A), "b": mx.nd.array(B)}
    found = made.eval(**{name: given[name] for name in made.list_arguments()})[0].asnumpy()
    np.testing.assert_allclose(found, want.astype(np.float32), rtol=1e-6, atol=1e-6)


def test_division_by_minus_zero_is_not_division_by_zero():
    found = []
    for zero in (0.0, -0.0):
        with mx.name.NameManager():
            found.append((S.Variable("a") / zero).eval(a=mx.nd.ones((1,)))[0].asscalar())
    assert found == [np.inf, -np.inf]


def test_two_numbers_need_no_symbol():
    assert (S.maximum(3, 4), S.minimum(3, 4), S.power(2, 3), S.pow(2, 3), S.hypot(3, 4)) == (4, 3, 8, 8, 5)


def test_symbols_are_hashable_and_differ_from_other_things():
    a = S.Variable("a")
    assert len({a, a, S.Variable("a")}) == 2
    assert (a == "a") is False
    assert (a != None) is True  # noqa: E711
