"""Passes that rewrite the steps before they become a Program; disabling one changes no result.

`PASSES` lists them in the order in which they run. Each is a function in the module of its name, which is imported for
the first graph that may contain a match. `disabled` switches a pass off for a block of code, and the environment
variable ``DPMODULE_DISABLE_PASSES``, a comma-separated list of names, for the whole process. Passes that remove an
operator's own output do not run while a monitor watches every operator.

Programs are shared by all shapes and types, so a pass sees only storage types and attributes. "Needs" in its module
lists the requirements on its operands: the known ones are checked when steps are rewritten, the others by the inserted
functions, which run the graph's own operators if a requirement is not met.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module

from ...base import ArgumentError
from ...graph import Graph
from ..lowering import Lowered
from .fresh_heads import fresh_heads

__all__ = ["MIN_CLASSES", "PASSES", "Pass", "apply", "disabled", "settings"]


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite of steps.

    Attributes:
        name: name of its module and function, by which it is disabled.
        needs: minimal number of each operator in a graph; with fewer, the pass has nothing to do.
        tidies: True if it has nothing to do unless an earlier pass fired.
        hides: True if it removes some operator's own output, which a monitor then cannot see.
        moved: True if it also runs for graphs on several devices.
        compiled: True if it also runs for programs compiled with `torch.compile`; False if it inserts functions that
            choose between kernels, which a compiler cannot trace.
    """

    name: str
    needs: Mapping[str, int] = field(default_factory=dict)
    worth: Callable[[Graph], bool] | None = None
    tidies: bool = False
    hides: bool = False
    training: bool = True
    predict: bool = True
    moved: bool = True
    compiled: bool = True

    def has_work(self, low: Lowered) -> bool:
        """Return True if there may be something to rewrite, without importing the pass's module."""
        return (bool(low.fired) or not self.tidies) and (self.worth is None or self.worth(low.graph))

    def rewrite(self, low: Lowered) -> int:
        """Rewrite the steps in place and return the number of rewrites."""
        function: Callable[[Lowered], int] = getattr(import_module(f".{self.name}", __package__), self.name)
        return function(low)


MIN_CLASSES = 2048
"""Minimal number of classes for large score matrices; the number of rows is known at run time only."""


def _has_equal_inputs(graph: Graph) -> bool:
    """Return True if two nodes apply the same operator to the same inputs; otherwise no two nodes are equal."""
    seen = [(node.op.name, node.inputs) for node in graph.nodes if node.op is not None]
    return len(set(seen)) < len(seen)


def _has_gates(graph: Graph) -> bool:
    """Return True if an operator reads a value and its sigmoid."""
    nodes = (node for node in graph.nodes if node.op is not None and len(node.inputs) == 2)
    pairs = (pair for node in nodes for pair in (node.inputs, node.inputs[::-1]))
    return any(gate.op is not None and tuple(gate.inputs) == (value,) for value, (gate, _) in pairs)


def _has_attention(graph: Graph) -> bool:
    """Return True if a softmax weights the rows of a matrix."""
    products = (n for n in graph.nodes if n.op is not None and n.op.name in ("batch_dot", "_linalg_gemm2"))
    weights = (product.inputs[0][0].op for product in products)
    return any(op is not None and op.name == "softmax" for op in weights)


def _has_many_classes(graph: Graph) -> bool:
    """Return True if there is a dense layer with enough outputs to split its scores."""
    layers = (node for node in graph.nodes if node.op is not None and node.op.name == "FullyConnected")
    return any(node.a.num_hidden >= MIN_CLASSES for node in layers)


_LAYERS = frozenset({"BatchNorm", "BatchNorm_v1", "Convolution", "Deconvolution", "Pooling"})
"""Operators that are faster in the channels_last layout, or that keep it."""


def converts_layout(graph: Graph) -> bool:
    """Return True if several operators gain from channels_last; one alone does not pay for converting its data."""
    return sum(node.op is not None and node.op.name in _LAYERS for node in graph.nodes) > 1


def has_convolutions(graph: Graph) -> bool:
    """Return True if there is a convolution, or a transposed one."""
    return any(
        node.op is not None and node.op.name in ("Convolution", "Deconvolution") for node in graph.nodes
    )


