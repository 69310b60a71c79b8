"""Colors of images: hue, lightness, saturation, brightness, contrast, lighting noise.

The functions on 8-bit RGB pixels use OpenCV's formulas. The operators compute in float32 for any image type and pass
the head gradient through unchanged, as in MXNet.
"""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError
from ..attrs import real, reals
from ..spec import Attr, Env, Onnx
from .declare import augment, straight_through, uniform

Tensor = torch.Tensor

_FIXED_GREY = (4899, 9617, 1868)
"""Weights of red, green and blue, as fractions of 2^14."""

_SECTORS = [[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]]
"""Index into (high, low, falling, rising) for red, green and blue in the six sectors of the color circle."""

GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue for the brightness."""

EIGENVALUES = (55.46, 4.794, 1.148)
EIGENVECTORS = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))
"""Principal axes of ImageNet's colors, with rows for red, green and blue."""
PCA = tuple(tuple(value * part for value, part in zip(EIGENVALUES, row)) for row in EIGENVECTORS)
"""Eigenvectors of ImageNet's colors times their eigenvalues."""


def to_grey(image: torch.Tensor) -> torch.Tensor:
    """Return the brightness of RGB pixels.

    Shape:
        image: (H, W, 3), uint8.
        returns: (H, W, 1), uint8.
    """
    weights = torch.tensor(_FIXED_GREY, dtype=torch.int32, device=image.device)
    total = (image.int() * weights).sum(2, keepdim=True, dtype=torch.int32)
    return ((total + (1 << 13)) >> 14).to(torch.uint8)


def scale_pixels(image: torch.Tensor, factor: float, offset: float = 0.0) -> torch.Tensor:
    """Return ``image * factor + offset``, rounded and clipped to 0 to 255."""
    return (image.float() * factor + offset).round_().clamp_(0, 255).to(torch.uint8)


def adjust_contrast(image: torch.Tensor, factor: float) -> torch.Tensor:
    """Scale the values around the mean brightness by `factor`."""
    mean = to_grey(image).double().mean().item()
    return scale_pixels(image, factor, (1 - factor) * mean)


def adjust_saturation(image: torch.Tensor, factor: float) -> torch.Tensor:
    """Blend an image with its grey version; a `factor` of 0 is grey, 1 the image."""
    mixed = image.float() * factor + to_grey(image).float() * (1 - factor)
    return mixed.round_().clamp_(0, 255).to(torch.uint8)


def shift_hls(image: torch.Tensor, hue: int, lightness: int, saturation: int) -> torch.Tensor:
    """Shift hue (0 to 180), lightness and saturation (0 to 255) of RGB pixels.

    Shape:
        image: (H, W, 3), uint8.
        returns: the same.
    """
    h, light, s = to_hls(image.float() * (1 / 255))
    h = ((h * 0.5).round_() + hue).clamp_(0, 180)
    light = ((light * 255).round_() + lightness).clamp_(0, 255)
    s = ((s * 255).round_() + saturation).clamp_(0, 255)
    return _pixels(h, light, s)


