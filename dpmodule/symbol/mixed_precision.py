"""Graphs in mixed precision: casts that run costly operators in 16 bits, and loss scaling.

Source: MXNet 1.9.1 `contrib.amp.convert_symbol`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ..base import ArgumentError
from ..graph import Graph, Node
from ..graph.node import Entry
from ..ops import get
from .symbol import Symbol

LP16 = ("Convolution", "Deconvolution", "FullyConnected", "RNN")
"""Operators that are faster in 16 bits without loss of accuracy."""

FP32 = tuple(
    """
    CTCLoss Convolution Custom GroupNorm IdentityAttachKLSparseReg InstanceNorm L2Normalization LRN LayerNorm
    LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput MakeLoss SVMOutput SoftmaxActivation
    SoftmaxOutput _NDArray _Native _contrib_DeformableConvolution _contrib_DeformablePSROIPooling
    _contrib_MultiBoxDetection _contrib_MultiBoxPrior _contrib_MultiBoxTarget _contrib_SyncBatchNorm
    _contrib_count_sketch _contrib_fft _contrib_hawkesll _hypot _hypot_scalar _linalg_det _linalg_extractdiag
    _linalg_extracttrian _linalg_gelqf _linalg_gemm _linalg_gemm2 _linalg_inverse _linalg_makediag
    _linalg_maketrian _linalg_potrf _linalg_potri _linalg_slogdet _linalg_sumlogdiag _linalg_syevd _linalg_syrk
    _linalg_trmm _linalg_trsm _power _power_scalar _rdiv_scalar _rpower_scalar _square_sum arccos arcsin arctanh
    argsort broadcast_hypot broadcast_power cosh erfinv exp expm1 gamma gammaln khatri_rao log log10 log1p log2
    log_softmax make_loss mean moments nanprod nansum norm prod rcbrt reciprocal rsqrt sinh smooth_l1 softmax
    softmax_cross_entropy softmin square sum tan topk
    """.split()  # noqa: SIM905  # a hundred lines as a list
)
"""Operators that need float32."""

CONDITIONAL_FP32 = (("Activation", "act_type", ("softrelu",)), ("LeakyReLU", "act_type", ("elu", "selu")))
"""Operators that need float32 for some attributes: (operator, attribute, values)."""

WIDEST = tuple(
    """
    Concat Correlation _contrib_MultiProposal _contrib_PSROIPooling _contrib_Proposal _contrib_ROIAlign
    _contrib_box_iou _contrib_box_nms _contrib_edge_id _contrib_interleaved_matmul_encdec_qk
    _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
    _contrib_interleaved_matmul_selfatt_valatt _equal _greater _greater_equal _lesser _lesser_equal _logical_and
    _logical_or _logical_xor _maximum _minimum _mod _not_equal _random_pdf_dirichlet _random_pdf_exponential
    _random_pdf_gamma _random_pdf_generalized_negative_binomial _random_pdf_negative_binomial _random_pdf_normal
    _random_pdf_poisson _random_pdf_uniform _scatter_elemwise_div add_n batch_dot broadcast_add broadcast_div
    broadcast_equal broadcast_greater broadcast_greater_equal broadcast_lesser broadcast_lesser_equal
    broadcast_logical_and broadcast_logical_or broadcast_logical_xor broadcast_maximum broadcast_minimum
    broadcast_mod broadcast_mul broadcast_not_equal broadcast_sub dot elemwise_add elemwise_div elemwise_mul
    elemwise_sub stack sum where
    """.split()  # noqa: SIM905
)
"""Operators of several inputs that run in the widest type of these."""

LOSSES = ("LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SoftmaxOutput")
"""Operators that are losses."""


Conditions = Sequence[tuple[str, str, Sequence[str]]]

LOSS_SCALE = "_loss_scale"
"""Name of the argument that scales the gradient of the loss."""


_TAKE_BOTH = frozenset(["BatchNorm", "BatchNormWithReLU", "_contrib_BatchNormWithReLU"])
"""Operators that accept 16-bit data with 32-bit parameters and compute in float32."""


class HalfConverter:
    """Copies a graph and inserts casts; stores the type of every value.

    Args:
        target: the 16-bit type.
        high: operators that run in float32.
        conditions: (operator, attribute, values) of operators that run in float32 for some attributes.
        excluded: names of nodes that run in float32.
        careful: True to also run unlisted operators in float32 if their inputs would have several types, or if they
            have subgraphs; MXNet does not.
    """

    def __init__(
        self,
        target: str,
        low: set[str],
        high: set[str],
        conditions: Conditions,
        excluded: set[str],
        careful: bool = False,
    ) -> None:
        self.target, self.low, self.high, self.excluded = target, low, high, excluded
        self.careful = careful
        self.conditions = conditions
        self.made: dict[Node, Node] = {}
        self.types: dict[Node, str] = {}
        self.casts: dict[tuple[Node, int, str], Node] = {}

    def wanted(self, node: Node) -> str | None:
        """Return the type in which an operator must run, or None."""
        if node.op is None or node.name in self.excluded:
            return "float32" if node.op is not None else None
        name = node.op.kind
        if name in self.low:
            return self.target
        if name in self.high:
            return "float32"
        for op, key, values in self.conditions:
            if name == op and str(getattr(node.a, key)) in values:
                return "float32"
        return None

    def cast(self, entry: Entry, dtype: str) -> Entry:
        """Return an entry cast to a type; all readers share one cast."""
        node, number = entry
        if self.types[node] == dtype:
            return entry
        key = (node, number, dtype)
        if key not in self.casts:
            cast = Node(
                get("amp_cast"),
                f"{node.output_names[number]}_amp_cast_{dtype}",
                {"dtype": dtype},
                {},
                (entry,),
            )
            self.types[cast] = dtype
            self.casts[key] = cast
        return self.casts[key], 0

    def add(self, node: Node) -> None:
        """Copy a node whose inputs have been copied."""
        inputs = tuple((self.made[child], number) for child, number in node.inputs)
        if node.op is None:
            copied = Node(None, node.name, dict(node.params), dict(node.attrs), (), node.source)
            self.types[copied] = "float32"
            self.made[node] = copied
            return
        states = {entry[0] for entry in node.auxiliary_inputs}
        dtype = self.wanted(node)
        if dtype is None and node.op.kind in WIDEST:
            kinds = {self.types[child] for child, _ in inputs}
            dtype = "float32" if len(kinds) > 1 else None
        elif dtype is None and self.careful and node.op.name not in _TAKE_BOTH:
            kinds = {self.types[child] for child, _ in inputs}
            dtype = "float32" if len(kinds) > 1 or node.subgraphs else None
        if dtype is not None:
            inputs = tuple(
                entry if old in states else self.cast(entry, dtype)
                for entry, (old, _) in zip(inputs, node.inputs)
            )
        copied = Node(
            node.op,
            node.name,
            dict(node.params),
            dict(node.attrs),
            inputs,
            node.source,
            subgraphs=node.subgraphs,
        )
        self.types[copied] = dtype or (self.types[inputs[0][0]] if inputs else "float32")
        self.made[node] = copied


@dataclass(frozen=True)
class HalfRules:
    """Precision of operators.

    Attributes:
        dtype: the 16-bit type, "float16" or "bfloat16".
        high: operators that run in float32.
        conditions: (operator, attribute, values) of operators that run in float32 for some attributes.
    """

    dtype: str
    low: Sequence[str] = LP16
    high: Sequence[str] = FP32
    conditions: Conditions = CONDITIONAL_FP32

    @property
    def needs_scale(self) -> bool:
        """True if small gradients underflow unless the loss is scaled; bfloat16 has the exponents of float32."""
        return self.dtype == "float16"


def convert_to_half(symbol: Symbol, rules: HalfRules, differentiated: Collection[str]) -> Symbol:
    """Return a mixed-precision network with float32 arguments and outputs.

    With `HalfRules.needs_scale` it has the additional argument `LOSS_SCALE`: gradients are multiplied by it at the
    losses and divided by it at the arguments, so that the final gradients are not scaled.
    """
    converter = HalfConverter(
        rules.dtype,
        {get(name).name for name in rules.low},
        {get(name).name for name in rules.high},
        rules.conditions,
        set(),
        careful=True,
    )
    for node in symbol.graph.nodes:
        converter.add(node)
    heads = [(converter.made[node], number) for node, number in symbol.graph.heads]
    heads = [converter.cast(entry, "float32") for entry in heads]
    if rules.needs_scale:
        heads = _scaled(heads, set(differentiated), converter)
    return Symbol(tuple(heads))


def _scaled(heads: list[Entry], differentiated: Collection[str], converter: HalfConverter) -> list[Entry]:
    """Insert nodes that scale gradients at losses and heads, and nodes that undo it at arguments."""
    factor = Node(None, LOSS_SCALE, {}, {"__shape__": "(1,)", "__dtype__": "0"})
    scale_nodes: dict[tuple[Node, int, bool], Entry] = {}

    def through(entry: Entry, inverse: bool) -> Entry:
        """Return an entry through a node that multiplies, or divides, its gradient."""
        key = (*entry, inverse)
        if key not in scale_nodes:
            node, number = entry
            name = f"{node.name if node.op is None else node.output_names[number]}_{'un' * inverse}scaled"
            attrs = {"inverse": str(inverse)}
            scale_nodes[key] = Node(get("_scale_gradient"), name, attrs, {}, (entry, (factor, 0))), 0
        return scale_nodes[key]

    graph = Graph(tuple(heads))
    # operators that only read arguments may need them unchanged, for example if they are row-sparse
    first = {
        node
        for node in graph.nodes
        if node.op is not None
        and node.op.needs_head_gradient(node.a)
        and converter.types[node] == "float32"
        and node.op.name != "amp_cast"
        and any(child.name in differentiated for child, _ in node.inputs)
        and all(child.op is None for child, _ in node.inputs)
    }
    for node in graph.nodes:
        if node.op is None:
            continue
        if node.op.name == "IdentityAttachKLSparseReg":
            raise ArgumentError(
                f"amp: {node.name} (IdentityAttachKLSparseReg) adds a gradient that is not scaled; use "
                'amp="bf16"'
            )
        if node in first:
            continue
        scaled_heads = []
        for entry in node.inputs:
            child = entry[0]
            if child in first or (child.op is None and child.name in differentiated):
                entry = through(entry, True)
            if not node.op.needs_head_gradient(node.a) and (
                child.op is not None or child.name in differentiated
            ):
                entry = through(entry, False)
            scaled_heads.append(entry)
        node.inputs = tuple(scaled_heads)
    return [_scaled_head(entry, entry[0] in first, through) for entry in heads]


def _scaled_head(entry: Entry, is_unscaled: bool, through: Callable[[Entry, bool], Entry]) -> Entry:
    """Return an output whose outer gradient, if any, is scaled."""
    node = entry[0]
    if node.op is None or is_unscaled or not node.op.needs_head_gradient(node.a):
        return entry
    return through(entry, False)
