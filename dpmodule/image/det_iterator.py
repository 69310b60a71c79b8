"""`ImageDetIter`: batches of images and their objects, with augmenters in Python."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..base import ArgumentError, FileFormatError, MXNetError
from ..io import DataDesc
from ..ndarray import NDArray, array, full, zeros
from ..ops.image.detection_labels import has_area, parse_objects
from .create import MEAN, STD, CreateDetAugmenter
from .iterator import ImageIter, UnusableImageError

Pixels = np.ndarray[Any, Any]


def to_pixels(image: Pixels, mean: Any, std: Any, clip: bool) -> Pixels:
    """Undo a normalization and return uint8 pixels."""
    image = image.astype(np.float32)
    for value, imagenet, combine in ((std, STD, np.multiply), (mean, MEAN, np.add)):
        if value is not None:
            factor = value.asnumpy() if isinstance(value, NDArray) else value
            image = combine(image, np.asarray(imagenet if value is True else factor, np.float32))
    if clip:
        image = image.clip(0, 255)
    return image.astype(np.int64).astype(np.uint8)


def draw_objects(
    image: Pixels, objects: Pixels, color: Any, thickness: int, names: dict[int, str] | None
) -> Pixels:
    """Return a copy of an image with boxes and the names of their classes.

    Shape:
        image: (H, W, 3), uint8.
        objects: (N, 5 or more): class, left, top, right, bottom as fractions of the image size.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MXNetError(
            "drawing boxes needs Pillow, which is not installed; install it with: pip install 'dpmodule[image]'"
        ) from error
    picture = Image.fromarray(image)
    brush = ImageDraw.Draw(picture)
    height, width = image.shape[:2]
    for row in objects:
        if row[1] < 0:
            continue
        left, top, right, bottom = (int(v * s) for v, s in zip(row[1:5], (width, height) * 2, strict=True))
        ink = tuple(int(c) for c in (np.random.rand(3) * 255 if color is None else color))
        brush.rectangle((left, top, right, bottom), outline=ink, width=thickness)
        if names is not None and int(row[0]) in names:
            brush.text((left + 5, top + 5), names[int(row[0])], fill=(255, 255, 255))
    return np.array(picture)


_logger = logging.getLogger(__name__)

Labels = np.ndarray[Any, Any]


