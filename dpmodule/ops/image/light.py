"""Light and color of images: brightness, contrast, saturation, hue and lighting noise, at random.

All compute in float32, whatever the image's type, and pass their head gradient on unchanged, as MXNet's do.
"""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError
from ..attrs import real, reals
from ..spec import Attr, Env, Onnx
from .color import to_hls
from .rules import augment, straight, uniform

Tensor = torch.Tensor

_GREY = (0.299, 0.587, 0.114)
PCA = (
    (55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009),
    (55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140),
    (55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203),
)
"""Eigenvectors of ImageNet's colors times their eigenvalues, one row for each of red, green and blue."""


def _stored(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return float32 values in an image's type: cut off after the point, and kept within 0 to 255 for bytes."""
    return (values.clamp(0.0, 255.0) if dtype == torch.uint8 else values).to(dtype)


def _brightness(factor: Tensor, data: Tensor) -> Tensor:
    return _stored(data.float() * factor, data.dtype)


def _contrast(factor: Tensor, data: Tensor) -> Tensor:
    values = data.float()
    grey = values @ values.new_tensor(_GREY) if data.shape[2] > 1 else values
    mean = grey.sum() / (data.shape[0] * data.shape[1])
    return _stored(values * factor + (1 - factor) * mean, data.dtype)


def _saturation(factor: Tensor, data: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    values = data.float()
    grey = values[:, :, 2:] * _GREY[2]  # blue alone, as in MXNet
    return _stored(grey * (1 - factor) + values * factor, data.dtype)


def _hue(turn: Tensor, data: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    hue, light, strength = to_hls(data.float() / 255.0)
    return _stored(_from_hls(hue + turn * 360.0, light, strength) * 255.0, data.dtype)


def _from_hls(hue: Tensor, light: Tensor, strength: Tensor) -> Tensor:
    """Return the RGB values of hue in degrees, lightness and saturation."""
    high = torch.where(light <= 0.5, light * (1 + strength), light + strength - light * strength)
    low = 2 * light - high
    place = torch.remainder(hue * (1.0 / 60.0), 6.0)
    sector = place.floor().clamp(max=5.0)
    part = place - sector
    falling, rising = low + (high - low) * (1 - part), low + (high - low) * part
    table = torch.stack([high, low, falling, rising], 2)
    picks = table.new_tensor(
        [[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]], dtype=torch.long
    )
    colors = table.gather(2, picks[sector.long()])
    return torch.where(strength.unsqueeze(2) != 0, colors, light.unsqueeze(2))


_CHANGES = {"brightness": _brightness, "contrast": _contrast, "saturation": _saturation, "hue": _hue}


_FACTORS = {"min_factor": Attr(real, "least factor"), "max_factor": Attr(real, "greatest factor")}


def _draw_and_change(name: str, a: Any, env: Env, data: Tensor) -> Tensor:
    factor = uniform(env, a.min_factor, a.max_factor)
    return straight(lambda x: _CHANGES[name](factor, x), data)


@augment("_image_random_brightness", _FACTORS, random=True)
def random_brightness(a: Any, env: Env, data: Tensor) -> Tensor:
    """Multiply an image by a random factor.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_brightness`, with random numbers of our own.
    """
    return _draw_and_change("brightness", a, env, data)


@augment("_image_random_contrast", _FACTORS, random=True)
def random_contrast(a: Any, env: Env, data: Tensor) -> Tensor:
    """Spread an image's values around its mean brightness by a random factor.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_contrast`, with random numbers of our own.
    """
    return _draw_and_change("contrast", a, env, data)


@augment("_image_random_saturation", _FACTORS, random=True)
def random_saturation(a: Any, env: Env, data: Tensor) -> Tensor:
    """Mix an image with its brightness; a random factor of 1 is the image.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_saturation`, which takes 0.114 times blue for the brightness, with random
    numbers of our own.
    """
    return _draw_and_change("saturation", a, env, data)


@augment("_image_random_hue", _FACTORS, random=True)
def random_hue(a: Any, env: Env, data: Tensor) -> Tensor:
    """Turn an image's hue by a random share of the color circle.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_hue`, with random numbers of our own.
    """
    return _draw_and_change("hue", a, env, data)


@augment(
    "_image_random_color_jitter",
    {name: Attr(real, f"greatest change of {name}; 0 for none") for name in _CHANGES},
    random=True,
)
def random_color_jitter(a: Any, env: Env, data: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue at random, in a random order.

    Shape:
        data: (H, W, C) with 1 or 3 channels.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_color_jitter`, with random numbers of our own.
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

    return straight(change, data)


def _lighting(alpha: Tensor, data: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    return _stored(data.float() + alpha.new_tensor(PCA) @ alpha, data.dtype)


@augment(
    "_image_adjust_lighting",
    {"alpha": Attr(reals, "strength of the three main directions of color")},
    onnx=Onnx(builder="image_adjust_lighting"),
)
def adjust_lighting(a: Any, env: Env, data: Tensor) -> Tensor:
    """Add AlexNet's lighting noise of given strengths.

    Shape:
        data: (H, W, 3); one of 1 channel stays as it is.
        returns: the same.

    Raises:
        OpError: `alpha` has not three numbers.

    Source: MXNet 1.9.1 `_image_adjust_lighting`; Krizhevsky et al., "ImageNet classification", 2012.
    """
    if len(a.alpha) != 3:
        raise OpError(f"_image_adjust_lighting: alpha is {a.alpha}, expected three numbers")
    return straight(lambda x: _lighting(torch.tensor(a.alpha, device=x.device), x), data)


@augment(
    "_image_random_lighting",
    {"alpha_std": Attr(real, "standard deviation of the strengths", 0.05)},
    random=True,
)
def random_lighting(a: Any, env: Env, data: Tensor) -> Tensor:
    """Add AlexNet's lighting noise of random strengths.

    Shape:
        data: (H, W, 3); one of 1 channel stays as it is.
        returns: the same.

    Source: MXNet 1.9.1 `_image_random_lighting`, with random numbers of our own.
    """
    alpha = torch.empty(3, device=env.device).normal_(0.0, 1.0, generator=env.generator) * a.alpha_std
    return straight(lambda x: _lighting(alpha, x), data)
