"""Episodes squashed into single examples, and examples sorted into batches of similar length.

Source: the tables of ParlAI's "Batching and Hogwild"; Morishita et al., "An Empirical Study of Mini-Batch Creation
Strategies for Neural Machine Translation" (2017), which sorts by the source, ties by the target.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

__all__ = ["flatten", "make_batches", "sort_data"]

Message = dict[str, Any]


def flatten(
    episodes: Iterable[Iterable[Mapping[str, Any]]],
    context_length: int = -1,
    include_labels: bool = True,
    rng: Random | None = None,
) -> Iterator[Message]:
    r"""Yield an example of its own for every example of every episode, with what came before it in its text.

    Args:
        episodes: the examples of each episode, in order.
        context_length: how many texts and labels an example has in all, its own text among them; -1: all; 0 and 1: its
            own text alone.
        include_labels: whether labels of earlier examples are in the context, one of each, drawn at random.
        rng: what draws them.

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
            made = {**example, "episode_done": True}
            if len(context) > 1:
                made["text"] = "\n".join(context)
            yield made
            labels = example.get("labels") or example.get("eval_labels")
            if include_labels and labels:
                context.append(rng.choice(tuple(labels)))


def sort_data(examples: Iterable[Message], by_labels: bool, rng: Random) -> list[Message]:
    """Return examples by the number of spaces in their texts, equal ones in a random order.

    Args:
        examples: what to sort.
        by_labels: whether those with equal texts are sorted by the mean number of spaces in their labels, if they
            have any.
        rng: what breaks ties.
    """
    return sorted(examples, key=lambda example: (*_lengths(example, by_labels), rng.random()))


def _lengths(example: Message, by_labels: bool) -> tuple[int, float]:
    text = example.get("text")
    labels = (example.get("labels") or ()) if by_labels else ()
    spaces = sum(label.count(" ") for label in labels)
    return (text.count(" ") if text else 0), (spaces / len(labels) if labels else 0.0)


def make_batches(examples: Sequence[Message], size: int) -> list[list[Message]]:
    """Return the examples in batches of a size; the last one has what is left."""
    return [list(examples[start : start + size]) for start in range(0, len(examples), size)]
