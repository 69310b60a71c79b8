"""MXNet's old import path of batch splitting."""

from __future__ import annotations

from .slicing import split_input_slice as _split_input_slice

__all__ = ["_split_input_slice"]
