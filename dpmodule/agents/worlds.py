"""Worlds, in which agents take turns, one `parley` after the other.

Source: worlds of ParlAI, 2018.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ..base import ArgumentError
from .agent import create_agents_from_shared, create_teacher
from .metrics import aggregate_metrics, reports_by_name

_SHOWN_FIELDS = ("text", "labels", "eval_labels", "label_candidates", "reward")
_MAX_SHOWN = 1000


def validate(act: Any, agent: Any = None, row: int | None = None) -> Any:
    """Return a message after checking that it is a dict.

    Args:
        act: result of an agent's `act`.

    Raises:
        ArgumentError: it is not a dict; the text names the agent and the row of the batch.
    """
    if isinstance(act, dict):
        return act
    what = "None" if act is None else f"something of type {type(act).__name__}"
    raise _invalid_act(what, "a dict with a message", agent, row)


def check_texts(acts: Sequence[Any], agent: Any) -> None:
    """Raise if the text of a message is not a str; called after an agent failed to observe the messages.

    Args:
        acts: messages of an agent, one for every row of a batch.
    """
    for row, act in enumerate(acts):
        text = act.get("text")
        if text is not None and not isinstance(text, str):
            what = f"a message whose text is of type {type(text).__name__}"
            raise _invalid_act(what, "a str", agent, row if len(acts) > 1 else None)


def _invalid_act(what: str, expected: str, agent: Any, row: int | None) -> ArgumentError:
    subject = "an agent" if agent is None else f"agent {_name(agent)}"
    where = "" if row is None else f" in row {row}"
    return ArgumentError(f"{subject} returned {what} from its act{where}, expected {expected}")


def _name(agent: Any) -> str:
    return f"{agent.getID()!r} ({type(agent).__name__})" if hasattr(agent, "getID") else type(agent).__name__


class World:
    """An environment in which agents interact.

    At the end of a ``with`` statement it shuts down; Ctrl-C ends the statement without an exception.

    Args:
        opt: options; `opt` is a deep copy.
        agents: the agents in the order of their turns; None: none.
        shared: result of `share` of another world, to make a copy of it and its agents.

    Attributes:
        agents: the agents.
        acts: the last message of each agent.
        total_parleys: number of parleys so far.
    """

    def __init__(
        self,
        opt: Mapping[str, Any],
        agents: Sequence[Any] | None = None,
        shared: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt: dict[str, Any] = deepcopy(dict(opt))
        self.id = str(self.opt.get("task", "world"))
        self.agents: list[Any] = create_agents_from_shared(shared["agents"]) if shared else list(agents or ())
        self.acts: list[Any] = [None] * len(self.agents)
        self.total_parleys = 0
        self._ended_epochs = 0
        self._size: int | None = None
        self._began = time.monotonic()

    def parley(self) -> None:
        """Give every agent a turn; the others observe its message."""
        raise NotImplementedError(f"{type(self).__name__} must define parley()")

    def getID(self) -> str:
        """Return the name of the task."""
        return self.id

    def display(self) -> str:
        """Return the last messages as text."""
        return shown_messages(self.get_acts())

    def episode_done(self) -> bool:
        """Return True if the episode is done."""
        return any(act and act.get("episode_done", False) for act in self.get_acts())

    def epoch_done(self) -> bool:
        """Return True if an agent, usually the teacher, has nothing left in this epoch."""
        return any(agent.epoch_done() for agent in self.agents)

    def num_examples(self) -> int:
        """Return the number of examples of an epoch, 0 if it is unknown."""
        return self._epoch_size(0)

    def num_episodes(self) -> int:
        """Return the number of episodes of an epoch, 0 if it is unknown."""
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
        """Return the seconds since the world was created."""
        return time.monotonic() - self._began

    def get_total_exs(self) -> int:
        """Return the number of examples so far, including rows without an example."""
        return self.total_parleys * self._rows()

    def get_total_epochs(self) -> float:
        """Return the number of epochs so far, including the fraction of the current one."""
        size = self._examples()
        return self.get_total_exs() / size if size else float(self._ended_epochs)

    def _rows(self) -> int:
        return 1

    def _examples(self) -> int:
        if self._size is None:
            self._size = self.num_examples()
        return self._size

    def update_counters(self) -> None:
        """Count a parley; `parley` of a subclass calls this at its end."""
        self.total_parleys += 1
        if not (self._size or self._examples()) and self.epoch_done():
            self._ended_epochs += 1

    def share(self) -> dict[str, Any]:
        """Return the state for a copy of the world: its class, its options, and the shared state of its agents."""
        agents = [agent.share() for agent in self.agents]
        return {"world_class": type(self), "opt": self.opt, "agents": agents}

    def report(self, compute_time: bool = False) -> dict[str, Any]:
        """Return the teacher's report.

        Args:
            compute_time: whether to add the seconds and parleys per second since the world was created.
        """
        report = self._report()
        if compute_time:
            seconds = self.get_time()
            report = {
                **report,
                "time": seconds,
                "parleys_per_second": self.total_parleys / max(seconds, 1e-9),
            }
        return report

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
        """Reset the metrics of all agents."""
        for agent in self.agents:
            agent.reset_metrics()

    def save_agents(self) -> None:
        """Save every agent."""
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


def shown_messages(acts: Iterable[Any], ignored: Collection[str] = (), most: int = _MAX_SHOWN) -> str:
    """Return messages as text.

    Args:
        acts: the messages; None is left out.
        ignored: fields that are left out.
        most: largest number of characters of a field.
    """
    return "\n".join(_shown(act, ignored, most) for act in acts if act)


def _shown(act: Mapping[str, Any], ignored: Collection[str], most: int) -> str:
    lines = [f"[{act.get('id', 'agent')}]:"]
    for key in _SHOWN_FIELDS:
        value = act.get(key)
        if key in ignored or value is None or value == "" or key == "reward" and not value:
            continue
        text = value if isinstance(value, str) else _join(value)
        text = text if len(text) <= most else f"{text[:most]}..."
        lines.append(f" {text}" if key == "text" else f" [{key}: {text}]")
    return "\n".join(lines)


def _join(value: Any) -> str:
    return "|".join(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else str(value)


class DialogPartnerWorld(World):
    """Two agents that take turns: a teacher and a student.

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
            raise ArgumentError(f"agents has {len(self.agents)} items, expected two: a teacher and a student")

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
    """Any number of agents that take turns; all others observe each message."""

    def parley(self) -> None:
        for index, agent in enumerate(self.agents):
            act = self.acts[index] = validate(agent.act(), agent)
            try:
                self._pass_on(agent, act)
            except TypeError:
                check_texts([act], agent)
                raise
        self.update_counters()

    def _pass_on(self, agent: Any, act: Any) -> None:
        for other in self.agents:
            if other is not agent:
                other.observe(act)


