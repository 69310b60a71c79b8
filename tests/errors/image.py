"""Wrong calls of `mx.image`."""

from functools import partial

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, FileError, FileFormatError, ShapeError
from dpmodule.image.iterator import UnusableImageError
from helpers.pictures import FOLDER, FORMATS, NAMES, file_of

I = mx.image  # noqa: E741
IMAGE, STACK = mx.nd.zeros((3, 4, 4)), mx.nd.zeros((2, 3, 4, 4))
LISTED = [[i, f"{name}.png"] for i, name in enumerate(NAMES)]


def junk(folder):
    (folder / "bad.png").write_bytes(b"junk")
    return folder / "bad.png"


def images(**given):
    given = {"batch_size": 2, "data_shape": (3, 12, 14), "imglist": LISTED, "path_root": FOLDER, **given}
    return I.ImageIter(**given)


def from_list(folder, text):
    (folder / "a.lst").write_text(text)
    return images(imglist=None, path_imglist=folder / "a.lst")


def objects(*labels):
    labels = labels or (2, 5, 0, 0.1, 0.1, 0.5, 0.6)
    return I.ImageDetIter(2, (3, 12, 14), imglist=[[*labels, "wide.png"]] * 2, path_root=FOLDER)


def old_decoder(**given):
    return mx.nd.imdecode(file_of("wide"), **given)


ROWS = [
    # functions
    (lambda: I.imdecode("text"), ArgumentError, "buf is str"),
    (lambda: I.imdecode(b"junk"), FileFormatError, ""),
    (lambda folder: I.imread(folder / "nothing.png"), FileError, "nothing.png"),
    (lambda folder: I.imread(junk(folder)), FileFormatError, r"bad\.png of 4 bytes"),
    (lambda: I.imresize(mx.nd.zeros((4, 4, 3)), 5, 6, 6), ArgumentError, "method 6"),
    (lambda: I.random_size_crop(IMAGE, (2, 2), 1.0, (1, 1), x=1), ArgumentError, "unexpected keywords x"),
    (lambda: I.imrotate(IMAGE, 10, zoom_in=True, zoom_out=True), ArgumentError, "exclude each other"),
    (lambda: I.imrotate(IMAGE.astype("uint8"), 10), DTypeError, "expected float32"),
    (lambda: I.imrotate(IMAGE, mx.nd.array([10])), DTypeError, "expected one number"),
    (lambda: I.imrotate(IMAGE[0], 10), ShapeError, "expected .C, H, W."),
    (lambda: I.imrotate(STACK, mx.nd.array([10])), ShapeError, "expected .2,."),
    (lambda: old_decoder(channels=2), ArgumentError, "imdecode: "),
    (lambda: old_decoder(clip_rect=(0, 0, 99, 9)), ArgumentError, "imdecode: "),
    (lambda: old_decoder(out=mx.nd.zeros((3, 2, 2))), ShapeError, "imdecode: "),
    # augmentation
    *[
        (partial(I.CreateAugmenter, (3, 4, 4), **given), ArgumentError, "CreateAugmenter: ")
        for given in ({"rand_resize": True}, {"mean": [1, 2, 3]}, {"std": np.ones(2)})
    ],
    (lambda: I.Augmenter()(IMAGE), NotImplementedError, ""),
    (lambda: I.DetAugmenter()(IMAGE, []), NotImplementedError, ""),
    (lambda: I.DetBorrowAug(I.DetHorizontalFlipAug(1.0)), DTypeError, "expected an Augmenter"),
    (lambda: I.DetRandomSelectAug([I.CastAug()]), ArgumentError, "not a DetAugmenter"),
    (partial(I.CreateMultiRandCropAugmenter, [0.1] * 3, max_attempts=[1, 2]), ArgumentError, "expected 1 or"),
    (lambda: I.DetRandomCropAug(area_range="x"), ArgumentError, "area_range is 'x'"),
    # ImageIter
    *[
        (partial(images, **given), ArgumentError, "")
        for given in (
            {"imglist": None},
            {"batch_size": 0},
            {"dtype": "int8"},
            {"last_batch_handle": "wrap"},
            {"data_shape": (1, 4, 4)},
            {"part_index": 1},
            {"imglist": None, "path_imgrec": FORMATS / "images_l1.rec", "shuffle": True},
            {"imglist": [["a.png"]]},
        )
    ],
    (lambda: images(aug_list=[I.CastAug()]).next(), ArgumentError, r"shape \(3, 13, 17\) after augmentation"),
    (lambda folder: from_list(folder, "5\tx\tnoise.png\n"), FileFormatError, r"a\.lst: line 1"),
    (lambda: images(imglist=[[0, "gone.png"]]).next(), FileError, "gone.png"),
    (lambda folder: images(imglist=[[0, str(junk(folder))]]).next(), FileFormatError, "bad.png: image of 4"),
    # ImageDetIter
    (lambda: objects().reshape(label_shape=(0, 5)), ArgumentError, "expected .at least 1"),
    (lambda: objects().reshape(label_shape=(4, 6)), ArgumentError, "objects of 6 numbers"),
    (lambda: objects().sync_label_shape(None), ArgumentError, "not an ImageDetIter"),
    (lambda: objects(2, 5, 0), UnusableImageError, "an image has"),
    (lambda: objects(2, 5, 0, 0.5, 0.5, 0.1, 0.1), UnusableImageError, "an image has"),
]
