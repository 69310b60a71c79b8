"""Iterators over image records: `ImageRecordIter`, its variants and `ImageDetRecordIter`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...base import ArgumentError, FileFormatError, ShapeError, np_dtype
from ...ops.image.codec import COLOR, GREY, UNCHANGED, decode
from ...recordio import IRHeader
from ..data_iter import MXDataIter, check_parts, describe, parse_options
from ..desc import DataDesc
from ..std_random import StdRandom
from .augment import augment, check_augmentation, only_cuts
from .detect_augment import Objects, augment_objects, check_samplers
from .normalize import MeanImage, Normalizer, per_channel
from .options import CLASSIFY, DETECT
from .pipeline import ImageList, ImageSource, RecordSource

if TYPE_CHECKING:
    from ..data_iter import OptionValues


_logger = logging.getLogger(__name__)

_SEED = 111
_FLAGS = {1: GREY, 3: COLOR, 4: UNCHANGED}


def check_data_shape(owner: str, shape: tuple[int, ...]) -> None:
    """Refuse an unsupported image shape."""
    if len(shape) != 3 or shape[0] not in _FLAGS or min(shape) < 1:
        raise ArgumentError(
            f"{owner}: data_shape is {shape}, expected (channels, height, width) with 1, 3 or 4 channels"
        )


def decode_for(header: IRHeader, body: bytes, channels: int, lend: bool = False) -> torch.Tensor:
    """Decode the image of a record with a number of channels; see `decode` for `lend`."""
    name = f"image {header.id}"
    image = decode(body, _FLAGS[channels], name=name, lend=lend)
    if image.shape[2] != channels:
        raise FileFormatError(f"{name} has {image.shape[2]} channels, expected {channels}")
    return image


def _open(
    owner: str, o: OptionValues, index: str, seed: int
) -> tuple[ImageList | None, RecordSource, MeanImage]:
    """Open the files of an iterator."""
    labels = ImageList(o.path_imglist, o.label_width) if o.path_imglist else None
    records = RecordSource(owner, o.path_imgrec, index, o.num_parts, o.part_index, o.shuffle, seed)
    return labels, records, MeanImage(o.mean_img)


class _Classifier:
    """Decoder of records for `ImageRecordIter`."""

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
        """Decode and augment an image, and write it to the batch."""
        o = self._o
        image = decode_for(header, body, o.data_shape[0], self._only_cuts)
        seed = o.seed if o.seed_aug is None else o.seed_aug
        rng = StdRandom(_SEED + seed + number)
        if o.aug_seq:
            image = augment(image, o, rng)
        elif image.shape[:2] != o.data_shape[1:]:
            raise ShapeError(
                f"image {header.id} has {tuple(image.shape[:2])} pixels, expected {o.data_shape[1:]}, since "
                "aug_seq is empty"
            )
        self._normalizer.put(image, rng, data)

    def _label_of(self, header: IRHeader) -> np.ndarray[Any, Any]:
        if self._labels is not None:
            return self._labels.find(header.id)
        labels = np.array(header.label, np.float32, ndmin=1)
        if len(labels) != self._o.label_width:
            raise ShapeError(
                f"image {header.id} has {len(labels)} labels, but label_width is {self._o.label_width}"
            )
        return labels


class ImageRecordIter(MXDataIter):
    """Read batches of images and labels from record files, decoding in several threads.

    `recordio.pack_img` and `MXRecordIO`, or MXNet's im2rec, write such files. Images smaller than `data_shape` are
    enlarged; others are cropped.

    Raises:
        ArgumentError: an option is missing or invalid, or contradicts another.
        FileError: a file cannot be read.
        FileFormatError: a file is not a record file; or, from `next`, a record is damaged or not an image. The message
            names file and byte offset.
        ShapeError: from `next`, an image has another number of labels than `label_width`.

    Example, with a record file::

            it = mx.io.ImageRecordIter(
                path_imgrec="train.rec", path_imgidx="train.idx", data_shape=(3, 224, 224), batch_size=32,
                resize=256, rand_crop=True, rand_mirror=True, shuffle=True)

    Source: MXNet 1.9.1 `ImageRecordIter`. With `seed_aug`, the augmentation is the same for any number of
    threads, and equals that of MXNet with one thread.
    """

    dtype = ""  # set by subclasses

    def __init__(self, **options: Any) -> None:
        name = type(self).__name__
        o = parse_options(name, CLASSIFY, options)
        check_parts(name, o)
        check_data_shape(name, o.data_shape)
        check_augmentation(name, o)
        dtype = self.dtype or o.dtype or "float32"
        labels, records, mean = _open(name, o, o.path_imgidx, _SEED + o.seed)
        work = _Classifier(o, labels, mean)
        if mean.wanted:
            mean.compute(records, o.data_shape, work.image)
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


class ImageRecordUInt8Iter(ImageRecordIter):
    """`ImageRecordIter` with dtype "uint8": raw pixels, without mean, standard deviation and scale."""

    dtype = "uint8"


class ImageRecordInt8Iter(ImageRecordIter):
    """`ImageRecordIter` with dtype "int8": pixels minus the rounded mean."""

    dtype = "int8"


class ImageRecordIter_v1(ImageRecordIter):
    """`ImageRecordIter` under the name of its first version in MXNet."""


class ImageRecordUInt8Iter_v1(ImageRecordUInt8Iter):
    """`ImageRecordUInt8Iter` under the name of its first version in MXNet."""


_DETECTION_SEED = 233
_HEAD = 4
"""Count of numbers before the labels of an image: channels, height, width, number of labels."""


class _Detector:
    """Decoder of records for `ImageDetRecordIter`."""

    def __init__(self, o: OptionValues, labels: ImageList | None, mean: MeanImage) -> None:
        self._o, self._labels, self._mean = o, labels, mean
        has_mean = max(o.mean_r, o.mean_g, o.mean_b, o.mean_a) > 0
        self._center = per_channel(o, "mean") if has_mean else None
        std = per_channel(o, "std")
        self._std = torch.where(std > 0, std, 1.0)

    def __call__(
        self, header: IRHeader, body: bytes, number: int, data: torch.Tensor, label: torch.Tensor
    ) -> None:
        labels = self.image(header, body, number, data, label)
        label[_HEAD - 1] = len(labels)
        label[_HEAD : _HEAD + len(labels)] = torch.from_numpy(labels)

    def image(
        self, header: IRHeader, body: bytes, number: int, data: torch.Tensor, label: torch.Tensor
    ) -> np.ndarray[Any, Any]:
        """Decode and augment an image, write it to the batch, and return its labels."""
        o = self._o
        objects = Objects(self._label_of(header))
        image = decode_for(header, body, o.data_shape[0])
        image = augment_objects(image, objects, o, StdRandom(_DETECTION_SEED + o.seed + number))
        height, width, channels = image.shape
        label.fill_(o.label_pad_value)
        label[: _HEAD - 1] = torch.tensor([channels, height, width], dtype=torch.float32)
        if (height, width) != data.shape[1:]:
            data.zero_()
        data[:, :height, :width] = image.permute(2, 0, 1)
        if self._center is not None:
            data.sub_(self._center)
        elif self._mean.values is not None:
            data.sub_(self._mean.of_shape(data.shape))
        data.div_(self._std).mul_(o.scale)
        return objects.flat()

    def _label_of(self, header: IRHeader) -> np.ndarray[Any, Any]:
        if self._labels is not None:
            return self._labels.find(header.id)
        if header.flag == 0:
            raise FileFormatError(f"image {header.id} has one label, expected a header and objects")
        if self._o.label_width > 0 and len(header.label) != self._o.label_width:
            raise ShapeError(
                f"image {header.id} has {len(header.label)} labels, but label_width is {self._o.label_width}"
            )
        return np.asarray(header.label, np.float32)


class ImageDetRecordIter(MXDataIter):
    """Read batches of images and their objects from record files, decoding in several threads.

    The labels of an image are ``channels, height, width, n`` and the n numbers of its record, padded with
    `label_pad_value`: header width, object width, further header, and for each object class, left, top, right, bottom
    as fractions of the image size, and further numbers.

    Raises:
        ArgumentError: an option is missing or invalid, or contradicts another.
        FileError: a file cannot be read.
        FileFormatError: a file is not a record file; or, from `next`, a record is damaged or not an image, or its
            labels have another format. The message names file and byte offset.
        ShapeError: from `next`, an image has another number of labels than `label_width`.

    Example, with a record file::

            it = mx.io.ImageDetRecordIter(
                path_imgrec="train.rec", data_shape=(3, 300, 300), batch_size=32, rand_mirror_prob=0.5)

    Source: MXNet 1.9.1 `ImageDetRecordIter`.
    """

    def __init__(self, **options: Any) -> None:
        name = "ImageDetRecordIter"
        o = parse_options(name, DETECT, options)
        check_parts(name, o)
        check_data_shape(name, o.data_shape)
        check_samplers(name, o)
        labels, records, mean = _open(name, o, "", _DETECTION_SEED + o.seed)
        width = _label_width(name, o, labels, records)
        work = _Detector(o, labels, mean)
        if mean.wanted:
            label = torch.empty(width + _HEAD, dtype=torch.float32)
            mean.compute(
                records,
                o.data_shape,
                lambda header, body, number, data: work.image(header, body, number, data, label),
            )
        descs = (
            DataDesc(o.data_name, (o.batch_size, *o.data_shape)),
            DataDesc(o.label_name, (o.batch_size, width + _HEAD)),
        )
        super().__init__(ImageSource(records, work, descs, torch.float32, o))
        self.num_parts = o.num_parts
        if o.verbose:
            _logger.info("%s: %s, labels padded to %d", name, o.path_imgrec, width)


describe(ImageDetRecordIter, DETECT)


def _label_width(owner: str, o: OptionValues, labels: ImageList | None, records: RecordSource) -> int:
    """Return the number of labels that each image is padded to."""
    most = records.most_labels() if labels is None else labels.most_labels()
    if 0 < o.label_pad_width < most:
        raise ArgumentError(
            f"{owner}: label_pad_width is {o.label_pad_width}, but an image has {most} labels"
        )
    return max(most, int(o.label_pad_width))
