"""Worlds: agents who take turns, one `parley` after the other.

Source: ParlAI's worlds of 2018.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from ..base import ArgumentError
from .agent import create_agents_from_shared, create_teacher
from .metrics import aggregate_metrics, reports_by_name

_SHOWN_FIELDS = ("text", "labels", "eval_labels", "label_candidates", "reward")
_MAX_SHOWN = 1000


def validate(act: Any, agent: Any = None, row: int | None = None) -> Any:
    """Return a message, or refuse what is not one.

    Args:
        act: what an agent said.

    Raises:
        ArgumentError: it is not a dict; the text names the agent and the row of the batch.
    """
    if isinstance(act, dict):
        return act
    what = "None" if act is None else f"something of type {type(act).__name__}"
    raise _invalid_act(what, "a dict with a message", agent, row)


def check_texts(acts: Sequence[Any], agent: Any) -> None:
    """Refuse messages whose text is not a str; called where the agents that observed them have failed.

    Args:
        acts: what an agent said, in every row of a batch.
    """
    for row, act in enumerate(acts):
        text = act.get("text")
        if text is not None and not isinstance(text, str):
            what = f"a message whose text is of type {type(text).__name__}"
            raise _invalid_act(what, "a str", agent, row if len(acts) > 1 else None)


def _invalid_act(what: str, expected: str, agent: Any, row: int | None) -> ArgumentError:
    who = "an agent" if agent is None else f"agent {_name(agent)}"
    where = "" if row is None else f" in row {row}"
    return ArgumentError(f"{who} returned {what} from its act{where}, expected {expected}")


def _name(agent: Any) -> str:
    return f"{agent.getID()!r} ({type(agent).__name__})" if hasattr(agent, "getID") else type(agent).__name__


class World:
    """What agents meet in.

    A ``with`` statement shuts it down at its end, and ends quietly at Ctrl-C.

    Args:
        opt: options; a deep copy is kept as `opt`.
        agents: who takes turns in it, in this order; None for none of its own.
        shared: what `share` of another world returned, for a copy of it, whose agents are copies, too.

    Attributes:
        agents: the agents.
        acts: the last message of each.
        total_parleys: how many there have been.
    """

    def __init__(
        self,
        opt: Mapping[str, Any],
        agents: Sequence[Any] | None = None,
        shared: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt: dict[str, Any] = deepcopy(dict(opt))
        self.id = str(self.opt.get("task", "world"))
        given = create_agents_from_shared(shared["agents"]) if shared else list(agents or ())
        self.agents: list[Any] = given
        self.acts: list[Any] = [None] * len(given)
        self.total_parleys = 0
        self._ended_epochs = 0
        self._size: int | None = None
        self._began = time.monotonic()

    def parley(self) -> None:
        """Give every agent a turn: what it says, the others observe."""
        raise NotImplementedError(f"{type(self).__name__} has to define parley()")

    def getID(self) -> str:
        """Return the name of the task."""
        return self.id

    def display(self) -> str:
        """Return the last messages as text."""
        return "\n".join(_shown(act) for act in self.get_acts() if act)

    def episode_done(self) -> bool:
        """Say whether the episode is done."""
        return any(act and act.get("episode_done", False) for act in self.get_acts())

    def epoch_done(self) -> bool:
        """Say whether an agent, the teacher that is, has nothing left in this epoch."""
        return any(agent.epoch_done() for agent in self.agents)

    def num_examples(self) -> int:
        """Return how many examples an epoch has, 0 where that is not known."""
        return self._epoch_size(0)

    def num_episodes(self) -> int:
        """Return how many episodes an epoch has, 0 where that is not known."""
        return self._epoch_size(1)

    def _epoch_size(self, which: int) -> int:
        teacher: Any = self.agents[0] if self.agents else None
        if hasattr(teacher, "epoch_size"):
            return int(teacher.epoch_size()[which] or 0)
        count = getattr(teacher, ("num_examples", "num_episodes")[which], None)
        return int(count() or 0) if count is not None else 0

    def get_agents(self) -> list[Any]:
        """Return the agents."""
        return self.agents

    def get_acts(self) -> list[Any]:
        """Return the last message of each agent."""
        return self.acts

    def get_time(self) -> float:
        """Return the seconds since the world was made."""
        return time.monotonic() - self._began

    def get_total_exs(self) -> int:
        """Return how many examples there have been, rows without one among them."""
        return self.total_parleys * self._rows()

    def get_total_epochs(self) -> float:
        """Return how many epochs there have been, with the part of the one that has begun."""
        size = self._examples()
        return self.get_total_exs() / size if size else float(self._ended_epochs)

    def _rows(self) -> int:
        return 1

    def _examples(self) -> int:
        if self._size is None:
            self._size = self.num_examples()
        return self._size

    def update_counters(self) -> None:
        """Count a parley; a subclass that defines `parley` calls this at its end."""
        self.total_parleys += 1
        if not (self._size or self._examples()) and self.epoch_done():
            self._ended_epochs += 1

    def share(self) -> dict[str, Any]:
        """Return what a copy of the world is made of: its class, its options, and what its agents share."""
        agents = [agent.share() for agent in self.agents]
        return {"world_class": type(self), "opt": self.opt, "agents": agents}

    def report(self, compute_time: bool = False) -> dict[str, Any]:
        """Return what the teacher has counted.

        Args:
            compute_time: whether to add the seconds and parleys per second since the world was made.
        """
        found = self._report()
        if compute_time:
            seconds = self.get_time()
            found = {**found, "time": seconds, "parleys_per_second": self.total_parleys / max(seconds, 1e-9)}
        return found

    def _report(self) -> dict[str, Any]:
        for agent in self.agents:
            if hasattr(agent, "report"):
                return dict(agent.report())
        return {}

    def reset(self) -> None:
        """Begin a new epoch."""
        self.acts[:] = [None] * len(self.acts)
        for agent in self.agents:
            agent.reset()

    def reset_metrics(self) -> None:
        """Count anew."""
        for agent in self.agents:
            agent.reset_metrics()

    def save_agents(self) -> None:
        """Have every agent write what it has learned."""
        for agent in self.agents:
            agent.save()

    def shutdown(self) -> None:
        """Shut down the agents."""
        for agent in self.agents:
            agent.shutdown()

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.shutdown()
        return kind is KeyboardInterrupt


def _shown(act: Mapping[str, Any]) -> str:
    lines = [f"[{act.get('id', 'agent')}]:"]
    for key in _SHOWN_FIELDS:
        value = act.get(key)
        if value is None or value == "" or key == "reward" and not value:
            continue
        text = value if isinstance(value, str) else _join(value)
        text = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
        lines.append(f" {text}" if key == "text" else f" [{key}: {text}]")
    return "\n".join(lines)


def _join(value: Any) -> str:
    return "|".join(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else str(value)


class DialogPartnerWorld(World):
    """Two agents in turn: a teacher and the one that it teaches.

    Raises:
        ArgumentError: there are not two agents.
    """

    def __init__(
        self,
        opt: Mapping[str, Any],
        agents: Sequence[Any] | None = None,
        shared: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(opt, agents, shared)
        if len(self.agents) != 2:
            raise ArgumentError(
                f"agents has {len(self.agents)}, expected two: a teacher and the one that it teaches"
            )

    def parley(self) -> None:
        acts, (teacher, student) = self.acts, self.agents
        act = acts[0] = teacher.act()
        student.observe(act if type(act) is dict else validate(act, teacher))
        act = acts[1] = student.act()
        try:
            teacher.observe(act if type(act) is dict else validate(act, student))
        except TypeError:
            check_texts([act], student)
            raise
        self.update_counters()


class MultiAgentDialogWorld(World):
    """Any number of agents, each of whom speaks to all others in turn."""

    def parley(self) -> None:
        for index, agent in enumerate(self.agents):
            act = self.acts[index] = validate(agent.act(), agent)
            try:
                for other in self.agents:
                    if other is not agent:
                        other.observe(act)
            except TypeError:
                check_texts([act], agent)
                raise
        self.update_counters()


class ExecutableWorld(MultiAgentDialogWorld):
    """A world that what is said changes, and in which each agent sees its own part.

    A subclass defines `execute` and `observe`.
    """

    def execute(self, agent: Any, act: Any) -> None:
        """Let what an agent said change the world; nothing here."""

    def observe(self, agent: Any, act: Any) -> Any:
        """Return what an agent sees of a message: all of it, but nothing of its own ones; None: nothing.

        Args:
            act: the message of any of the agents.
        """
        return None if act.get("id") == agent.getID() else act

    def parley(self) -> None:
        for index, agent in enumerate(self.agents):
            act = self.acts[index] = validate(agent.act(), agent)
            self.execute(agent, act)
            try:
                for other in self.agents:
                    seen = self.observe(other, act)
                    if seen is not None:
                        other.observe(seen)
            except TypeError:
                check_texts([act], agent)
                raise
        self.update_counters()


class MultiWorld(World):
    """A world for each of several tasks, one of which is chosen whenever an episode begins.

    In training the choice is drawn; elsewhere the tasks follow each other in turn, until all are done.

    Args:
        opt: options; ``task`` names the tasks, with commas between.
        agents: who meets the teacher of every task.
        default_world: the class of the worlds (default: as `create_task_world` picks it).
    """

    def __init__(
        self,
        opt: Mapping[str, Any],
        agents: Sequence[Any] | None = None,
        shared: Mapping[str, Any] | None = None,
        default_world: type[World] | None = None,
    ) -> None:
        super().__init__(opt)
        if shared:
            self.worlds: list[World] = [
                each["world_class"](each["opt"], None, each) for each in shared["worlds"]
            ]
        else:
            # sorted batches of one task leave no place for another
            single = {**self.opt, "batch_sort": False}
            self.worlds = [
                create_task_world({**single, "task": task}, agents or (), default_world)
                for task in task_names(self.opt["task"])
            ]
        self.random = self.opt.get("datatype", "train") == "train"
        self.world_idx = -1

    @property
    def _current(self) -> World:
        return self.worlds[max(self.world_idx, 0)]

    def parley_init(self) -> None:
        """Choose the task of the next parley: another one when the episode is done."""
        if self.world_idx >= 0 and not self._current.episode_done() and any(self._current.get_acts()):
            return
        self.world_idx = max(next_task(self.worlds, self.world_idx, self.random), 0)

    def parley(self) -> None:
        self.parley_init()
        self._current.parley()
        self.update_counters()

    def display(self) -> str:
        return f"[world {self.world_idx}: {self._current.getID()}]\n{self._current.display()}"

    def get_agents(self) -> list[Any]:
        return self._current.get_agents()

    def get_acts(self) -> list[Any]:
        return self._current.get_acts()

    def episode_done(self) -> bool:
        return self._current.episode_done()

    def epoch_done(self) -> bool:
        return all(world.epoch_done() for world in self.worlds)

    def _epoch_size(self, which: int) -> int:
        return sum(world._epoch_size(which) for world in self.worlds)

    def share(self) -> dict[str, Any]:
        worlds = [world.share() for world in self.worlds]
        return {"world_class": type(self), "opt": self.opt, "worlds": worlds}

    def _report(self) -> dict[str, Any]:
        return aggregate_metrics(reports_by_name((world.getID(), world.report()) for world in self.worlds))

    def reset(self) -> None:
        self.world_idx = -1
        for world in self.worlds:
            world.reset()

    def reset_metrics(self) -> None:
        for world in self.worlds:
            world.reset_metrics()

    def save_agents(self) -> None:
        self.worlds[0].save_agents()

    def shutdown(self) -> None:
        for world in self.worlds:
            world.shutdown()


def next_task(tasks: Sequence[Any], current: int, is_random: bool) -> int:
    """Return the number of the next of several teachers or worlds: a drawn one, or the next that is not done.

    Args:
        current: the one before, which is returned when all are done; -1: none.
    """
    if is_random:
        return random.randrange(len(tasks))
    candidates = ((current + step) % len(tasks) for step in range(1, len(tasks) + 1))
    return next((number for number in candidates if not tasks[number].epoch_done()), current)


def task_names(names: str) -> list[str]:
    """Return the names of tasks that have commas between."""
    return [name.strip() for name in str(names).split(",") if name.strip()]


def create_task_world(
    opt: Mapping[str, Any], user_agents: Sequence[Any], default_world: type[World] | None = None
) -> World:
    """Return the plain world of one task.

    Args:
        opt: options; ``task`` names the teacher.
        default_world: the class of the world (default: `DialogPartnerWorld` for one agent besides the teacher,
            `MultiAgentDialogWorld` for more).

    Raises:
        ArgumentError: there is no such task.
    """
    agents = [create_teacher(opt, opt["task"]), *user_agents]
    world = default_world or (DialogPartnerWorld if len(agents) == 2 else MultiAgentDialogWorld)
    return world(opt, agents)
