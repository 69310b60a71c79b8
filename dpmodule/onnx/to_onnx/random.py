"""Builders of random numbers, from ONNX's uniform and normal ones, and of densities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .call import Dims, OperatorCall, Value
from .common import log_gamma, reshape, result, shape_value, term
from .writer import code_of

Array = np.ndarray[Any, Any]

_TRIES = 8
"""Draws for each gamma number, of which the first accepted one is used; all fail once in 2 * 10^10 times."""

_MAX_COUNTS = 4096
"""Maximal number of counts in a table of probabilities."""


def _short(c: OperatorCall) -> str:
    """Return the distribution in the operator's name."""
    name = c.node.op.name if c.node.op is not None else ""
    for part in ("_random_pdf_", "_random_", "_sample_"):
        name = name.removeprefix(part)
    return name.removesuffix("_like")


def random_numbers(c: OperatorCall, operator: str, dims: Dims) -> Value:
    """Draw uniform numbers in [0, 1), or standard normal ones, in double precision."""
    if all(isinstance(dim, int) for dim in dims):
        value = c.emit(operator, shape=c.numbers(dims) or (1,), dtype=code_of("float64"))
        output = value
        return output if dims else output.squeeze(0)
    like = c.emit("Expand", c.const(0.0, "float32"), shape_value(c, dims))
    return c.emit(operator + "Like", like, dtype=code_of("float64"))


def _uniform(c: OperatorCall, dims: Dims | None = None) -> Value:
    return random_numbers(c, "RandomUniform", c.out_shapes[0] if dims is None else dims)


def _parameters(c: OperatorCall, names: Sequence[str]) -> list[Value]:
    """Return a distribution's parameters: attributes, or arrays with one value for each drawn block."""
    if hasattr(c.a, names[0]):
        return [c.const(getattr(c.a, name), "float64") for name in names]
    rank = len(c.out_shapes[0])
    return [term(c, i, "float64").unsqueeze(*range(len(c.shapes[i]), rank)) for i in range(len(c.inputs))]


def _known_parameters(c: OperatorCall, names: Sequence[str]) -> list[Array]:
    """Return parameters as numbers; those of count distributions must be known."""
    if hasattr(c.a, names[0]):
        return [np.asarray(float(getattr(c.a, name))) for name in names]
    rank = len(c.out_shapes[0])
    outputs = [c.known_value(i).astype(np.float64) for i in range(len(c.inputs))]
    return [output.reshape(output.shape + (1,) * (rank - output.ndim)) for output in outputs]


def draw(c: OperatorCall) -> Value:
    """Draw random numbers of a distribution."""
    name = _short(c)
    if name in _COUNTS:
        names, rule = _COUNTS[name]
        return result(_from_table(c, *rule(*_known_parameters(c, names))))
    names, sampler = _SAMPLERS[name]
    output = sampler(c, *_parameters(c, names))
    return result(output)


def _draw_normal(c: OperatorCall, mean: Value, deviation: Value) -> Value:
    return random_numbers(c, "RandomNormal", c.out_shapes[0]) * deviation + mean


def _draw_gamma(c: OperatorCall, alpha: Value, beta: Value) -> Value:
    """Draw by rejection, with all tries in one step.

    Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
    """
    dims = (_TRIES, *c.out_shapes[0])
    small = alpha < 1
    d = small.choose(alpha + 1, alpha) - 1 / 3
    x, u = random_numbers(c, "RandomNormal", dims), _uniform(c, dims)
    v = x / (9 * d).then("Sqrt") + 1
    v = v * v * v
    bound = x * x * 0.5 + d - d * v + d * v.then("Max", 1e-30).then("Log")
    fits = (v > 0).then("And", u.then("Log") < bound)
    first = fits.cast("int64").then("ArgMax", axis=0, keepdims=1)
    taken = c.emit("GatherElements", v, first, axis=0).squeeze(0) * d
    boost = _uniform(c) ** (1 / alpha)
    return small.choose(taken * boost, taken) * beta


_SAMPLERS: dict[str, tuple[tuple[str, ...], Callable[..., Value]]] = {
    "uniform": (("low", "high"), lambda c, low, high: _uniform(c) * (high - low) + low),
    "normal": (("loc", "scale"), _draw_normal),
    "exponential": (("lam",), lambda c, rate: -(1 - _uniform(c)).then("Log") / rate),
    "gamma": (("alpha", "beta"), _draw_gamma),
}
"""Parameter names and sampling function of each distribution."""


def _from_table(c: OperatorCall, mean: Array, deviation: Array, chance: Callable[[Array], Array]) -> Value:
    """Draw counts: the number of cumulative probabilities that a uniform number exceeds."""
    most = int(np.ceil(np.max(mean + 24 * deviation))) + 20
    if most > _MAX_COUNTS:
        c.refuse(
            f"its counts reach about {most}, but a table of probabilities has at most {_MAX_COUNTS} entries"
        )
    sums = np.cumsum(np.exp(chance(np.arange(most, dtype=np.float64))), axis=-1)
    beyond = _uniform(c).unsqueeze(-1) > c.const(sums, "float64")
    return beyond.cast("int64").reduce("ReduceSum", -1)


def _factorials(x: Array) -> Array:
    logs: Array = np.vectorize(math.lgamma, otypes=[float])(x)
    return logs


def _poisson(mean: Array) -> Any:
    lam = np.maximum(mean, 1e-300)[..., None]
    return mean, np.sqrt(mean), lambda x: x * np.log(lam) - lam - _factorials(x + 1)


