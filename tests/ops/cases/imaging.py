"""Image operators; their 8-bit pixels are checked in tests/ops/imaging."""

import numpy as np

from helpers.op_case import OpCase
from helpers.pictures import FOLDER, file_of, goldens

_IMAGE = np.random.RandomState(0).rand(4, 6, 2)


def _bordered(x):
    return np.pad(x, ((1, 2), (0, 3), (0, 0)), mode="edge")


CASES = [
    OpCase("_cvimresize", (_IMAGE,), {"w": 3, "h": 2}, lambda x: x.reshape(2, 2, 3, 2, 2).mean((1, 3))),
    OpCase(
        "_cvimresize",
        (_IMAGE,),
        {"w": 12, "h": 8, "interp": 0},
        lambda x: x.repeat(2, axis=0).repeat(2, axis=1),
    ),
    OpCase("_cvcopyMakeBorder", (_IMAGE,), {"top": 1, "bot": 2, "left": 0, "right": 3, "type": 1}, _bordered),
    OpCase(
        "_cvimdecode",
        (np.frombuffer(file_of("noise"), np.uint8).copy(),),
        {},
        lambda x: goldens()["border/0"][2:-3, 4:-1],
        no_grad="reads a file",
    ),
    OpCase(
        "_cvimread",
        (),
        {"filename": str(FOLDER / "noise.png")},
        lambda: goldens()["border/0"][2:-3, 4:-1],
        no_grad="reads a file",
    ),
]
