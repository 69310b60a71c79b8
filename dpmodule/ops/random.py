"""Random number operators, which use the generator of their context.

A table of distributions defines `_random_x` (numbers as parameters), `_random_x_like` (shape and type of an array) and
`_sample_x` (arrays of parameters, with one sample or block of samples for each).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..base import OpError, Shape, ShapeError
from . import distributions
from .attrs import AttrType, boolean, choice, dtype, integer, ints, optional, real, shape, string
from .dtypes import torch_dtype
from .registry import op
from .shapes import same, typed, unify
from .spec import NEVER, Attr, Env, Onnx, Shapes, arg


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Distribution of the table.

    Attributes:
        draw: ``(out, generator, *parameters) -> tensor``; `out` has the shape and type of the result.
        attrs: parameters as attributes of `_random_x`.
        inputs: names of the parameters as inputs of `_sample_x`.
        does: description for the docstring.
    """

    draw: distributions.Draw
    attrs: Mapping[str, Attr]
    inputs: tuple[str, ...]
    does: str


_TABLE = {
    "uniform": _Distribution(
        distributions.uniform,
        {"low": Attr(real, "lower bound", 0.0), "high": Attr(real, "upper bound", 1.0)},
        ("low", "high"),
        "the uniform distribution over [low, high)",
    ),
    "normal": _Distribution(
        distributions.normal,
        {"loc": Attr(real, "mean", 0.0), "scale": Attr(real, "standard deviation", 1.0)},
        ("mu", "sigma"),
        "the normal distribution",
    ),
    "gamma": _Distribution(
        distributions.gamma,
        {"alpha": Attr(real, "shape", 1.0), "beta": Attr(real, "scale", 1.0)},
        ("alpha", "beta"),
        "the gamma distribution, whose mean is alpha * beta",
    ),
    "exponential": _Distribution(
        distributions.exponential,
        {"lam": Attr(real, "rate", 1.0)},
        ("lam",),
        "the exponential distribution, whose mean is 1 / lam",
    ),
    "poisson": _Distribution(
        distributions.poisson, {"lam": Attr(real, "mean", 1.0)}, ("lam",), "the Poisson distribution"
    ),
    "negative_binomial": _Distribution(
        distributions.negative_binomial,
        {
            "k": Attr(integer(low=0), "number of failures to stop at", 1),
            "p": Attr(real, "probability of a failure", 1.0),
        },
        ("k", "p"),
        "the negative binomial distribution: successes before the k-th failure",
    ),
    "generalized_negative_binomial": _Distribution(
        distributions.generalized_negative_binomial,
        {"mu": Attr(real, "mean", 1.0), "alpha": Attr(real, "dispersion; 0 is Poisson", 1.0)},
        ("mu", "alpha"),
        "the negative binomial distribution with mean mu and variance mu + alpha * mu ** 2",
    ),
}
_MAY_BE_NEGATIVE = frozenset({"low", "high", "loc"})


def _empty_samples(dims: tuple[int, ...], name: str, env: Env) -> torch.Tensor:
    """Return an empty tensor for samples; half precision is sampled in float32 and converted."""
    wide = torch.float32 if name in ("float16", "bfloat16") else torch_dtype(name)
    return torch.empty(dims, dtype=wide, device=env.device)


def _output_shape(a: Any, env: Env, name: str) -> tuple[int, ...]:
    dims = (env.out_shapes[0] if env.out_shapes else None) or a.shape
    if dims is None or 0 in dims:
        raise OpError(f"{name}: shape is {a.shape}, expected known positive dimensions")
    return tuple(dims)


