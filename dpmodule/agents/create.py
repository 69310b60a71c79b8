"""`create_task`: the world that options ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import ArgumentError
from .batch_world import BatchWorld
from .dynamic_batch_world import DynamicBatchWorld
from .hogwild_world import HogwildWorld
from .options import check_names, whole
from .worlds import MultiWorld, World, create_task_world, task_names

__all__ = ["create_task"]


def create_task(opt: Mapping[str, Any], user_agents: Any, default_world: type[World] | None = None) -> World:
    """Return the world of a task, or of several, as the options ask for it.

    With ``numthreads`` above 1 it is a `HogwildWorld`, whose workers have a `BatchWorld` each if ``batchsize`` is above
    1; else a `DynamicBatchWorld` with ``max_batch_tokens``, a `BatchWorld` for such a batch size, or the plain world.

    Args:
        opt: options; ``task``: a task that is ready, such as ``"reverse"``, or ``"package.module:Class:arguments"``,
            several with commas between.
        user_agents: an agent, or a list of them.
        default_world: the class of the plain worlds.

    Raises:
        ArgumentError: no task is named, there is none of the name, a number is below 1, or the name of an option is
            misspelt.
    """
    check_names(opt)
    tasks = task_names(opt.get("task") or "")
    if not tasks:
        raise ArgumentError('task is not set; name one, such as "reverse" (opt["task"], --task)')
    workers, rows = whole(opt, "numthreads", 1), whole(opt, "batchsize", 1)
    agents = list(user_agents) if isinstance(user_agents, (list, tuple)) else [user_agents]
    world: World
    if len(tasks) == 1:
        world = create_task_world({**opt, "task": tasks[0]}, agents, default_world)
    else:
        world = MultiWorld(opt, agents, default_world=default_world)
    is_dynamic = opt.get("max_batch_tokens") is not None
    if workers > 1:
        if is_dynamic:
            raise ArgumentError(
                f"max_batch_tokens is given with numthreads {workers}; Hogwild workers have batches of one size, so "
                "give batchsize in its place, or numthreads 1"
            )
        return HogwildWorld(opt, world)
    if is_dynamic:
        return DynamicBatchWorld(opt, world)
    if rows > 1:
        return BatchWorld(opt, world)
    return world
