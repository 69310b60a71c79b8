"""Converting rows of indices to inputs of networks: ragged, as bags, or padded to the length of a bucket."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError
from ..context import cpu
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from ..ndarray.ragged import RaggedNDArray
from .dictionary import DictionaryAgent

Rows = Sequence[Sequence[int]]

_CPU = cpu()

_MAX_CHARS = 1 << 20
_TEXT_OVERHEAD = 32
"""Number of characters of texts that `TextVectors` caches, and the overhead that it adds for each text."""


def dense(values: Any, dtype: str = "float32") -> NDArray:
    """Return numbers as an array on the CPU.

    Args:
        values: numbers, nested lists, or a NumPy array, whose memory is shared if it has this type.
    """
    return NDArray(torch.from_numpy(np.ascontiguousarray(values, dtype)), _CPU)


def ragged(rows: Rows) -> RaggedNDArray:
    """Return rows of indices as a ragged array, for a variable with ``stype="ragged"``.

    Shape:
        returns: (N,), ragged, int64.

    Example:
        >>> ragged([[5, 6], [], [7]]).tolist()
        [[5, 6], [], [7]]
    """
    offsets = np.fromiter(accumulate(map(len, rows), initial=0), "int64", len(rows) + 1)
    values = np.fromiter(chain.from_iterable(rows), "int64", int(offsets[-1]))
    return RaggedNDArray(torch.from_numpy(values), torch.from_numpy(offsets), _CPU)


def bags(rows: Rows, size: int) -> NDArray:
    """Return the count of each index in each row.

    Args:
        rows: indices from 0 to `size` - 1.

    Shape:
        returns: (N, size), float32.

    Example:
        >>> bags([[2, 2], [0]], 3).asnumpy().tolist()
        [[0.0, 0.0, 2.0], [1.0, 0.0, 0.0]]
    """
    flat = np.fromiter(chain.from_iterable(rows), "int64")
    if flat.size and not 0 <= flat.min() <= flat.max() < size:
        raise ArgumentError(f"rows have indices from {flat.min()} to {flat.max()}, expected 0 to {size - 1}")
    starts = np.repeat(np.arange(len(rows)) * size, [len(row) for row in rows])
    return dense(np.bincount(starts + flat, minlength=len(rows) * size).reshape(len(rows), size))


def padded(rows: Rows, length: int, fill: int = 0, dtype: str = "int64") -> NDArray:
    """Return rows cut or padded to one length.

    Shape:
        returns: (N, length).

    Example:
        >>> padded([[5, 6], [7, 8, 9, 10]], 3).asnumpy().tolist()
        [[5, 6, 0], [7, 8, 9]]
    """
    array = np.full((len(rows), length), fill, dtype)
    for target, row in zip(array, rows):
        cut = row[:length]
        target[: len(cut)] = cut
    return dense(array, dtype)


def classes(observations: Sequence[Mapping[str, Any]], indices: Mapping[str, int]) -> NDArray:
    """Return the class of each observation's first label.

    Args:
        observations: messages with ``labels`` or ``eval_labels``.
        indices: classes by label.

    Shape:
        returns: (N,), float32, as `SoftmaxOutput` takes it.
    """
    numbers = []
    for row, observation in enumerate(observations):
        labels = observation.get("labels") or observation.get("eval_labels") or (None,)
        label = next(iter(labels))
        if label is None or label not in indices:
            known = ", ".join(map(repr, list(indices)[:5]))
            what = "has no label" if label is None else f"has the label {str(label)[:80]!r}"
            raise ArgumentError(
                f"row {row} {what}, expected one of {len(indices)}: {known}{', ...' if len(indices) > 5 else ''}"
            )
        numbers.append(indices[label])
    return dense(numbers)


def bucket_of(length: int, buckets: Sequence[int]) -> int:
    """Return the smallest bucket for a length; longer rows use the largest bucket and are cut.

    Args:
        buckets: ascending lengths.

    Example:
        >>> [bucket_of(length, [8, 16]) for length in (3, 9, 40)]
        [8, 16, 16]
    """
    return buckets[min(bisect_left(buckets, length), len(buckets) - 1)]


def batch_of(
    data: Mapping[str, Any],
    label: Mapping[str, Any] | None = None,
    bucket_key: Any = None,
    whole: Collection[str] = (),
) -> DataBatch:
    """Return a batch that describes its arrays.

    Args:
        data: dense or ragged arrays by the name of the network's input.
        label: labels by name; None: there are none.
        whole: names of inputs without an axis of the batch, which every context gets as a whole.
    """
    described = [_describe(name, array, name in whole) for name, array in data.items()]
    labels = [_describe(name, array, name in whole) for name, array in (label or {}).items()]
    return DataBatch(
        list(data.values()),
        list(label.values()) if label else None,
        bucket_key=bucket_key,
        provide_data=described,
        provide_label=labels or None,
    )


def _describe(name: str, array: Any, is_whole: bool) -> DataDesc:
    stype = "ragged" if isinstance(array, RaggedNDArray) else "default"
    return DataDesc(name, array.shape, array.dtype, "" if is_whole else None, stype)


class TextVectors(dict[str, list[int]]):
    """Cache of the vectors of texts, until the dictionary changes or the texts exceed a MB.

    Vectors of subclasses of `DictionaryAgent` are not cached, since they may tokenize a text differently each time.

    Args:
        truncate: number of last tokens to keep of each text; -1: all.
    """

    def __init__(self, truncate: int = -1) -> None:
        super().__init__()
        self._part = slice(None if truncate < 0 else -truncate, None)
        self._dictionary: Any = None
        self._state: Any = None
        self._size = 0

    def of(self, dictionary: Any, texts: Sequence[str]) -> list[list[int]]:
        """Return the vector of each text; do not modify the lists."""
        if type(dictionary) is not DictionaryAgent or dictionary._revision is None:
            return [dictionary.txt2vec(text)[self._part] for text in texts]
        table = dictionary.tok2ind
        state = (
            table, len(table), dictionary._revision[0], dictionary, dictionary.lower,
            dictionary.max_ngram_size, dictionary.unk_token,
        )  # fmt: skip
        if state != self._state or self._size > _MAX_CHARS:
            self.clear()
            self._dictionary, self._state, self._size = dictionary, state, 0
        return list(map(self.__getitem__, texts))

    def __missing__(self, text: str) -> list[int]:
        vector: list[int] = self._dictionary.txt2vec(text)[self._part]
        self[text] = vector
        self._size += len(text) + _TEXT_OVERHEAD
        return vector