PASSES: tuple[Pass, ...] = (
    Pass("common_subexpressions", worth=_has_equal_inputs, hides=True, moved=False),
    Pass("rnn_chains", {"FullyConnected": 6, "elemwise_add": 1}, hides=True, moved=False),
    Pass("gated_activations", worth=_has_gates, hides=True, moved=False, compiled=False),
    Pass("fused_attention", worth=_has_attention, hides=True, moved=False, compiled=False),
    # before pooling_first, to which it leaves activations that are cheaper after pooling
    Pass(
        "fused_convolutions", worth=has_convolutions, hides=True, training=False, moved=False, compiled=False
    ),
    Pass("pooling_first", {"Pooling": 1}, hides=True),
    Pass("channels_last", {"Convolution": 1}, worth=converts_layout),
    Pass("unfolded_convolutions", {"Convolution": 1}, predict=False, compiled=False),
    Pass("native_convolutions", worth=has_convolutions, predict=False, compiled=False),
    Pass(
        "score_blocks",
        {"FullyConnected": 1, "SoftmaxOutput": 1},
        worth=_has_many_classes,
        hides=True,
        moved=False,
        compiled=False,
    ),
    Pass("pooled_lookups", {"Embedding": 1, "sequence_pool": 1}, hides=True, moved=False, compiled=False),
    Pass("rnn_weights", {"RNN": 1, "_rnn_param_concat": 1}, hides=True, moved=False),
    Pass("recurrent_layers", {"RNN": 1}, hides=True, training=False, moved=False, compiled=False),
    Pass("dead_steps", tidies=True, hides=True),
    Pass("dense_layers", {"FullyConnected": 1}, hides=True, training=False, moved=False, compiled=False),
    Pass("small_steps", training=False, moved=False, compiled=False, hides=True),
    Pass("fused_norms", {"BatchNorm": 1}, hides=True, predict=False, moved=False, compiled=False),
    Pass("mirror", predict=False, moved=False, compiled=False),
)
_NAMES = frozenset(entry.name for entry in PASSES)
_HIDING = frozenset(entry.name for entry in PASSES if entry.hides)
_OPAQUE = frozenset(entry.name for entry in PASSES if not entry.compiled)


def _checked(names: Iterable[str], what: str) -> set[str]:
    """Return stripped names of passes."""
    stripped = {name.strip() for name in names} - {""}
    if stripped - _NAMES:
        raise ArgumentError(
            f"{what} names {', '.join(sorted(stripped - _NAMES))}, expected some of {', '.join(sorted(_NAMES))}"
        )
    return stripped


_off = _checked(os.environ.get("DPMODULE_DISABLE_PASSES", "").split(","), "DPMODULE_DISABLE_PASSES")


def settings(watched: bool = False, compiled: bool = False) -> frozenset[str]:
    """Return the names of the disabled passes.

    Args:
        watched: True if a monitor reads every operator's output.
    """
    off = set(_off)
    if watched:
        off |= _HIDING
    if compiled:
        off |= _OPAQUE
    if os.environ.get("MXNET_ELIMINATE_COMMON_EXPR", "1") == "0":
        off.add("common_subexpressions")
    return frozenset(off)


@contextmanager
def disabled(*names: str) -> Iterator[None]:
    """Disable passes for graphs that are bound, and run for the first time, inside the block."""
    before = set(_off)
    _off.update(_checked(names, "disabled"))
    try:
        yield
    finally:
        _off.clear()
        _off.update(before)


def apply(low: Lowered, off: frozenset[str], moved: bool = False) -> None:
    """Run every enabled pass, and record its number of rewrites in `low.fired`."""
    low.off = off.union(entry.name for entry in PASSES if moved and not entry.moved)
    counts = Counter(node.op.kind for node in low.graph.nodes if node.op is not None)
    for entry in PASSES:
        if entry.name in low.off or any(counts[name] < least for name, least in entry.needs.items()):
            continue
        if (entry.training if low.recorded else entry.predict) and entry.has_work(low):
            count = entry.rewrite(low)
            if count:
                low.fired[entry.name] = count
    fresh_heads(low)
