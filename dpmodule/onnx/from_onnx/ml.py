"""The domain ai.onnx.ml: what skl2onnx writes for linear models, perceptrons and scaling."""

from __future__ import annotations

import torch

from .build import GraphBuilder
from .call import NodeCall, Translator
from .forms import expand, reshape
from .problems import Refused
from .value import OnnxValue


def _rows(c: NodeCall) -> OnnxValue:
    """Return the data as a matrix of float32."""
    x = c.x
    if x.rank == 1:
        x = reshape(x, tuple((1, *s) for s in x.shapes))
    if x.rank != 2:
        raise Refused(f"data of shape {x.dims[0]}, expected rows of features")
    return x.cast("float32")


def _vector(c: NodeCall, name: str) -> OnnxValue:
    return c.b.constant(torch.tensor(c.attrs[name], dtype=torch.float32))


def _scaler(c: NodeCall) -> OnnxValue:
    x = c.x.cast("float32")
    if c.attrs.get("offset"):
        x = x - _vector(c, "offset")
    return x * _vector(c, "scale") if c.attrs.get("scale") else x


def _scores(c: NodeCall, rows: int) -> OnnxValue:
    """Return what a linear model makes of the data, before anything is done to it."""
    b, x = c.b, _rows(c)
    weights = torch.tensor(c.attrs["coefficients"], dtype=torch.float32)
    if not rows or weights.numel() % rows or x.size(1) != weights.numel() // rows:
        raise Refused(f"{weights.numel()} coefficients for {rows} results of {x.dims[0]}")
    name = b.reserve(f"{b.label}_coefficients")
    weight = b.parameter(name, weights.reshape(rows, -1), True)
    given = c.attrs.get("intercepts")
    if not given:
        return b("FullyConnected", x, weight, num_hidden=rows, no_bias=True)
    if len(given) != rows:
        raise Refused(f"{len(given)} intercepts for {rows} results")
    bias = b.parameter(b.reserve(f"{b.label}_intercepts"), torch.tensor(given, dtype=torch.float32), True)
    return b("FullyConnected", x, weight, bias, num_hidden=rows)


def _after(c: NodeCall, scores: OnnxValue) -> OnnxValue:
    kind = c.attrs.get("post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind in ("SOFTMAX", "LOGISTIC"):
        options = {"axis": -1} if kind == "SOFTMAX" else {}
        return scores.apply("softmax" if options else "sigmoid", **options)
    raise Refused(f"post_transform {kind!r}")


def _regressor(c: NodeCall) -> OnnxValue:
    return _after(c, _scores(c, c.attrs.get("targets", 1)))


def _classifier(c: NodeCall) -> list[OnnxValue]:
    b, a = c.b, c.attrs
    names = a.get("classlabels_ints") or list(range(len(a.get("classlabels_strings") or ())))
    rows = len(a.get("intercepts") or ()) or len(names)
    scores = _scores(c, rows)
    if rows == 1 and len(names) == 2:
        # one score decides between two classes
        kind = a.get("post_transform", "NONE")
        positive = _after(c, scores) if kind == "LOGISTIC" else scores
        other = (1.0 if kind == "LOGISTIC" else 0.0) - positive
        both = b("Concat", other, positive, dim=1)
        chosen = scores > 0.0
        index = b("Reshape", chosen, shape=(-1,)).cast("int64")
        found = both if kind != "SOFTMAX" else _after(c, both)
    else:
        index = b("argmax", scores, axis=1).cast("int64")
        found = _after(c, scores)
    return [_named(b, index, names), found]


def _named(b: GraphBuilder, index: OnnxValue, names: list[int]) -> OnnxValue:
    """Return the number of a class in place of its position."""
    if names == list(range(len(names))):
        return index
    return b("take", b.constant(torch.tensor(names, dtype=torch.int64)), index)


def _extractor(c: NodeCall) -> OnnxValue:
    b, x, index = c.b, c.x, c.value(1)
    flat = reshape(index, tuple((_product(s),) for s in index.shapes))
    found: OnnxValue = b("take", x, flat, axis=x.rank - 1, mode="wrap")
    # a single row of data comes back as one row of a matrix
    return reshape(found, tuple((1, *s) for s in found.shapes)) if x.rank == 1 else found


def _product(dims: tuple[int, ...]) -> int:
    total = 1
    for d in dims:
        total *= d
    return total


def _normalizer(c: NodeCall) -> OnnxValue:
    x = _rows(c)
    kind = c.attrs["norm"]
    if kind == "MAX":
        length = x.reduce("max", [1], True)
    elif kind == "L1":
        length = x.apply("abs").reduce("sum", [1], True)
    else:
        length = x.apply("square").reduce("sum", [1], True).apply("sqrt")
    return x / (length + length.arith("equal", 0.0))


def _zip_map(c: NodeCall) -> OnnxValue:
    return c.x  # the probabilities as a matrix, a column for each class


def _binarizer(c: NodeCall) -> OnnxValue:
    return c.x > c.attrs["threshold"]


def _imputer(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    values = c.attrs.get("imputed_value_floats") or c.attrs.get("imputed_value_int64s")
    if not values or len(values) not in (1, x.size(x.rank - 1)):
        raise Refused(f"{len(values or ())} values for {x.dims[0]}")
    replaced = c.attrs.get("replaced_value_float", 0.0)
    is_nan = replaced != replaced
    missing = b("broadcast_not_equal", x, x) if is_nan else x.arith("equal", float(replaced))
    filler = expand(b.constant(torch.tensor(values), x.dtype), x.shapes)
    return b("where", missing, filler, x)


def _vectorizer(c: NodeCall) -> OnnxValue:
    parts = [c.value(i).cast("float32") for i in range(len(c.inputs))]
    wide = [reshape(v, tuple((*s, 1) for s in v.shapes)) if v.rank == 1 else v for v in parts]
    return wide[0] if len(wide) == 1 else c.b("Concat", *wide, dim=1)


def _encoder(c: NodeCall) -> OnnxValue:
    keys = c.attrs.get("keys_int64s") or c.attrs.get("keys_floats")
    values = c.attrs.get("values_int64s") or c.attrs.get("values_floats")
    if not keys or not values or len(keys) != len(values) or len(keys) > 1024:
        raise Refused("keys or values that are texts")
    x = c.x
    dtype = "int64" if c.attrs.get("values_int64s") else "float32"
    default = c.attrs.get("default_int64" if dtype == "int64" else "default_float", -1)
    found = x.cast(dtype) * 0.0 + float(default)
    for key, value in zip(keys, values):
        hit = x.arith("equal", float(key)).cast(dtype)
        found = found + hit * float(value - default)
    return found


TABLE: dict[str, Translator] = {
    "ArrayFeatureExtractor": _extractor,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _encoder,
    "LinearClassifier": _classifier,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
    "ZipMap": _zip_map,
}
