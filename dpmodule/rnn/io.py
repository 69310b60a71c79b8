"""Text for recurrent networks: encoding of words, and batches of sentences of similar length."""

from __future__ import annotations

import bisect
import logging
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .. import ndarray as nd
from .._core import lazy
from .._devices import generators
from ..base import ArgumentError, OutOfMemoryError, StateError, dtype_name
from ..io import DataBatch, DataDesc, DataIter
from ..io.iterator import check_part, check_state
from ..ndarray import NDArray

__all__ = ["BucketSentenceIter", "encode_sentences"]

lazy.publish(__name__, __all__)


def encode_sentences(
    sentences: Iterable[Iterable[Hashable]],
    vocab: dict[Any, int] | None = None,
    invalid_label: int = -1,
    invalid_key: Hashable = "\n",
    start_label: int = 0,
    unknown_token: Hashable | None = None,
) -> tuple[list[list[int]], dict[Any, int]]:
    r"""Encode words as numbers.

    Args:
        vocab: numbers of the words, to which the unknown token is added if needed; by default a new vocabulary in order
            of appearance.
        invalid_label: number of padding, not used for words.
        invalid_key: key of padding in a new vocabulary.
        start_label: first number for a word; numbers in use are skipped.
        unknown_token: replaces words that are not in `vocab`; without it they are an error.

    Returns:
        (sentences as lists of numbers, the vocabulary)

    Raises:
        ArgumentError: a word is not in `vocab`, and there is no unknown_token.

    Example:
        >>> mx.rnn.encode_sentences([["a", "b"], ["b", "c"]], invalid_label=0, start_label=1)
        ([[1, 2], [2, 3]], {'\n': 0, 'a': 1, 'b': 2, 'c': 3})

    Source: MXNet 1.9.1 `rnn.encode_sentences`. There the unknown token's number changes with every unknown word.
    """
    numbers: dict[Any, int] = {invalid_key: invalid_label} if vocab is None else vocab
    taken = {invalid_label, *numbers.values()}
    free = start_label
    coded = []
    for sentence in sentences:
        row = []
        for word in sentence:
            key = word
            if key not in numbers and vocab is not None:
                if unknown_token is None:
                    raise ArgumentError(
                        f"{word!r} is not in vocab; add it, or pass an unknown_token to replace it"
                    )
                key = unknown_token
            if key not in numbers:
                while free in taken:
                    free += 1
                numbers[key] = free
                taken.add(free)
            row.append(numbers[key])
        coded.append(row)
    return coded, numbers


