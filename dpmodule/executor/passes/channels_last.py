"""Run two-dimensional convolutions in the channels_last layout.

Data that enters a convolution, and its weight, are restrided once, and converted by the same call if `amp_cast` reads
them; torch keeps the layout through normalisation, activation and pooling. Shapes stay NCHW, so nothing outside a
Program sees it. On the CPU, max pooling of a channels_last tensor is some ten times faster, and convolutions gain a
third. On a GPU the gain depends on the type, which is checked when the step runs; see `prefers_channels_last`.

Needs:
    storage: dense
    rank: data (N, C, H, W)
    type: any on the CPU; on a GPU those that its tensor cores take
    layout: any
    gradients: any; following operators must accept channels_last data without requires_grad
"""

from __future__ import annotations

from functools import partial

import torch

from ..._devices.precision import prefers_channels_last
from ...ops.array.copy_cast import AMP_TYPES
from ...ops.dtypes import torch_dtype
from ...ops.nn.relayout import in_channels_last
from ..lowering import Lowered, Step


def restride(x: torch.Tensor, target: torch.dtype | None = None) -> torch.Tensor:
    """Return a 4-D tensor with channels innermost in memory, or in its layout on a GPU that does not gain from this.

    With one channel, both layouts describe the same memory; torch then decides by the strides, which are set to
    channels_last.

    Shape:
        x, returns: (N, C, H, W).

    Args:
        target: type to convert to, as `amp_cast` does; None for none.
    """
    dtype = target if target is not None and x.dtype in AMP_TYPES else x.dtype
    is_done = x.shape[1] > 1 and x.is_contiguous(memory_format=torch.channels_last)
    if is_done or not prefers_channels_last(x, dtype):
        return x if x.dtype is dtype else x.to(dtype)
    x = in_channels_last(x) if x.dtype is dtype else x.to(dtype, memory_format=torch.channels_last)
    if x.shape[1] == 1:
        x = x.as_strided(x.shape, (x.stride(0), 1, x.shape[3], 1))
    return x


def _restride_several(x: torch.Tensor) -> torch.Tensor:
    """Restride a tensor unless it has one channel: oneDNN computes wrong numbers for one, with steps of (1, 2)."""
    return x.reshape(-1).view(x.shape) if x.dim() == 4 and x.shape[1] == 1 else restride(x)


def channels_last(low: Lowered) -> int:
    """Insert a restride before every 2-D convolution's weight, and before data that comes from a variable.

    Returns:
        Number of restrided values.
    """
    changed: dict[tuple[int, bool], int] = {}
    casts: dict[int, tuple[int, torch.dtype]] = {}
    steps: list[Step] = []
    for step in low.steps:
        op, a = low.operator(step)
        if op is not None and op.name == "amp_cast" and step.inputs[0] < low.num_variables:
            casts[step.outputs[0]] = step.inputs[0], torch_dtype(a.dtype)
        if (
            op is not None
            and op.name == "Convolution"
            and len(a.kernel) == 2
            and a.layout in (None, "NCHW")
            and not step.takes_env  # such steps restride themselves
        ):
            uneven = len(set(a.stride)) > 1
            for position in (0, 1):
                value = step.inputs[position]
                if value < low.num_variables or value in casts or (uneven and position == 0):
                    new = changed.get((value, uneven))
                    if new is None:
                        new = changed[value, uneven] = low.new_value(f"{low.names[value]}_nhwc")
                        function, source = _restride_several if uneven else restride, value
                        if value in casts and not uneven:
                            source, target = casts[value]
                            function = partial(restride, target=target)
                        steps.append(
                            Step(function, "channels_last", None, [source], [new], -1, takes_env=False)
                        )
                    step.inputs[position] = new
        steps.append(step)
    low.steps = steps
    return len(changed)
