"""Helpers of `parlai.core.utils` that public programs import.

Source: interfaces of ParlAI, 2018.
"""

from __future__ import annotations

import random
import time
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

import torch

from .. import examples
from ..agent import create_agent
from ..dialog_files import DialogFile
from ..metrics import round_sigfigs as _rounded
from ..parser import ParlaiParser
from ..worlds import shown_messages

Message = dict[str, Any]

__all__ = [
    "AttrDict",
    "NoLock",
    "PaddingUtils",
    "Predictor",
    "TimeLogger",
    "Timer",
    "argsort",
    "display_messages",
    "flatten",
    "load_cands",
    "maintain_dialog_history",
    "make_batches",
    "no_lock",
    "padded_tensor",
    "round_sigfigs",
    "set_namedtuple_defaults",
    "sort_data",
    "warn_once",
]


class Timer:
    """Measures seconds; it runs from the start."""

    def __init__(self) -> None:
        self._before, self._began = 0.0, time.perf_counter()
        self.running = True

    def reset(self) -> Timer:
        """Start again from 0."""
        self.__init__()  # type: ignore[misc]
        return self

    def resume(self) -> Timer:
        """Run again after `stop`."""
        if not self.running:
            self._began, self.running = time.perf_counter(), True
        return self

    def stop(self) -> Timer:
        """Stop; `time` keeps its value."""
        self._before, self.running = self.time(), False
        return self

    def time(self) -> float:
        """Return the seconds for which it has run."""
        return self._before + (time.perf_counter() - self._began if self.running else 0.0)


class TimeLogger:
    """Describes the progress of a loop."""

    def __init__(self) -> None:
        self.timer = Timer()
        self.tot_time = 0.0

    def total_time(self) -> float:
        """Return the seconds at the last call of `log`."""
        return self.tot_time

    def time(self) -> float:
        """Return the seconds since the last call of `log`."""
        return self.timer.time()

    def log(self, done: float, total: float, report: Mapping[str, Any] | None = None) -> tuple[str, Message]:
        """Return a line about the progress, and its numbers.

        Args:
            done: number of finished examples.
            total: number of examples.
            report: metrics that are added.
        """
        self.tot_time += self.timer.time()
        self.timer.reset()
        found: Message = {"exs": done}
        if total > 0:
            found["%done"] = _rounded(done / total * 100, 2)
        if 0 < done < total:
            found["time_left"] = f"{int(self.tot_time / done * (total - done))}s"
        found.update({name: value for name, value in (report or {}).items() if name not in found})
        return f"{int(self.tot_time)}s elapsed: {found}", found


class AttrDict(dict[str, Any]):
    """A dict whose items are also attributes."""

    def __init__(self, *items: Any, **more: Any) -> None:
        super().__init__(*items, **more)
        self.__dict__ = self


class NoLock(nullcontext[None]):
    """A lock that does nothing."""


_NO_LOCK = NoLock()


def no_lock() -> NoLock:
    """Return a context manager that does nothing, in place of a lock."""
    return _NO_LOCK


_warned: set[str] = set()


def warn_once(msg: str, warningtype: type[Warning] | None = None) -> None:
    """Warn, unless this text has been used before.

    Args:
        msg: the text.
        warningtype: class of the warning (default: `UserWarning`).
    """
    if msg not in _warned:
        _warned.add(msg)
        warnings.warn(msg, warningtype or UserWarning, stacklevel=2)


def round_sigfigs(x: Any, sigfigs: int = 4) -> float:
    """Return a number, or the one of a tensor with one element, rounded to significant digits.

    Args:
        sigfigs: number of digits.
    """
    return _rounded(x.item() if isinstance(x, torch.Tensor) else x, sigfigs)


def set_namedtuple_defaults(namedtuple: Any, default: Any = None) -> Any:
    """Set the default of all fields of a class made by `collections.namedtuple`, and return the class.

    Args:
        namedtuple: the class.
        default: the default of each field.
    """
    namedtuple.__new__.__defaults__ = (default,) * len(namedtuple._fields)
    return namedtuple


def display_messages(
    msgs: Iterable[Any], prettify: bool = False, ignore_fields: str = "", max_len: int = 1000
) -> str:
    """Return messages as text.

    Args:
        msgs: the messages.
        prettify: ignored; candidates are shown in one line.
        ignore_fields: fields that are left out, separated by commas.
        max_len: largest number of characters of a field.
    """
    return shown_messages(msgs, ignore_fields.split(","), max_len)


def load_cands(path: str | None, lines_have_ids: bool = False, cands_are_replies: bool = False) -> Any:
    """Return the candidates of a file; see `FbDialogTeacher.load_cands`.

    Args:
        path: path of the file; None for no candidates.
        lines_have_ids: ignored, since the file shows it.
        cands_are_replies: ignored, since the file shows it.
    """
    return DialogFile(path).candidates() if path else None