def _negative_binomial(limit: Array, chance: Array) -> Any:
    k, p = np.maximum(limit, 1e-9)[..., None], np.minimum(chance, 1 - 1e-12)[..., None]
    mean = limit * (1 - chance) / chance

    def log(x: Array) -> Array:
        log_ways = _factorials(x + k) - _factorials(x + 1) - _factorials(k)
        return log_ways + k * np.log(p) + x * np.log1p(-p)  # type: ignore[no-any-return]

    return mean, np.sqrt(mean / chance), log


def _generalized(mean: Array, dispersion: Array) -> Any:
    spread = np.maximum(dispersion, 1e-9)  # less is indistinguishable from Poisson
    return _negative_binomial(1 / spread, 1 / (mean * spread + 1))


_COUNTS: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "poisson": (("lam",), _poisson),
    "negative_binomial": (("k", "p"), _negative_binomial),
    "generalized_negative_binomial": (("mu", "alpha"), _generalized),
}
"""Parameter names, mean, deviation and log probabilities of each distribution."""


def randint(c: OperatorCall) -> Value:
    """Truncated uniform numbers."""
    output = (_uniform(c) * (c.a.high - c.a.low)).then("Floor") + c.a.low
    return result(output)


def multinomial(c: OperatorCall) -> Value | tuple[Value, Value]:
    """Multinomial, with log probabilities."""
    rows = term(c, 0, "float32")
    rows = rows.unsqueeze(0) if len(c.shapes[0]) == 1 else rows
    drawn = rows.then("Log").then("Multinomial", sample_size=math.prod(c.a.shape), dtype=code_of("int64"))
    output = result(reshape(c, drawn, c.out_shapes[0]))
    if not c.a.get_prob:
        return output
    chance = c.emit("GatherElements", rows, drawn, axis=1).then("Log")
    return output, result(reshape(c, chance, c.out_shapes[1]), 1)


def shuffle(c: OperatorCall) -> Value:
    """Shuffle rows by sorting random numbers."""
    count = c.length_value(c.shapes[0][0])
    _, order = c.emit("TopK", _uniform(c, c.shapes[0][:1]).cast("float32"), count, axis=0, outputs=2)
    return c.emit("Gather", c.inputs[0], order, axis=0)


def zipfian(c: OperatorCall) -> tuple[Value, Value]:
    """Sample without replacement: the largest log probabilities plus Gumbel noise.

    The reported number of draws is that of the distinct numbers, plus a geometric number of repeated ones between each
    two.

    Source: Yellott, "The relationship between Luce's choice axiom, Thurstone's theory of comparative judgment, and the
    double exponential distribution", 1977.
    """
    rows, wanted = c.numbers(c.out_shapes[0])
    high = c.a.range_max
    if rows * high > 10**7:
        c.refuse(
            f"drawing {rows} rows of distinct numbers needs {rows} x {high} random numbers, expected at most 10^7"
        )
    ends = np.log(np.clip(np.arange(high + 2) + 0.5, 1, high + 1))
    chances = np.diff(ends) / math.log(high + 1)
    chances = np.append(chances[:high], 0)[:high] + np.eye(1, high)[0] * chances[high]
    noise = -(-_uniform(c, (rows, high)).then("Log")).then("Log") + np.log(chances)
    _, numbers = c.emit("TopK", noise, c.ints(wanted), axis=1, outputs=2)
    taken = c.emit("Gather", c.const(chances, "float64"), numbers).slice(1, 0, wanted - 1)
    seen = c.emit("CumSum", taken, c.const(1, "int64"))
    again = (_uniform(c, (rows, wanted - 1)).then("Log") / seen.then("Log")).then("Floor")
    tries = again.reduce("ReduceSum", 1) + wanted
    return numbers, tries.cast("int64")


# densities


def _normal_density(x: Value, mean: Value, deviation: Value) -> Value:
    apart = (x - mean) / deviation
    return apart * apart * -0.5 - deviation.then("Log") - 0.5 * math.log(2 * math.pi)


def _gamma_density(x: Value, alpha: Value, beta: Value) -> Value:
    return alpha * beta.then("Log") + (alpha - 1) * x.then("Log") - beta * x - log_gamma(alpha)


def _counts_density(x: Value, limit: Value, chance: Value) -> Value:
    log_ways = log_gamma(x + limit) - log_gamma(x + 1) - log_gamma(limit)
    return log_ways + limit * chance.then("Log") + x * (1 - chance).then("Log")


def _dirichlet_density(x: Value, alpha: Value) -> Value:
    whole = log_gamma(alpha.reduce("ReduceSum", -1)) - log_gamma(alpha).reduce("ReduceSum", -1)
    return ((alpha - 1) * x.then("Log")).reduce("ReduceSum", -1) + whole


_DENSITIES: dict[str, Callable[..., Value]] = {
    "uniform": lambda x, low, high: x * 0 - (high - low).then("Log"),
    "normal": _normal_density,
    "gamma": _gamma_density,
    "exponential": lambda x, rate: rate.then("Log") - rate * x,
    "poisson": lambda x, mean: x * mean.then("Log") - log_gamma(x + 1) - mean,
    "negative_binomial": _counts_density,
    "generalized_negative_binomial": lambda x, mean, spread: _counts_density(
        x, 1 / spread, 1 / (mean * spread + 1)
    ),
    "dirichlet": _dirichlet_density,
}
"""Log density of each distribution at samples."""


def density(c: OperatorCall) -> Value:
    """Density of a distribution at samples, in double precision, or its logarithm."""
    name = _short(c)
    rank = len(c.shapes[0])
    parameters = []
    for i in range(1, len(c.inputs)):
        at = len(c.shapes[i]) - (name == "dirichlet")
        parameters.append(term(c, i, "float64").unsqueeze(*range(at, at + rank - len(c.shapes[i]))))
    output = _DENSITIES[name](term(c, 0, "float64"), *parameters)
    return result(output if c.a.is_log else output.then("Exp"))
