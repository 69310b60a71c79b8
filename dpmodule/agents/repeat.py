"""Agents that learn nothing: `RepeatLabelAgent`, `RepeatQueryAgent` and `RandomCandidateAgent`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from .agent import Agent

__all__ = ["RandomCandidateAgent", "RepeatLabelAgent", "RepeatQueryAgent"]

Message = dict[str, Any]
_NOTHING = "I don't know."


class RepeatLabelAgent(Agent):
    """Says one of the labels, which makes it right wherever it may see them.

    Args:
        opt: options; ``returnOneRandomAnswer`` (default True): one label, drawn at random, and not all in one text;
            ``cantAnswerPercent``: how often it does not know, from 0 to 1 (default 0); ``cantAnswerMessage``: what it
            says then.
        shared: of another instance.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "RepeatLabelAgent"
        self.returnOneRandomAnswer = bool(self.opt.get("returnOneRandomAnswer", True))
        self.cantAnswerPercent = float(self.opt.get("cantAnswerPercent", 0))
        self.cantAnswerMessage = str(self.opt.get("cantAnswerMessage", _NOTHING))

    def act(self) -> Message:
        """Return a label as the reply."""
        reply: Message = {"id": self.getID()}
        seen = self.observation or {}
        labels = seen.get("labels") or seen.get("eval_labels")
        if labels and not (self.cantAnswerPercent and random.random() < self.cantAnswerPercent):
            labels = list(labels)
            reply["text"] = random.choice(labels) if self.returnOneRandomAnswer else ", ".join(labels)
        elif seen.get("text") is not None or labels:
            reply["text"] = self.cantAnswerMessage
        return reply


class RepeatQueryAgent(Agent):
    """Says what it was asked."""

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "RepeatQueryAgent"

    def act(self) -> Message:
        """Return the question as the reply."""
        text = (self.observation or {}).get("text")
        return {"id": self.getID(), "text": "Nothing to repeat yet." if text is None else text}


class RandomCandidateAgent(Agent):
    """Says one of the candidates, and ranks all of them at random.

    Args:
        opt: options; it draws with Python's `random`.
        shared: of another instance.
    """

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "RandomCandidateAgent"

    def act(self) -> Message:
        """Return the candidates in a random order, the first of which is the reply."""
        candidates = list((self.observation or {}).get("label_candidates") or ())
        if not candidates:
            return {"id": self.getID(), "text": _NOTHING}
        random.shuffle(candidates)
        return {"id": self.getID(), "text": candidates[0], "text_candidates": candidates}