# dialogues


def flatten(teacher: Any, context_length: int = -1, include_labels: bool = True) -> list[Message]:
    """Return all examples of a teacher as episodes of their own, with the preceding dialogue in their texts.

    Args:
        teacher: a teacher that ends, such as one with the datatype "train:ordered:stream" or "valid".
        context_length: number of texts and labels in an example; -1: all.
        include_labels: whether the context includes a label of each earlier example.
    """
    episodes: list[list[Message]] = [[]]
    while not teacher.epoch_done():
        example = teacher.act()
        if "text" in example:
            episodes[-1].append(example)
        if example.get("episode_done"):
            episodes.append([])
    return list(examples.flatten(episodes, context_length, include_labels))


def sort_data(data: Iterable[Message], key: str = "text_label", method: str = "spaces") -> list[Message]:
    """Return examples sorted by the number of spaces in their texts, then in their labels.

    Args:
        data: the examples.
        key: only "text_label".
        method: only "spaces".
    """
    return examples.sort_data(data, True, Random(random.getrandbits(64)))


def make_batches(data: Sequence[Message], bsz: int) -> list[list[Message]]:
    """Return examples in batches.

    Args:
        data: the examples.
        bsz: number of rows of a batch; the last one may be smaller.
    """
    return examples.make_batches(data, bsz)


def maintain_dialog_history(
    history: dict[str, Any],
    observation: Message,
    reply: str = "",
    historyLength: int = 1,
    useReplies: str = "label_else_model",
    dict: Any = None,
    useStartEndIndices: bool = True,
    splitSentences: bool = False,
) -> deque[Any]:
    """Add an observation to the history of its dialogue, and return the history: texts, or indices of tokens.

    Args:
        history: state of the dialogue, empty at first.
        observation: the message.
        reply: the reply of the model to the last message.
        historyLength: number of texts or indices to keep.
        useReplies: replies that are kept: "none", "model", "label", "labels" or "label_else_model".
        dict: the `DictionaryAgent` that makes indices; None: texts are kept.
        useStartEndIndices: whether each text is put between the start and the end token.
        splitSentences: whether each line is an entry of its own.
    """

    def entries(text: str) -> list[Any]:
        if dict is None:
            return [text]
        if splitSentences:
            return [dict.txt2vec(line) for line in text.split("\n")]
        indices: list[Any] = dict.txt2vec(text)
        return [dict[dict.start_token], *indices, dict[dict.end_token]] if useStartEndIndices else indices

    dialog = history.setdefault("dialog", deque(maxlen=historyLength))
    if history.pop("episode_done", False):
        dialog.clear()
        history["labels"], useReplies = [], "none"
    labels = history.get("labels") or ()
    if useReplies in ("label", "labels", "label_else_model") and labels:
        dialog.extend(entries(next(iter(labels))))
    elif useReplies in ("model", "label_else_model") and reply:
        dialog.extend(entries(reply))
    if observation.get("text") is not None:
        dialog.extend(entries(observation["text"]))
    history["episode_done"] = bool(observation.get("episode_done", False))
    history["labels"] = observation.get("labels", observation.get("eval_labels")) or []
    return dialog  # type: ignore[no-any-return]


class Predictor:
    """Answers single messages by an agent.

    Args:
        args: words of a command line, such as ``["--model", "seq2seq"]``.
        options: further flags, with ``_`` in place of ``-``.
    """

    def __init__(self, args: Sequence[str] | None = None, **options: Any) -> None:
        words = [*map(str, args or ())]
        for name, value in options.items():
            words += [f"--{name}", str(value)]
        self.opt = ParlaiParser(True, True).parse_args(words, print_args=False)
        self.agent = create_agent(self.opt)

    def predict(self, observation: Message) -> Message:
        """Return the reply to a message.

        Args:
            observation: the message; its episode is done unless it says otherwise.
        """
        self.agent.observe({"episode_done": True, **observation})
        reply: Message = self.agent.act()
        return reply


# batches of torch programs


def padded_tensor(
    items: Sequence[Any],
    pad_idx: int = 0,
    use_cuda: bool = False,
    left_padded: bool = False,
    max_len: int | None = None,
) -> tuple[torch.Tensor, list[int]]:
    """Return rows of indices as one tensor of int64, (rows, longest row), and their lengths.

    Args:
        items: lists or tensors of indices.
        pad_idx: value that shorter rows are padded with.
        use_cuda: whether to move the tensor to the GPU.
        left_padded: whether to pad before the rows.
        max_len: number of columns (default: the longest row, at least 1).
    """
    lengths = [len(item) for item in items]
    width = max(max(lengths, default=0), 1) if max_len is None else max_len
    padded = torch.full((len(items), width), pad_idx, dtype=torch.int64)
    for row, item, length in zip(padded, items, lengths):
        part = row[width - length :] if left_padded else row[:length]
        part.copy_(torch.as_tensor(item, dtype=torch.int64))
    return (padded.cuda() if use_cuda else padded), lengths


