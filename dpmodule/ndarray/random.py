"""Random arrays: ``nd.random.uniform`` and similar functions.

Parameters are numbers, or arrays with one set of parameters per element; then `shape` is the shape of the samples of
each set. The functions use the generator of the context, which `mx.random.seed` seeds.

Source: MXNet 1.9.1 `ndarray.random`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .._core import lazy
from ..base import ArgumentError
from .convert import is_number
from .handle import Handle, Out
from .op_functions import names_in, op_function, op_function_in

if TYPE_CHECKING:
    from ..types import ContextLike, DTypeLike, Number, ShapeLike
    from .ndarray import NDArray


Param: TypeAlias = "NDArray | Number"
"""A parameter of a distribution."""


def _draw(name: str, params: dict[str, Any], samples: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Call ``_random_<name>`` on numbers or ``_sample_<name>`` on arrays.

    Args:
        options: shape, dtype, ctx, out and other keywords.
    """
    passed = {k: v for k, v in options.items() if v is not None}
    if all(is_number(p) for p in params.values()):
        if "out" not in passed:
            passed.setdefault("shape", (1,))
        return op_function(f"_random_{name}")(**params, **passed)
    if samples and all(isinstance(p, Handle) for p in params.values()):
        passed.pop("ctx", None)
        return op_function(f"_sample_{name}")(**dict(zip(samples, params.values(), strict=True)), **passed)
    kinds = ", ".join(f"{k} is {type(p).__name__}" for k, p in params.items())
    raise ArgumentError(f"random.{name} takes numbers or NDArrays, not both; {kinds}")


def _options(
    shape: ShapeLike | None, dtype: DTypeLike, ctx: ContextLike | None, out: Out, extra: dict[str, Any]
) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "ctx": ctx, "out": out, **extra}


def uniform(
    low: Param = 0,
    high: Param = 1,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw from the uniform distribution over [low, high).

    Args:
        low: lower bound, a number or an array.
        high: upper bound, of the same kind.
        shape: shape of the result, (1,) if None; with array parameters, shape of the samples of each element.
        dtype: element type, float32 if None.
        ctx: where to put the result; with array parameters it goes where they are.
        out: array to write the result into.
        kwargs: `name`, ignored.
    """
    return _draw(
        "uniform", {"low": low, "high": high}, ("low", "high"), _options(shape, dtype, ctx, out, kwargs)
    )


def normal(
    loc: Param = 0,
    scale: Param = 1,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw from the normal distribution of mean `loc` and deviation `scale`; the rest as in `uniform`.

    Args:
        loc: mean, a number or an array.
        scale: standard deviation, of the same kind; from 0.
    """
    return _draw(
        "normal", {"loc": loc, "scale": scale}, ("mu", "sigma"), _options(shape, dtype, ctx, out, kwargs)
    )


def randn(
    *shape: int,
    loc: Param = 0,
    scale: Param = 1,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw from the normal distribution, with the axes as arguments; the rest as in `normal`.

    Args:
        *shape: lengths of the axes; none for the shape (1,).
    """
    return normal(loc, scale, shape or None, dtype, ctx, out, **kwargs)


def poisson(
    lam: Param = 1,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw from the Poisson distribution of mean `lam`; the rest as in `uniform`.

    Args:
        lam: mean, a number or an array; from 0.
    """
    return _draw("poisson", {"lam": lam}, ("lam",), _options(shape, dtype, ctx, out, kwargs))


def exponential(
    scale: Param = 1,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw from the exponential distribution of mean `scale`; the rest as in `uniform`.

    Args:
        scale: mean, a number or an array; above 0.

    Raises:
        ArgumentError: `scale` is 0 or less, or neither a number nor an array.
    """
    if is_number(scale) and scale <= 0:
        raise ArgumentError(f"random.exponential: scale is {scale}, expected more than 0")
    return _draw("exponential", {"lam": 1.0 / scale}, ("lam",), _options(shape, dtype, ctx, out, kwargs))


def gamma(
    alpha: Param = 1,
    beta: Param = 1,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw from the gamma distribution of shape `alpha` and scale `beta`; the rest as in `uniform`.

    Args:
        alpha: shape of the distribution, a number or an array; above 0.
        beta: its scale, of the same kind; above 0.
    """
    return _draw(
        "gamma", {"alpha": alpha, "beta": beta}, ("alpha", "beta"), _options(shape, dtype, ctx, out, kwargs)
    )


def negative_binomial(
    k: Param = 1,
    p: Param = 1,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw the number of successes before the `k`-th failure of probability `p`; the rest as in `uniform`.

    Args:
        k: number of failures that end a trial, a number or an array.
        p: probability of a failure, of the same kind; from 0 to 1.
    """
    return _draw("negative_binomial", {"k": k, "p": p}, ("k", "p"), _options(shape, dtype, ctx, out, kwargs))


def generalized_negative_binomial(
    mu: Param = 1,
    alpha: Param = 1,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw from the negative binomial distribution by mean and dispersion; the rest as in `uniform`.

    Args:
        mu: mean, a number or an array.
        alpha: dispersion, of the same kind; 0 gives the Poisson distribution.
    """
    options = _options(shape, dtype, ctx, out, kwargs)
    return _draw("generalized_negative_binomial", {"mu": mu, "alpha": alpha}, ("mu", "alpha"), options)


def randint(
    low: int,
    high: int,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = None,
    ctx: ContextLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Draw integers from [low, high); int32 unless `dtype` is "int64"; the rest as in `uniform`.

    Args:
        high: upper bound, excluded.
        dtype: int32 (None) or int64.
    """
    return _draw("randint", {"low": low, "high": high}, (), _options(shape, dtype, ctx, out, kwargs))


def multinomial(
    data: NDArray,
    shape: ShapeLike | None = None,
    get_prob: bool = False,
    out: Out = None,
    dtype: DTypeLike = "int32",
    **kwargs: Any,
) -> Any:
    """Draw class numbers by their probabilities.

    Args:
        data: (K,) or (N, K) probabilities that sum to 1 along the last axis.
        shape: number of values to draw for each row.
        get_prob: True to also return the log probabilities of the samples.
        out: array to write the result into.
        dtype: element type of the class numbers.
        kwargs: `name`, ignored.
    """
    given = {"shape": shape, "out": out, **kwargs}
    given = {k: v for k, v in given.items() if v is not None}
    return op_function("_sample_multinomial")(data, get_prob=get_prob, dtype=dtype, **given)


def shuffle(data: NDArray, **kwargs: Any) -> Any:
    """Return a copy with the rows in random order.

    Args:
        data: (N, ...); not modified.
        **kwargs: `out`, an array to write the result into, and `name`, ignored.
    """
    return op_function("_shuffle")(data, **kwargs)


__all__ = lazy.own_names(vars())
__getattr__, __dir__ = lazy.attributes(
    __name__, __all__, otherwise=partial(op_function_in, "random"), operators=partial(names_in, "random")
)
