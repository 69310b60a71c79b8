"""Translators of matrix products, and of the domain ai.onnx.ml."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .shape_helpers import expand, reshape, squeeze, transpose, unsqueeze
from .value import Dims, OnnxValue, same_type


def product(x: OnnxValue, y: OnnxValue) -> OnnxValue:
    """Multiply matrices, or stacks of matrices that broadcast."""
    x, y = same_type(x, y)
    if x.rank == 0 or y.rank == 0:
        raise Unsupported("a product with a scalar")
    if x.rank == 1 or y.rank == 1:
        left = unsqueeze(x, [0]) if x.rank == 1 else x
        right = unsqueeze(y, [1]) if y.rank == 1 else y
        gone = [n for n, v in ((-2, x), (-1, y)) if v.rank == 1]
        whole = product(left, right)
        return squeeze(whole, [n % whole.rank for n in gone])
    if any(n != m for n, m in zip(x.axis(x.rank - 1), y.axis(y.rank - 2))):
        raise Unsupported(f"a product of {x.dims[0]} and {y.dims[0]}")
    if y.rank == 2:
        weight = y.transposed_from
        if weight is not None and weight.size(0) is not None:
            return x.then("FullyConnected", weight, num_hidden=weight.size(0), no_bias=True, flatten=False)
        return x.then("dot", y)
    return _stacked(x, y)


def _stacked(x: OnnxValue, y: OnnxValue) -> OnnxValue:
    shapes = []
    for s, t in zip(x.shapes, y.shapes):
        rank = max(len(s), len(t)) - 2
        s, t = (1,) * (rank + 2 - len(s)) + s, (1,) * (rank + 2 - len(t)) + t
        if any(m != n and 1 not in (m, n) for m, n in zip(s[:rank], t[:rank])):
            raise Unsupported(f"a product of {x.dims[0]} and {y.dims[0]}")
        shapes.append(tuple(max(m, n) for m, n in zip(s[:rank], t[:rank])))
    turned = y.transposed_from
    right = turned if turned is not None else y
    x = expand(x, tuple((*stack, *s[-2:]) for stack, s in zip(shapes, x.shapes)))
    right = expand(right, tuple((*stack, *s[-2:]) for stack, s in zip(shapes, right.shapes)))
    name = "batch_dot" if x.rank == 3 else "_linalg_gemm2"
    return x.then(name, right, transpose_b=turned is not None)


def _matmul(c: NodeCall) -> OnnxValue:
    return product(c.x, c.value(1))


def _gemm(c: NodeCall) -> OnnxValue:
    b, x, weight, bias, a = c.b, c.x, c.value(1), c.maybe(2), c.attrs
    if x.rank != 2 or weight.rank != 2:
        raise Unsupported(f"a product of {x.dims[0]} and {weight.dims[0]}")
    if a["transA"]:
        x = transpose(x, (1, 0))
    hidden = weight.size(0)
    is_plain = a["alpha"] == 1 and (bias is None or a["beta"] == 1) and hidden is not None
    if is_plain and a["transB"]:
        if bias is None:
            return b("FullyConnected", x, weight, num_hidden=hidden, no_bias=True)
        if bias.rank == 1 and bias.size(0) == hidden:
            return b("FullyConnected", x, weight, bias, num_hidden=hidden)
    result = product(x, transpose(weight, (1, 0)) if a["transB"] else weight)
    if a["alpha"] != 1:
        result = result * a["alpha"]
    if bias is not None:
        result = result + (bias if a["beta"] == 1 else bias * a["beta"])
    return result


# Einsum


def _einsum(c: NodeCall) -> OnnxValue:
    b = c.b
    text = c.attrs["equation"].replace(" ", "")
    left, _, result = text.partition("->")
    terms = left.split(",")
    values = [c.value(i) for i in range(len(c.inputs))]
    if "->" not in text:
        letters = "".join(terms)
        result = "".join(sorted(n for n in set(letters) - {"."} if letters.count(n) == 1))
        result = ("..." if "." in letters else "") + result
    if len(terms) != len(values):
        raise Unsupported(f"equation {text!r} for {len(values)} inputs")
    terms, result = _expand_ellipses(terms, values, result)
    if any(len(t) != v.rank for t, v in zip(terms, values)):
        raise Unsupported(f"equation {text!r} for arrays of {', '.join(str(v.rank) for v in values)} axes")
    for i, term in enumerate(terms):
        values[i], terms[i] = _diagonal(values[i], term)
    value, letters = values[0], terms[0]
    for i in range(1, len(values)):
        later = set("".join(terms[i + 1 :])) | set(result)
        value, letters = _contract(b, value, letters, values[i], terms[i], later)
    gone = [i for i, n in enumerate(letters) if n not in result]
    if gone:
        value = b("sum", value, axis=tuple(gone)).as_scalar(len(gone) == len(letters))
        letters = "".join(n for n in letters if n in result)
    return transpose(value, [letters.index(n) for n in result])


def _diagonal(x: OnnxValue, term: str) -> tuple[OnnxValue, str]:
    """Return the diagonal of the axes with equal letters, and the letters that are left."""
    for letter in sorted(set(term)):
        while term.count(letter) > 1:
            first, last = term.index(letter), term.rindex(letter)
            x = x.then("diag", axis1=first, axis2=last)
            term = term[:first] + term[first + 1 : last] + term[last + 1 :] + letter
    return x, term


def _expand_ellipses(terms: list[str], values: Sequence[OnnxValue], result: str) -> tuple[list[str], str]:
    """Replace ellipses by letters."""
    widest = max((v.rank - len(t.replace("...", "")) for t, v in zip(terms, values) if "..." in t), default=0)
    signs = "".join(chr(0x3B1 + i) for i in range(widest))
    results = []
    for term, value in zip(terms, values):
        width = value.rank - len(term.replace("...", ""))
        results.append(term.replace("...", signs[widest - width :] if width > 0 else ""))
    return results, result.replace("...", signs)


def _contract(
    b: GraphBuilder, x: OnnxValue, first: str, y: OnnxValue, second: str, later: set[str]
) -> tuple[OnnxValue, str]:
    """Multiply two terms, and sum over the letters that are not used later."""
    both = [n for n in first if n in second]
    batch, inner = [n for n in both if n in later], [n for n in both if n not in later]
    rows, columns = [n for n in first if n not in second], [n for n in second if n not in first]
    left = transpose(x, [first.index(n) for n in (*batch, *rows, *inner)])
    right = transpose(y, [second.index(n) for n in (*batch, *inner, *columns)])
    k, m = len(batch), len(inner)

    def flat(v: OnnxValue, cut: int) -> OnnxValue:
        return reshape(v, tuple((math.prod(s[:k]), math.prod(s[k:cut]), math.prod(s[cut:])) for s in v.dims))

    result = b("batch_dot", flat(left, k + len(rows)), flat(right, k + m))
    sizes = {n: v.axis(t.index(n)) for v, t in ((x, first), (y, second)) for n in t}
    letters = "".join((*batch, *rows, *columns))
    shape: tuple[Dims, ...] = tuple(tuple(sizes[n][w] for n in letters) for w in range(b.trials))
    return reshape(result, shape), letters


TABLE: dict[str, Translator] = {"Einsum": _einsum, "Gemm": _gemm, "MatMul": _matmul}


# the domain ai.onnx.ml: operators that skl2onnx writes for linear models, perceptrons and scaling


def _rows(c: NodeCall) -> OnnxValue:
    """Return the data as a matrix of float32."""
    x = c.x
    if x.rank == 1:
        x = reshape(x, tuple((1, *s) for s in x.shapes))
    if x.rank != 2:
        raise Unsupported(f"data of shape {x.dims[0]}, expected rows of features")
    return x.cast("float32")


def _vector(c: NodeCall, name: str) -> OnnxValue:
    return c.b.constant(torch.tensor(c.attrs[name], dtype=torch.float32))


def _scaler(c: NodeCall) -> OnnxValue:
    x = c.x.cast("float32")
    if c.attrs.get("offset"):
        x = x - _vector(c, "offset")
    return x * _vector(c, "scale") if c.attrs.get("scale") else x


def _scores(c: NodeCall, rows: int) -> OnnxValue:
    """Return the raw scores of a linear model."""
    b, x = c.b, _rows(c)
    weights = torch.tensor(c.attrs["coefficients"], dtype=torch.float32)
    if not rows or weights.numel() % rows or x.size(1) != weights.numel() // rows:
        raise Unsupported(f"{weights.numel()} coefficients for {rows} results of {x.dims[0]}")
    name = b.reserve(f"{b.label}_coefficients")
    weight = b.parameter(name, weights.reshape(rows, -1), True)
    given = c.attrs.get("intercepts")
    if not given:
        return b("FullyConnected", x, weight, num_hidden=rows, no_bias=True)
    if len(given) != rows:
        raise Unsupported(f"{len(given)} intercepts for {rows} results")
    bias = b.parameter(b.reserve(f"{b.label}_intercepts"), torch.tensor(given, dtype=torch.float32), True)
    return b("FullyConnected", x, weight, bias, num_hidden=rows)


def _post_transform(c: NodeCall, scores: OnnxValue) -> OnnxValue:
    kind = c.attrs.get("post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind in ("SOFTMAX", "LOGISTIC"):
        options = {"axis": -1} if kind == "SOFTMAX" else {}
        return scores.apply("softmax" if options else "sigmoid", **options)
    raise Unsupported(f"post_transform {kind!r}")


def _classifier(c: NodeCall) -> list[OnnxValue]:
    b, a = c.b, c.attrs
    names = a.get("classlabels_ints") or list(range(len(a.get("classlabels_strings") or ())))
    rows = len(a.get("intercepts") or ()) or len(names)
    scores = _scores(c, rows)
    if rows == 1 and len(names) == 2:
        # one score decides between two classes
        kind = a.get("post_transform", "NONE")
        positive = _post_transform(c, scores) if kind == "LOGISTIC" else scores
        other = (1.0 if kind == "LOGISTIC" else 0.0) - positive
        both = b("Concat", other, positive, dim=1)
        chosen = scores > 0.0
        index = b("Reshape", chosen, shape=(-1,)).cast("int64")
        result = both if kind != "SOFTMAX" else _post_transform(c, both)
    else:
        index = b("argmax", scores, axis=1).cast("int64")
        result = _post_transform(c, scores)
    return [_class_numbers(b, index, names), result]


def _class_numbers(b: GraphBuilder, index: OnnxValue, names: list[int]) -> OnnxValue:
    """Replace positions of classes by class numbers."""
    if names == list(range(len(names))):
        return index
    return b("take", b.constant(torch.tensor(names, dtype=torch.int64)), index)


def _extractor(c: NodeCall) -> OnnxValue:
    b, x, index = c.b, c.x, c.value(1)
    flat = reshape(index, tuple((math.prod(s),) for s in index.shapes))
    result: OnnxValue = b("take", x, flat, axis=x.rank - 1, mode="wrap")
    # a single row of data is returned as a matrix of one row
    return reshape(result, tuple((1, *s) for s in result.shapes)) if x.rank == 1 else result


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


def _imputer(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    values = c.attrs.get("imputed_value_floats") or c.attrs.get("imputed_value_int64s")
    if not values or len(values) not in (1, x.size(x.rank - 1)):
        raise Unsupported(f"{len(values or ())} values for {x.dims[0]}")
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
        raise Unsupported("text keys or values are not supported")
    x = c.x
    dtype = "int64" if c.attrs.get("values_int64s") else "float32"
    default = c.attrs.get("default_int64" if dtype == "int64" else "default_float", -1)
    result = x.cast(dtype) * 0.0 + float(default)
    for key, value in zip(keys, values):
        hit = x.arith("equal", float(key)).cast(dtype)
        result = result + hit * float(value - default)
    return result


ML_TABLE: dict[str, Translator] = {
    "ArrayFeatureExtractor": _extractor,
    "Binarizer": lambda c: c.x > c.attrs["threshold"],
    "FeatureVectorizer": _vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _encoder,
    "LinearClassifier": _classifier,
    "LinearRegressor": lambda c: _post_transform(c, _scores(c, c.attrs.get("targets", 1))),
    "Normalizer": _normalizer,
    "Scaler": _scaler,
    "ZipMap": lambda c: c.x,
}