def _infer_from_attribute(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer the output's shape from the attribute; its zeros, or all of it, may follow from consumers."""
    return ins, [unify(a.shape, outs[0], "shape and required output shape")]


_OUTPUT_ATTRS = {
    "shape": Attr(optional(ints), "shape of the output; 0 is inferred", None),
    "ctx": Attr(string, "device; ignored by executors", ""),
}
_FLOAT = Attr(optional(dtype), "type of the output; None for float32", None)


def _parameter_check(name: str, attrs: Mapping[str, Attr]) -> Callable[[Any], None]:
    """Return a function that checks parameters given as numbers."""

    def check(a: Any) -> None:
        for key in attrs:
            if key not in _MAY_BE_NEGATIVE and getattr(a, key) < 0:
                raise OpError(f"{name}: {key} is {getattr(a, key)}, expected 0 or more")
        if name.endswith("uniform") and a.low > a.high:
            raise OpError(f"{name}: low is {a.low}, expected at most high {a.high}")
        if name.endswith("_negative_binomial") and "p" in attrs and not 0 < a.p <= 1:
            raise OpError(f"{name}: p is {a.p}, expected a probability in (0, 1]")

    return check


def _declare_random(short: str, distribution: _Distribution) -> None:
    """Declare `_random_x`."""
    name = f"_random_{short}"
    check, keys = _parameter_check(name, distribution.attrs), tuple(distribution.attrs)

    def run(a: Any, env: Env) -> torch.Tensor:
        check(a)
        dtype_name = a.dtype or "float32"
        out = _empty_samples(_output_shape(a, env, name), dtype_name, env)
        return distribution.draw(out, env.generator, *(getattr(a, k) for k in keys)).to(
            torch_dtype(dtype_name)
        )

    run.__doc__ = (
        f"Draw from {distribution.does}.\n\nShape:\n    output: `shape`.\n\nSource: MXNet 1.9.1 `{name}`.\n"
    )
    op(
        name,
        attrs={**distribution.attrs, **_OUTPUT_ATTRS, "dtype": _FLOAT},
        aliases=[f"random_{short}", short] if short in ("uniform", "normal") else [f"random_{short}"],
        infer=_infer_from_attribute,
        infer_type=typed(lambda a: a.dtype or "float32"),
        random=True,
        needs_shapes=True,
        onnx=Onnx(builder="draw"),
    )(run)


def _declare_like(short: str, distribution: _Distribution) -> None:
    """Declare `_random_x_like`."""
    name = f"_random_{short}_like"
    check, keys = _parameter_check(f"_random_{short}", distribution.attrs), tuple(distribution.attrs)

    def run(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
        check(a)
        wide = torch.promote_types(data.dtype, torch.float32)
        out = torch.empty(data.shape, dtype=wide, device=data.device)
        return distribution.draw(out, env.generator, *(getattr(a, k) for k in keys)).to(data.dtype)

    run.__doc__ = (
        f"Draw from {distribution.does}, in the shape and type of the data.\n\n"
        f"Shape:\n    data, output: any.\n\nSource: MXNet 1.9.1 `{name}`.\n"
    )
    op(
        name,
        [arg("data")],
        distribution.attrs,
        infer=same,
        random=True,
        batch=NEVER,
        onnx=Onnx(builder="draw"),
    )(run)


def _sample_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for the parameters; the output's is followed by the attribute's."""
    first: Shape = None
    for parameter in ins:
        first = unify(first, parameter, "parameters")
    out = None if first is None else (*first, *a.shape)
    return [first] * len(ins), [unify(outs[0], out, "output"), *outs[1:]]


def _declare_sample(short: str, distribution: _Distribution) -> None:
    """Declare `_sample_x`."""
    name = f"_sample_{short}"

    def run(a: Any, env: Env, *parameters: torch.Tensor) -> torch.Tensor:
        dtype_name = a.dtype or "float32"
        first = parameters[0]
        out = _empty_samples((*first.shape, *a.shape), dtype_name, env)
        expanded = [p.to(out.dtype).reshape(*p.shape, *[1] * len(a.shape)) for p in parameters]
        return distribution.draw(out, env.generator, *expanded).to(torch_dtype(dtype_name))

    run.__doc__ = (
        f"Draw from {distribution.does}, with a block of numbers for each set of parameters.\n\n"
        f"Shape:\n    {', '.join(distribution.inputs)}: any, all the same.\n    output: that shape, then `shape`.\n\n"
        f"Source: MXNet 1.9.1 `{name}`.\n"
    )
    op(
        name,
        [arg(key) for key in distribution.inputs],
        {"shape": Attr(ints, "shape of the block for each set of parameters", ()), "dtype": _FLOAT},
        aliases=[f"sample_{short}"],
        infer=_sample_infer,
        infer_type=typed(lambda a: a.dtype or "float32"),
        random=True,
        batch=NEVER,
        onnx=Onnx(builder="draw"),
    )(run)


for _short, _one in _TABLE.items():
    _declare_random(_short, _one)
    _declare_like(_short, _one)
    _declare_sample(_short, _one)


@op(
    "_random_randint",
    attrs={
        "low": Attr(integer(), "minimum"),
        "high": Attr(integer(), "maximum + 1"),
        **_OUTPUT_ATTRS,
        "dtype": Attr(
            AttrType(optional(choice("int32", "int64")).parse, "int32 or int64, or None", "Any"),
            "type of the output; None for int32",
            None,
        ),
    },
    aliases=["random_randint"],
    infer=_infer_from_attribute,
    infer_type=typed(lambda a: a.dtype or "int32"),
    random=True,
    needs_shapes=True,
    onnx=Onnx(builder="randint"),
)
def randint(a: Any, env: Env) -> torch.Tensor:
    """Draw uniform integers from [low, high).

    Shape:
        output: `shape`.

    Source: MXNet 1.9.1 `_random_randint`.
    """
    if a.low >= a.high:
        raise OpError(f"_random_randint: low is {a.low}, expected less than high {a.high}")
    dims = _output_shape(a, env, "_random_randint")
    target = torch_dtype(a.dtype or "int32")
    return torch.randint(a.low, a.high, dims, generator=env.generator, dtype=target, device=env.device)


def _multinomial_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    if data is None:
        return ins, outs
    if len(data) not in (1, 2):
        raise ShapeError(f"data has shape {data}, expected one or several rows of probabilities")
    out = (*data[:-1], *a.shape) or (1,)
    return ins, [unify(o, out, "output") for o in outs]


@op(
    "_sample_multinomial",
    [arg("data")],
    {
        "shape": Attr(ints, "shape of the block for each row", ()),
        "get_prob": Attr(boolean, "also return the log probabilities of the samples", False),
        "dtype": Attr(dtype, "type of the output", "int32"),
    },
    aliases=["sample_multinomial"],
    outputs=lambda a: ("output0", "output1") if a.get_prob else ("output",),
    infer=_multinomial_infer,
    infer_type=lambda a, ins, outs: (ins, [outs[0] or a.dtype, *(o or ins[0] for o in outs[1:])]),
    random=True,
    batch=NEVER,
    onnx=Onnx("Multinomial", builder="multinomial"),
)
def sample_multinomial(
    a: Any, env: Env, data: torch.Tensor
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Draw class indices by their probabilities.

    Shape:
        data: (K,) or (N, K), probabilities, which need not sum to one here.
        output: `shape`, or (N, *shape); (1,) for one row and no shape.
        output1: like output, if get_prob: log probabilities, differentiable.

    Source: MXNet 1.9.1 `_sample_multinomial`.
    """
    dims = (*data.shape[:-1], *a.shape) or (1,)
    count = 1
    for n in a.shape:
        count *= n
    rows = data.reshape(-1, data.shape[-1])
    drawn = torch.multinomial(rows.detach(), count, replacement=True, generator=env.generator)
    out = drawn.reshape(dims).to(torch_dtype(a.dtype))
    if not a.get_prob:
        return out
    return out, rows.gather(1, drawn).log().reshape(dims)


@op(
    "_shuffle",
    [arg("data")],
    aliases=["shuffle"],
    infer=same,
    random=True,
    batch=NEVER,
)
def shuffle(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Shuffle the rows.

    Shape:
        data, output: (N, ...); shuffled along axis 0.

    Source: MXNet 1.9.1 `_shuffle`.
    """
    order = torch.randperm(data.shape[0], generator=env.generator, device=data.device)
    return data[order]


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    dims = unify(a.shape, outs[0], "shape and required output shape")
    return [], [dims, unify(outs[1], None if dims is None else dims[:1], "number of rows")]


def _draw(rows: int, count: int, high: int, env: Env) -> torch.Tensor:
    """Draw integers below `high`, with probability log((k + 2) / (k + 1)) / log(high + 1) of k."""
    uniform = torch.rand(rows, count, dtype=torch.float64, generator=env.generator, device=env.device)
    return torch.exp(uniform * math.log(high + 1.0)).round().long().sub(1).remainder(high)


def _first_occurrence(drawn: torch.Tensor) -> torch.Tensor:
    """Return a mask of the first occurrence of each number in its row."""
    ordered, positions = drawn.sort(dim=1, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(new).scatter(1, positions, new)


@op(
    "_sample_unique_zipfian",
    (),
    {
        "range_max": Attr(integer(low=1), "maximum + 1"),
        "shape": Attr(optional(shape), "(rows, numbers per row)", None),
    },
    outputs=("output0", "output1"),
    infer=_infer,
    infer_type=lambda a, ins, outs: ([], ["int64", "int64"]),
    random=True,
    needs_shapes=True,
    onnx=Onnx(builder="zipfian"),
)
def sample_unique_zipfian(a: Any, env: Env) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw distinct numbers for each row from an approximately Zipfian distribution.

    Shape:
        output0: `shape`, (N, K) int64: distinct numbers within each row, from 0 to range_max - 1.
        output1: (N,) int64: number of draws needed.

    Raises:
        OpError: there are fewer than K numbers, or the shape does not have two axes.

    Source: MXNet 1.9.1 `_sample_unique_zipfian`.
    """
    dims = (env.out_shapes[0] if env.out_shapes else None) or a.shape
    if dims is None or len(dims) != 2 or dims[1] > a.range_max:
        raise OpError(
            f"_sample_unique_zipfian: shape is {dims}, expected (rows, numbers) with at most {a.range_max} numbers"
        )
    rows, per_row = dims
    drawn = _draw(rows, 2 * per_row, a.range_max, env)
    while True:
        new = _first_occurrence(drawn)
        seen = new.cumsum(1)
        if drawn.numel() == 0 or int(seen[:, -1].min()) >= per_row:
            break
        drawn = torch.cat([drawn, _draw(rows, drawn.shape[1], a.range_max, env)], 1)
    taken = new & (seen <= per_row)
    tries = (seen < per_row).sum(1) + 1
    return drawn[taken].reshape(rows, per_row), tries