class BucketSentenceIter(DataIter):
    """Yield batches of sentences padded to the length of their bucket, each with the next words as labels.

    Each sentence is put into the smallest bucket that fits; longer ones are discarded. Each epoch shuffles the
    sentences of each bucket and the order of batches, and skips incomplete batches. Shuffling depends on
    `mx.random.seed`, or without it on ``random.seed`` and ``numpy.random.seed``, as in MXNet.

    Args:
        sentences: sentences as lists of numbers, see `encode_sentences`.
        buckets: lengths to pad to; by default every length with enough sentences for a batch.
        invalid_label: number of padding, in data and labels.
        data_name: name of the input for sentences.
        label_name: name of the input for the next words.
        layout: "NT" for batch first, "TN" for time first; further axes are ignored, as in MXNet.
        num_parts: number of parts of the sentences, one for each process.
        part_index: the part to read: sentences part_index, part_index + num_parts, ... of each bucket. Buckets are
            chosen from all sentences.

    Raises:
        ArgumentError: layout, buckets, batch_size or the part are invalid.

    Example:
        >>> it = mx.rnn.BucketSentenceIter([[1, 2], [3, 4]], batch_size=2, buckets=[3], invalid_label=0)
        >>> batch = it.next()
        >>> batch.bucket_key, sorted(batch.label[0].asnumpy().tolist())
        (3, [[2.0, 0.0, 0.0], [4.0, 0.0, 0.0]])

    Source: MXNet 1.9.1 `rnn.BucketSentenceIter`.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: Iterable[int] | None = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: Any = "float32",
        layout: str = "NT",
        *,
        num_parts: int = 1,
        part_index: int = 0,
    ) -> None:
        super().__init__()
        check_part("BucketSentenceIter", num_parts, part_index)
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ArgumentError(f"BucketSentenceIter: batch_size is {batch_size!r}, expected a number from 1")
        if layout.find("N") not in (0, 1):
            raise ArgumentError(
                f"BucketSentenceIter: layout is {layout!r}, expected 'NT' (batch first) or 'TN'"
            )
        self.batch_size = batch_size
        self.buckets = _buckets(sentences, batch_size, buckets)
        self.invalid_label = invalid_label
        self.data_name = data_name
        self.label_name = label_name
        self.dtype = dtype_name(dtype)
        self.layout = layout
        self.major_axis = layout.find("N")
        padded = self._padded(sentences)
        self.default_bucket_key = max(self.buckets)
        self.nddata: list[NDArray] = []
        self.ndlabel: list[NDArray] = []
        self.curr_idx = 0
        self._part = [0, 1]
        self._load_part(padded, num_parts, part_index)

    def _load_part(
        self, rows_of_buckets: list[np.ndarray[Any, Any]], num_parts: int, part_index: int
    ) -> None:
        """Select one part of each bucket's rows, and start an epoch."""
        self._part, self.num_parts = [part_index, num_parts], num_parts
        self.data = [rows[part_index::num_parts].copy() for rows in rows_of_buckets]
        for size, rows in zip(self.buckets, self.data, strict=True):
            if 0 < len(rows) < self.batch_size:
                logging.warning(
                    "bucket %d has %d sentences, too few for a batch of %d", size, len(rows), self.batch_size
                )
        self.idx = [
            (i, start)
            for i, rows in enumerate(self.data)
            for start in range(0, len(rows) - self.batch_size + 1, self.batch_size)
        ]
        self._orders = [np.arange(len(rows)) for rows in self.data]
        self.reset()

    def take_part(self, num_parts: int, part_index: int) -> None:
        check_part("BucketSentenceIter", num_parts, part_index)
        if self._part[1] > 1:
            raise StateError(f"BucketSentenceIter already reads part {self._part[0]} of {self._part[1]}")
        self._restore_order()
        self._load_part(self.data, num_parts, part_index)

    def _restore_order(self) -> None:
        """Restore the original order of the rows of each bucket."""
        for rows, order in zip(self.data, self._orders, strict=True):
            rows[np.array(order)] = rows.copy()
            order[:] = np.arange(len(rows))

    def _padded(self, sentences: Sequence[Sequence[int]]) -> list[np.ndarray[Any, Any]]:
        """Return one array of padded sentences per bucket, dropping empty buckets and logging discarded sentences."""
        rows: list[list[Sequence[int]]] = [[] for _ in self.buckets]
        too_long = 0
        for sentence in sentences:
            bucket = bisect.bisect_left(self.buckets, len(sentence))
            if bucket < len(self.buckets):
                rows[bucket].append(sentence)
            else:
                too_long += 1
        if too_long:
            logging.warning("discarded %d sentences longer than the largest bucket.", too_long)
        used = [bucket for bucket in zip(self.buckets, rows, strict=True) if bucket[1]]
        if used:  # otherwise every epoch is empty
            self.buckets = [size for size, _ in used]
            rows = [mine for _, mine in used]
        arrays = []
        for size, mine in zip(self.buckets, rows, strict=True):
            try:
                array = np.full((len(mine), size), self.invalid_label, dtype=self.dtype)
            except (MemoryError, ValueError) as error:
                raise OutOfMemoryError.of(f"{len(mine)} sentences padded to {size} words", error) from error
            for row, sentence in zip(array, mine, strict=True):
                row[: len(sentence)] = sentence
            arrays.append(array)
        return arrays

    @property
    def provide_data(self) -> list[DataDesc]:
        """Description of the data of the largest bucket."""
        return [self._describe(self.data_name, self.default_bucket_key)]

    @property
    def provide_label(self) -> list[DataDesc]:
        """Description of the labels of the largest bucket."""
        return [self._describe(self.label_name, self.default_bucket_key)]

    def _describe(self, name: str, size: int) -> DataDesc:
        shape = (self.batch_size, size) if self.major_axis == 0 else (size, self.batch_size)
        return DataDesc(name, shape, layout=self.layout)  # float32, as in MXNet, whatever the arrays are

    def reset(self) -> None:
        self.curr_idx = 0
        host = generators.host()
        # without mx.random.seed, Python's generator shuffles the batches, as in MXNet
        (random if host is np.random else host).shuffle(self.idx)
        for rows, order in zip(self.data, self._orders, strict=True):
            step = np.arange(len(rows))
            host.shuffle(step)
            rows[:], order[:] = rows[step], order[step]
        self._load()

    def _load(self) -> None:
        """Create arrays of the rows and of the next words."""
        self.nddata, self.ndlabel = [], []
        for rows in self.data:
            labels = np.full_like(rows, self.invalid_label)
            labels[:, :-1] = rows[:, 1:]
            self.nddata.append(nd.array(rows, dtype=self.dtype))
            self.ndlabel.append(nd.array(labels, dtype=self.dtype))

    def state_dict(self) -> dict[str, Any]:
        return {
            **self._configuration(),
            "curr_idx": self.curr_idx,
            "idx": np.array(self.idx, np.int64).reshape(-1, 2),
            "orders": [order.copy() for order in self._orders],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, **self._configuration())
        self._restore_order()
        for rows, order, wanted in zip(self.data, self._orders, state["orders"], strict=True):
            order[:] = wanted
            rows[:] = rows[order]
        self.idx = [(int(bucket), int(start)) for bucket, start in np.asarray(state["idx"])]
        self.curr_idx = state["curr_idx"]
        self._load()

    def _configuration(self) -> dict[str, Any]:
        """Return the configuration that an iterator must match to load this state."""
        return {
            "kind": type(self).__name__,
            "batch_size": self.batch_size,
            "buckets": list(self.buckets),
            "sentences": [len(rows) for rows in self.data],
            "part": self._part,
        }

    def next(self) -> DataBatch:
        if self.curr_idx == len(self.idx):
            raise StopIteration
        bucket, start = self.idx[self.curr_idx]
        self.curr_idx += 1
        data = self.nddata[bucket][start : start + self.batch_size]
        label = self.ndlabel[bucket][start : start + self.batch_size]
        if self.major_axis == 1:
            data, label = data.T, label.T
        size = self.buckets[bucket]
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=size,
            provide_data=[self._describe(self.data_name, size)],
            provide_label=[self._describe(self.label_name, size)],
        )


def _buckets(sentences: Sequence[Sequence[int]], batch_size: int, buckets: Iterable[int] | None) -> list[int]:
    """Return the sorted bucket sizes."""
    if buckets is None:
        counts = Counter(len(sentence) for sentence in sentences)
        found = sorted(size for size, count in counts.items() if count >= batch_size and size)
        if not found:
            raise ArgumentError(
                f"BucketSentenceIter: no length occurs in {batch_size} of the {len(sentences)} sentences, which "
                "would give no batches; pass buckets=[...] or a smaller batch_size"
            )
        return found
    found = sorted(set(buckets))
    if not found or not all(isinstance(size, (int, np.integer)) and size > 0 for size in found):
        raise ArgumentError(
            f"BucketSentenceIter: buckets is {buckets!r}, expected lengths from 1, such as [10, 20]"
        )
    return [int(size) for size in found]
