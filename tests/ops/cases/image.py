"""Cases of the image operators: formulas, and numbers recorded from MXNet 1.9.1 where noted."""

import numpy as np

from helpers.arrays import u1
from helpers.op_case import OpCase
from helpers.pictures import FOLDER, file_of, goldens

rng = np.random.RandomState(9)
STRAIGHT, BYTES = "its gradient is the head gradient unchanged, as in MXNet", "bytes have no gradient"
IMAGE = rng.randint(0, 256, (4, 3, 3)).astype("u1")
SMALL = u1([[[10, 200, 30], [0, 0, 0]], [[255, 255, 255], [90, 60, 120]]])
PCA = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.814], [-0.5836, -0.6948, 0.4203]])
ALPHA, EVEN = (0.125, 0.25, -0.5), rng.rand(4, 6, 2)
MEAN, STD = np.array([0.25, 0.5, 0.75])[:, None, None], np.array([0.5, 2, 4])[:, None, None]
LARGER = [10, 200, 30, 5, 100, 15, 0, 0, 0, 133, 228, 143, 89, 129, 101, 45, 30, 60]
LARGER += [255, 255, 255, 172, 157, 187, 90, 60, 120]


def case(name, data, expect, no_grad=BYTES, **attrs):
    return OpCase(f"_image_{name}", (data,), attrs, expect, no_grad=no_grad)


def whole(values):
    """Store numbers in bytes as MXNet does: without what is after the point."""
    return np.clip(values, 0, 255).astype("u1")


def contrast(x):
    return whole(x * 0.5 + 0.5 * (x @ np.array([0.299, 0.587, 0.114])).mean())


def nearest(x):
    return x[np.arange(2) * 4 // 2][:, np.arange(6) * 3 // 6]


def lighting(x):
    return x + (PCA * np.array([55.46, 4.794, 1.148])) @ np.array(ALPHA)


def recorded(side, values):
    return lambda x: u1(values).reshape(side, side, 3)


def picture(*_):
    return goldens()["border/0"][2:-3, 4:-1]


QUARTER = {"min_factor": 0.25, "max_factor": 0.25}
FACTOR = {"min_factor": 0.5, "max_factor": 0.5}
CASES = [
    case("to_tensor", IMAGE, lambda x: (x.transpose(2, 0, 1) / 255.0).astype("f4")),
    case("to_tensor", np.stack([IMAGE] * 2), lambda x: (x.transpose(0, 3, 1, 2) / 255.0).astype("f4")),
    case("normalize", rng.rand(3, 2, 2), lambda x: (x - MEAN) / STD, "", mean=(0.25, 0.5, 0.75), std=(0.5, 2.0, 4.0)),
    case("normalize", rng.rand(2, 1, 2, 3), lambda x: (x - 0.25) / 0.5, "", mean=(0.25,), std=(0.5,)),
    case("normalize", rng.rand(3, 2, 2), lambda x: x, ""),
    case("crop", rng.rand(2, 4, 5, 3), lambda x: x[:, 2:4, 1:4], "", x=1, y=2, width=3, height=2),
    case("crop", IMAGE, lambda x: x[1:3, :2], x=0, y=1, width=2, height=2),
    case("resize", IMAGE, nearest, size=(6, 2), interp=0),
    # the next and the two hues are recorded from MXNet 1.9.1
    case("resize", SMALL, recorded(3, LARGER), size=(3, 3)),
    case("flip_left_right", IMAGE, lambda x: x[:, ::-1]),
    case("flip_top_bottom", IMAGE, lambda x: x[::-1]),
    case("random_brightness", IMAGE, lambda x: whole(x * 0.5), **FACTOR),
    case("random_contrast", SMALL, contrast, **FACTOR),
    case("random_saturation", SMALL, lambda x: whole(x * 0.5 + 0.5 * 0.114 * x[:, :, 2:]), **FACTOR),
    case("random_hue", SMALL, recorded(2, [200, 9, 179, 0, 0, 0, 255, 255, 255, 89, 119, 60]), **FACTOR),
    case("random_hue", SMALL, recorded(2, [9, 84, 200, 0, 0, 0, 255, 255, 255, 119, 60, 60]), **QUARTER),
    case("adjust_lighting", IMAGE.astype("f8"), lighting, STRAIGHT, alpha=ALPHA),
    case("random_lighting", IMAGE, lambda x: x, alpha_std=0.0),
    case("random_color_jitter", IMAGE, lambda x: x, brightness=0, contrast=0, saturation=0, hue=0),
    # 8-bit pixels of the next are checked in tests/ops/image
    OpCase("_cvimresize", (EVEN,), {"w": 3, "h": 2}, lambda x: x.reshape(2, 2, 3, 2, 2).mean((1, 3))),
    OpCase("_cvimresize", (EVEN,), {"w": 12, "h": 8, "interp": 0}, lambda x: x.repeat(2, axis=0).repeat(2, axis=1)),
    OpCase("_cvcopyMakeBorder", (EVEN,), {"top": 1, "bot": 2, "left": 0, "right": 3, "type": 1},
           lambda x: np.pad(x, ((1, 2), (0, 3), (0, 0)), mode="edge")),
    OpCase("_cvimdecode", (np.frombuffer(file_of("noise"), np.uint8).copy(),), {}, picture, no_grad="reads a file"),
    OpCase("_cvimread", (), {"filename": str(FOLDER / "noise.png")}, picture, no_grad="reads a file"),
]  # fmt: skip
