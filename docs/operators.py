"""Write the operator reference from the registry: a page for each family, and an index of names.

``python docs/operators.py OUT`` writes ``OUT/*.md``; the build of the site calls `write`. Examples come from
docstrings, from the tables of the tests and from recorded calls of MXNet (`tests/helpers/op_tables.py`); each is run,
and the page shows its result.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule._core.lazy import modules_of
from dpmodule.autobatch.cell_symbol import BY_SHAPE, NORMALIZING
from dpmodule.base import MXNetError
from dpmodule.ops.registry import lazy_operators
from dpmodule.ops.spec import AUX, LABEL, NEVER, PARAM, REQUIRED, SHARE, Env, Input, Op

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).with_name("extensions")))
from since import since  # found by the lines above

from helpers.op_tables import arrays_of, recorded_calls, table_rows

FAMILIES = {
    "numpy": ("Operators of files written under set_np", r"numpy\."),
    "elementwise": ("Elementwise functions", r"math\.unary$|math\.relu|math\.pointwise"),
    "arithmetic": ("Arithmetic and comparison", r"math\.(binary|scalar|compare)$|sparse\.scatter"),
    "reduce": ("Sums, means, extremes", r"math\.reduce$"),
    "linear_algebra": ("Products and matrices", r"math\."),
    "array": ("Creation, shapes and indexing", r"array\."),
    "nn": ("Layers and losses", r"nn\."),
    "image": ("Images", r"imag"),
    "random": ("Random numbers", r"random"),
    "sparse": ("Sparse and ragged values", r"sparse\."),
    "contrib": ("Detection, attention and others", r"contrib$|contrib\."),
    "quantize": ("Quantized networks", r"quantize"),
    "update": ("Optimizer steps", r"update"),
    "control": ("Loops, branches, custom code", r""),
}
"""Title of each page, and a pattern for modules of `dpmodule.ops`; the first match determines an operator's page."""

SMALL = 24
"""Largest array whose numbers are written out in an example."""

