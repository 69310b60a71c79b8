"""Examples of episodes: loading ahead, flattening, sorting into batches, history, and positions to resume from.

Source: ParlAI's "Batching and Hogwild"; Morishita et al., "An Empirical Study of Mini-Batch Creation
Strategies for Neural Machine Translation" (2017), which sorts by the source, ties by the target.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Queue
from random import Random
from typing import Any

import torch

from .._devices.shared_memory import shared_bytes
from ..base import ArgumentError


class DataLoader:
    """Calls functions one after the other in a thread; every process has its own thread.

    Source: ParlAI's DataLoader of 2018.
    """

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._executor = ThreadPoolExecutor(1, "dpmodule-data-loader")

    def request_load(
        self,
        receive_fn: Callable[[Future[Any]], Any],
        load_fn: Callable[..., Any],
        args: Sequence[Any] | Mapping[str, Any],
    ) -> None:
        """Schedule a function call.

        Args:
            receive_fn: called with the future after the function has returned or raised.
            args: arguments of `load_fn`, by position or by name.
        """
        if self._pid != os.getpid():  # after a fork, the thread is only in the parent
            self._start()
        if isinstance(args, Mapping):
            future = self._executor.submit(load_fn, **args)
        else:
            future = self._executor.submit(load_fn, *args)
        future.add_done_callback(receive_fn)

    def __reduce__(self) -> tuple[Any, ...]:
        return DataLoader, ()


class LoadedQueue(Queue[Any]):
    """A queue that also takes futures: `get` returns their results or raises their exceptions."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item; see `queue.Queue`."""
        item = super().get(block, timeout)
        return item.result() if isinstance(item, Future) else item


Message = dict[str, Any]


def flatten(
    episodes: Iterable[Iterable[Mapping[str, Any]]],
    context_length: int = -1,
    include_labels: bool = True,
    rng: Random | None = None,
) -> Iterator[Message]:
    r"""Yield every example of every episode as an episode of its own, with the preceding dialogue in its text.

    Args:
        episodes: the examples of each episode, in order.
        context_length: number of texts and labels in an example, including its own text; -1: all; 0 and 1: only its own
            text.
        include_labels: whether the context includes a random label of each earlier example.

    Example:
        >>> talk = [{"text": "a", "labels": ["b"]}, {"text": "c", "labels": ["d"]}]
        >>> [example["text"] for example in flatten([talk])]
        ['a', 'a\nb\nc']
    """
    rng = Random(0) if rng is None else rng
    for episode in episodes:
        context: deque[str] = deque(maxlen=None if context_length < 0 else max(context_length, 1))
        for example in episode:
            context.append(example.get("text") or "")
            flat = {**example, "episode_done": True}
            if len(context) > 1:
                flat["text"] = "\n".join(context)
            yield flat
            labels = example.get("labels") or example.get("eval_labels")
            if include_labels and labels:
                context.append(rng.choice(tuple(labels)))


def sort_data(examples: Iterable[Message], by_labels: bool, rng: Random) -> list[Message]:
    """Return examples sorted by the number of spaces in their texts, ties in random order.

    Args:
        by_labels: whether ties are sorted by the mean number of spaces in their labels.
    """
    return sorted(examples, key=lambda example: (*_lengths(example, by_labels), rng.random()))


def _lengths(example: Message, by_labels: bool) -> tuple[int, float]:
    text = example.get("text")
    labels = (example.get("labels") or ()) if by_labels else ()
    spaces = sum(label.count(" ") for label in labels)
    return (text.count(" ") if text else 0), (spaces / len(labels) if labels else 0.0)


def make_batches(examples: Sequence[Message], size: int) -> list[list[Message]]:
    """Return the examples in batches of a size; the last batch may be smaller."""
    return [list(examples[start : start + size]) for start in range(0, len(examples), size)]


class DialogHistory:
    r"""Prepends the history of an episode to each observation, as `flatten` does for sorted batches.

    Args:
        opt: options: ``context_length``: number of texts and labels, including the current text (default -1: all);
            ``include_labels``: whether to include the first label of each example (default True).

    Example:
        >>> history = DialogHistory({})
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
        """Return an observation with the history of the episode in its text, and add it to the history."""
        context, text = self._context, observation.get("text")
        is_done = observation.get("episode_done", False)
        if text is None or (is_done and not context):
            if is_done:
                context.clear()
            return observation
        context.append(text)
        extended = {**observation, "text": "\n".join(context)} if len(context) > 1 else observation
        labels = observation.get("labels") or observation.get("eval_labels")
        if is_done:
            context.clear()
        elif self._with_labels and labels:
            context.append(next(iter(labels)))
        return extended

    @property
    def texts(self) -> list[str]:
        """Texts and labels of the episode so far."""
        return list(self._context)

    @texts.setter
    def texts(self, texts: Sequence[str]) -> None:
        self._context.clear()
        self._context.extend(texts)

    def clear(self) -> None:
        """Forget the episode."""
        self._context.clear()


_FIELDS = 3
_BYTES = 8


class EpisodePositions:
    """Position of each copy of a teacher: the episode, the example in it, and whether the episode continues.

    Args:
        rows: number of copies: workers times rows of a batch.
        state: an earlier result of `state` to resume from; None: no copy is within an episode.
    """

    def __init__(self, rows: int, state: Sequence[Sequence[int]] | None = None) -> None:
        self._memory = torch.zeros((rows, _FIELDS), dtype=torch.int64)
        if state:
            if len(state) != rows:
                raise ArgumentError(
                    f"the saved positions belong to {len(state)} copies of the teacher, expected {rows}"
                )
            self._memory[:] = torch.tensor(state, dtype=torch.int64)

    def expect_workers(self) -> None:
        """Move the positions to shared memory."""
        memory = shared_bytes("the positions of a teacher", _BYTES * self._memory.numel())
        moved = memory.view(torch.int64).view(-1, _FIELDS)
        moved.copy_(self._memory)
        self._memory = moved

    def row(self, number: int) -> Any:
        """Return the position of one copy as a writable array of three numbers."""
        return self._memory.numpy()[number]

    def state(self) -> list[list[int]]:
        """Return all positions as plain numbers."""
        return self._memory.tolist()
