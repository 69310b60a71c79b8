"""The graph as programs handle it: new ones, checkpoints, pictures."""

from __future__ import annotations

from .arguments import flag
from .interface import EngineGraph
from .python_engine.graph import PythonGraph
from .state import state

__all__ = ["ComputationGraph", "cg", "cg_checkpoint", "cg_revert", "cg_version", "renew_cg"]

ComputationGraph = PythonGraph


def renew_cg(
    immediate_compute: bool = False, check_validity: bool = False, autobatching: bool | None = None
) -> EngineGraph:
    """Throw the graph away and begin a new one; expressions made before can no longer be used.

    Args:
        immediate_compute: compute every expression as soon as it is made, which helps to find errors.
        check_validity: raise as soon as a value is not finite; computes as the argument before does.
        autobatching: whether this graph is batched; as `configure` says if not given.

    Raises:
        ForeignValueError: an argument is neither True nor False.
        StateError: a function that the graph calls asks for it, or another thread is computing the graph.

    Source: DyNet's `renew_cg`.
    """
    state.graph.renew(
        flag(immediate_compute, "immediate_compute"),
        flag(check_validity, "check_validity"),
        None if autobatching is None else flag(autobatching, "autobatching"),
    )
    return state.graph


def cg() -> EngineGraph:
    """Return the graph under construction."""
    return state.graph


def cg_version() -> int:
    """Return how many graphs there were before."""
    return state.graph.version


def cg_checkpoint() -> None:
    """Remember how large the graph is, for `cg_revert`.

    Raises:
        StateError: a function that the graph calls asks for it, or another thread is computing the graph.

    Source: DyNet's `cg_checkpoint`.
    """
    state.graph.checkpoint()


def cg_revert() -> None:
    """Forget all expressions made since `cg_checkpoint`.

    Raises:
        StateError: there has been none in this graph, or all were gone back to.

    Source: DyNet's `cg_revert`.
    """
    state.graph.revert()
