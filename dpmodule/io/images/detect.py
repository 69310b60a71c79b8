"""`ImageDetRecordIter`: batches of images and their objects from record files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...base import ArgumentError, FileFormatError, ShapeError
from ...context import cpu
from ...recordio import IRHeader, unpack
from ..data_iter import MXDataIter
from ..desc import DataDesc
from ..options import check_parts, describe, parse_options
from ..std_random import StandardDraws
from .classify import check_data_shape, decode_for
from .detect_augment import augment_objects, check_samplers
from .normalize import MeanImage
from .objects import Objects
from .options import DETECT
from .pipeline import ImageSource
from .records import ImageList, RecordSource

if TYPE_CHECKING:
    from ..options import OptionValues

_logger = logging.getLogger(__name__)

_SEED = 233
_HEAD = 4
"""Numbers in front of an image's labels: its channels, rows, columns, and how many labels follow."""


class _Detector:
    """What `ImageDetRecordIter` does with one record."""

    def __init__(self, o: OptionValues, labels: ImageList | None, mean: MeanImage) -> None:
        self._o, self._labels, self._mean = o, labels, mean
        channels = o.data_shape[0]
        means, deviations = (
            np.array([getattr(o, f"{kind}_{c}") for c in "rgba"]) for kind in ("mean", "std")
        )
        self._center = None
        if (means > 0).any():
            self._center = torch.tensor(means[:channels], dtype=torch.float32).view(-1, 1, 1)
        std = np.where(deviations > 0, deviations, 1)[:channels]
        self._std = torch.tensor(std, dtype=torch.float32).view(-1, 1, 1)

    def __call__(
        self, header: IRHeader, body: bytes, number: int, data: torch.Tensor, label: torch.Tensor
    ) -> None:
        labels = self.image(header, body, number, data, label)
        label[_HEAD - 1] = len(labels)
        label[_HEAD : _HEAD + len(labels)] = torch.from_numpy(labels)

    def image(
        self, header: IRHeader, body: bytes, number: int, data: torch.Tensor, label: torch.Tensor
    ) -> np.ndarray[Any, Any]:
        """Decode and change an image, write it into its place, and return its labels."""
        o = self._o
        objects = Objects(self._label_of(header))
        image = decode_for(header, body, o.data_shape[0])
        image = augment_objects(image, objects, o, StandardDraws(_SEED + o.seed + number))
        height, width, channels = image.shape
        label.fill_(o.label_pad_value)
        label[: _HEAD - 1] = torch.tensor([channels, height, width], dtype=torch.float32)
        if (height, width) != data.shape[1:]:
            data.zero_()
        data[:, :height, :width] = image.permute(2, 0, 1)
        if self._center is not None:
            data.sub_(self._center)
        elif self._mean.values is not None:
            if self._mean.values.shape != data.shape:
                raise FileFormatError(
                    f"{self._mean.path}: the mean image has shape {tuple(self._mean.values.shape)}, images have "
                    f"{tuple(data.shape)}"
                )
            data.sub_(self._mean.values)
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

    An image's labels are ``channels, height, width, n`` and the n numbers of its record, filled up with
    `label_pad_value`: header width, object width, further header, and per object class, left, top, right,
    bottom as parts of the image's edges, and whatever follows.

    Raises:
        ArgumentError: an option is missing, does not fit, or contradicts another.
        FileError: a file cannot be read.
        FileFormatError: a file is no record file; or, from `next`, a record is damaged, no image, or its labels
            have another form. The text names file and byte offset.
        ShapeError: from `next`, an image has another number of labels than `label_width`.

    Example, given such a file::

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
        labels = ImageList(o.path_imglist, o.label_width) if o.path_imglist else None
        records = RecordSource(name, o.path_imgrec, "", o.num_parts, o.part_index, o.shuffle, _SEED + o.seed)
        width = _label_width(name, o, labels, records)
        mean = MeanImage(o.mean_img)
        work = _Detector(o, labels, mean)
        if mean.wanted:
            _compute_mean(mean, records, work, o, width + _HEAD)
        descs = (
            DataDesc(o.data_name, (o.batch_size, *o.data_shape)),
            DataDesc(o.label_name, (o.batch_size, width + _HEAD)),
        )
        super().__init__(ImageSource(records, work, descs, torch.float32, o))
        self.num_parts = o.num_parts
        if o.verbose:
            _logger.info("%s: %s, labels filled up to %d", name, o.path_imgrec, width)


describe(ImageDetRecordIter, DETECT)


def _label_width(owner: str, o: OptionValues, labels: ImageList | None, records: RecordSource) -> int:
    """Return how many labels each image is filled up to."""
    most = records.most_labels() if labels is None else labels.most_labels()
    if 0 < o.label_pad_width < most:
        raise ArgumentError(
            f"{owner}: label_pad_width is {o.label_pad_width}, but an image has {most} labels"
        )
    return max(most, int(o.label_pad_width))


def _compute_mean(
    mean: MeanImage, records: RecordSource, work: _Detector, o: OptionValues, width: int
) -> None:
    """Take the mean of all images, as they come into a batch."""
    total, count = torch.zeros(o.data_shape, dtype=torch.float64), 0
    label = torch.empty(width)
    for place in records.begin():
        image = torch.zeros(o.data_shape)
        header, body = unpack(place.read())
        work.image(header, body, count, image, label)
        total += image
        count += 1
    mean.store(total, count, cpu())