def argsort(keys: Any, *lists: Any, descending: bool = False) -> list[Any]:
    """Return lists or tensors in the order of some keys.

    Args:
        keys: a list or tensor of numbers.
        lists: lists or tensors of the same length.
        descending: whether the largest key comes first.
    """
    order = sorted(range(len(keys)), key=lambda index: keys[index], reverse=descending)
    return [
        each[order] if isinstance(each, torch.Tensor) else [each[index] for index in order] for each in lists
    ]


class PaddingUtils:
    """Padded batches of the agents of 2017 and 2018."""

    @classmethod
    def pad_text(
        cls,
        observations: Sequence[Message],
        dictionary: Any,
        end_idx: int | None = None,
        null_idx: int = 0,
        dq: bool = False,
        eval_labels: bool = True,
        truncate: int | None = None,
    ) -> tuple[Any, Any, Any, Any, Any, Any]:
        """Return padded rows of the observations with a text, the longest first.

        Args:
            observations: messages, one for each row of the batch.
            dictionary: the `DictionaryAgent`.
            end_idx: index at the end of each label; None: none.
            null_idx: index that rows are padded with.
            dq: whether rows are deques.
            eval_labels: whether ``eval_labels`` are used, too.
            truncate: largest number of indices of a row.

        Returns:
            Rows of the texts and of the labels, one label of each row, the indices of the rows in `observations`, and
            the lengths of texts and labels; None in place of what is missing.
        """
        valid = [index for index, seen in enumerate(observations) if seen.get("text")]
        if not valid:
            return None, None, None, None, None, None

        def shaped(rows: Sequence[Any]) -> tuple[list[Any], list[int]]:
            lengths = [len(row) for row in rows]
            padded = [[*row, *[null_idx] * (max(lengths) - len(row))] for row in rows]
            return [deque(row) for row in padded] if dq else padded, lengths

        vectors = {
            index: list(
                observations[index].get("text2vec") or dictionary.txt2vec(observations[index]["text"])
            )
            for index in valid
        }
        if truncate is not None:
            vectors = {index: row[-truncate:] for index, row in vectors.items()}
        valid.sort(key=lambda index: -len(vectors[index]))
        xs, x_lens = shaped([vectors[index] for index in valid])
        names = ("labels", "eval_labels") if eval_labels else ("labels",)
        name = next((name for name in names if any(name in observations[i] for i in valid)), None)
        if name is None:
            return xs, None, None, valid, x_lens, None
        labels = [random.choice(list(observations[index].get(name) or [""])) for index in valid]
        end = [] if end_idx is None else [end_idx]
        ys, y_lens = shaped([[*dictionary.txt2vec(label)[:truncate], *end] for label in labels])
        return xs, ys, labels, valid, x_lens, y_lens

    @classmethod
    def map_predictions(
        cls,
        predictions: Iterable[Iterable[Any]],
        valid_inds: Sequence[int],
        batch_reply: Sequence[Message],
        observations: Sequence[Message],
        dictionary: Any,
        end_idx: int,
        report_freq: float = 0.1,
        labels: Sequence[str] | None = None,
        answers: Any = None,
        ys: Any = None,
    ) -> None:
        """Write predicted rows of indices as texts into the replies of a batch.

        Args:
            predictions: indices of each row.
            valid_inds: index of each row in the batch.
            batch_reply: the replies, which are changed.
            observations: the messages of the batch.
            dictionary: the `DictionaryAgent`.
            end_idx: index that ends a row.
            report_freq: share of the rows that are printed.
            labels: the label of each row, for printing.
            answers: where the text, or the indices of `ys`, of each row are stored, too.
            ys: indices of the labels.
        """

        def cut(row: Iterable[Any]) -> list[int]:
            indices = [int(index) for index in row]
            return indices[: indices.index(end_idx)] if end_idx in indices else indices

        for number, (row, place) in enumerate(zip(predictions, valid_inds)):
            text = dictionary.vec2txt(cut(row))
            batch_reply[place]["text"] = text
            if answers is not None:
                answers[place] = text if ys is None else cut(ys[number])
            if random.random() < report_freq:
                label = "" if labels is None else f"\nLABEL: {labels[number]}"
                print(f"TEXT: {observations[place]['text']}\nPREDICTION: {text}{label}\n~")
