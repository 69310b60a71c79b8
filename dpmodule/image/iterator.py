"""`ImageIter`: batches of images from files, lists or records, with augmenters in Python."""

from __future__ import annotations

import logging
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import recordio
from .._files import regular_file
from ..base import ArgumentError, FileError, FileFormatError, MXNetError, numeric_types
from ..io import DataBatch, DataDesc, DataIter
from ..io.images.pipeline import image_list_lines
from ..io.iterator import check_state
from ..ndarray import NDArray, array, zeros
from .augment import Augmenter
from .create import CreateAugmenter
from .functions import imdecode

_logger = logging.getLogger(__name__)

_HANDLES = ("pad", "discard", "roll_over")
_DTYPES = ("int32", "float32", "int64", "float64")

Entry = tuple[NDArray, str]


def read_list(path: str, dtype: str) -> tuple[dict[Any, Entry], list[Any]]:
    """Read an image list: lines of number, labels and file, separated by tabs.

    Returns:
        Labels and file by number, and the numbers in order.
    """
    entries = [_entry(path, number, line, dtype) for number, line in image_list_lines(path)]
    return dict(entries), [key for key, _ in entries]


def _entry(path: str, number: int, line: str, dtype: str) -> tuple[int, Entry]:
    fields = line.strip().split("\t")
    try:
        if len(fields) < 3:
            raise ValueError(line)
        labels = np.array([float(field) for field in fields[1:-1]])
        return int(fields[0]), (array(labels, dtype=dtype), fields[-1])
    except ValueError:
        raise FileFormatError(
            f"{path}: line {number}: {line.strip()[:60]!r}, expected number, labels and file, separated by tabs"
        ) from None


def labelled(entries: Sequence[Sequence[Any]], dtype: str) -> tuple[dict[Any, Entry], list[Any]]:
    """Convert a Python list of labels and files: ``[label, file]`` or ``[label, ..., file]``.

    Returns:
        Labels and file by number, "1", "2", ..., and the numbers in order.
    """
    by_number: dict[Any, Entry] = {}
    for number, entry in enumerate(entries, 1):
        if len(entry) < 2:
            raise ArgumentError(f"imglist: entry {number} is {entry!r}, expected label and file")
        has_array = len(entry) == 2 and not isinstance(entry[0], numeric_types)
        label = entry[0] if has_array else entry[:-1]
        by_number[str(number)] = (array(label, dtype=dtype), entry[-1])
    return by_number, list(by_number)


class UnusableImageError(MXNetError):
    """An image or its labels cannot be used, and the image is skipped."""


