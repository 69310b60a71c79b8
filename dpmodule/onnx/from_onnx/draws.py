"""Random numbers."""

from __future__ import annotations

from typing import Any

from .call import NodeCall, Translator
from .problems import Refused
from .tensors import DTYPES
from .value import OnnxValue


def _options(c: NodeCall) -> dict[str, Any]:
    a = c.attrs
    if "Normal" in c.kind:
        return {"loc": a["mean"], "scale": a["scale"]}
    return {"low": a["low"], "high": a["high"]}


def _name(c: NodeCall) -> str:
    return "_random_normal" if "Normal" in c.kind else "_random_uniform"


def _like(c: NodeCall) -> OnnxValue:
    wanted = DTYPES.get(c.attrs.get("dtype", 0), c.x.dtype)
    source = c.x if "float" in c.x.dtype else c.x.cast("float32")
    return source.apply(f"{_name(c)}_like", **_options(c)).cast(wanted)


def _of_shape(c: NodeCall) -> OnnxValue:
    shape = tuple(c.attrs["shape"])
    if any(d < 1 for d in shape):
        raise Refused(f"shape {shape}")
    made = c.b(_name(c), shape=shape or (1,), dtype="float32", **_options(c))
    return made.as_scalar(not shape).cast(DTYPES.get(c.attrs["dtype"], "float32"))


TABLE: dict[str, Translator] = {
    **dict.fromkeys(("RandomNormalLike", "RandomUniformLike"), _like),
    **dict.fromkeys(("RandomNormal", "RandomUniform"), _of_shape),
}
