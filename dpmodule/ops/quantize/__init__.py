"""Operators on 8-bit numbers: quantization, calibration and layers."""

from . import arithmetic as arithmetic
from . import integer_ranges as integer_ranges
from . import layers as layers
