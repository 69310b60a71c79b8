"""Products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .build import GraphBuilder
from .call import NodeCall, Translator
from .forms import expand, reshape, squeeze, transpose, unsqueeze
from .problems import Refused
from .value import OnnxValue, same_type
from .worlds import Dims


def product(x: OnnxValue, y: OnnxValue) -> OnnxValue:
    """Multiply matrices, or stacks of them that broadcast."""
    x, y = same_type(x, y)
    if x.rank == 0 or y.rank == 0:
        raise Refused("a product with an array without axes")
    if x.rank == 1 or y.rank == 1:
        left = unsqueeze(x, [0]) if x.rank == 1 else x
        right = unsqueeze(y, [1]) if y.rank == 1 else y
        gone = [n for n, v in ((-2, x), (-1, y)) if v.rank == 1]
        whole = product(left, right)
        return squeeze(whole, [n % whole.rank for n in gone])
    if any(n != m for n, m in zip(x.axis(x.rank - 1), y.axis(y.rank - 2))):
        raise Refused(f"a product of {x.dims[0]} and {y.dims[0]}")
    if y.rank == 2:
        weight = y.turned
        if weight is not None and weight.size(0) is not None:
            return x.b("FullyConnected", x, weight, num_hidden=weight.size(0), no_bias=True, flatten=False)
        return x.b("dot", x, y)
    return _stacked(x, y)


def _stacked(x: OnnxValue, y: OnnxValue) -> OnnxValue:
    shapes = []
    for s, t in zip(x.shapes, y.shapes):
        rank = max(len(s), len(t)) - 2
        s, t = (1,) * (rank + 2 - len(s)) + s, (1,) * (rank + 2 - len(t)) + t
        if any(m != n and 1 not in (m, n) for m, n in zip(s[:rank], t[:rank])):
            raise Refused(f"a product of {x.dims[0]} and {y.dims[0]}")
        shapes.append(tuple(max(m, n) for m, n in zip(s[:rank], t[:rank])))
    turned = y.turned
    right = turned if turned is not None else y
    x = expand(x, tuple((*stack, *s[-2:]) for stack, s in zip(shapes, x.shapes)))
    right = expand(right, tuple((*stack, *s[-2:]) for stack, s in zip(shapes, right.shapes)))
    name = "batch_dot" if x.rank == 3 else "_linalg_gemm2"
    return x.b(name, x, right, transpose_b=turned is not None)


def _matmul(c: NodeCall) -> OnnxValue:
    return product(c.x, c.value(1))


def _gemm(c: NodeCall) -> OnnxValue:
    b, x, weight, bias, a = c.b, c.x, c.value(1), c.maybe(2), c.attrs
    if x.rank != 2 or weight.rank != 2:
        raise Refused(f"a product of {x.dims[0]} and {weight.dims[0]}")
    if a["transA"]:
        x = transpose(x, (1, 0))
    hidden = weight.size(0)
    is_plain = a["alpha"] == 1 and (bias is None or a["beta"] == 1) and hidden is not None
    if is_plain and a["transB"]:
        if bias is None:
            return b("FullyConnected", x, weight, num_hidden=hidden, no_bias=True)
        if bias.rank == 1 and bias.size(0) == hidden:
            return b("FullyConnected", x, weight, bias, num_hidden=hidden)
    found = product(x, transpose(weight, (1, 0)) if a["transB"] else weight)
    if a["alpha"] != 1:
        found = found * a["alpha"]
    if bias is not None:
        found = found + (bias if a["beta"] == 1 else bias * a["beta"])
    return found


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
        raise Refused(f"equation {text!r} for {len(values)} inputs")
    terms, result = _spelled(terms, values, result)
    if any(len(set(t)) != len(t) or len(t) != v.rank for t, v in zip(terms, values)):
        raise Refused(f"equation {text!r}, with a letter twice in one term or another number of axes")
    value, letters = values[0], terms[0]
    for i in range(1, len(values)):
        later = set("".join(terms[i + 1 :])) | set(result)
        value, letters = _joined(b, value, letters, values[i], terms[i], later)
    gone = [i for i, n in enumerate(letters) if n not in result]
    if gone:
        value = b("sum", value, axis=tuple(gone)).as_scalar(len(gone) == len(letters))
        letters = "".join(n for n in letters if n in result)
    return transpose(value, [letters.index(n) for n in result])


def _spelled(terms: list[str], values: Sequence[OnnxValue], result: str) -> tuple[list[str], str]:
    """Put letters in place of ellipses."""
    widest = max((v.rank - len(t.replace("...", "")) for t, v in zip(terms, values) if "..." in t), default=0)
    signs = "".join(chr(0x3B1 + i) for i in range(widest))
    found = []
    for term, value in zip(terms, values):
        width = value.rank - len(term.replace("...", ""))
        found.append(term.replace("...", signs[widest - width :] if width > 0 else ""))
    return found, result.replace("...", signs)


def _joined(
    b: GraphBuilder, x: OnnxValue, first: str, y: OnnxValue, second: str, later: set[str]
) -> tuple[OnnxValue, str]:
    """Multiply two terms, and add up along the letters that nothing reads later."""
    both = [n for n in first if n in second]
    batch, inner = [n for n in both if n in later], [n for n in both if n not in later]
    rows, columns = [n for n in first if n not in second], [n for n in second if n not in first]
    left = transpose(x, [first.index(n) for n in (*batch, *rows, *inner)])
    right = transpose(y, [second.index(n) for n in (*batch, *inner, *columns)])
    k, m = len(batch), len(inner)

    def flat(v: OnnxValue, cut: int) -> OnnxValue:
        return reshape(v, tuple((math.prod(s[:k]), math.prod(s[k:cut]), math.prod(s[cut:])) for s in v.dims))

    made = b("batch_dot", flat(left, k + len(rows)), flat(right, k + m))
    sizes = {n: v.axis(t.index(n)) for v, t in ((x, first), (y, second)) for n in t}
    letters = "".join((*batch, *rows, *columns))
    shape: tuple[Dims, ...] = tuple(tuple(sizes[n][w] for n in letters) for w in range(b.worlds))
    return reshape(made, shape), letters


TABLE: dict[str, Translator] = {"Einsum": _einsum, "Gemm": _gemm, "MatMul": _matmul}