class ExecutableWorld(MultiAgentDialogWorld):
    """A world that messages change, and that shows each agent its own view.

    A subclass defines `execute` and `observe`.
    """

    def execute(self, agent: Any, act: Any) -> None:
        """Apply the message of an agent to the world; does nothing by default."""

    def observe(self, agent: Any, act: Any) -> Any:
        """Return an agent's view of a message, None if it sees nothing: by default all messages of others.

        Args:
            act: the message of any agent.
        """
        return None if act.get("id") == agent.getID() else act

    def _pass_on(self, agent: Any, act: Any) -> None:
        self.execute(agent, act)
        for other in self.agents:
            seen = self.observe(other, act)
            if seen is not None:
                other.observe(seen)


class MultiWorld(World):
    """A world for each of several tasks, one of which is chosen whenever an episode begins.

    In training the choice is random; otherwise the tasks take turns until all are done.

    Args:
        opt: options; ``task``: names of the tasks, separated by commas.
        agents: the agents in addition to the teacher of every task.
        default_world: class of the worlds (default: that of `create_task_world`).
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
                state["world_class"](state["opt"], None, state) for state in shared["worlds"]
            ]
        else:
            # sorted batches belong to one task
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
        """Choose the task of the next parley: a new one if the episode is done."""
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
    """Return the index of the next teacher or world: a random one, or the next one that is not done.

    Args:
        current: index of the current one, which is returned if all are done; -1: none.
    """
    if is_random:
        return random.randrange(len(tasks))
    candidates = ((current + step) % len(tasks) for step in range(1, len(tasks) + 1))
    return next((number for number in candidates if not tasks[number].epoch_done()), current)


def task_names(names: str) -> list[str]:
    """Return the names of tasks, separated by commas in `names`."""
    return [name.strip() for name in str(names).split(",") if name.strip()]


def create_task_world(
    opt: Mapping[str, Any], user_agents: Sequence[Any], default_world: type[World] | None = None
) -> World:
    """Return the plain world of one task.

    Args:
        opt: options; ``task`` names the teacher.
        default_world: class of the world (default: `DialogPartnerWorld` for a teacher and one agent,
            `MultiAgentDialogWorld` for more).

    Raises:
        ArgumentError: the task is unknown.
    """
    agents = [create_teacher(opt, opt["task"]), *user_agents]
    world = default_world or (DialogPartnerWorld if len(agents) == 2 else MultiAgentDialogWorld)
    return world(opt, agents)
