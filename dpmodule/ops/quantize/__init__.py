"""Quantized operators: quantization, calibration and 8-bit layers."""

from . import arithmetic as arithmetic
from . import integer_ranges as integer_ranges
from . import layers as layers