WRITTEN = {
    "Custom": """\
import dpmodule as mx


class Twice(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], 2 * in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], 2 * out_grad[0])


@mx.operator.register("twice")
class TwiceProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Twice()


mx.nd.Custom(mx.nd.array([1, 2]), op_type="twice")""",
    "Dropout": """\
import dpmodule as mx

mx.random.seed(0)
with mx.autograd.train_mode():
    found = mx.nd.Dropout(mx.nd.ones((2, 6)), p=0.5)
found""",
    "_contrib_box_nms": """\
import dpmodule as mx

boxes = mx.nd.array([  # class, score, left, top, right, bottom
    [0, 0.9, 0.1, 0.1, 0.5, 0.5],
    [0, 0.8, 0.1, 0.1, 0.5, 0.6],
    [1, 0.7, 0.6, 0.6, 0.9, 0.9],
])
mx.nd.contrib.box_nms(boxes, overlap_thresh=0.5, id_index=0)""",
    "_cond": """\
import dpmodule as mx

x = mx.nd.array([3])
mx.nd.contrib.cond(x > 2, lambda: x * 10, lambda: x)""",
    "_foreach": """\
import dpmodule as mx

def running_sum(element, total):
    return total + element, total + element

sums, last = mx.nd.contrib.foreach(running_sum, mx.nd.array([1, 2, 3]), mx.nd.array([0]))
sums""",
    "_while_loop": """\
import dpmodule as mx

def below_ten(x):
    return x < 10

def double(x):
    return x, 2 * x

outputs, last = mx.nd.contrib.while_loop(below_ten, double, [mx.nd.array([1])], max_iterations=5)
last[0]""",
    "_sequence_chunks": """\
import dpmodule as mx

found = mx.nd.ragged_array([[0, 1, 2], [0]], dtype="int64")
right = mx.nd.ragged_array([[0, 1, 0], [2]], dtype="int64")
mx.nd._internal._sequence_chunks(found, right, scheme="IOB", num_chunk_types=1)""",
    "_sequence_rows": """\
import dpmodule as mx

mx.nd._internal._sequence_rows(mx.nd.ragged_array([[1, 2], [3, 4]]), shape=(2,))""",
    "sequence_conv": """\
import dpmodule as mx

data = mx.nd.ragged_array([[[1.0], [2.0], [3.0]], [[4.0]]])
mx.nd.sequence_conv(data, mx.nd.array([[1, 1, 1]]), mx.nd.array([0]), num_filters=1, filter_size=3)""",
    "sequence_concat": """\
import dpmodule as mx

mx.nd.sequence_concat(mx.nd.ragged_array([[1], [2, 3]]), mx.nd.ragged_array([[4, 5], []]))""",
    "sequence_crf": """\
import dpmodule as mx

scores = mx.nd.ragged_array([[[1.0, 2.0], [0.5, 0.0]], [[0.0, 1.0]]])
labels = mx.nd.ragged_array([[1, 0], [1]], dtype="int64")
mx.nd.sequence_crf(scores, labels, mx.nd.zeros((4, 2)))""",
    "sequence_crf_decode": """\
import dpmodule as mx

scores = mx.nd.ragged_array([[[1.0, 2.0], [0.5, 0.0]], [[0.0, 1.0]]])
mx.nd.sequence_crf_decode(scores, mx.nd.zeros((4, 2)))""",
    "sequence_ctc": """\
import dpmodule as mx

scores = mx.nd.ragged_array([[[1.0, 2.0], [0.5, 0.0], [3.0, 1.0]], [[0.0, 1.0]]])
mx.nd.sequence_ctc(scores, mx.nd.ragged_array([[1], [1]], dtype="int64"))""",
    "sequence_enumerate": """\
import dpmodule as mx

mx.nd.sequence_enumerate(mx.nd.ragged_array([[1, 2, 3], [4]]), win_size=2)""",
    "sequence_erase": """\
import dpmodule as mx

mx.nd.sequence_erase(mx.nd.ragged_array([[1, 2, 3], [2]]), tokens=(2,))""",
    "sequence_expand": """\
import dpmodule as mx

x = mx.nd.array([7, 8])
mx.nd.sequence_expand(x, mx.nd.ragged_array([[1, 2, 3], [4]]))""",
    "sequence_gru": """\
import dpmodule as mx

data = mx.nd.ragged_array([[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], [[1.0, 1.0, 1.0]]])
mx.nd.sequence_gru(data, mx.nd.ones((3, 1)), mx.nd.zeros((3,)))""",
    "sequence_lstm": """\
import dpmodule as mx

data = mx.nd.ragged_array([[[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]], [[1.0, 1.0, 1.0, 1.0]]])
h, cell = mx.nd.sequence_lstm(data, mx.nd.ones((4, 1)), mx.nd.zeros((4,)), use_peepholes=False)
h""",
    "sequence_pad": """\
import dpmodule as mx

padded, lengths = mx.nd.sequence_pad(mx.nd.ragged_array([[1, 2, 3], [4]]), mx.nd.array([9]), maxlen=3)
padded""",
    "sequence_pool": """\
import dpmodule as mx

mx.nd.sequence_pool(mx.nd.ragged_array([[1.0, 2.0], [], [5.0]]), pool_type="mean")""",
    "sequence_reshape": """\
import dpmodule as mx

mx.nd.sequence_reshape(mx.nd.ragged_array([[[1, 2], [3, 4]], [[5, 6]]]), new_dim=1)""",
    "sequence_reverse": """\
import dpmodule as mx

mx.nd.sequence_reverse(mx.nd.ragged_array([[1, 2, 3], [], [4, 5]]))""",
    "sequence_slice": """\
import dpmodule as mx

mx.nd.sequence_slice(mx.nd.ragged_array([[1, 2, 3], [4, 5]]), mx.nd.array([1, 0]), mx.nd.array([2, 1]))""",
    "sequence_softmax": """\
import dpmodule as mx

mx.nd.sequence_softmax(mx.nd.ragged_array([[1.0, 1.0], [], [5.0]]))""",
    "sequence_unpad": """\
import dpmodule as mx

mx.nd.sequence_unpad(mx.nd.array([[1, 2, 3], [4, 0, 0]]), mx.nd.array([3, 1]))""",
}
"""Examples of operators without a suitable call in the tables."""