class ImageIter(DataIter):
    """Read batches of images, from a record file or from a list of image files.

    `random.shuffle` orders the images, so that `random.seed` makes epochs reproducible.

    Args:
        batch_size: number of images in a batch.
        data_shape: (channels, height, width) of an image; 3 channels.
        label_width: number of labels of an image.
        path_imgrec: path of a record file.
        path_imglist: path of an image list: number, labels and file, separated by tabs.
        path_root: folder of the image files.
        path_imgidx: path of the index of the record file, required to shuffle or read a part.
        shuffle: if True, each epoch takes the images in a new random order.
        part_index: part to read, from 0.
        num_parts: number of parts that the images are split into.
        aug_list: augmenters; None uses `CreateAugmenter` with the keyword arguments.
        imglist: a list of ``[label, file]`` or ``[label, ..., file]`` that replaces `path_imglist`.
        data_name: input of the network that takes images.
        label_name: input of the network that takes labels.
        dtype: element type of the labels in a list.
        last_batch_handle: treatment of a last batch with too few images: "pad" pads it from the start, "discard" drops
            it, "roll_over" moves its images to the start of the next epoch.
        **kwargs: arguments of `CreateAugmenter`.

    Raises:
        ArgumentError: there is no source of images, or an argument is invalid.
        FileError: a file cannot be read.
        FileFormatError: a file is damaged or has another format.

    Example, with a record file::

            it = mx.image.ImageIter(32, (3, 224, 224), path_imgrec="a.rec", resize=256, rand_mirror=True)

    Source: MXNet 1.9.1 `ImageIter`.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: tuple[int, int, int],
        label_width: int = 1,
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: list[Any] | None = None,
        imglist: list[Sequence[Any]] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size)
        data_shape = tuple(data_shape)  # type: ignore[assignment]
        self._check(batch_size, dtype, last_batch_handle)
        self.check_data_shape(data_shape)
        self.imgrec = _open(path_imgrec, path_imgidx)
        self.imgidx = list(self.imgrec.keys) if isinstance(self.imgrec, recordio.MXIndexedRecordIO) else None
        self.imglist: dict[Any, tuple[NDArray, str]] | None = None
        keys: list[Any] | None = None
        if path_imglist:
            self.imglist, keys = read_list(path_imglist, dtype)
        elif isinstance(imglist, list):
            self.imglist, keys = labelled(imglist, dtype)
        elif self.imgrec is None:
            raise ArgumentError(
                "ImageIter: path_imgrec, path_imglist and imglist are missing; give one of them"
            )
        self.path_root = path_root
        width = (label_width,) if label_width > 1 else ()
        self.provide_data: list[Any] = [DataDesc(data_name, (batch_size, *data_shape))]
        self.provide_label: list[Any] = [DataDesc(label_name, (batch_size, *width))]
        self.data_shape = data_shape
        self.label_width = label_width
        self.shuffle = shuffle
        self.seq = self._sequence(keys, num_parts, part_index)
        self.num_parts = num_parts
        self.auglist: list[Any] = CreateAugmenter(data_shape, **kwargs) if aug_list is None else aug_list
        self.cur = 0
        self.last_batch_handle = last_batch_handle
        self.num_image = None if self.seq is None else len(self.seq)
        if self.imgrec is None and not keys:
            _logger.warning("ImageIter: there are no images in %s", path_imglist or "imglist")
        self._over = False
        self._carried: tuple[NDArray, NDArray, int] | None = None
        self.reset()

    @staticmethod
    def _check(batch_size: int, dtype: str, last_batch_handle: str) -> None:
        if batch_size < 1:
            raise ArgumentError(f"ImageIter: batch_size is {batch_size}, expected at least 1")
        if dtype not in _DTYPES:
            raise ArgumentError(f"ImageIter: dtype is {dtype!r}, expected one of {', '.join(_DTYPES)}")
        if last_batch_handle not in _HANDLES:
            raise ArgumentError(
                f"ImageIter: last_batch_handle is {last_batch_handle!r}, expected one of {', '.join(_HANDLES)}"
            )

    def _sequence(self, keys: list[Any] | None, parts: int, part: int) -> list[Any] | None:
        """Return the keys of the images to read; None reads a record file sequentially."""
        seq = keys if self.imgrec is None else self.imgidx
        if seq is None and (self.shuffle or parts > 1):
            raise ArgumentError(
                "ImageIter: shuffle and num_parts need path_imgidx in addition to path_imgrec"
            )
        if not 0 <= part < parts:
            raise ArgumentError(f"ImageIter: part_index is {part}, expected 0 to {parts - 1} (num_parts - 1)")
        if seq is None or parts == 1:
            return seq
        step = len(seq) // parts
        return seq[part * step : (part + 1) * step]

    def reset(self) -> None:
        self._reshuffle()
        if self.last_batch_handle != "roll_over" or self._carried is None:
            self._rewind()

    def hard_reset(self) -> None:
        """Begin a new epoch and drop the images that would have rolled over."""
        self._reshuffle()
        self._rewind()
        self._carried = None

    def _reshuffle(self) -> None:
        if self.seq is not None and self.shuffle:
            random.shuffle(self.seq)

    def _rewind(self) -> None:
        if self.imgrec is not None:
            self.imgrec.reset()
        self.cur = 0
        self._over = False

    def state_dict(self) -> dict[str, Any]:
        carried = None
        if self._carried is not None:  # copied, since batches are padded in place
            data, label, filled = self._carried
            carried = [data.asnumpy().copy(), label.asnumpy().copy(), filled]
        return {
            **self._facts(),
            "seq": None if self.seq is None else _plain(self.seq),
            "cur": self.cur,
            "position": None if self.seq is not None or self.imgrec is None else self.imgrec.position,
            "over": self._over,
            "carried": carried,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(self, state, **self._facts())
        if self.seq is not None:
            seq = np.asarray(state["seq"]).tolist()
            if Counter(seq) != Counter(self.seq):
                raise ArgumentError(
                    f"{type(self).__name__}: the state was saved by an iterator over other images of the same number; "
                    "use the same list, index and part"
                )
            self.seq = seq
        elif self.imgrec is not None:
            self.imgrec.go_to(state["position"])
        self.cur, self._over = state["cur"], state["over"]
        self._carried = None
        if state["carried"] is not None:
            data, label, filled = state["carried"]
            self._carried = array(data), array(label), filled

    def _facts(self) -> dict[str, Any]:
        """Return the facts that an iterator must share to resume from this one's state."""
        return {
            "kind": type(self).__name__,
            "examples": self.num_image,
            "batch_size": self.batch_size,
            "data_shape": list(self.data_shape),
            "label_shape": list(self.provide_label[0][1]),
            "last_batch_handle": self.last_batch_handle,
        }

    def next_sample(self) -> tuple[Any, bytes]:
        """Return the labels and the file of the next image.

        Raises:
            StopIteration: the epoch is over.
        """
        if self._over:
            raise StopIteration
        sample = self._in_order() if self.seq is None else self._by_key(self.seq)
        if sample is None:
            raise StopIteration
        return sample

    def _in_order(self) -> tuple[Any, bytes] | None:
        record = None if self.imgrec is None else self.imgrec.read()
        if record is None:
            if self.imgrec is not None and self.last_batch_handle != "discard":
                self.imgrec.reset()
            return None
        self.cur += 1
        header, image = recordio.unpack(record)
        return header.label, image

    def _by_key(self, seq: list[Any]) -> tuple[Any, bytes] | None:
        if self.cur >= len(seq):
            if self.last_batch_handle != "discard":
                self.cur = 0
            return None
        key = seq[self.cur]
        self.cur += 1
        listed = None if self.imglist is None else self._listed(key)
        if isinstance(self.imgrec, recordio.MXIndexedRecordIO):
            header, image = recordio.unpack(self.imgrec.read_idx(key) or b"")
            return (header.label if listed is None else listed[0]), image
        if listed is None:
            return None
        return listed[0], self.read_image(listed[1])

    def _listed(self, key: Any) -> tuple[NDArray, str]:
        entry = (self.imglist or {}).get(key)
        if entry is None:
            raise FileFormatError(f"the image list has no line for image {key!r} of the record file")
        return entry

    def next(self) -> DataBatch:
        data, label, filled = self._carried or self._new_batch()
        carried = self._carried is not None
        self._carried = None
        if not carried:
            filled = self._batchify(data, label)
        pad = self.batch_size - filled
        if pad:
            if self.last_batch_handle == "discard":
                raise StopIteration
            if self.last_batch_handle == "roll_over" and not carried:
                self._carried = data, label, filled
                raise StopIteration
            self._batchify(data, label, filled)
            self._over = self.last_batch_handle == "pad"
        return DataBatch([data], [label], pad=pad)

    def _new_batch(self) -> tuple[NDArray, NDArray, int]:
        return zeros((self.batch_size, *self.data_shape)), zeros(self.provide_label[0][1]), 0

    def _batchify(self, batch_data: NDArray, batch_label: NDArray, start: int = 0) -> int:
        """Fill a batch from index `start`, and return the index after its last image."""
        at = start
        while at < self.batch_size:
            try:
                label, file = self.next_sample()
            except StopIteration:
                if not at:
                    raise
                break
            try:
                data, label = self._changed(self.imdecode(file), label)
            except UnusableImageError as error:
                _logger.debug("skipping an image: %s", error)
                continue
            self._put(batch_data, batch_label, at, data, label)
            at += 1
        return at

    def _changed(self, data: NDArray, label: Any) -> tuple[Any, Any]:
        """Check an image, and augment it and its labels."""
        try:
            self.check_valid_image([data])
        except RuntimeError as error:
            raise UnusableImageError(str(error)) from error
        return self._augmented(data, label)

    def _augmented(self, data: NDArray, label: Any) -> tuple[Any, Any]:
        return self.augmentation_transform(data), label

    def _put(self, batch_data: NDArray, batch_label: NDArray, at: int, data: NDArray, label: Any) -> None:
        ready = self.postprocess_data(data)
        if ready.shape != self.data_shape:
            raise ArgumentError(
                f"ImageIter: an image has shape {ready.shape} after augmentation, expected {self.data_shape}; "
                "end aug_list with that size"
            )
        batch_data[at] = ready
        batch_label[at] = label

    def check_data_shape(self, data_shape: tuple[int, ...]) -> None:
        """Refuse an unsupported shape of images.

        Args:
            data_shape: (channels, height, width).

        Raises:
            ArgumentError: the shape is not (3, height, width).
        """
        if len(data_shape) != 3 or data_shape[0] != 3:
            raise ArgumentError(f"ImageIter: data_shape is {data_shape}, expected (3, height, width)")

    def check_valid_image(self, data: Sequence[NDArray]) -> None:
        """Refuse an image without pixels.

        Args:
            data: a list whose first element is the image.

        Raises:
            MXNetError: the image has no pixels and is skipped.
        """
        if len(data[0].shape) == 0:
            raise MXNetError("the image has no pixels")

    def imdecode(self, s: bytes) -> NDArray:
        """Decode an image file.

        Args:
            s: content of the file, such as JPEG or PNG.

        Raises:
            FileFormatError: the file is damaged; the message names the image.
        """
        try:
            return imdecode(s)
        except FileFormatError as error:
            raise FileFormatError(f"{self._where()}: {error}") from error

    def _where(self) -> str:
        """Return a description of the image that was read last."""
        if self.seq is None:
            return f"image {self.cur - 1} of {self.imgrec.uri}" if self.imgrec is not None else "image"
        key = self.seq[self.cur - 1]
        if self.imgrec is None and self.imglist is not None:
            return f"image file {self.imglist[key][1]}"
        return f"image {key}"

    def read_image(self, fname: str) -> bytes:
        """Return the bytes of an image file below `path_root`.

        Args:
            fname: its path below `path_root`.

        Raises:
            FileError: the file cannot be read.
        """
        path = os.path.join(self.path_root or "", fname)
        try:
            with open(path, "rb", opener=regular_file) as file:
                return file.read()
        except OSError as error:
            raise FileError(error.errno, f"image file: {error.strerror}", path) from error

    def augmentation_transform(self, data: Any) -> Any:
        """Apply all augmenters to an image.

        Args:
            data: the image, (height, width, 3).
        """
        change: Augmenter
        for change in self.auglist:
            data = change(data)
        return data

    def postprocess_data(self, datum: NDArray) -> NDArray:
        """Return an image in the layout of a batch, (C, H, W).

        Args:
            datum: (H, W, C).
        """
        return NDArray(datum.raw.permute(2, 0, 1), datum.context)


def _plain(keys: list[Any]) -> Any:
    """Return the keys of images as an array if they are integers, else as a list."""
    whole = all(type(key) is int for key in keys)
    return np.array(keys, np.int64) if whole else list(keys)


def _open(path: str | None, index: str | None) -> recordio.MXRecordIO | None:
    if not path:
        return None
    if index:
        return recordio.MXIndexedRecordIO(index, path, "r")
    return recordio.MXRecordIO(path, "r")
