"""The dictionary of an agent that learns: built of its task's training examples, and saved beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ..base import ArgumentError
from .agent import teacher_of
from .dictionary import DictionaryAgent
from .worlds import task_names

__all__ = ["build_dict", "dictionary_file", "training_examples"]

_MOST_MADE_UP = 100_000
"""How many examples are taken of a task that does not say how many it has."""


def dictionary_file(model_file: str) -> str:
    """Return the path of the dictionary that belongs to a model file."""
    return f"{model_file}.dict"


def training_examples(opt: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the training examples of the tasks that options name, each once; none without a task.

    Args:
        opt: options; ``task``, and what its teacher reads.
    """
    plain = {**opt, "datatype": "train:ordered", "batchsize": 1, "numthreads": 1, "batch_sort": False}
    for name in task_names(opt.get("task") or ""):
        yield from _of(teacher_of(plain, name))


def _of(teacher: Any) -> Iterator[dict[str, Any]]:
    most = teacher.num_examples() or _MOST_MADE_UP
    try:
        while most and not teacher.epoch_done():
            example = teacher.act()
            most -= 1
            if example.get("text") is not None:
                yield example
    finally:
        teacher.shutdown()


def build_dict(opt: Mapping[str, Any]) -> DictionaryAgent:
    """Return a dictionary of the training examples, sorted by falling count, and write ``opt["dict_file"]`` if set.

    Rows of batches and workers use one dictionary, whose ids are positions in tables; so it is complete before anything
    is learned.

    Args:
        opt: options; see `DictionaryAgent`; ``dict_maxexs``: how many examples are read (default -1: all).

    Raises:
        ArgumentError: there is no task.
    """
    if not task_names(opt.get("task") or ""):
        raise ArgumentError(
            'there is no dictionary: set opt["dict_file"] to one, or opt["task"] to the task whose training examples '
            "it is to be built of"
        )
    dictionary = DictionaryAgent(opt)
    most = int(opt.get("dict_maxexs") or -1)
    for example in islice(training_examples(opt), None if most < 0 else most):
        dictionary.observe(example)
        dictionary.act()
    dictionary.sort()
    if opt.get("dict_file"):
        dictionary.save(sort=False)
    return dictionary
