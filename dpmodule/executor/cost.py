"""Cost of a graph from its shapes alone: operations of its operators, and memory of intermediate values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..base import Shape, np_dtype
from ..graph import Graph, Node, infer_shapes, infer_types
from ..ops.shapes import known, prod
from .gradients import dependents_of, reached_by_gradients

Dims = tuple[int, ...]
Formula = Callable[[Any, Sequence[Dims], Sequence[Dims]], int]
Shapes = Mapping[Node, Sequence[Shape]]

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _convolution(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    """Count one filter, whose size is the weight's without axis 0, per element of the result."""
    return 2 * prod(outs[0]) * prod(ins[1][1:])


def _deformable(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    weight = next(s for s in ins[1:] if s[0] == a.num_filter and s[2:] == tuple(a.kernel))
    return 2 * prod(outs[0]) * prod(weight[1:])


def _dot(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[0][0 if a.transpose_a else -1]


def _gemm(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[0][a.axis if a.transpose_a else -1]


def _triangle(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return prod(outs[0]) * ins[0][-1]  # half of the matrix is zero


def _attention_scores(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    joined = 3 if len(ins) == 1 else 1  # queries, keys and values in one array, or queries in a separate one
    return 2 * prod(outs[0]) * (ins[0][-1] // (joined * int(a.heads)))


def _attention_values(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[1][-1]


def _recurrent(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    *steps, width = ins[0]  # ragged data counts one step per row
    hidden, directions = int(a.state_size), 1 + bool(a.bidirectional)
    out = int(a.projection_size or hidden)
    total = 0
    for _ in range(a.num_layers):
        each = _GATES[a.mode] * hidden * (width + out) + (hidden * out if a.projection_size else 0)
        total += directions * each
        width = directions * out
    return 2 * prod(steps) * total


def _pooling(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return prod(ins[0]) if a.global_pool else prod(outs[0]) * prod(a.kernel)


def _reduction(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return prod(ins[0])


def _zero(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 0


_PRODUCTS: dict[str, Formula] = {
    "Convolution": _convolution,
    "Correlation": lambda a, ins, outs: 2 * prod(outs[0]) * ins[0][1] * int(a.kernel_size) ** 2,
    "Deconvolution": lambda a, ins, outs: 2 * prod(ins[0]) * prod(ins[1][1:]),
    "FullyConnected": _convolution,
    "RNN": _recurrent,
    "_contrib_DeformableConvolution": _deformable,
    "_contrib_ModulatedDeformableConvolution": _deformable,
    "_contrib_interleaved_matmul_encdec_qk": _attention_scores,
    "_contrib_interleaved_matmul_encdec_valatt": _attention_values,
    "_contrib_interleaved_matmul_selfatt_qk": _attention_scores,
    "_contrib_interleaved_matmul_selfatt_valatt": _attention_values,
    "_contrib_quantized_conv": _convolution,
    "_contrib_quantized_fully_connected": _convolution,
    "_linalg_gemm": _gemm,
    "_linalg_gemm2": _gemm,
    "_linalg_syrk": lambda a, ins, outs: 2 * prod(outs[0]) * ins[0][-2 if a.transpose else -1],
    "_linalg_trmm": _triangle,
    "_linalg_trsm": _triangle,
    "_np_dot": lambda a, ins, outs: 2 * prod(outs[0]) * (ins[0][-1] if ins[0] else 1),
    "_npi_matmul": lambda a, ins, outs: 2 * prod(outs[0]) * ins[0][-1],
    "batch_dot": lambda a, ins, outs: 2 * prod(outs[0]) * ins[0][-2 if a.transpose_a else -1],
    "dot": _dot,
    "sequence_conv": _convolution,
}
"""Operators that multiply two inputs; the gradient of each input costs as much as the result."""

_REDUCTIONS = """
_contrib_AdaptiveAvgPooling2D _square_sum argmax argmax_channel argmin max mean min moments multi_sum_sq nanprod nansum
norm prod softmax_cross_entropy sum _np_all _np_any _np_max _np_min _np_prod _np_sum _npi_argmax _npi_argmin
_npi_average _npi_mean _npi_norm _npi_std _npi_var
"""

MOVES = frozenset(
    """
    BlockGrad Cast Concat Crop Embedding Flatten Pad Reshape SequenceLast SequenceMask SequenceReverse
    SliceChannel SwapAxis UpSampling _CrossDeviceCopy _arange _contrib_SparseEmbedding
    _contrib_arange_like _contrib_boolean_mask _contrib_index_array _contrib_index_copy
    _contrib_quantized_concat _contrib_quantized_embedding _contrib_quantized_flatten _copy _copyto
    _cvcopyMakeBorder _eye _full _identity_with_attr_like_rhs _image_crop _image_flip_left_right
    _image_flip_top_bottom _linspace _ones _rnn_param_concat _scatter_set_nd _slice_assign
    _slice_assign_scalar _sparse_retain _split_v2 _zeros _zeros_without_dtype amp_cast amp_multicast
    batch_take broadcast_axis broadcast_like broadcast_to cast_storage depth_to_space diag expand_dims
    gather_nd im2col make_loss MakeLoss one_hot ones_like pick repeat reshape_like reverse scatter_nd
    shape_array size_array slice slice_axis slice_like space_to_depth squeeze stack take tile transpose
    where zeros_like
    _np_atleast_1d _np_atleast_2d _np_atleast_3d _np_copy _np_diag _np_diagflat _np_diagonal _np_moveaxis _np_reshape
    _np_roll _np_squeeze _np_transpose _npi_arange _npi_array_split _npi_broadcast_to _npi_column_stack
    _npi_concatenate _npi_delete _npi_dsplit _npi_dstack _npi_eye _npi_flip _npi_full_like _npi_hsplit _npi_hstack
    _npi_identity _npi_insert_scalar _npi_insert_slice _npi_insert_tensor _npi_ones _npi_pad _npi_repeats
    _npi_rollaxis _npi_rot90 _npi_stack _npi_tril _npi_triu _npi_vstack _npi_where _npi_where_lscalar
    _npi_where_rscalar _npi_zeros
    """.split()  # noqa: SIM905
)
"""Operators that only move or create values."""

_FORMULAS: dict[str, Formula] = {
    **_PRODUCTS,
    **dict.fromkeys(("Pooling", "Pooling_v1", "_contrib_quantized_pooling"), _pooling),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction),
    **dict.fromkeys(MOVES, _zero),
}


def _subgraph_flops(graph: Graph, ins: Sequence[Dims], order: Sequence[int] | None = None) -> int:
    """Count one run of a subgraph for input shapes `ins`, which belong to the inputs `order`."""
    names = [node.name for node in graph.inputs]
    given = {names[i]: shape for i, shape in zip(range(len(ins)) if order is None else order, ins)}
    return sum(forward_flops(graph, infer_shapes(graph, given)).values())


def _control_flow(node: Node, ins: Sequence[Dims]) -> int:
    a, bodies = node.a, node.subgraphs
    if node.op is not None and node.op.name == "_foreach":
        num_data = len(a.in_data_locs)
        elements = [s[1:] or (1,) if i < num_data else s for i, s in enumerate(ins)]
        return ins[0][0] * _subgraph_flops(
            bodies[0], elements, (*a.in_data_locs, *a.in_state_locs, *a.remain_locs)
        )
    test = _subgraph_flops(bodies[0], [ins[i] for i in a.cond_input_locs])
    if node.op is not None and node.op.name == "_while_loop":
        body = _subgraph_flops(bodies[1], [ins[i] for i in a.func_input_locs])
        return int(a.max_iterations * (test + body))
    branches = zip(bodies[1:], (a.then_input_locs, a.else_input_locs))
    return test + max(_subgraph_flops(body, [ins[i] for i in locs]) for body, locs in branches)


def _node_flops(node: Node, shapes: Shapes) -> int:
    """Count the operations of one node's operator; 0 if a shape is unknown."""
    ins = [shapes[child][i] for child, i in node.inputs]
    outs = list(shapes[node])
    if node.op is None or not all(map(known, (*ins, *outs))):
        return 0
    sizes = [s for s in ins if s is not None]
    results = [s for s in outs if s is not None]
    if node.subgraphs:
        return _control_flow(node, sizes)
    formula = _FORMULAS.get(node.op.kind)
    return sum(map(prod, results)) if formula is None else int(formula(node.a, sizes, results))


def forward_flops(graph: Graph, shapes: Shapes) -> dict[Node, int]:
    """Return the number of operations of each operator in forward.

    Args:
        shapes: shapes of every node's outputs, from `infer_shapes`.
    """
    return {node: _node_flops(node, shapes) for node in graph.nodes if node.op is not None}


def backward_flops(graph: Graph, forward: Mapping[Node, int], wanted: Collection[str]) -> dict[Node, int]:
    """Return the approximate number of operations of each operator in backward.

    The gradient of each factor of a product costs as much as forward; all other gradients together cost as much as
    forward.
    """
    reached = reached_by_gradients(graph)
    leads = {node for node in dependents_of(graph, wanted) if node.op is None or node in reached}
    operations = {}
    for node, flops in forward.items():
        needing = [child in leads for child, _ in node.inputs] if node in reached else []
        if node.subgraphs:
            factor = 2 * any(needing)
        elif node.op is not None and node.op.name in _PRODUCTS:
            factor = 2 * sum(needing) if len(needing) == 1 else sum(needing[:2])
        else:
            factor = int(any(needing))
        operations[node] = factor * flops
    return operations


def item_size(dtype: str) -> int:
    """Return the size of an element of a type in bytes."""
    return 2 if dtype == "bfloat16" else int(np_dtype(dtype)().itemsize)


def intermediate_bytes(
    graph: Graph, shapes: Mapping[str, Shape], types: Mapping[str, str], training: bool
) -> int:
    """Return the memory of the operators' results in bytes, from their shapes.

    Args:
        shapes: shape of every argument and auxiliary state.
        types: dtype name of every argument and auxiliary state.
        training: True to keep all values that a gradient reaches for backward. Other values are freed after their last
            reader; the result is the peak.
    """
    outs, kinds = infer_shapes(graph, shapes), infer_types(graph, types)

    def size(node: Node) -> int:
        known_outputs = zip(outs[node], kinds[node])
        return sum(
            prod(s) * item_size(t or "float32") for s, t in known_outputs if s is not None and known(s)
        )

    steps = [node for node in graph.nodes if node.op is not None]
    kept = reached_by_gradients(graph) if training else set()
    readers = Counter(child for node in steps for child, _ in node.inputs if child.op is not None)
    readers.update(node for node, _ in graph.heads)
    live = peak = 0
    for node in steps:
        live += size(node)
        peak = max(peak, live)
        for child, _ in node.inputs:
            if child.op is not None:
                readers[child] -= 1
                live -= size(child) if not readers[child] and child not in kept else 0
    return peak


_VIEWS = frozenset(
    """
    BlockGrad Flatten LinearRegressionOutput MAERegressionOutput MakeLoss Reshape SliceChannel SwapAxis
    _copy _identity_with_attr_like_rhs _split_v2 broadcast_axis broadcast_like broadcast_to expand_dims
    make_loss reshape_like slice slice_axis slice_like squeeze transpose
    _np_copy _np_moveaxis _np_reshape _np_squeeze _np_transpose _npi_broadcast_to _npi_dsplit _npi_hsplit
    """.split()  # noqa: SIM905
)
"""Operators whose result usually shares the memory of their first input."""

_SUMS = frozenset(["_grad_add", "_minus_scalar", "_plus_scalar", "add_n", "broadcast_add", "elemwise_add"])
"""Operators that pass their output's gradient on unchanged."""

_KEEPING_NOTHING = (
    MOVES
    | _SUMS
    | frozenset(
        """
    Dropout _div_scalar _mul_scalar _rminus_scalar broadcast_sub elemwise_sub mean negative sum
    """.split()  # noqa: SIM905
    )
)
"""Operators that keep none of their inputs for backward."""

_KEEPING_OUTPUT = frozenset(
    """
    Activation SoftmaxActivation cbrt exp expm1 log_softmax reciprocal relu rsqrt sigmoid softmax softmin
    sqrt tanh
    """.split()  # noqa: SIM905
)
"""Operators that keep their output for backward, instead of their inputs."""

_RECURRENT = {"lstm": (18, 4), "gru": (8, 3), "rnn_relu": (2, 2), "rnn_tanh": (2, 2)}
"""Memory of a recurrent layer as multiples of its result: kept for backward, and temporary without; torch 2.13, CPU."""

Entry = tuple[Node, int]


Held = Mapping[tuple[str, str], int]
"""Bytes by kind of holder and name of its node."""


class WorkingMemory(NamedTuple):
    """Peak memory of the tensors made in a run, in bytes.

    Attributes:
        backward: peak from the end of forward to the end of backward; 0 without backward.
        held_forward: holders at the peak of forward: each "value" of a node, and other data "kept" for its gradient.
        held_backward: the same in backward, with each "gradient"; that of an argument is a "new gradient".
    """

    forward: int
    backward: int
    held_forward: Held
    held_backward: Held


class _MemoryMeter:
    """Tracks live memory and its peak, in bytes."""

    def __init__(self, sizes: Mapping[Entry, int]) -> None:
        self.sizes = sizes
        self.users: Counter[Entry] = Counter()
        self.live = self.peak = 0
        self._changes: list[tuple[str, str, int]] = []
        self._at_peak = 0

    def change(self, what: str, node: Node, size: int) -> None:
        """Count memory that a node takes, or frees if the size is negative."""
        self.live += size
        self._changes.append((what, node.name, size))
        if self.live > self.peak:
            self.peak, self._at_peak = self.live, len(self._changes)

    def release(self, entry: Entry) -> None:
        """Remove one user of a value; without users, its memory is freed."""
        self.users[entry] -= 1
        if not self.users[entry]:
            self.change("value", entry[0], -self.sizes[entry])

    def take_peak(self) -> tuple[int, Held]:
        """Return the peak and its holders, and start a new peak at the current memory."""
        peak, held = self.peak, Counter[tuple[str, str]]()
        for what, name, size in self._changes[: self._at_peak]:
            held[what, name] += size
        self.peak, self._at_peak = self.live, len(self._changes)
        return peak, held


def _owner(entry: Entry) -> Entry:
    """Return the value whose memory a value shares."""
    while entry[0].op is not None and entry[0].op.name in _VIEWS:
        entry = entry[0].inputs[0]
    return entry


def _extra(node: Node, sizes: Mapping[Entry, int]) -> int:
    """Return the memory that an operator keeps for backward in addition to inputs and outputs, in bytes."""
    op, a = node.op, node.a
    if op is None:
        return 0
    if op.name == "Pooling" and a.pool_type == "max":
        return 2 * sizes[node, 0]  # positions are 64-bit integers
    if op.name == "Dropout":
        return sizes[node, 0]
    if op.name == "RNN":
        return sizes[node, 0] * int(a.num_layers) * _RECURRENT[a.mode][0]
    return 0


def _temporary(node: Node, sizes: Mapping[Entry, int]) -> int:
    """Return the temporary memory of an operator that keeps nothing for backward, in bytes."""
    is_rnn = node.op is not None and node.op.name == "RNN"
    return sizes[node, 0] * _RECURRENT[node.a.mode][1] if is_rnn else 0


def _kept(node: Node) -> set[Entry]:
    """Return the values made by operators that a node keeps for backward."""
    if node.op is None or node.op.kind in _KEEPING_NOTHING:
        return set()
    entries = [(node, 0)] if node.op.kind in _KEEPING_OUTPUT else node.inputs
    return {entry for entry in map(_owner, entries) if entry[0].op is not None}


def working_bytes(
    graph: Graph,
    shapes: Mapping[Node, Any],
    types: Mapping[Node, Any],
    training: bool,
    wanted: Collection[str] = (),
) -> WorkingMemory:
    """Estimate the peak memory of the tensors made in a run, in bytes.

    Values live until their last reader and gradient have used them; outputs live on. Temporary memory of kernels and
    savings of passes are not counted.

    Args:
        shapes: shapes of every node's outputs.
        types: dtype names of every node's outputs.
    """
    sizes = {
        (node, i): 0 if shape is None else prod(shape) * item_size(types[node][i] or "float32")
        for node in graph.nodes
        for i, shape in enumerate(shapes[node])
    }
    reached = reached_by_gradients(graph) if training else set()
    leads = {node for node in dependents_of(graph, wanted) if node.op is None or node in reached}
    recorded = [node for node in graph.nodes if node.op is not None and node in leads]
    meter = _MemoryMeter(sizes)
    meter.users.update(_owner(entry) for entry in graph.heads)
    for node in graph.nodes:
        meter.users.update(_owner(entry) for entry in node.inputs)
    for node in recorded:
        meter.users.update(_kept(node))
    for node in graph.nodes:
        if node.op is not None:
            _forward(meter, node, node in leads)
    forward, held = meter.take_peak()
    if not recorded:
        return WorkingMemory(forward, 0, held, {})
    _backward(meter, graph, recorded, leads)
    backward, held_backward = meter.take_peak()
    return WorkingMemory(forward, backward, held, held_backward)


def _forward(meter: _MemoryMeter, node: Node, recorded: bool) -> None:
    own = [(node, i) for i in range(node.num_outputs) if _owner((node, i)) == (node, i)]
    meter.users.update(own)  # while the operator runs
    temporary = 0 if recorded else _temporary(node, meter.sizes)
    meter.change("value", node, sum(meter.sizes[e] for e in own))
    meter.change("kept", node, _extra(node, meter.sizes) if recorded else temporary)
    meter.change("kept", node, -temporary)
    for entry in (*own, *map(_owner, node.inputs)):
        if entry[0].op is not None:
            meter.release(entry)


def _gradient(node: Node) -> str:
    return "new gradient" if node.op is None else "gradient"


def _backward(meter: _MemoryMeter, graph: Graph, recorded: list[Node], leads: Collection[Node]) -> None:
    """Simulate backward: a gradient is made when first needed, and freed when its operator has used it."""
    grads: set[Entry] = set()

    def make(entry: Entry) -> None:
        if entry not in grads and entry[0] in leads:
            grads.add(entry)
            meter.change(_gradient(entry[0]), entry[0], meter.sizes[entry])

    for node, i in graph.heads:
        op = node.op
        loss = op is not None and op.is_loss(node.a)
        make(_owner(node.inputs[0] if loss else (node, i)))
    for node in reversed(recorded):
        own = [(node, i) for i in range(node.num_outputs) if (node, i) in grads]
        ins = list(map(_owner, node.inputs))
        if (
            node.op is not None
            and node.op.kind in _SUMS
            and own
            and ins[0] not in grads
            and ins[0][0] in leads
        ):
            grads.add(ins[0])  # reuses the memory of the operator's own gradient
            taken = own.pop(0)
            grads.discard(taken)
            meter.change("gradient", node, -meter.sizes[taken])
            meter.change(_gradient(ins[0][0]), ins[0][0], meter.sizes[taken])
        for entry in ins:
            make(entry)
        for entry in own:
            grads.discard(entry)
            meter.change(_gradient(entry[0]), entry[0], -meter.sizes[entry])
        for entry in _kept(node):
            meter.release(entry)
        meter.change("kept", node, -_extra(node, meter.sizes))