class ImageDetIter(ImageIter):
    """Read batches of images and their objects, from a record file or from a list of image files.

    The labels of an image are ``header width, object width, more header ..., objects ...``. An object is class, left,
    top, right, bottom as fractions of the image size, and further numbers. The labels of a batch have the shape
    (batch_size, objects, object width), padded with -1. Images without a usable object are skipped.

    Args:
        batch_size: number of images in a batch.
        data_shape: (channels, height, width) of an image; 3 channels.
        path_imgrec: path of a record file.
        path_imglist: path of an image list: number, labels and file, separated by tabs.
        path_root: folder of the image files.
        path_imgidx: path of the index of the record file, required to shuffle or read a part.
        shuffle: if True, each epoch takes the images in a new random order.
        part_index: part to read, from 0.
        num_parts: number of parts that the images are split into.
        aug_list: augmenters; None uses `CreateDetAugmenter` with the keyword arguments.
        imglist: a list of ``[label, ..., file]`` that replaces `path_imglist`.
        data_name: input of the network that takes images.
        label_name: input of the network that takes labels.
        last_batch_handle: as for `ImageIter`.
        **kwargs: arguments of `CreateDetAugmenter`.

    Raises:
        ArgumentError: as for `ImageIter`.
        FileError: a file cannot be read.
        FileFormatError: a file is damaged or has another format.
        MXNetError: the labels of an image have another format.

    Example, with a record file::

            it = mx.image.ImageDetIter(32, (3, 300, 300), path_imgrec="a.rec", rand_crop=0.5, rand_mirror=True)

    Source: MXNet 1.9.1 `ImageDetIter`.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: tuple[int, int, int],
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
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            batch_size,
            data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=[],
            imglist=imglist,
            data_name=data_name,
            label_name=label_name,
            last_batch_handle=last_batch_handle,
        )
        self.auglist = CreateDetAugmenter(data_shape, **kwargs) if aug_list is None else aug_list
        self.label_shape = self._estimate_label_shape()
        self.provide_label = [DataDesc(label_name, (batch_size, *self.label_shape))]

    def _estimate_label_shape(self) -> tuple[int, int]:
        """Return the largest number of objects of an image, and the width of an object."""
        most = width = 0
        self.reset()
        try:
            while True:
                objects = self._parse_label(self.next_sample()[0])
                most, width = max(most, len(objects)), objects.shape[1]
        except StopIteration:
            pass
        self.reset()
        if not most:
            raise ArgumentError("ImageDetIter: there are no images")
        return most, width

    def _parse_label(self, label: Any) -> Labels:
        """Return the objects of an image, (N, width)."""
        raw = np.asarray(label.asnumpy() if isinstance(label, NDArray) else label, np.float32).ravel()
        try:
            kept = parse_objects(raw)[1]
        except FileFormatError as error:
            raise UnusableImageError(f"an image has {error}") from error
        if not len(kept):
            raise UnusableImageError("an image has no object with an area")
        return kept

    @staticmethod
    def _check_valid_label(label: Labels) -> None:
        if label.ndim != 2 or label.shape[1] < 5:
            raise UnusableImageError(f"objects have shape {label.shape}, expected (1 or more, 5 or more)")
        if not ((label[:, 0] >= 0) & has_area(label)).any():
            raise UnusableImageError("an image has no usable object after its augmentation")

    def _new_batch(self) -> tuple[NDArray, NDArray, int]:
        return zeros((self.batch_size, *self.data_shape)), full(self.provide_label[0][1], -1.0), 0

    def _augmented(self, data: NDArray, label: Any) -> tuple[Any, Any]:
        data, objects = self.augmentation_transform(data, self._parse_label(label).copy())
        self._check_valid_label(objects)
        return data, objects

    def _put(self, batch_data: NDArray, batch_label: NDArray, at: int, data: NDArray, label: Any) -> None:
        count = min(len(label), batch_label.shape[1])
        padded = np.full(batch_label.shape[1:], -1, np.float32)
        padded[:count] = label[:count]
        super()._put(batch_data, batch_label, at, data, array(padded))

    def augmentation_transform(self, data: Any, label: Any = None) -> Any:
        """Apply all augmenters to an image and its objects.

        Args:
            data: the image, (height, width, 3).
            label: its objects, (objects, width of an object).
        """
        for change in self.auglist:
            data, label = change(data, label)
        return data, label

    def reshape(
        self, data_shape: tuple[int, int, int] | None = None, label_shape: tuple[int, int] | None = None
    ) -> None:
        """Change the shape of images or labels.

        Args:
            data_shape: (channels, height, width); None keeps it.
            label_shape: (objects, object width); None keeps it.

        Raises:
            ArgumentError: a shape is invalid.
        """
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.provide_data = [DataDesc(self.provide_data[0][0], (self.batch_size, *data_shape))]
            self.data_shape = data_shape
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self.provide_label = [DataDesc(self.provide_label[0][0], (self.batch_size, *label_shape))]
            self.label_shape = label_shape

    def check_label_shape(self, label_shape: tuple[int, ...]) -> None:
        """Refuse a label shape that is too small for all objects.

        Args:
            label_shape: (objects, width of an object).

        Raises:
            ArgumentError: the shape has other axes, fewer objects, or objects of another width.
        """
        if len(label_shape) != 2 or label_shape[0] < self.label_shape[0]:
            raise ArgumentError(
                f"ImageDetIter: label_shape is {label_shape}, expected (at least {self.label_shape[0]}, object width)"
            )
        if label_shape[1] != self.provide_label[0][1][2]:
            raise ArgumentError(
                f"ImageDetIter: label_shape has objects of {label_shape[1]} numbers, expected "
                f"{self.provide_label[0][1][2]}"
            )

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Set the label shapes of this iterator and another to the larger of both.

        Args:
            verbose: if True, a change is logged.

        Returns:
            `it`.

        Raises:
            ArgumentError: `it` is not an `ImageDetIter`, or its objects have another width.
        """
        if not isinstance(it, ImageDetIter):
            raise ArgumentError(f"sync_label_shape: {type(it).__name__} is not an ImageDetIter")
        if self.label_shape[1] != it.label_shape[1]:
            raise ArgumentError(
                f"sync_label_shape: objects have {self.label_shape[1]} and {it.label_shape[1]} numbers, expected equal"
            )
        shape = max(self.label_shape[0], it.label_shape[0]), self.label_shape[1]
        for iterator in (self, it):
            if iterator.label_shape != shape:
                iterator.reshape(None, shape)
                if verbose:
                    _logger.info("label_shape is now %s", shape)
        return it

    def draw_next(
        self,
        color: Any = None,
        thickness: int = 2,
        mean: Any = None,
        std: Any = None,
        clip: bool = True,
        waitKey: int | None = None,
        window_name: str = "draw_next",
        id2labels: dict[int, str] | None = None,
    ) -> Iterator[Labels]:
        """Yield the images of an epoch with their objects drawn.

        Shape:
            yields: (H, W, 3), uint8, blue, green, red.

        Args:
            color: (red, green, blue) of the boxes; None for random colors.
            thickness: width of the lines in pixels.
            mean: mean that the augmenters subtracted; True for the mean of ImageNet.
            std: value that the augmenters divided by; True for the standard deviation of ImageNet.
            clip: if True, values outside 0 to 255 are clipped, otherwise wrapped.
            waitKey: number of milliseconds to show each image with OpenCV, which must be installed; None does not.
            window_name: title of that window.
            id2labels: names of the classes by number, drawn in the boxes.
        """
        while True:
            try:
                label, file = self.next_sample()
            except StopIteration:
                return
            data = self.imdecode(file)
            try:
                objects = self._parse_label(label)
            except UnusableImageError as error:
                _logger.debug("skipping an image: %s", error)
                continue
            data, objects = self.augmentation_transform(data, objects.copy())
            pixels = to_pixels(data.asnumpy(), mean, std, clip)
            drawn = draw_objects(pixels, objects, color, thickness, id2labels)[:, :, ::-1]
            if waitKey is not None:
                cv2 = importlib.import_module("cv2")
                cv2.imshow(window_name, drawn)
                cv2.waitKey(waitKey)
            yield drawn
