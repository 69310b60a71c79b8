"""`Agent`: what observes and acts; making agents from options, and copies of them from what they share.

Source: ParlAI of 2018 (Miller et al., "ParlAI: A Dialog Research Software Platform", EMNLP 2017).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from ..base import ArgumentError, FileError
from .loading import agent_class, module_named
from .options import RUN_OPTIONS, check_names, load_options, options_file

__all__ = ["Agent", "create_agent", "create_agent_from_shared", "create_agents_from_shared"]


class Agent:
    """Something that observes what others say, and says something itself.

    A message is a dict: ``text``, ``labels`` or ``eval_labels``, ``label_candidates``, ``reward``, ``episode_done``,
    ``id``, and whatever else both sides know; a reply may have ``text_candidates`` (best first) and ``metrics`` (a dict
    of numbers, which the teacher's report averages).

    A subclass for batches defines ``batch_act(observations)``: it gets what `observe` of each row's copy returned, and
    returns a list with one reply for each. It is called on the original instance, and `act` is not, while the batch
    size is above 1, unless the attribute ``use_batch_act`` is False. It is not defined here: an agent without it acts
    copy by copy.

    Args:
        opt: options, a dict; a deep copy of them is kept as `opt`.
        shared: what `share` of another instance returned, for a copy of that; None for an original.

    Example:
        >>> class Parrot(Agent):
        ...     def act(self):
        ...         return {"id": self.getID(), "text": self.observation["text"]}
        >>> parrot = Parrot({})
        >>> parrot.observe({"text": "hello"})
        {'text': 'hello'}
        >>> parrot.act()["text"]
        'hello'
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        # a subclass may have set them before, as in ParlAI
        if not hasattr(self, "id"):
            self.id = "agent"
        if not hasattr(self, "opt"):
            self.opt: dict[str, Any] = deepcopy(dict(opt))
        self.observation: Any = None

    def observe(self, observation: Any) -> Any:
        """Take what another agent said; return it, changed or not: that is what `batch_act` gets.

        Args:
            observation: the message of the other agent, a mapping with keys such as ``text`` and
                ``episode_done``.
        """
        self.observation = observation
        return observation

    def act(self) -> dict[str, Any]:
        """Return a message."""
        return {"id": self.getID(), "text": "hello, teacher!"}

    def getID(self) -> str:
        """Return what this agent is called in its messages."""
        return self.id

    def epoch_done(self) -> bool:
        """Say whether all examples have been seen; a teacher knows."""
        return False

    def reset(self) -> None:
        """Forget the dialogue so far."""
        self.observation = None

    def reset_metrics(self) -> None:
        """Begin to count anew; there is nothing to count here."""

    def save(self, path: str | None = None) -> None:
        """Write what has been learned to a file; there is nothing to write here.

        Args:
            path: where to write; None for the place that the options name.
        """

    def share(self) -> dict[str, Any]:
        """Return what a copy of this agent is made of; a subclass adds to what ``super().share()`` returns.

        The same function serves the rows of a batch and the workers of Hogwild training.
        """
        return {"class": type(self), "opt": self.opt}

    def shutdown(self) -> None:
        """Let go of what has to be closed; there is nothing here."""


def create_agent(opt: Mapping[str, Any], requireModelExists: bool = False) -> Any:
    """Return the agent that options name.

    Where ``opt["model_file"]`` has been saved, the options in the file beside it (``.opt``) count more than `opt`, and
    ``opt["override"]``, a dict, more than these. Options of a run, such as ``task``, are not read from there.

    Args:
        opt: options; ``model`` is the name of an agent that is ready, such as ``"repeat_label"``, or
            ``"package.module:Class"``; what stands behind another colon is its option ``model_arguments``.
        requireModelExists: refuse a model file that has not been saved.

    Raises:
        ArgumentError: no agent is named, there is none of the name, the saved options name one in a module that is
            neither ours nor named in `opt`, too, or the name of an option is misspelt.
        FileError: the model file has not been saved, and that is required, or no agent is named to make one.
        FileFormatError: the saved options are no JSON.
    """
    check_names(opt)
    merged, trusted = dict(opt), None
    path = opt.get("model_file")
    if path and os.path.isfile(options_file(path)):
        found = load_options(options_file(path))
        # a task, too, names code
        saved = {name: value for name, value in found.items() if name not in RUN_OPTIONS}
        own = opt.get("override") or {}
        trusted = [module_named(opt.get("model")), module_named(own.get("model"))]
        merged = {**merged, **saved, **own, "model_file": path}
    elif path and (requireModelExists or not opt.get("model")):
        hint = "" if requireModelExists else "; correct model_file, or name the agent to make as model"
        raise FileError(2, f"there is no saved model{hint}", options_file(path))
    if not merged.get("model"):
        raise ArgumentError(
            "model is not set; name an agent, such as 'repeat_label' or 'package.module:Class' "
            '(opt["model"], --model)'
        )
    kind, arguments = agent_class(merged["model"], trusted)
    merged["model_arguments"] = arguments
    return kind(merged)


def create_agent_from_shared(shared: Mapping[str, Any]) -> Any:
    """Return a copy of an agent from what its `share` returned: of its class, with a deep copy of its options.

    Args:
        shared: what `share` of the agent returned, with ``class`` and ``opt``.
    """
    return shared["class"](deepcopy(shared["opt"]), shared)


def create_agents_from_shared(shared: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return a copy of every agent; see `create_agent_from_shared`.

    Args:
        shared: one such mapping for each agent.
    """
    return [create_agent_from_shared(each) for each in shared]
