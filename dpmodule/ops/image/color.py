"""Colors of 8-bit RGB images: hue, lightness, saturation, brightness, contrast; OpenCV's formulas."""

from __future__ import annotations

import torch

_GREY = (4899, 9617, 1868)
"""Weights of red, green and blue, as fractions of 2^14."""

# which of (high, low, falling, rising) each channel takes in the six parts of the color circle
_RED, _GREEN, _BLUE = (0, 2, 1, 1, 3, 0), (3, 0, 0, 2, 1, 1), (1, 1, 3, 0, 0, 2)


def to_grey(image: torch.Tensor) -> torch.Tensor:
    """Return the brightness of RGB pixels.

    Shape:
        image: (H, W, 3), uint8.
        returns: (H, W, 1), uint8.
    """
    weights = torch.tensor(_GREY, dtype=torch.int32, device=image.device)
    total = (image.int() * weights).sum(2, keepdim=True, dtype=torch.int32)
    return ((total + (1 << 13)) >> 14).to(torch.uint8)


def scale_pixels(image: torch.Tensor, factor: float, offset: float = 0.0) -> torch.Tensor:
    """Return ``image * factor + offset``, rounded and kept within 0 to 255."""
    return (image.float() * factor + offset).round_().clamp_(0, 255).to(torch.uint8)


def adjust_contrast(image: torch.Tensor, factor: float) -> torch.Tensor:
    """Spread the values around the mean brightness by `factor`."""
    mean = to_grey(image).double().mean().item()
    return scale_pixels(image, factor, (1 - factor) * mean)


def adjust_saturation(image: torch.Tensor, factor: float) -> torch.Tensor:
    """Mix an image with its grey version; a `factor` of 0 is grey, 1 the image."""
    mixed = image.float() * factor + to_grey(image).float() * (1 - factor)
    return mixed.round_().clamp_(0, 255).to(torch.uint8)


def shift_hls(image: torch.Tensor, hue: int, lightness: int, saturation: int) -> torch.Tensor:
    """Add to hue (0 to 180), lightness and saturation (0 to 255) of RGB pixels.

    Shape:
        image: (H, W, 3), uint8.
        returns: the same.
    """
    h, light, s = to_hls(image.float() * (1 / 255))
    h = ((h * 0.5).round_() + hue).clamp_(0, 180)
    light = ((light * 255).round_() + lightness).clamp_(0, 255)
    s = ((s * 255).round_() + saturation).clamp_(0, 255)
    return _from_hls(h, light, s)


def to_hls(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return hue in degrees, lightness and saturation of RGB values.

    Shape:
        values: (H, W, 3), float, from 0 to 1.
        returns: (H, W) each.
    """
    r, g, b = values.unbind(2)
    high, low = torch.maximum(torch.maximum(r, g), b), torch.minimum(torch.minimum(r, g), b)
    spread, both = high - low, high + low
    light = both * 0.5
    colored = spread > torch.finfo(torch.float32).eps
    saturation = torch.where(light < 0.5, spread / both, spread / (2 - high - low))
    turn = 60 / spread
    hue = torch.where(high == g, (b - r) * turn + 120, (r - g) * turn + 240)
    hue = torch.where(high == r, (g - b) * turn, hue)
    hue = torch.where(hue < 0, hue + 360, hue)
    return torch.where(colored, hue, 0.0), light, torch.where(colored, saturation, 0.0)


def _from_hls(hue: torch.Tensor, light: torch.Tensor, saturation: torch.Tensor) -> torch.Tensor:
    """Return the 8-bit RGB pixels of hue in halves of a degree, and lightness and saturation up to 255."""
    light, saturation = light * (1 / 255), saturation * (1 / 255)
    mixed = light * saturation
    high = torch.where(light <= 0.5, light + mixed, light + saturation - mixed)
    low = 2 * light - high
    place = (hue * (6 / 180)) % 6
    part = place.floor()
    rest = place - part
    levels = torch.stack([high, low, low + (high - low) * (1 - rest), low + (high - low) * rest])
    sector = part.long()
    channels = [
        levels.gather(0, sector.new_tensor(table)[sector].unsqueeze(0))[0] for table in (_RED, _GREEN, _BLUE)
    ]
    return (torch.stack(channels, 2) * 255).round_().clamp_(0, 255).to(torch.uint8)