_SECTION = re.compile(r"^(Shape|Raises|Example|Source|Note|Returns):[ \t]*", re.MULTILINE)
_INLINE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """One call of an operator: inputs in their order (name, array), attributes by name."""

    inputs: tuple[tuple[str, np.ndarray], ...]
    attrs: dict[str, Any]

    @property
    def size(self) -> int:
        """Number of elements of its inputs."""
        return sum(value.size for _, value in self.inputs)


def operators() -> dict[str, Op]:
    """Return every operator by its registry name."""
    by_name = {op.name: op for op in map(ops.get, ops.names())}
    return dict(sorted(by_name.items(), key=lambda item: _plain(item[0])))


def _plain(name: str) -> str:
    return name.strip("_").lower()


def anchor(op: Op) -> str:
    """Return the anchor of an operator on its page."""
    return "op-" + _plain(op.name).replace("_", "-")


def family(op: Op) -> str:
    """Return the page of an operator, without its extension."""
    homes = modules_of(lazy_operators())
    source = next((homes[name] for name in (op.name, *op.aliases) if name in homes), "")
    return next(name for name, (_, start) in FAMILIES.items() if re.match(start, source))


_BY_FUNCTIONS = ("_foreach", "_while_loop", "_cond")
"""Operators that are called through functions of ``contrib``, which create their subgraphs."""


def public_name(name: str, face: str = "nd") -> str:
    """Return the expression to call an operator by one of its names."""
    if name in _BY_FUNCTIONS:
        return f"mx.{face}.contrib.{name[1:]}"
    space, own = ops.registry.namespace_of(name)
    if space and hasattr(getattr(getattr(mx, face), space), own):
        return f"mx.{face}.{space}.{own}"
    return f"mx.{face}.{own}" if not space else f"mx.{face}._internal.{name}"


def names_of(op: Op) -> list[str]:
    """Return the names of an operator, the best name first."""
    every = (op.name, *op.aliases)
    return sorted(
        every, key=lambda name: (name.startswith("_"), name.startswith("_sparse_"), every.index(name))
    )


# --- examples ---------------------------------------------------------------------------------------------------------


@cache
def _calls() -> dict[str, list[Call]]:
    """Return the known calls of each operator, small ones first."""
    calls_of: dict[str, list[Call]] = {}
    for row in table_rows():
        op = ops.get(row.name)
        names = [one.name for one in _inputs(op, len(row.inputs), row.attrs)]
        calls_of.setdefault(op.name, []).append(Call(tuple(zip(names, row.inputs)), dict(row.attrs)))
    for group, case in recorded_calls():
        heads = mx.sym.load_json(case["symbol_json"]).graph
        node = heads.heads[0][0]
        if sum(each.op is not None for each in heads.nodes) != 1:
            continue
        data, prefix = arrays_of(group), case["name"]
        values = {**{k: data[f"{prefix}/in/{k}"] for k in case["arguments"]}}
        values.update({k: data[f"{prefix}/aux_in/{k}"] for k in case["aux"]})
        taken = [child.name for child, _ in node.inputs]
        names = [one.name for one in _inputs(node.op, len(taken), dict(node.params))]
        if set(taken) <= set(values):
            inputs = tuple((name, values[key]) for name, key in zip(names, taken))
            calls_of.setdefault(node.op.name, []).append(Call(inputs, dict(node.params)))
    for op in operators().values():
        if op.random and op.name not in calls_of:
            calls_of[op.name] = [_drawing(op)]
    for calls in calls_of.values():
        calls.sort(key=lambda call: (call.size, len(call.attrs)))
    return calls_of


