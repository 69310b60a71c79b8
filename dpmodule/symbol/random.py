"""Random values in a graph: ``sym.random.uniform`` and similar functions.

Parameters are numbers, or symbols with one set of parameters per element; then `shape` is the shape of each
set's samples. Every forward draws new values from the generator of the executor's context.

Source: MXNet 1.9.1 `symbol.random`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core import lazy
from ..base import ArgumentError
from ..ndarray.convert import is_number
from .op_functions import names_in, op_function_in
from .symbol import Symbol, op_function

if TYPE_CHECKING:
    from ..types import DTypeLike, Number, ShapeLike


Param: TypeAlias = "Symbol | Number"
"""A parameter of a distribution."""


def _draw(name: str, params: dict[str, Any], samples: tuple[str, ...], options: dict[str, Any]) -> Symbol:
    """Call ``_random_<name>`` on numbers or ``_sample_<name>`` on symbols.

    Args:
        options: shape, dtype, name and attributes; None values are left out.
    """
    passed = {k: v for k, v in options.items() if v is not None}
    if all(is_number(p) for p in params.values()):
        return op_function(f"_random_{name}")(**params, **passed)
    if samples and all(isinstance(p, Symbol) for p in params.values()):
        return op_function(f"_sample_{name}")(**dict(zip(samples, params.values())), **passed)
    kinds = ", ".join(f"{k} is {type(p).__name__}" for k, p in params.items())
    raise ArgumentError(f"random.{name} takes numbers or Symbols, all of one kind; {kinds}")


def uniform(
    low: Param = 0, high: Param = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> Symbol:
    """Draw from the uniform distribution over [low, high).

    Args:
        low: lower bound, a number or a Symbol.
        high: upper bound, of the same kind.
        shape: shape of the result, inferred if None; with symbols as parameters, shape of the samples of each element.
        dtype: element type, float32 if None.
        kwargs: name and attributes; `out` is accepted as in MXNet and ignored.
    """
    return _draw(
        "uniform", {"low": low, "high": high}, ("low", "high"), {"shape": shape, "dtype": dtype, **kwargs}
    )


def normal(
    loc: Param = 0, scale: Param = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> Symbol:
    """Draw from the normal distribution of mean `loc` and deviation `scale`; the rest as in `uniform`.

    Args:
        loc: mean, a number or a Symbol.
        scale: standard deviation, of the same kind; from 0.
    """
    return _draw(
        "normal", {"loc": loc, "scale": scale}, ("mu", "sigma"), {"shape": shape, "dtype": dtype, **kwargs}
    )


def randn(*shape: int, loc: Param = 0, scale: Param = 1, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Draw from the normal distribution, with the axes as arguments; the rest as in `normal`.

    Args:
        *shape: lengths of the axes; none for a shape that is inferred.
    """
    return normal(loc, scale, shape or None, dtype, **kwargs)


def poisson(lam: Param = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Draw from the Poisson distribution of mean `lam`; the rest as in `uniform`.

    Args:
        lam: mean, a number or a Symbol; from 0.
    """
    return _draw("poisson", {"lam": lam}, ("lam",), {"shape": shape, "dtype": dtype, **kwargs})


def exponential(
    scale: Param = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> Symbol:
    """Draw from the exponential distribution of mean `scale`; the rest as in `uniform`.

    Args:
        scale: mean, a number or a Symbol; above 0.

    Raises:
        ArgumentError: `scale` is 0 or less, or neither a number nor a symbol.
    """
    if is_number(scale) and scale <= 0:
        raise ArgumentError(f"random.exponential: scale is {scale}, expected more than 0")
    return _draw("exponential", {"lam": 1.0 / scale}, ("lam",), {"shape": shape, "dtype": dtype, **kwargs})


def gamma(
    alpha: Param = 1, beta: Param = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> Symbol:
    """Draw from the gamma distribution of shape `alpha` and scale `beta`; the rest as in `uniform`.

    Args:
        alpha: shape of the distribution, a number or a Symbol; above 0.
        beta: its scale, of the same kind; above 0.
    """
    options = {"shape": shape, "dtype": dtype, **kwargs}
    return _draw("gamma", {"alpha": alpha, "beta": beta}, ("alpha", "beta"), options)


def negative_binomial(
    k: Param = 1, p: Param = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> Symbol:
    """Draw the number of successes before the `k`-th failure of probability `p`; the rest as in `uniform`.

    Args:
        k: number of failures that end a trial, a number or a Symbol.
        p: probability of a failure, of the same kind; from 0 to 1.
    """
    return _draw(
        "negative_binomial", {"k": k, "p": p}, ("k", "p"), {"shape": shape, "dtype": dtype, **kwargs}
    )


def generalized_negative_binomial(
    mu: Param = 1, alpha: Param = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> Symbol:
    """Draw from the negative binomial distribution by mean and dispersion; the rest as in `uniform`.

    Args:
        mu: mean, a number or a Symbol.
        alpha: dispersion, of the same kind; 0 gives the Poisson distribution.
    """
    options = {"shape": shape, "dtype": dtype, **kwargs}
    return _draw("generalized_negative_binomial", {"mu": mu, "alpha": alpha}, ("mu", "alpha"), options)


def randint(
    low: int, high: int, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any
) -> Symbol:
    """Draw integers from [low, high); int32 unless `dtype` is "int64"; the rest as in `uniform`.

    Args:
        high: upper bound, excluded.
        dtype: int32 (None) or int64.
    """
    return _draw("randint", {"low": low, "high": high}, (), {"shape": shape, "dtype": dtype, **kwargs})


def multinomial(
    data: Symbol,
    shape: ShapeLike | None = None,
    get_prob: bool = True,
    dtype: DTypeLike = "int32",
    **kwargs: Any,
) -> Symbol:
    """Draw class numbers by their probabilities.

    Args:
        data: (K,) or (N, K) probabilities that sum to 1 along the last axis.
        shape: number of values to draw for each row.
        get_prob: True to also return the log probabilities of the samples.
        dtype: element type of the class numbers.
        kwargs: name and attributes; `out` is accepted as in MXNet and ignored.
    """
    given: dict[str, Any] = {} if shape is None else {"shape": shape}
    return op_function("_sample_multinomial")(data, get_prob=get_prob, dtype=dtype, **given, **kwargs)


def shuffle(data: Symbol, **kwargs: Any) -> Symbol:
    """Return the rows in random order.

    Args:
        data: (N, ...).
        **kwargs: name and attributes; `out` is accepted as in MXNet and ignored.
    """
    return op_function("_shuffle")(data, **kwargs)


__all__ = lazy.own_names(vars())
__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(op_function_in, "random"), operators=partial(names_in, "random")
)
