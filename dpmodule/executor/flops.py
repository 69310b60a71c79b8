"""How much arithmetic a graph's operators do, by their shapes.

A multiplication and the addition behind it count as two operations, as everywhere on this page. Products of matrices,
convolutions and recurrent layers are counted by their formulas, without biases and the functions between the gates;
pooling by the elements of its windows, reductions by what they read; what only moves values counts nothing, and
everything else one operation per element of its result. Loops count their largest number of steps, branches the more
costly one. Fusions of operators change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..base import Shape
from ..graph import Graph, Node, infer_shapes
from ..ops.shapes import known, prod
from .gradients import fed_by, reached_by_gradients

Dims = tuple[int, ...]
Formula = Callable[[Any, Sequence[Dims], Sequence[Dims]], int]
Shapes = Mapping[Node, Sequence[Shape]]

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _convolution(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    """Count one filter, of which the weight's axis 0 tells how many there are, per element of the result."""
    return 2 * prod(outs[0]) * prod(ins[1][1:])


def _deformable(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    weight = next(s for s in ins[1:] if s[0] == a.num_filter and s[2:] == tuple(a.kernel))
    return 2 * prod(outs[0]) * prod(weight[1:])


def _deconvolution(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(ins[0]) * prod(ins[1][1:])


def _dot(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[0][0 if a.transpose_a else -1]


def _batch_dot(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[0][-2 if a.transpose_a else -1]


def _gemm(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[0][a.axis if a.transpose_a else -1]


def _syrk(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[0][-2 if a.transpose else -1]


def _triangle(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return prod(outs[0]) * ins[0][-1]  # half of the matrix is zero


def _attention_scores(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    joined = 3 if len(ins) == 1 else 1  # queries, keys and values lie in one array, or queries apart
    return 2 * prod(outs[0]) * (ins[0][-1] // (joined * int(a.heads)))


def _attention_values(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[1][-1]


def _recurrent(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    *steps, width = ins[0]  # of ragged data one step a row
    hidden, ways = int(a.state_size), 1 + bool(a.bidirectional)
    out = int(a.projection_size or hidden)
    total = 0
    for _ in range(a.num_layers):
        each = _GATES[a.mode] * hidden * (width + out) + (hidden * out if a.projection_size else 0)
        total += ways * each
        width = ways * out
    return 2 * prod(steps) * total


def _correlation(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 2 * prod(outs[0]) * ins[0][1] * int(a.kernel_size) ** 2


def _pooling(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return prod(ins[0]) if a.global_pool else prod(outs[0]) * prod(a.kernel)


def _reduction(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return prod(ins[0])


def _nothing(a: Any, ins: Sequence[Dims], outs: Sequence[Dims]) -> int:
    return 0


_PRODUCTS: dict[str, Formula] = {
    "Convolution": _convolution,
    "Correlation": _correlation,
    "Deconvolution": _deconvolution,
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
    "_linalg_syrk": _syrk,
    "_linalg_trmm": _triangle,
    "_linalg_trsm": _triangle,
    "batch_dot": _batch_dot,
    "dot": _dot,
    "sequence_conv": _convolution,
}
"""Operators that multiply two inputs with each other; the gradient of each input costs as much as the result."""

_READ = """
_contrib_AdaptiveAvgPooling2D _square_sum argmax argmax_channel argmin max mean min moments multi_sum_sq nanprod nansum
norm prod softmax_cross_entropy sum
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
    """.split()  # noqa: SIM905
)
"""Operators that only move values, or make them out of nothing."""

_FORMULAS: dict[str, Formula] = {
    **_PRODUCTS,
    **dict.fromkeys(("Pooling", "Pooling_v1", "_contrib_quantized_pooling"), _pooling),
    **dict.fromkeys(_READ.split(), _reduction),
    **dict.fromkeys(MOVES, _nothing),
}


def _inside(graph: Graph, ins: Sequence[Dims], order: Sequence[int] | None = None) -> int:
    """Count one run of a subgraph, whose inputs have the shapes `ins`; `order` tells which input each of them is."""
    names = [node.name for node in graph.inputs]
    given = {names[i]: shape for i, shape in zip(range(len(ins)) if order is None else order, ins)}
    return sum(forward_flops(graph, infer_shapes(graph, given)).values())


def _control_flow(node: Node, ins: Sequence[Dims]) -> int:
    a, bodies = node.a, node.subgraphs
    if node.op is not None and node.op.name == "_foreach":
        num_data = len(a.in_data_locs)
        elements = [s[1:] or (1,) if i < num_data else s for i, s in enumerate(ins)]
        return ins[0][0] * _inside(bodies[0], elements, (*a.in_data_locs, *a.in_state_locs, *a.remain_locs))
    test = _inside(bodies[0], [ins[i] for i in a.cond_input_locs])
    if node.op is not None and node.op.name == "_while_loop":
        body = _inside(bodies[1], [ins[i] for i in a.func_input_locs])
        return int(a.max_iterations * (test + body))
    branches = zip(bodies[1:], (a.then_input_locs, a.else_input_locs))
    return test + max(_inside(body, [ins[i] for i in locs]) for body, locs in branches)


def _node_flops(node: Node, shapes: Shapes) -> int:
    """Count the operations of one node's operator; 0 where a shape is not known."""
    ins = [shapes[child][i] for child, i in node.inputs]
    outs = list(shapes[node])
    if node.op is None or not all(map(known, (*ins, *outs))):
        return 0
    sizes = [s for s in ins if s is not None]
    results = [s for s in outs if s is not None]
    if node.subgraphs:
        return _control_flow(node, sizes)
    formula = _FORMULAS.get(node.op.name)
    return sum(map(prod, results)) if formula is None else int(formula(node.a, sizes, results))


def forward_flops(graph: Graph, shapes: Shapes) -> dict[Node, int]:
    """Return how many operations each operator takes for its result.

    Args:
        shapes: shapes of every node's outputs, as `infer_shapes` gives them.
    """
    return {node: _node_flops(node, shapes) for node in graph.nodes if node.op is not None}


def backward_flops(graph: Graph, forward: Mapping[Node, int], wanted: Collection[str]) -> dict[Node, int]:
    """Return how many operations each operator takes for the gradients of its inputs, approximately.

    A product costs as much again for each factor that needs a gradient, everything else as much as forward.
    """
    reached = reached_by_gradients(graph)
    leads = {node for node in fed_by(graph, wanted) if node.op is None or node in reached}
    found = {}
    for node, flops in forward.items():
        needing = [child in leads for child, _ in node.inputs] if node in reached else []
        if node.subgraphs:
            factor = 2 * any(needing)
        elif node.op is not None and node.op.name in _PRODUCTS:
            factor = 2 * sum(needing) if len(needing) == 1 else sum(needing[:2])
        else:
            factor = int(any(needing))
        found[node] = factor * flops
    return found
