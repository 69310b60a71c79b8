"""`ImageRecordIter` and its kin: batches of images and labels from record files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...base import ArgumentError, FileFormatError, ShapeError, np_dtype
from ...context import cpu
from ...ops.image.codec import COLOR, GREY, UNCHANGED, decode
from ...recordio import IRHeader, unpack
from ..data_iter import MXDataIter
from ..desc import DataDesc
from ..options import check_parts, describe, parse_options
from ..std_random import StandardDraws
from .augment import augment, check_augmentation, only_cuts
from .normalize import MeanImage, Normalizer
from .options import CLASSIFY
from .pipeline import ImageSource
from .records import ImageList, RecordSource

if TYPE_CHECKING:
    from ..options import OptionValues

_logger = logging.getLogger(__name__)

_SEED = 111
_FLAGS = {1: GREY, 3: COLOR, 4: UNCHANGED}


def check_data_shape(owner: str, shape: tuple[int, ...]) -> None:
    """Refuse a shape that no image has."""
    if len(shape) != 3 or shape[0] not in _FLAGS or min(shape) < 1:
        raise ArgumentError(
            f"{owner}: data_shape is {shape}, expected (channels, height, width) with 1, 3 or 4 channels"
        )


def decode_for(header: IRHeader, body: bytes, channels: int, lend: bool = False) -> torch.Tensor:
    """Decode a record's image to so many channels; see `decode` for `lend`."""
    name = f"image {header.id}"
    image = decode(body, _FLAGS[channels], name=name, lend=lend)
    if image.shape[2] != channels:
        raise FileFormatError(f"{name} has {image.shape[2]} channels, expected {channels}")
    return image


class _Classifier:
    """What `ImageRecordIter` does with one record."""

    def __init__(self, o: OptionValues, labels: ImageList | None, mean: MeanImage) -> None:
        self._o, self._labels = o, labels
        self._normalizer = Normalizer(o, mean)
        self._only_cuts = not o.aug_seq or only_cuts(o)

    def __call__(
        self, header: IRHeader, body: bytes, number: int, data: torch.Tensor, label: torch.Tensor
    ) -> None:
        label.copy_(torch.from_numpy(self._label_of(header)))
        self.image(header, body, number, data)

    def image(self, header: IRHeader, body: bytes, number: int, data: torch.Tensor) -> None:
        """Decode and change an image and write it into its place."""
        o = self._o
        image = decode_for(header, body, o.data_shape[0], self._only_cuts)
        seed = o.seed if o.seed_aug is None else o.seed_aug
        draws = StandardDraws(_SEED + seed + number)
        if o.aug_seq:
            image = augment(image, o, draws)
        elif image.shape[:2] != o.data_shape[1:]:
            raise ShapeError(
                f"image {header.id} has {tuple(image.shape[:2])} pixels, expected {o.data_shape[1:]}, since "
                "aug_seq is empty"
            )
        self._normalizer.put(image, draws, data)

    def _label_of(self, header: IRHeader) -> np.ndarray[Any, Any]:
        if self._labels is not None:
            return self._labels.find(header.id)
        found = np.array(header.label, np.float32, ndmin=1)
        if len(found) != self._o.label_width:
            raise ShapeError(
                f"image {header.id} has {len(found)} labels, but label_width is {self._o.label_width}"
            )
        return found


class ImageRecordIter(MXDataIter):
    """Read batches of images and labels from record files, decoding in several threads.

    Files are written by `recordio.pack_img` and `MXRecordIO`, or by MXNet's im2rec. Images smaller than
    `data_shape` are enlarged; others are cut.

    Raises:
        ArgumentError: an option is missing, does not fit, or contradicts another.
        FileError: a file cannot be read.
        FileFormatError: a file is no record file; or, from `next`, a record is damaged or no image. The text
            names file and byte offset.
        ShapeError: from `next`, an image has another number of labels than `label_width`.

    Example, given such a file::

            it = mx.io.ImageRecordIter(
                path_imgrec="train.rec", path_imgidx="train.idx", data_shape=(3, 224, 224), batch_size=32,
                resize=256, rand_crop=True, rand_mirror=True, shuffle=True)

    Source: MXNet 1.9.1 `ImageRecordIter`. Under `seed_aug`, images change the same way with any number of
    threads, as they do there with one.
    """

    dtype = ""  # that of the subclasses named after one

    def __init__(self, **options: Any) -> None:
        name = type(self).__name__
        o = parse_options(name, CLASSIFY, options)
        check_parts(name, o)
        check_data_shape(name, o.data_shape)
        check_augmentation(name, o)
        dtype = self.dtype or o.dtype or "float32"
        labels = ImageList(o.path_imglist, o.label_width) if o.path_imglist else None
        records = RecordSource(
            name, o.path_imgrec, o.path_imgidx, o.num_parts, o.part_index, o.shuffle, _SEED + o.seed
        )
        mean = MeanImage(o.mean_img)
        work = _Classifier(o, labels, mean)
        if mean.wanted:
            _compute_mean(mean, records, work, o)
        width = () if o.label_width == 1 else (o.label_width,)
        descs = (
            DataDesc(o.data_name, (o.batch_size, *o.data_shape), np_dtype(dtype)),
            DataDesc(o.label_name, (o.batch_size, *width)),
        )
        super().__init__(ImageSource(records, work, descs, getattr(torch, dtype), o))
        self.num_parts = o.num_parts
        if o.verbose:
            _logger.info("%s: %s, %d threads for decoding", name, o.path_imgrec, o.preprocess_threads)


describe(ImageRecordIter, CLASSIFY)


def _compute_mean(mean: MeanImage, records: RecordSource, work: _Classifier, o: OptionValues) -> None:
    """Take the mean of all images, as they come into a batch."""
    total, count = torch.zeros(o.data_shape, dtype=torch.float64), 0
    image = torch.empty(o.data_shape)
    for place in records.begin():
        header, body = unpack(place.read())
        work.image(header, body, count, image)
        total += image
        count += 1
    mean.store(total, count, cpu())


class ImageRecordUInt8Iter(ImageRecordIter):
    """`ImageRecordIter` with dtype "uint8": pixels as they are, without mean, deviation and scale."""

    dtype = "uint8"


class ImageRecordInt8Iter(ImageRecordIter):
    """`ImageRecordIter` with dtype "int8": pixels minus the rounded mean."""

    dtype = "int8"


class ImageRecordIter_v1(ImageRecordIter):
    """`ImageRecordIter` under the name that MXNet gave its first version."""


class ImageRecordUInt8Iter_v1(ImageRecordUInt8Iter):
    """`ImageRecordUInt8Iter` under the name that MXNet gave its first version."""
