"""`History`: what was said in an episode so far, put in front of what is said now."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["History"]


class History:
    r"""Makes of every observation of an episode what `squash.flatten` makes of it beforehand, in sorted batches.

    Args:
        opt: options: ``context_length``: how many texts and labels count, the present text among them (default -1:
            all); ``include_labels``: whether labels do (default True), the first of each.

    Example:
        >>> history = History({})
        >>> history.extended({"text": "a", "labels": ["b"], "episode_done": False})["text"]
        'a'
        >>> history.extended({"text": "c", "labels": ["d"], "episode_done": True})["text"]
        'a\nb\nc'
    """

    __slots__ = ("_context", "_with_labels")

    def __init__(self, opt: Mapping[str, Any]) -> None:
        length = int(opt.get("context_length", -1))
        self._context: deque[str] = deque(maxlen=None if length < 0 else max(length, 1))
        self._with_labels = bool(opt.get("include_labels", True))

    def extended(self, observation: Any) -> Any:
        """Return an observation with what came before it in its text, and remember it until the episode is done."""
        context, text = self._context, observation.get("text")
        is_done = observation.get("episode_done", False)
        if text is None or (is_done and not context):
            if is_done:
                context.clear()
            return observation
        context.append(text)
        found = {**observation, "text": "\n".join(context)} if len(context) > 1 else observation
        labels = observation.get("labels") or observation.get("eval_labels")
        if is_done:
            context.clear()
        elif self._with_labels and labels:
            context.append(next(iter(labels)))
        return found

    @property
    def texts(self) -> list[str]:
        """What has been said in the episode so far."""
        return list(self._context)

    @texts.setter
    def texts(self, texts: Sequence[str]) -> None:
        self._context.clear()
        self._context.extend(texts)

    def clear(self) -> None:
        """Forget the episode."""
        self._context.clear()