def to_hls(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return hue in degrees, lightness and saturation of RGB values.

    Shape:
        values: (H, W, 3), float, from 0 to 1.
        returns: (H, W) each.
    """
    r, g, b = values.unbind(2)
    high, low = torch.maximum(torch.maximum(r, g), b), torch.minimum(torch.minimum(r, g), b)
    spread, total = high - low, high + low
    light = total * 0.5
    colored = spread > torch.finfo(torch.float32).eps
    saturation = torch.where(light < 0.5, spread / total, spread / (2 - high - low))
    degrees = 60 / spread
    hue = torch.where(high == g, (b - r) * degrees + 120, (r - g) * degrees + 240)
    hue = torch.where(high == r, (g - b) * degrees, hue)
    hue = torch.where(hue < 0, hue + 360, hue)
    return torch.where(colored, hue, 0.0), light, torch.where(colored, saturation, 0.0)


def _pixels(hue: torch.Tensor, light: torch.Tensor, saturation: torch.Tensor) -> torch.Tensor:
    """Convert hue in half degrees, and lightness and saturation up to 255, to 8-bit RGB pixels."""
    light, saturation = light * (1 / 255), saturation * (1 / 255)
    mixed = light * saturation
    high = torch.where(light <= 0.5, light + mixed, light + saturation - mixed)
    colors = _color_at(hue * (6 / 180), 2 * light - high, high)
    return (colors * 255).round_().clamp_(0, 255).to(torch.uint8)


def _color_at(position: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the RGB values at a position in [0, 6) on the color circle, between two levels."""
    position = torch.remainder(position, 6.0)
    sector = position.floor().clamp(max=5.0)
    fraction = position - sector
    levels = torch.stack([high, low, low + (high - low) * (1 - fraction), low + (high - low) * fraction], 2)
    return levels.gather(2, levels.new_tensor(_SECTORS, dtype=torch.long)[sector.long()])


def _to_image_type(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert float32 values to an image's type: truncate fractions, and clip to 0 to 255 for bytes."""
    return (values.clamp(0.0, 255.0) if dtype == torch.uint8 else values).to(dtype)


def _brightness(factor: Tensor, data: Tensor) -> Tensor:
    return _to_image_type(data.float() * factor, data.dtype)


def _contrast(factor: Tensor, data: Tensor) -> Tensor:
    values = data.float()
    grey = values @ values.new_tensor(GREY) if data.shape[2] > 1 else values
    mean = grey.sum() / (data.shape[0] * data.shape[1])
    return _to_image_type(values * factor + (1 - factor) * mean, data.dtype)


def _saturation(factor: Tensor, data: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    values = data.float()
    grey = values[:, :, 2:] * GREY[2]  # only blue, as in MXNet
    return _to_image_type(grey * (1 - factor) + values * factor, data.dtype)


def _hue(turn: Tensor, data: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    hue, light, strength = to_hls(data.float() / 255.0)
    return _to_image_type(_from_hls(hue + turn * 360.0, light, strength) * 255.0, data.dtype)


def _from_hls(hue: Tensor, light: Tensor, strength: Tensor) -> Tensor:
    """Convert hue in degrees, lightness and saturation to RGB values."""
    high = torch.where(light <= 0.5, light * (1 + strength), light + strength - light * strength)
    colors = _color_at(hue * (1.0 / 60.0), 2 * light - high, high)
    return torch.where(strength.unsqueeze(2) != 0, colors, light.unsqueeze(2))


_CHANGES = {"brightness": _brightness, "contrast": _contrast, "saturation": _saturation, "hue": _hue}


_FACTORS = {"min_factor": Attr(real, "minimum factor"), "max_factor": Attr(real, "maximum factor")}


def _draw_and_change(name: str, a: Any, env: Env, data: Tensor) -> Tensor:
    factor = uniform(env, a.min_factor, a.max_factor)
    return straight_through(lambda x: _CHANGES[name](factor, x), data)


@augment("_image_random_brightness", _FACTORS, random=True)
def random_brightness(a: Any, env: Env, data: Tensor) -> Tensor:
    """Multiply an image by a random factor.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_brightness`, with different random numbers.
    """
    return _draw_and_change("brightness", a, env, data)


@augment("_image_random_contrast", _FACTORS, random=True)
def random_contrast(a: Any, env: Env, data: Tensor) -> Tensor:
    """Scale an image's values around its mean brightness by a random factor.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_contrast`, with different random numbers.
    """
    return _draw_and_change("contrast", a, env, data)


@augment("_image_random_saturation", _FACTORS, random=True)
def random_saturation(a: Any, env: Env, data: Tensor) -> Tensor:
    """Blend an image with its brightness; a random factor of 1 is the image.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_saturation`, which uses 0.114 times blue as brightness, with different
    random numbers.
    """
    return _draw_and_change("saturation", a, env, data)


@augment("_image_random_hue", _FACTORS, random=True)
def random_hue(a: Any, env: Env, data: Tensor) -> Tensor:
    """Rotate an image's hue by a random fraction of the color circle.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_hue`, with different random numbers.
    """
    return _draw_and_change("hue", a, env, data)


@augment(
    "_image_random_color_jitter",
    {name: Attr(real, f"maximum change of {name}; 0 for none") for name in _CHANGES},
    random=True,
)
def random_color_jitter(a: Any, env: Env, data: Tensor) -> Tensor:
    """Randomly change brightness, contrast, saturation and hue, in random order.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_color_jitter`, with different random numbers.
    """
    order = torch.randperm(len(_CHANGES), device=env.device, generator=env.generator).tolist()

    def change(x: Tensor) -> Tensor:
        for position in order:
            name = tuple(_CHANGES)[position]
            limit = getattr(a, name)
            if limit > 0:
                base = 0.0 if name == "hue" else 1.0
                x = _CHANGES[name](uniform(env, base - limit, base + limit), x)
        return x

    return straight_through(change, data)


def _lighting(alpha: Tensor, data: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    return _to_image_type(data.float() + alpha.new_tensor(PCA) @ alpha, data.dtype)


@augment(
    "_image_adjust_lighting",
    {"alpha": Attr(reals, "strengths of the three principal color components")},
    onnx=Onnx(builder="image_adjust_lighting"),
)
def adjust_lighting(a: Any, env: Env, data: Tensor) -> Tensor:
    """Add AlexNet's lighting noise with given strengths.

    Shape:
        data: (H, W, 3); an image with 1 channel is unchanged.
        returns: the same.

    Raises:
        OpError: `alpha` does not have three numbers.

    Source: MXNet 1.9.1 `_image_adjust_lighting`; Krizhevsky et al., "ImageNet classification", 2012.
    """
    if len(a.alpha) != 3:
        raise OpError(f"_image_adjust_lighting: alpha is {a.alpha}, expected three numbers")
    return straight_through(lambda x: _lighting(torch.tensor(a.alpha, device=x.device), x), data)


@augment(
    "_image_random_lighting",
    {"alpha_std": Attr(real, "standard deviation of the strengths", 0.05)},
    random=True,
)
def random_lighting(a: Any, env: Env, data: Tensor) -> Tensor:
    """Add AlexNet's lighting noise with random strengths.

    Shape:
        data: (H, W, 3); an image with 1 channel is unchanged.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_lighting`, with different random numbers.
    """
    alpha = torch.empty(3, device=env.device).normal_(0.0, 1.0, generator=env.generator) * a.alpha_std
    return straight_through(lambda x: _lighting(alpha, x), data)
