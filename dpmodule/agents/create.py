"""Creating the worlds and teachers of one or several tasks.

Source: ParlAI of 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import ArgumentError
from .agent import check_names, create_agents_from_shared, create_teacher, int_option
from .batch_world import BatchWorld, DynamicBatchWorld, with_numbers
from .hogwild_world import HogwildWorld
from .metrics import aggregate_metrics, reports_by_name
from .teachers import Teacher
from .worlds import MultiWorld, World, create_task_world, next_task, task_names

Message = dict[str, Any]


class MultiTaskTeacher(Teacher):
    """A teacher of several tasks, which chooses a task whenever an episode is done.

    In training the choice is random; otherwise the tasks take turns until all are done. A world with this teacher keeps
    its agents when the task changes; `MultiWorld` has a world for each task.

    Args:
        opt: options; ``task``: names of the tasks, separated by commas.

    Attributes:
        tasks: the teachers.

    Raises:
        ArgumentError: no task is named, or a name is unknown.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        if shared:
            numbers = {key: shared[key] for key in ("batchindex", "threadindex") if key in shared}
            self.tasks = create_agents_from_shared(with_numbers(each, numbers) for each in shared["tasks"])
        else:
            # sorted batches belong to one task
            single = {**self.opt, "batch_sort": False}
            self.tasks = [create_teacher(single, name) for name in task_names(self.opt.get("task") or "")]
        if not self.tasks:
            raise ArgumentError('task is not set; name the tasks, separated by commas (opt["task"], --task)')
        self.random = (self.opt.get("datatype") or "train") == "train"
        self.new_task = True
        self.task_idx = -1

    def act(self) -> Message:
        if self.new_task:
            self.task_idx = next_task(self.tasks, self.task_idx, self.random)
        if self.task_idx < 0:
            return {"episode_done": True, "id": self.getID()}
        action: Message = self.tasks[self.task_idx].act()
        self.new_task = bool(action.get("episode_done", False))
        return action

    def observe(self, observation: Any) -> Any:
        self.observation = observation
        return observation if self.task_idx < 0 else self.tasks[self.task_idx].observe(observation)

    def epoch_done(self) -> bool:
        return all(task.epoch_done() for task in self.tasks)

    def num_examples(self) -> int:
        return sum(task.num_examples() or 0 for task in self.tasks)

    def num_episodes(self) -> int:
        return sum(task.num_episodes() or 0 for task in self.tasks)

    def report(self) -> dict[str, Any]:
        return aggregate_metrics(reports_by_name((task.getID(), task.report()) for task in self.tasks))

    def reset(self) -> None:
        super().reset()
        for task in self.tasks:
            task.reset()
        self.new_task, self.task_idx = True, -1

    def reset_metrics(self) -> None:
        for task in self.tasks:
            task.reset_metrics()

    def save(self, path: str | None = None) -> None:
        for task in self.tasks:
            task.save(path)

    def expect_workers(self, workers: int) -> None:
        for task in self.tasks:
            task.expect_workers(workers)

    def share(self) -> dict[str, Any]:
        return {**super().share(), "tasks": [task.share() for task in self.tasks]}

    def shutdown(self) -> None:
        for task in self.tasks:
            task.shutdown()


def create_task_agent_from_taskname(opt: Mapping[str, Any]) -> list[Any]:
    """Return a list with the teacher of the task in the options; a `MultiTaskTeacher` for several tasks.

    Args:
        opt: options; ``task``: one or several tasks, separated by commas.

    Raises:
        ArgumentError: no task is named, or a name is unknown.
    """
    names = task_names(opt.get("task") or "")
    return [create_teacher(opt, names[0]) if len(names) == 1 else MultiTaskTeacher(opt)]


def create_task(opt: Mapping[str, Any], user_agents: Any, default_world: type[World] | None = None) -> World:
    """Return the world of one or several tasks, as the options describe it.

    With ``numthreads`` above 1 it is a `HogwildWorld`, whose workers have a `BatchWorld` each if ``batchsize`` is above
    1. Otherwise it is a `DynamicBatchWorld` with ``max_batch_tokens``, a `BatchWorld` with ``batchsize`` above 1, or
    the plain world.

    Args:
        opt: options; ``task``: built-in tasks such as ``"reverse"``, or ``"package.module:Class:arguments"``, separated
            by commas.
        user_agents: an agent, or a list of them.
        default_world: the class of the plain worlds.

    Raises:
        ArgumentError: no task is named, a name is unknown, a number is below 1, or the name of an option is misspelt.
    """
    check_names(opt)
    tasks = task_names(opt.get("task") or "")
    if not tasks:
        raise ArgumentError('task is not set; set it to a task such as "reverse" (opt["task"], --task)')
    workers, rows = int_option(opt, "numthreads", 1), int_option(opt, "batchsize", 1)
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
                f"max_batch_tokens is set with numthreads {workers}, but Hogwild workers have batches of a fixed size; "
                "set batchsize instead, or numthreads to 1"
            )
        return HogwildWorld(opt, world)
    if is_dynamic:
        return DynamicBatchWorld(opt, world)
    if rows > 1:
        return BatchWorld(opt, world)
    return world
