"""Random augmentation of images: size, position, rotation, color."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...base import ArgumentError
from ...ops.image.color import PCA, adjust_contrast, adjust_saturation, scale_pixels, shift_hls
from ...ops.image.geometry import make_border, warp_affine
from ...ops.image.resize import pick_method, resize, short_edge_size
from ..std_random import StdRandom

if TYPE_CHECKING:
    from ..data_iter import OptionValues


def check_augmentation(owner: str, o: OptionValues) -> None:
    """Refuse options that contradict each other."""
    low, high = _aspect_range(o)
    if low > high or low <= 0 and (o.random_resized_crop or high != low):
        raise ArgumentError(f"{owner}: aspect ratios are from {low:g} to {high:g}, expected a range above 0")
    if o.min_random_area > o.max_random_area or o.min_random_scale > o.max_random_scale:
        raise ArgumentError(f"{owner}: min_random_area or min_random_scale is above its maximum")
    if o.random_resized_crop and (
        o.rand_crop
        or (o.min_random_scale, o.max_random_scale) != (1, 1)
        or (o.min_crop_size, o.max_crop_size) != (-1, -1)
    ):
        raise ArgumentError(
            f"{owner}: random_resized_crop excludes rand_crop, random scales and crop sizes; omit these"
        )
    if o.max_crop_size < o.min_crop_size or (o.min_crop_size == -1) != (o.max_crop_size == -1):
        raise ArgumentError(
            f"{owner}: crop sizes are from {o.min_crop_size} to {o.max_crop_size}; give both, in this order"
        )
    pick_method(o.inter_method, (1, 1), (1, 1))


def only_cuts(o: OptionValues) -> bool:
    """Return True if the first change to a large enough image is a crop."""
    return o.resize == -1 and not _moves(o) and o.pad <= 0


def augment(image: torch.Tensor, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    """Augment an image by the options and crop it to `o.data_shape`.

    Shape:
        image: (H, W, C), uint8, red, green, blue.
        returns: (o.data_shape[1], o.data_shape[2], C), uint8.
    """
    if o.resize != -1:
        image = shorter_edge(image, o.resize, o.inter_method, rng)
    if _moves(o):
        image = _moved(image, o, rng)
    if o.pad > 0:
        image = make_border(image, o.pad, o.pad, o.pad, o.pad, values=(o.fill_value,) * 4)
    image = _cropped(image, o, rng)
    if image.shape[2] < 3:
        return image
    if o.brightness > 0 or o.contrast > 0 or o.saturation > 0:
        image = _jittered(image, o, rng)
    if o.random_h or o.random_s or o.random_l:
        h, s, light = (int(rng.uniform() * most * 2 - most) for most in (o.random_h, o.random_s, o.random_l))
        image = with_alpha(image, shift_hls(image[:, :, :3], h, light, s))
    if o.pca_noise > 0:
        noise = np.array(PCA, np.float32) @ np.array(
            [rng.normal() * o.pca_noise for _ in range(3)], np.float32
        )
        shifted = (image[:, :, :3].float() + torch.from_numpy(noise)).clamp_(0, 255).to(torch.uint8)
        image = with_alpha(image, shifted)
    return image


def with_alpha(image: torch.Tensor, color: torch.Tensor) -> torch.Tensor:
    """Return changed colors with the fourth channel of the image, if it has one."""
    return color if image.shape[2] == 3 else torch.cat([color, image[:, :, 3:]], 2)


def resized(image: torch.Tensor, width: int, height: int, interp: int, rng: StdRandom) -> torch.Tensor:
    """Resize an image with a method that may depend on its size or be random."""
    old = (image.shape[0], image.shape[1])
    draw = rng.whole(0, 4) if interp == 10 else 1
    return resize(image, width, height, pick_method(interp, old, (height, width), draw))


def shorter_edge(image: torch.Tensor, size: int, interp: int, rng: StdRandom) -> torch.Tensor:
    """Resize an image so that its shorter edge has `size` pixels."""
    height, width = short_edge_size(image.shape[0], image.shape[1], size)
    return resized(image, width, height, interp, rng)


def _aspect_range(o: OptionValues) -> tuple[float, float]:
    if o.min_aspect_ratio is not None:
        return o.min_aspect_ratio, o.max_aspect_ratio
    return 1 - o.max_aspect_ratio, 1 + o.max_aspect_ratio


def _moves(o: OptionValues) -> bool:
    """Return True if images are rotated, sheared or scaled."""
    return bool(
        o.max_rotate_angle > 0
        or o.max_shear_ratio > 0
        or o.rotate > 0
        or o.rotate_list
        or (o.min_random_scale, o.max_random_scale) != (1, 1)
        or (not o.random_resized_crop and _aspect_range(o) != (1, 1))
        or o.max_img_size != 1e10
        or o.min_img_size != 0
    )


def _moved(image: torch.Tensor, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    """Rotate, shear and scale an image about its center."""
    height, width = image.shape[:2]
    shear = rng.uniform() * o.max_shear_ratio * 2 - o.max_shear_ratio
    angle = rng.whole(-o.max_rotate_angle, o.max_rotate_angle)
    if o.rotate > 0:
        angle = o.rotate
    if o.rotate_list:
        angle = o.rotate_list[rng.whole(0, len(o.rotate_list) - 1)]
    cosine, sine = math.cos(angle / 180 * math.pi), math.sin(angle / 180 * math.pi)
    scale = rng.uniform() * (o.max_random_scale - o.min_random_scale) + o.min_random_scale
    low, high = _aspect_range(o)
    ratio = 1.0 if o.random_resized_crop else rng.uniform() * (high - low) + low
    down = 2 * scale / (1 + ratio)
    across = ratio * down
    new_width = max(o.min_img_size, min(o.max_img_size, scale * width))
    new_height = max(o.min_img_size, min(o.max_img_size, scale * height))
    matrix = np.zeros((2, 3), np.float32)
    matrix[0, :2] = down * cosine - shear * sine * across, down * sine + shear * cosine * across
    matrix[1, :2] = -sine * across, cosine * across
    matrix[:, 2] = (np.array([new_width, new_height]) - matrix[:, :2] @ np.array([width, height])) / 2
    method = o.inter_method
    if method in (9, 10):
        draw = rng.whole(0, 4) if method == 10 else 1
        method = pick_method(method, (height, width), (int(new_height), int(new_width)), draw)
    return warp_affine(image, matrix, int(new_width), int(new_height), method, o.fill_value)


def _cropped(image: torch.Tensor, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    height, width = o.data_shape[1:]
    if o.random_resized_crop:
        area = _random_area(image, o, rng)
        if area is not None:
            return resized(area, width, height, o.inter_method, rng)
    elif o.max_crop_size != -1:
        if min(image.shape[:2]) < o.max_crop_size:
            raise ArgumentError(
                f"an image of {image.shape[0]} x {image.shape[1]} pixels is smaller than max_crop_size "
                f"{o.max_crop_size}; set resize"
            )
        size = rng.whole(o.min_crop_size, o.max_crop_size)
        return resized(_window(image, size, size, o, rng), width, height, o.inter_method, rng)
    if image.shape[0] < height:
        wider = int(np.float32(height) / np.float32(image.shape[0]) * image.shape[1])
        image = resized(image, wider, height, o.inter_method, rng)
    if image.shape[1] < width:
        higher = int(np.float32(width) / np.float32(image.shape[1]) * image.shape[0])
        image = resized(image, width, higher, o.inter_method, rng)
    return _window(image, height, width, o, rng)


def _window(image: torch.Tensor, height: int, width: int, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    """Crop an image at a random position or the center."""
    y, x = image.shape[0] - height, image.shape[1] - width
    if o.rand_crop:
        y = rng.whole(0, y)
        x = rng.whole(0, x)
    else:
        y, x = y // 2, x // 2
    return image[y : y + height, x : x + width]


def _random_area(image: torch.Tensor, o: OptionValues, rng: StdRandom) -> torch.Tensor | None:
    """Crop a random area with a random aspect ratio; return None after ten failed attempts."""
    low, high = _aspect_range(o)
    if (o.min_random_area, o.max_random_area, low, high) == (1, 1, 1, 1):
        return None
    height, width = image.shape[:2]
    for _ in range(10):
        area = rng.uniform(o.min_random_area, o.max_random_area) * (height * width)
        ratio = rng.uniform(low, high)
        w, h = _half_up(math.sqrt(area * ratio)), _half_up(math.sqrt(area / ratio))
        if rng.uniform() > 0.5:
            w, h = h, w
        if h <= height and w <= width:
            y = rng.whole(0, height - h)
            x = rng.whole(0, width - w)
            return image[y : y + h, x : x + w]
    return None


def _half_up(value: float) -> int:
    return math.floor(value + 0.5)


def _jittered(image: torch.Tensor, o: OptionValues, rng: StdRandom) -> torch.Tensor:
    """Change brightness, contrast and saturation, in a random order."""
    color = image[:, :, :3].flip(2)  # MXNet swaps the weights of red and blue
    factors = [1 + rng.uniform(-most, most) for most in (o.brightness, o.contrast, o.saturation)]
    order = [0, 1, 2]
    rng.shuffle(order)
    for which in order:
        if factors[which] != 1:
            change = (scale_pixels, adjust_contrast, adjust_saturation)[which]
            color = change(color, factors[which])
    return with_alpha(image, color.flip(2))