def _drawing(op: Op) -> Call:
    """Return a call of a random operator, for which none is recorded."""
    value = np.array([0.2, 0.8]) if op.name.startswith("_sample_") else np.array([[1.0, 2.0], [3.0, 4.0]])
    values = {"low": 0, "high": 10, "range_max": 100, "shape": (1, 3) if "unique" in op.name else (2, 2)}
    attrs = {
        key: values[key]
        for key in op.attrs
        if key in values and (key == "shape" or op.attrs[key].default is REQUIRED)
    }
    if op.is_numpy:
        values = {"low": 0, "high": 1, "loc": 0, "scale": 1, "shape": 2, "a": 2, "prob": 0.5, "logit": None}
        values |= {"is_logit": False, "n": 5, "pvals": (0.2, 0.8), "size": (2, 2)}
        return Call((), {key: value for key, value in values.items() if key in op.attrs})
    if op.name.startswith("_image_"):
        return Call((("data", np.arange(12.0).reshape(2, 2, 3)),), {})
    return Call(tuple((one.name, value) for one in op.inputs if isinstance(one, Input)), attrs)


def _inputs(op: Op, count: int, attrs: dict[str, Any]) -> tuple[Input, ...]:
    """Return the inputs of a call, with their names."""
    if op.variadic is not None and op.variadic.count:
        attrs = {**attrs, op.variadic.count: op.variadic.units(count)}
    return op.active_inputs(op.parse(attrs), count)


def _literal(value: np.ndarray) -> str:
    """Return Python code that creates an array for an example: its numbers, or random ones if there are many."""
    name = {"float64": "float32"}.get(value.dtype.name, value.dtype.name)
    dtype = "" if name == "float32" else f', dtype="{name}"'
    if value.size == 0:
        return f"mx.nd.zeros({value.shape}{dtype})"
    if value.size > SMALL and value.dtype.kind == "f":
        return f"mx.nd.random.uniform(-1, 1, shape={value.shape}{dtype})"
    rounded = value.astype("float64").round(2) if value.dtype.kind == "f" else value
    numbers = str(rounded.tolist())
    if value.ndim > 1 and len(numbers) > 60:  # one row per line
        numbers = "[\n" + "".join(f"    {row},\n" for row in rounded.tolist()) + "]"
    text = re.sub(r"\b(nan|inf)\b", r'float("\1")', numbers)
    return f"mx.nd.array({text}{dtype})"


def _said(op: Op, call: Call) -> dict[str, Any]:
    """Return the attributes of a call that differ from their defaults."""
    counted = op.variadic.count if op.variadic is not None else None
    values = {}
    for key, given in call.attrs.items():
        if key == counted or key.startswith("__"):
            continue
        attr = op.attrs.get(key)
        value = attr.type.parse(given) if attr is not None else given
        if attr is None or attr.default is REQUIRED or value != attr.default:
            values[key] = value
    return values


def code_of(op: Op, call: Call) -> str:
    """Return the Python lines of a call; the last one is the call."""
    lines = [f"{name} = {_literal(value)}" for name, value in call.inputs]
    arguments = [name for name, _ in call.inputs]
    arguments += [f"{key}={value!r}" for key, value in _said(op, call).items()]
    if op.random or any("mx.nd.random" in line for line in lines):
        lines = ["mx.random.seed(0)", *lines]
    call_line = f"{public_name(names_of(op)[0])}({', '.join(arguments)})"
    return "\n".join(["import dpmodule as mx", "", *lines, call_line])


def shown(code: str) -> str:
    """Run an example, and return the value of its last line as text.

    Raises:
        MXNetError: the example fails.
    """
    *before, last = code.splitlines()
    space: dict[str, Any] = {}
    exec("\n".join(before), space)  # the examples are written above
    result = eval(last, space)
    outputs = result if isinstance(result, (list, tuple)) else [result]
    return "\n".join(map(_text, outputs))


def _text(value: Any) -> str:
    if value.stype == "ragged":
        return f"ragged rows {value.tolist()}"
    if value.stype != "default":
        return repr(value).strip()
    if value.size > 2 * SMALL:
        return f"{value.dtype.__name__} of shape {value.shape}"
    return np.array2string(value.asnumpy(), precision=4, suppress_small=True, separator=", ")


