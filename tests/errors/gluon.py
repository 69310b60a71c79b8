"""Wrong calls of `mx.gluon`, and of what is left out of it."""

import importlib

import dpmodule as mx
from dpmodule.base import ArgumentError, MXNetError, ShapeError

five = mx.nd.ones((5, 2))


def used(place):
    module = mx.gluon
    for part in place.split("."):
        module = getattr(module, part)
    module.Other()


ROWS = [
    (lambda: mx.gluon.nn.Dense(3), MXNetError, r"gluon\.nn\.Dense is not available: .*torch\.nn"),
    (lambda: mx.gluon.Trainer({}, "sgd"), MXNetError, r"gluon\.Trainer is not available"),
    (lambda: mx.gluon.data.vision.transforms.Compose([]), MXNetError, r"data\.vision\.transforms\.Compose"),
    (lambda: importlib.import_module("dpmodule.gluon.no_such_module"), ModuleNotFoundError, ""),
    *[
        (lambda p=p: used(p), MXNetError, rf"gluon\.{p}\.Other is not available")
        for p in ("nn", "contrib.rnn")
    ],
    (lambda: mx.gluon.utils.clip_global_norm([], 1.0), ArgumentError, "arrays is empty"),
    (lambda: mx.gluon.utils.split_data(five, 2), ShapeError, "even_split=False allows"),
    (lambda: mx.gluon.utils.split_data(five, 6, even_split=False), ShapeError, "cannot be split into 6"),
    (lambda: mx.gluon.contrib.rnn.LSTMPCell(2, 0), ArgumentError, "projection_size is 0"),
]
