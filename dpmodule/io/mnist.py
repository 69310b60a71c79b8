"""`MNISTIter`: batches of handwritten digits from their idx files."""

from __future__ import annotations

import gzip
import logging
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._files import likely_kind, regular_file
from ..base import FileError, FileFormatError, ShapeError
from ..context import cpu
from ..ndarray import NDArray
from ..ops.attrs import boolean, choice, integer, optional, string
from ..ops.spec import Attr
from .data_iter import (
    BATCH,
    NAMES,
    PARTS,
    PREFETCH,
    MXDataIter,
    check_count,
    check_parts,
    describe,
    parse_options,
)
from .desc import DataDesc
from .iterator import DataBatch
from .std_random import StdRandom

if TYPE_CHECKING:
    from .data_iter import OptionValues

_logger = logging.getLogger(__name__)

_OPTIONS = {
    "image": Attr(string, "path of the images, plain or gzipped", "./train-images-idx3-ubyte"),
    "label": Attr(string, "path of the labels, plain or gzipped", "./train-labels-idx1-ubyte"),
    "batch_size": Attr(BATCH["batch_size"].type, BATCH["batch_size"].doc, 128),
    "shuffle": Attr(boolean, "if True, the examples are shuffled once", True),
    "flat": Attr(boolean, "if True, an image is one row of 784 numbers", False),
    "seed": Attr(integer(), "seed of the shuffle", 0),
    "silent": Attr(boolean, "if True, nothing is logged", False),
    **PARTS,
    **PREFETCH,
    "dtype": Attr(optional(choice("float32")), "type of the pixels; None is float32", None),
    # MXNet's examples pass this, but the shape follows from `flat`
    "input_shape": Attr(string, "ignored", ""),
    "data_shape": Attr(string, "ignored", ""),
    **NAMES,
}


class MNISTIter(MXDataIter):
    """Read batches of handwritten digits, or other images in files of that format.

    Pixels are divided by 256. An incomplete last batch is dropped.

    Raises:
        ArgumentError: an option is invalid.
        FileError: a file cannot be read.
        FileFormatError: a file is damaged or has another format; the message names it and the byte offset.
        ShapeError: there are fewer labels than images.

    Example, with the MNIST files::

            it = mx.io.MNISTIter(image="train-images-idx3-ubyte.gz", label="train-labels-idx1-ubyte.gz")

    Source: MXNet 1.9.1 `MNISTIter`, with the same order for a seed; gzipped files are also read.
    """

    def __init__(self, **options: Any) -> None:
        o = parse_options("MNISTIter", _OPTIONS, options)
        check_parts("MNISTIter", o)
        images, labels = read_idx(_existing(o.image), 3), read_idx(_existing(o.label), 1)
        if 0 in images.shape:
            count, height, width = images.shape
            raise FileFormatError(
                f"{o.image}: offset 4: the file declares {count} images of {height}x{width} pixels"
            )
        if len(labels) < len(images):
            raise ShapeError(f"MNISTIter: {o.label} has {len(labels)} labels for {len(images)} images")
        count = len(images)
        begin, end = (int(count / o.num_parts * part) for part in (o.part_index, o.part_index + 1))
        images, labels = images[begin:end], labels[begin:end]
        if o.shuffle:
            order = StdRandom(o.seed).shuffled(len(images))
            images, labels = images[order], labels[order]
        height, width = images.shape[1:]
        example = (height * width,) if o.flat else (1, height, width)
        source = _Digits(images.reshape(-1, *example), labels, o)
        if not o.silent:
            _logger.info(
                "MNISTIter: %d images, shuffle=%s, shape=%s", len(images), o.shuffle, source.data_desc.shape
            )
        super().__init__(source)
        self.num_parts = o.num_parts


describe(MNISTIter, _OPTIONS)


class _Digits:
    """Batches of images that are held in memory as bytes."""

    def __init__(self, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], o: OptionValues) -> None:
        self._images, self._labels = torch.from_numpy(images.copy()), torch.from_numpy(labels.copy())
        self._size, self._at = o.batch_size, 0
        self.data_desc = DataDesc(o.data_name, (o.batch_size, *images.shape[1:]))
        self.label_desc = DataDesc(o.label_name, (o.batch_size,))

    def read(self) -> DataBatch | None:
        begin, end = self._at, self._at + self._size
        if end > len(self._images):
            return None
        self._at = end
        pixels = self._images[begin:end].float().mul_(1 / 256)
        arrays = NDArray(pixels, cpu()), NDArray(self._labels[begin:end].float(), cpu())
        return DataBatch([arrays[0]], [arrays[1]], 0, np.arange(begin, end, dtype=np.uint64))

    def reset(self) -> None:
        self._at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"examples": len(self._images), "at": self._at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_count("MNISTIter", len(self._images), state)
        self._at = state["at"]


def _existing(path: str) -> str:
    """Return the path, or the path of the gzipped file if only this exists."""
    return path + ".gz" if not os.path.exists(path) and os.path.exists(path + ".gz") else path


_CHUNK_BYTES = 2**20


def _chunks(file: Any, size: int) -> Iterator[bytes]:
    """Yield up to `size` bytes of a file in chunks, since a read allocates memory for all requested bytes."""
    while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
        size -= len(chunk)
        yield chunk


def read_idx(path: str, axes: int) -> np.ndarray[Any, Any]:
    """Read an idx file of bytes, plain or gzipped.

    Shape:
        returns: as the file declares, with `axes` axes, uint8.
    """
    head = 4 + 4 * axes
    expected = bytes([0, 0, 8, axes])
    try:
        with open(path, "rb", opener=regular_file) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else nullcontext(raw) as file:
                start = file.read(head)
                if start[:4] != expected:
                    meaning = likely_kind(start) or f"{start[:4]!r} in place of {expected!r}"
                    raise FileFormatError(
                        f"{path}: byte 0: {meaning}; expected an idx file of bytes with {axes} axes"
                    )
                if len(start) < head:
                    raise FileFormatError(
                        f"{path}: byte {len(start)}: the file ends within its header of {head} bytes"
                    )
                dims = struct.unpack_from(f">{axes}I", start, 4)
                size = math.prod(dims)
                if not size:
                    raise FileFormatError(f"{path}: byte 4: the file declares {dims}, which is empty")
                data = b"".join(_chunks(file, size))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileFormatError(f"{path}: the gzip stream is damaged or cut short ({error})") from error
    except OSError as error:
        raise FileError(error.errno, f"idx file: {error.strerror}", path) from error
    if len(data) < size:
        raise FileFormatError(
            f"{path}: byte {head + len(data)}: the file is cut short; {dims} needs {size} bytes after byte {head}"
        )
    return np.frombuffer(data, np.uint8).reshape(dims)
