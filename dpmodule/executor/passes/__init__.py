"""Rewrites of the steps before they become a Program; each can be switched off, which changes no result.

`PASSES` lists them in the order in which they run. Each is a function in the module of its name, which is imported when
the first graph comes in which it may find something. A pass is switched off for a block of code with `disabled`,
and for a whole process with the environment variable ``DPMODULE_DISABLE_PASSES``, names with commas between them.
Passes after which some operator's own output is no longer computed do not run where somebody watches every operator.

Programs are shared by all shapes and types, so a pass sees only storage types and attributes. Each states what it
needs of its operands under "Needs" in its module: what is known is checked when steps are rewritten, the rest by the
functions it puts in, which do what the graph says where something else comes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType

from ...base import ArgumentError
from ...graph import Graph
from ..lowering import Lowered
from .fresh_heads import fresh_heads

__all__ = ["MIN_CLASSES", "PASSES", "Pass", "apply", "disabled", "settings"]


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite of steps.

    Attributes:
        name: its module and function, and what it is switched off by.
        needs: how many of which operators a graph must have at least, or the pass has nothing to do.
        tidies: it has nothing to do where no pass before it had.
        hides: some operator's own output is no longer computed afterwards, so that no monitor can see it.
        moved: whether it also runs for graphs that live on several devices.
        compiled: whether it also runs where `torch.compile` gets the program: not if it puts in functions that
            choose between kernels by themselves, which a compiler cannot look into.
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

    @property
    def module(self) -> ModuleType:
        """The module that has it."""
        return import_module(f".{self.name}", __package__)

    def has_work(self, low: Lowered) -> bool:
        """Say whether there may be something to rewrite, without the pass's module."""
        return (bool(low.fired) or not self.tidies) and (self.worth is None or self.worth(low.graph))

    def rewrite(self, low: Lowered) -> int:
        """Change the steps in place and return in how many places."""
        function: Callable[[Lowered], int] = getattr(self.module, self.name)
        return function(low)


MIN_CLASSES = 2048
"""Classes below which the scores of a usual batch are small; how many rows there are shows at run time only."""


def _has_equal_inputs(graph: Graph) -> bool:
    """Say whether two nodes run one operator on the same values; where none do, no two are equal."""
    seen = [(node.op.name, node.inputs) for node in graph.nodes if node.op is not None]
    return len(set(seen)) < len(seen)


def _has_many_classes(graph: Graph) -> bool:
    """Say whether there is a dense layer of as many outputs as scores have that are worth splitting."""
    layers = (node for node in graph.nodes if node.op is not None and node.op.name == "FullyConnected")
    return any(node.a.num_hidden >= MIN_CLASSES for node in layers)


def _has_small_windows(graph: Graph) -> bool:
    """Say whether there is a convolution for which there may be a kernel."""
    layers = (node for node in graph.nodes if node.op is not None and node.op.name == "Convolution")
    return any(node.a.kernel == (3, 3) for node in layers)


PASSES: tuple[Pass, ...] = (
    Pass("common_subexpressions", worth=_has_equal_inputs, hides=True, moved=False),
    Pass("rnn_chains", {"FullyConnected": 6, "elemwise_add": 1}, hides=True, moved=False),
    # before pooling_first, to which it leaves what costs least behind a pooling
    Pass("fused_convolutions", {"Convolution": 1}, hides=True, training=False, moved=False, compiled=False),
    Pass("pooling_first", {"Pooling": 1}, hides=True),
    Pass("channels_last", {"Convolution": 1}),
    Pass("unfolded_convolutions", {"Convolution": 1}, predict=False, compiled=False),
    Pass("native_convolutions", worth=_has_small_windows, predict=False, compiled=False),
    Pass(
        "score_blocks",
        {"FullyConnected": 1, "SoftmaxOutput": 1},
        worth=_has_many_classes,
        hides=True,
        moved=False,
        compiled=False,
    ),
    Pass("pooled_lookups", {"Embedding": 1, "sequence_pool": 1}, hides=True, moved=False, compiled=False),
    Pass("dead_steps", tidies=True, hides=True),
    Pass("fused_norms", {"BatchNorm": 1}, hides=True, predict=False, moved=False, compiled=False),
    Pass("mirror", predict=False, moved=False, compiled=False),
)
_NAMES = frozenset(each.name for each in PASSES)
_HIDING = frozenset(each.name for each in PASSES if each.hides)
_OPAQUE = frozenset(each.name for each in PASSES if not each.compiled)


def _checked(names: Iterable[str], what: str) -> set[str]:
    """Return names of passes, stripped."""
    found = {name.strip() for name in names} - {""}
    if found - _NAMES:
        raise ArgumentError(
            f"{what} names {', '.join(sorted(found - _NAMES))}, expected some of {', '.join(sorted(_NAMES))}"
        )
    return found


_off = _checked(os.environ.get("DPMODULE_DISABLE_PASSES", "").split(","), "DPMODULE_DISABLE_PASSES")


def settings(watched: bool = False, compiled: bool = False) -> frozenset[str]:
    """Return the names of the passes that are switched off.

    Args:
        watched: whether every operator's output must be computed as it is.
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
    """Switch passes off for graphs bound, and run for the first time, inside the block."""
    before = set(_off)
    _off.update(_checked(names, "disabled"))
    try:
        yield
    finally:
        _off.clear()
        _off.update(before)


def apply(low: Lowered, off: frozenset[str], moved: bool = False) -> None:
    """Run every pass that is on, and note in `low.fired` what each of them did."""
    low.off = off.union(each.name for each in PASSES if moved and not each.moved)
    there = Counter(node.op.name for node in low.graph.nodes if node.op is not None)
    for each in PASSES:
        if each.name in low.off or any(there[name] < least for name, least in each.needs.items()):
            continue
        if (each.training if low.recorded else each.predict) and each.has_work(low):
            count = each.rewrite(low)
            if count:
                low.fired[each.name] = count
    fresh_heads(low)
