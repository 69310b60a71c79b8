"""`WorldOfCopies`: what worlds that run copies of another world have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import ArgumentError
from .worlds import World

__all__ = [
    "WorldOfCopies",
    "batch_of_replies",
    "copied_world",
    "has_batch_act",
    "numbered",
    "row_of",
    "silent",
]


class WorldOfCopies(World):
    """A world whose copies of another one parley; what is asked about the task, the original answers.

    Args:
        opt: options.
        world: the original world.

    Attributes:
        world: the original world.
    """

    def __init__(self, opt: Mapping[str, Any], world: World) -> None:
        super().__init__(opt)
        self.world = world

    def getID(self) -> str:
        """Return the name of the task."""
        return self.world.getID()

    def get_agents(self) -> list[Any]:
        """Return the agents of the original world."""
        return self.world.get_agents()

    def _epoch_size(self, which: int) -> int:
        return self.world._epoch_size(which)

    def share(self) -> dict[str, Any]:
        """Return what a copy of the original world is made of."""
        return self.world.share()

    def _report(self) -> dict[str, Any]:
        return self.world.report()

    def reset_metrics(self) -> None:
        """Count anew."""
        self.world.reset_metrics()

    def save_agents(self) -> None:
        """Have the original agents write what they have learned."""
        self.world.save_agents()


def row_of(world: World, index: int, **changes: Any) -> World:
    """Return a copy of a world for a row of a batch.

    Args:
        world: the original.
        index: number of the row.
        changes: options that are others for it.
    """
    return copied_world(numbered(world.share(), {"batchindex": index, **changes}))


def copied_world(shared: Mapping[str, Any]) -> World:
    """Return a copy of a world from what its `share` returned."""
    return shared["world_class"](shared["opt"], None, shared)  # type: ignore[no-any-return]


def numbered(shared: Any, numbers: Mapping[str, int]) -> Any:
    """Return what a world shares with numbers in every dict of options and every agent's dict.

    Args:
        shared: what the `share` of a world returned.
        numbers: such as ``{"batchindex": 0}``.
    """
    found = dict(shared)
    found["opt"] = {**shared["opt"], **numbers}
    if "world_class" in shared:  # an agent's own keys may have any name
        for key in ("agents", "worlds"):
            if key in shared:
                found[key] = [numbered(each, numbers) for each in shared[key]]
    return {**found, **numbers}


def batch_of_replies(agent: Any, observations: Any, count: int) -> Sequence[Any]:
    """Return what the `batch_act` of an agent says, a message for each row.

    Args:
        agent: the original agent.
        observations: what its copies' `observe` returned.
        count: how many rows there are; of more messages the first ones count.

    Raises:
        ArgumentError: it returned fewer messages, or something else than a list.
    """
    acts = agent.batch_act(observations)
    length = len(acts) if isinstance(acts, (list, tuple)) else None
    if length is None or length < count:
        said = f"something of type {type(acts).__name__}" if length is None else f"{length} messages"
        raise ArgumentError(
            f"batch_act of agent {agent.getID()!r} ({type(agent).__name__}) returned {said} for {count} rows; it has "
            "to return a list with one message for each row, also for rows whose observation has no text"
        )
    return acts if length == count else acts[:count]  # type: ignore[no-any-return]


def has_batch_act(agent: Any) -> bool:
    """Say whether an agent acts for all rows at once."""
    return hasattr(agent, "batch_act") and bool(getattr(agent, "use_batch_act", True))


def silent(agent: Any, row: int) -> ArgumentError:
    """Return the error for a copy whose `observe` returned None."""
    return ArgumentError(
        f"observe of agent {agent.getID()!r} ({type(agent).__name__}) returned None in row {row}; agents should return "
        "what they observed"
    )
