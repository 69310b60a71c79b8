"""Operators on 8-bit numbers: quantization, calibration and layers."""

from . import arithmetic as arithmetic
from . import layers as layers
from . import numbers as numbers