@cache
def example(op: Op) -> tuple[str, str]:
    """Return an example and its result, ("", "") if none is known."""
    own = [line.strip() for line in sections(op.doc).get("Example", "").splitlines()]
    if own and own[0].startswith(">>>"):
        return "\n".join(own), ""
    if op.name in WRITTEN:
        return WRITTEN[op.name], shown(WRITTEN[op.name])
    for call in _calls().get(op.name, ())[:6]:
        code = code_of(op, call)
        with contextlib.suppress(MXNetError), contextlib.redirect_stderr(io.StringIO()):
            return code, shown(code)
    return "", ""


# --- facts about an operator ------------------------------------------------------------------------------------------


@cache
def gradient(op: Op) -> str:
    """Return a phrase about gradients, found by differentiating the known calls."""
    if op.loss is not None:
        return "its own, since it is a loss: the output gradient is ignored" + (
            "" if op.loss.when is None else ", depending on its attributes"
        )
    if not op.differentiable:
        return "none; binding a graph for gradients through it is an error"
    if op.num_subgraphs or op.read_attrs is not None:
        return "that of its subgraph or function"
    if family(op) == "update":
        return "not used: the operator is an optimizer step"
    if op.name.startswith("sequence_"):
        return "of `x`" if op.name == "sequence_expand" else "of every input"
    moved: set[str] = set()
    still: set[str] = set()
    for call in _calls().get(op.name, ())[:6]:
        for name, found in _gradients_of(op, call).items():
            if found is not None:
                (moved if found else still).add(name)
    if moved:
        return "of " + ", ".join(f"`{name}`" for name in sorted(moved))
    return "zero everywhere" if still else "none"


def _gradients_of(op: Op, call: Call) -> dict[str, bool | None]:
    """Return for each float input True if its gradient is not zero; None if it has no gradient."""
    tensors = [torch.from_numpy(np.array(value)) for _, value in call.inputs]
    if not any(each.is_floating_point() for each in tensors) and "quantize" not in op.name:
        tensors[:1] = [each.double() for each in tensors[:1]]
    kinds = [one.kind for one in _inputs(op, len(tensors), call.attrs)]
    for tensor, kind in zip(tensors, kinds):
        tensor.requires_grad_(tensor.is_floating_point() and kind != AUX)
    try:
        outputs = _outputs_of(op, call, tensors)
    except (MXNetError, RuntimeError, TypeError):
        return {}
    torch.manual_seed(1)
    weighted = [
        (each * torch.rand_like(each)).sum() for each in outputs if each is not None and each.requires_grad
    ]
    if weighted:
        sum(weighted, torch.zeros(())).backward()
    return {
        name: None if tensor.grad is None else bool(tensor.grad.to_dense().abs().sum() > 0)
        for (name, _), tensor in zip(call.inputs, tensors)
    }


