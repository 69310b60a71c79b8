"""`LocalHumanAgent`: the agent of a person at the keyboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..agent import Agent
from .utils import display_messages, load_cands

__all__ = ["LocalHumanAgent"]

Message = dict[str, Any]


class LocalHumanAgent(Agent):
    r"""Prints what it observes, and acts with typed lines.

    ``\n`` in a line means a new line, ``[DONE]`` ends the episode, and ``[EXIT]`` or the end of the input ends the
    dialogue.

    Args:
        opt: options; ``local_human_candidates_file``: file with candidates that each message offers; ``single_turn``:
            whether each line is a dialogue of its own; ``display_ignore_fields``: fields that are not printed.
    """

    @staticmethod
    def add_cmdline_args(argparser: Any) -> Any:
        """Add the options to a parser, and return their group.

        Args:
            argparser: the `ParlaiParser`.
        """
        group = argparser.add_argument_group("person at the keyboard")
        group.add_argument(
            "-fixedCands",
            "--local-human-candidates-file",
            metavar="PATH",
            help="file of candidates that each message offers",
        )
        group.add_argument(
            "--single_turn", type="bool", default=False, help="each line is a dialogue of its own"
        )
        return group

    def __init__(self, opt: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> None:
        super().__init__(opt, shared)
        self.id = "localHuman"
        self.episodeDone = self.finished = False
        self._candidates = load_cands(self.opt.get("local_human_candidates_file"))

    def observe(self, observation: Any) -> Any:
        self.observation = observation
        text = display_messages([observation], ignore_fields=self.opt.get("display_ignore_fields") or "")
        print(text, flush=True)
        return observation

    def act(self) -> Message:
        try:
            text = input("Enter Your Message: ").replace("\\n", "\n")
        except EOFError:
            text = "[EXIT]"
        self.finished = "[EXIT]" in text
        self.episodeDone = self.finished or "[DONE]" in text or bool(self.opt.get("single_turn", False))
        reply: Message = {"id": self.getID(), "episode_done": self.episodeDone}
        if self._candidates:
            reply["label_candidates"] = self._candidates
        if not self.finished:
            reply["text"] = text.replace("[DONE]", "")
        return reply

    def episode_done(self) -> bool:
        """Return True if the last line ended the episode."""
        return self.episodeDone

    def epoch_done(self) -> bool:
        return self.finished
