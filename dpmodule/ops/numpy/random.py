"""Random numbers with NumPy's parameters, each a number or an array, from the generator of the context."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import boolean, dtype, integer, ints, optional, real, reals, string
from ..distributions import standard_gamma
from ..dtypes import torch_dtype
from ..registry import op
from ..shapes import broadcast, typed, unify
from ..spec import NEVER, REQUIRED, Attr, Env, Input, Onnx, Shapes, Types, arg

_SIZE = Attr(optional(ints), "shape of the result; None means that of the parameters", None)
_CTX = Attr(string, "accepted and ignored: the device is that of the executor", "cpu")
_FLOAT = Attr(dtype, "dtype of the result", "float32")

Draw = Callable[..., torch.Tensor]
"""``(uniform or normal numbers, generator, *parameters) -> numbers``, differentiable in the parameters."""


def _open_uniform(u: torch.Tensor) -> torch.Tensor:
    """Return uniform numbers without 0, whose logarithm is infinite."""
    return u.clamp(min=torch.finfo(u.dtype).tiny)


def _uniform(u: torch.Tensor, gen: Any, low: Any, high: Any) -> torch.Tensor:
    found: torch.Tensor = u.uniform_(generator=gen) * (high - low) + low
    return found


def _normal(u: torch.Tensor, gen: Any, loc: Any, scale: Any) -> torch.Tensor:
    found: torch.Tensor = u.normal_(generator=gen) * scale + loc
    return found


def _gumbel(u: torch.Tensor, gen: Any, loc: Any, scale: Any) -> torch.Tensor:
    found: torch.Tensor = loc - scale * torch.log(u.exponential_(generator=gen))
    return found


def _logistic(u: torch.Tensor, gen: Any, loc: Any, scale: Any) -> torch.Tensor:
    u = _open_uniform(u.uniform_(generator=gen))
    found: torch.Tensor = loc + scale * (torch.log(u) - torch.log1p(-u))
    return found


def _laplace(u: torch.Tensor, gen: Any, loc: Any, scale: Any) -> torch.Tensor:
    u = u.uniform_(generator=gen) - 0.5
    found: torch.Tensor = loc - scale * torch.sign(u) * torch.log1p(-2 * u.abs())
    return found


def _gamma(u: torch.Tensor, gen: Any, shape: Any, scale: Any) -> torch.Tensor:
    alpha = u.zero_() + (shape.detach() if isinstance(shape, torch.Tensor) else shape)
    found: torch.Tensor = standard_gamma(alpha, gen) * scale
    return found


def _exponential(u: torch.Tensor, gen: Any, scale: Any) -> torch.Tensor:
    found: torch.Tensor = u.exponential_(generator=gen) * scale
    return found


def _rayleigh(u: torch.Tensor, gen: Any, scale: Any) -> torch.Tensor:
    found: torch.Tensor = torch.sqrt(2 * u.exponential_(generator=gen)) * scale
    return found


def _weibull(u: torch.Tensor, gen: Any, a: Any) -> torch.Tensor:
    found: torch.Tensor = u.exponential_(generator=gen) ** (1 / a)
    return found


def _pareto(u: torch.Tensor, gen: Any, a: Any) -> torch.Tensor:
    return torch.expm1(u.exponential_(generator=gen) / a)


def _power(u: torch.Tensor, gen: Any, a: Any) -> torch.Tensor:
    return torch.exp(-u.exponential_(generator=gen) / a)


def _given(a: Any, names: tuple[str, ...]) -> tuple[Input, ...]:
    """Return the inputs: parameters without a value as attribute."""
    return tuple(arg(f"input{i + 1}") for i, name in enumerate(names) if getattr(a, name) is None)


def _sizes(a: Any, ins: list[Shape], outs: list[Shape], before: bool) -> Shapes:
    """Infer the shape of the result, `size` or that of the parameters; `before` them if both count."""
    if any(shape is None or 0 in shape for shape in ins):
        return ins, [unify(outs[0], a.size)] if a.size is not None and not before else outs
    dims: Shape = ()
    for shape in ins:
        dims = broadcast(dims, shape)
    whole = (*(a.size or ()), *(dims or ())) if before else dims if a.size is None else a.size
    return ins, [unify(out, whole, "size and required shape") for out in outs]


def _declare(
    word: str,
    draw: Draw,
    names: tuple[str, ...],
    does: str,
    *,
    defaults: tuple[Any, ...] = (),
    ctx: bool = True,
    typed_result: bool = False,
    before: bool = False,
    noisy: bool = False,
    source: str = "1.9.1",
    onnx: Onnx,
) -> None:
    name = f"_npi_{word}"

    def run(a: Any, env: Env, *given: torch.Tensor) -> torch.Tensor:
        rest = iter(given)
        parameters = [next(rest) if getattr(a, key) is None else getattr(a, key) for key in names]
        kind = torch_dtype(getattr(a, "dtype", "float32"))
        wide = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
        dims = env.out_shapes[0] if env.out_shapes else ()
        _check(name, a, names)
        return draw(torch.empty(dims, dtype=wide, device=env.device), env.generator, *parameters).to(kind)

    listed = ", ".join(f"input{i + 1}" for i in range(len(names)))
    run.__doc__ = f"""Draw numbers from {does}.

    Parameters are attributes, or inputs where the attribute is None.

    Shape:
        {listed}: shapes that broadcast; the parameters {", ".join(names)}.
        returns: `size`{", then the shape of the parameters" if before else ", by default the shape of the parameters"}.

    Source: MXNet {source} `{name}`.
    """
    attrs = {
        key: Attr(optional(real), "parameter; None means an input", default)
        for key, default in zip(names, defaults or (REQUIRED,) * len(names))
    }
    attrs["size"] = _SIZE
    if ctx:
        attrs["ctx"] = _CTX
    if typed_result:
        attrs["dtype"] = _FLOAT
    op(
        name,
        lambda a: _given(a, names),
        attrs,
        infer=lambda a, ins, outs: _sizes(a, ins, outs, before),
        infer_type=typed(lambda a: getattr(a, "dtype", "float32"), "float32"),
        random=True,
        needs_shapes=True,
        batch=NEVER,
        outputs=("output0",) if noisy else ("output",),
        hidden=int(noisy),
        onnx=onnx,
    )(run)


_POSITIVE = frozenset({"scale", "a", "shape"})


def _check(name: str, a: Any, names: tuple[str, ...]) -> None:
    for key in names:
        value = getattr(a, key)
        if value is not None and value < 0 and key in _POSITIVE:
            raise OpError(f"{name}: {key} is {value}, expected 0 or more")


_NONE = Onnx(missing="ONNX draws only uniform and normal numbers")
_declare(
    "uniform",
    _uniform,
    ("low", "high"),
    "the uniform distribution over [low, high)",
    typed_result=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "normal",
    _normal,
    ("loc", "scale"),
    "the normal distribution",
    typed_result=True,
    noisy=True,
    onnx=Onnx("RandomNormal", builder="np_random"),
)
_declare(
    "uniform_n",
    _uniform,
    ("low", "high"),
    "the uniform distribution over [low, high)",
    typed_result=True,
    before=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "normal_n",
    _normal,
    ("loc", "scale"),
    "the normal distribution",
    typed_result=True,
    before=True,
    noisy=True,
    onnx=Onnx("RandomNormal", builder="np_random"),
)
_declare(
    "gumbel",
    _gumbel,
    ("loc", "scale"),
    "the Gumbel distribution",
    noisy=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "logistic",
    _logistic,
    ("loc", "scale"),
    "the logistic distribution",
    noisy=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "laplace",
    _laplace,
    ("loc", "scale"),
    "the Laplace distribution",
    typed_result=True,
    source="2.0",
    noisy=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "gamma",
    _gamma,
    ("shape", "scale"),
    "the gamma distribution, whose mean is shape * scale",
    typed_result=True,
    onnx=_NONE,
)
_declare(
    "exponential",
    _exponential,
    ("scale",),
    "the exponential distribution, whose mean is `scale`",
    defaults=(1.0,),
    noisy=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "rayleigh",
    _rayleigh,
    ("scale",),
    "the Rayleigh distribution",
    defaults=(1.0,),
    noisy=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "weibull",
    _weibull,
    ("a",),
    "the Weibull distribution with scale 1",
    defaults=(None,),
    noisy=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "pareto",
    _pareto,
    ("a",),
    "the Pareto distribution of the second kind",
    defaults=(None,),
    noisy=True,
    onnx=Onnx("RandomUniform", builder="np_random"),
)
_declare(
    "powerd",
    _power,
    ("a",),
    "the distribution with density a * x^(a - 1) over [0, 1]",
    defaults=(None,),
    ctx=False,
    onnx=Onnx("RandomUniform", builder="np_random"),
)


def _bernoulli_inputs(a: Any) -> tuple[Input, ...]:
    return (arg("input1"),) if a.prob is None and a.logit is None else ()


@op(
    "_npi_bernoulli",
    _bernoulli_inputs,
    {
        "prob": Attr(optional(real), "probability of 1; None means an input"),
        "logit": Attr(optional(real), "logarithm of the odds of 1; None means an input"),
        "size": _SIZE,
        "ctx": _CTX,
        "dtype": _FLOAT,
        "is_logit": Attr(boolean, "the parameter is `logit`"),
    },
    infer=lambda a, ins, outs: _sizes(a, ins, outs, False),
    infer_type=typed(lambda a: a.dtype, "float32"),
    random=True,
    needs_shapes=True,
    batch=NEVER,
    differentiable=False,
    onnx=Onnx("RandomUniform", builder="np_bernoulli"),
)
def bernoulli(a: Any, env: Env, *given: torch.Tensor) -> torch.Tensor:
    """Draw ones with a probability, else zeros.

    Shape:
        input1: any shape, probabilities or logits.
        returns: `size`, by default the shape of the parameter.

    Source: MXNet 1.9.1 `_npi_bernoulli`.
    """
    part = given[0].detach().float() if given else a.logit if a.is_logit else a.prob
    if a.is_logit:
        part = torch.sigmoid(part) if given else 1 / (1 + math.exp(-part))
    drawn = torch.empty(env.out_shapes[0] if env.out_shapes else (), device=env.device)
    drawn = drawn.uniform_(generator=env.generator)
    return torch.lt(drawn, part).to(torch_dtype(a.dtype))


def _choice_inputs(a: Any) -> tuple[Input, ...]:
    names = ("input1", "input2")[: (a.a is None) + a.weighted]
    return tuple(map(arg, names))


def _choice_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, [unify(outs[0], a.size or (), "size and required shape")]


@op(
    "_npi_choice",
    _choice_inputs,
    {
        "a": Attr(optional(integer(low=0)), "number of indices; None means the length of the input"),
        "size": Attr(optional(ints), "shape of the result; None means a scalar"),
        "ctx": _CTX,
        "replace": Attr(boolean, "an index may be drawn several times", True),
        "weighted": Attr(boolean, "the last input contains probabilities", False),
    },
    infer=_choice_shape,
    infer_type=lambda a, ins, outs: (ins, ["int64"]),
    random=True,
    needs_shapes=True,
    batch=NEVER,
    differentiable=False,
    onnx=_NONE,
)
def choice(a: Any, env: Env, *given: torch.Tensor) -> torch.Tensor:
    """Draw indices.

    Shape:
        input1: (N,), whose length counts if `a` is None; else the probabilities.
        input2: (N,), probabilities.
        returns: `size`, int64.

    Source: MXNet 1.9.1 `_npi_choice`.
    """
    length = int(given[0].shape[0]) if a.a is None else a.a
    dims = tuple(a.size or ())
    count = math.prod(dims)
    if a.weighted:
        weights = given[-1].detach().float()
        drawn = torch.multinomial(weights, count, a.replace, generator=env.generator)
    elif a.replace:
        drawn = torch.randint(length, (count,), generator=env.generator, device=env.device)
    else:
        if count > length:
            raise OpError(
                f"_npi_choice: size is {dims}, expected at most {length} indices without replacement"
            )
        drawn = torch.randperm(length, generator=env.generator, device=env.device)[:count]
    return drawn.reshape(dims)


def _pvals_of(a: Any, ins: list[Shape]) -> int | None:
    return len(a.pvals) if a.pvals is not None else None if ins[0] is None else ins[0][0]


def _multinomial_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    count = _pvals_of(a, ins)
    return ins, outs if count is None else [unify(outs[0], (*(a.size or ()), count))]


def _int64(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    return ins, ["int64"]


@op(
    "_npi_multinomial",
    lambda a: () if a.pvals is not None else (arg("a"),),
    {
        "n": Attr(integer(low=0), "number of trials"),
        "pvals": Attr(optional(reals), "probabilities; None means an input", None),
        "size": _SIZE,
    },
    infer=_multinomial_shape,
    infer_type=_int64,
    random=True,
    batch=NEVER,
    differentiable=False,
    onnx=_NONE,
)
def multinomial(a: Any, env: Env, *given: torch.Tensor) -> torch.Tensor:
    """Draw the number of times that each of several events occurs.

    Shape:
        a: (K,), probabilities.
        returns: (*size, K), int64.

    Source: MXNet 1.9.1 `_npi_multinomial`.
    """
    weights = (
        given[0].detach().double() if given else torch.tensor(a.pvals, dtype=torch.float64, device=env.device)
    )
    dims = tuple(a.size or ())
    rows = math.prod(dims)
    counts = torch.zeros(rows, weights.numel(), dtype=torch.int64, device=env.device)
    if a.n and rows:
        drawn = torch.multinomial(weights, rows * a.n, True, generator=env.generator).reshape(rows, a.n)
        counts.scatter_add_(1, drawn, torch.ones_like(drawn))
    return counts.reshape(*dims, weights.numel())