def _outputs_of(op: Op, call: Call, tensors: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    a = _attributes(op, call)
    bound = None if op.bind is None else op.bind(a)
    if bound is not None:
        outputs = bound(*tensors)
    else:
        shapes = ops.shapes.infer_shape(
            op, a, [tuple(t.shape) for t in tensors], [None] * len(op.output_names(a))
        )[1]
        env = Env(torch.device("cpu"), torch.Generator().manual_seed(0), True, tuple(shapes))
        outputs = op.run(a, env, *tensors)
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _attributes(op: Op, call: Call, count: int | None = None) -> Any:
    attrs = call.attrs
    if op.variadic is not None and op.variadic.count:
        attrs = {**attrs, op.variadic.count: op.variadic.units(len(call.inputs) if count is None else count)}
    return op.parse(attrs)


def batch_rule(op: Op) -> str:
    """Return the rule by which automatic batching joins several calls."""
    inputs = () if callable(op.inputs) else op.inputs
    rules = {one.batch for one in inputs} | ({op.variadic.batch} if op.variadic is not None else set())
    shared = ", ".join(f"`{one.name}`" for one in inputs if one.batch == SHARE)
    with_shared = f"; {shared} shared" if shared else ""
    if op.name in NORMALIZING:
        return f"one call, with the statistics of all rows{with_shared}"
    if op.batch == NEVER:
        return "one example at a time"
    if rules <= {"rows", SHARE}:
        return f"one call for all rows{with_shared}"
    if op.name in BY_SHAPE:
        return f"one call for all rows if axes and shapes allow it, otherwise stacked by `torch.vmap`{with_shared}"
    return f"stacked by `torch.vmap`{with_shared}"


def onnx(op: Op) -> str:
    """Return the export of an operator to ONNX, or the reason why there is none."""
    record = op.onnx
    if record is None or record.missing:
        return f"none: {record.missing}" if record is not None else "none"
    if not record.type:
        return "one or several operators, depending on its attributes"
    return f"`{record.type}`" + (", with additional operators for some attributes" if record.builder else "")


@cache
def storages(op: Op) -> str:
    """Return the storage types that an operator supports directly."""
    calls = _calls().get(op.name) or [Call((), {})]
    count = 2 if op.variadic is not None else len(calls[0].inputs)
    kinds = ("default", "csr", "row_sparse")
    supported = []
    for stypes in itertools.product(kinds, repeat=count) if count <= 3 else ():
        result = None if set(stypes) == {"default"} else _stored(op, calls, stypes)
        if result is not None:
            supported.append(f"{_joined(stypes)} → {_joined(result)}")
    ragged = _stored(op, calls, ("ragged",) * count) or _stored(
        op, calls, ("ragged", *["default"] * (count - 1))
    )
    if family(op) == "update" and _is_lazy(op):
        supported.append("a row_sparse gradient: only its stored rows change")
    if ragged is not None or op.name.startswith("sequence_") or op.name == "RNN":
        supported.append("ragged")
    return "; ".join(supported) or "none"


def _is_lazy(op: Op) -> bool:
    """Return True if an optimizer step changes only the rows that a row-sparse gradient stores."""
    return "lazy_update" in op.attrs or any(
        "sparse_" in name or "group_" in name for name in (op.name, *op.aliases)
    )


def _joined(stypes: tuple[str, ...]) -> str:
    return ", ".join("dense" if stype == "default" else stype for stype in stypes)


def _stored(op: Op, calls: list[Call], stypes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the storage of outputs for given inputs; None if dense copies are used or none is supported."""
    for call in calls[:6]:
        with contextlib.suppress(MXNetError, IndexError, AttributeError, TypeError):
            rule = ops.sparse.rule_of(op, stypes)
            storage = None if rule is None else rule.storage(_attributes(op, call, len(stypes)), stypes)
            if storage is not None:
                return storage
    return None


# --- pages ------------------------------------------------------------------------------------------------------------


def sections(doc: str) -> dict[str, str]:
    """Split a docstring into its parts by heading; "" is the text before the first heading."""
    parts = _SECTION.split(doc)
    by_heading = {"": parts[0].strip()}
    for heading, text in zip(parts[1::2], parts[2::2]):
        by_heading[heading] = text.strip("\n")
    return by_heading


def prose(text: str) -> str:
    """Return text of a docstring as Markdown, with Markdown characters outside code escaped."""
    parts = _INLINE.split(text)
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _cell(text: str) -> str:
    return prose(" ".join(text.split())).replace("|", r"\|")


def _entries(text: str) -> str:
    """Return the lines ``name: description`` of a section as a list."""
    rows: list[str] = []
    for line in re.sub(r"^    ", "", text, flags=re.MULTILINE).splitlines():
        if line.startswith((" ", "\t")) and rows:
            rows[-1] += " " + line.strip()
        elif line.strip():
            rows.append(line.strip())
    return "\n".join(f"- {prose(row)}" for row in rows)


def _attribute_table(op: Op) -> str:
    rows = ["| attribute | meaning | values | default |", "|---|---|---|---|"]
    for key, attr in op.attrs.items():
        default = "required" if attr.default is REQUIRED else f"`{attr.default!r}`"
        rows.append(f"| `{key}` | {_cell(attr.doc)} | {_cell(attr.type.expects)} | {default} |")
    return "\n".join(rows)


def _signature(op: Op) -> str:
    kinds = {PARAM: "parameter", AUX: "auxiliary state", LABEL: "label"}
    if op.variadic is not None:
        group = ", ".join(f"`{one.name}`" for one in op.variadic.group)
        return f"any number, in groups of {group}" if group else "any number"
    if callable(op.inputs):
        return "depend on the attributes"
    named = [
        f"`{one.name}`"
        + (f" ({kinds[one.kind]}{', optional' if one.when else ''})" if one.kind in kinds else "")
        for one in op.inputs
    ]
    return ", ".join(named) or "none"


def entry(op: Op) -> str:
    """Return the entry of an operator in the reference."""
    parts = sections(op.doc)
    first, *others = names_of(op)
    code, output = example(op)
    facts = [
        ("Call", f"`{public_name(first)}`, `{public_name(first, 'sym')}`"),
        ("Other names", ", ".join(f"`{name}`" for name in others) or "–"),
        ("Inputs", _signature(op)),
        ("Gradient", gradient(op)),
        ("Automatic batching", batch_rule(op)),
        ("ONNX", onnx(op)),
        ("Storage types", storages(op)),
        ("Since", since(f"operators.{first}")),
    ]
    lines = [f"({anchor(op)})=", f"## {prose(op.name)}", "", prose(parts[""]), ""]
    lines += [
        "| | |",
        "|---|---|",
        *(f"| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in facts),
    ]
    if op.attrs:
        lines += ["", _attribute_table(op)]
    for heading in ("Shape", "Raises"):
        if heading in parts:
            lines += ["", f"**{heading}**", "", _entries(parts[heading])]
    if code:
        language = "pycon" if code.startswith(">>>") else "python"
        lines += ["", f"```{language}", code, "```"]
    if output:
        lines += ["", "```text", output, "```"]
    if "Source" in parts:
        lines += ["", f"*Source:* {prose(' '.join(parts['Source'].split()))}"]
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """Return the text of every page by file name."""
    of: dict[str, list[Op]] = {name: [] for name in FAMILIES}
    for op in operators().values():
        of[family(op)].append(op)
    texts = {"index.md": _index(of)}
    for name, members in of.items():
        title = FAMILIES[name][0]
        texts[f"{name}.md"] = "\n".join([f"# {title}", "", _ABOUT, "", *map(entry, members)])
    return texts


_ABOUT = (
    "This page is generated from the declarations of the operators; the [index](index.md) explains the rows and lists "
    "all names. Every example was run for this page."
)

_HEAD = """# Operators

Each operator is declared once, in `dpmodule.ops`, with its attributes, shapes and rules. `mx.nd` runs it on arrays,
`mx.sym` creates a node, under the same names as in MXNet 1.9.1.

| row | meaning |
|---|---|
| Call | the functions for arrays and symbols; both take the inputs first, then the attributes, by position or by name |
| Other names | MXNet's other names of the operator; files that use them load |
| Inputs | if a parameter, label or auxiliary state of a symbol is omitted, a variable such as `fc_weight` is created |
| Gradient | the inputs with a gradient. A loss defines its own and ignores the output gradient |
| Automatic batching | the rule to join calls for many examples in [autobatch](../../autobatch.md) |
| ONNX | its [export](../../interop.md), or the reason why there is none |
| Storage types | supported sparse and ragged inputs; other sparse inputs become dense copies |

"""


def _index(of: dict[str, list[Op]]) -> str:
    lines = [_HEAD, "## Families", "", "```{toctree}", ":maxdepth: 1", ""]
    lines += [*of, "```", "", "## By name", "", "All names, including old ones, and their operators.", ""]
    lines += ["| name | operator | family |", "|---|---|---|"]
    rows = []
    for name, members in of.items():
        for op in members:
            for each in (op.name, *op.aliases):
                link = f"[{prose(op.name)}]({name}.md#{anchor(op)})"
                rows.append((_plain(each), each, f"| `{each}` | {link} | {FAMILIES[name][0]} |"))
    return "\n".join([*lines, *(row for *_, row in sorted(rows))]) + "\n"


def write(out: Path) -> list[Path]:
    """Write the pages that have changed into a folder; return all paths."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of examples: their warnings are documented with the operators
        texts = pages()
    for name, text in texts.items():
        path = out / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/operators.py OUT")
    sys.stdout.write(f"{len(write(Path(sys.argv[1])))} pages in {sys.argv[1]}\n")
