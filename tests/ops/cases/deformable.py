"""Deformable operators and rotated regions whose gradient MXNet's CPU build does not have, against plain loops."""

import math

import numpy as np

from helpers.op_case import OpCase

random = np.random.RandomState(21)


def normal(*shape):
    return random.standard_normal(shape)


def read(plane, y, x):
    """Return the value at a point, zeros surrounding the plane."""
    top, left = math.floor(y), math.floor(x)
    total = 0.0
    for row, by in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, bx in ((left, 1 - (x - left)), (left + 1, x - left)):
            if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
                total += by * bx * plane[row, column]
    return total


def modulated(data, offset, mask, weight, bias, groups, own, stride, pad, dilate):
    filters, depth, rows, columns = weight.shape
    _, _, high, wide = offset.shape
    out = np.empty((data.shape[0], filters, high, wide))
    for n, f, y, x in np.ndindex(*out.shape):
        total = bias[f]
        for d, i, j in np.ndindex(depth, rows, columns):
            channel = f // (filters // groups) * depth + d
            tap = channel // (data.shape[1] // own) * rows * columns + i * columns + j
            at_y = y * stride - pad + i * dilate + offset[n, 2 * tap, y, x]
            at_x = x * stride - pad + j * dilate + offset[n, 2 * tap + 1, y, x]
            total += weight[f, d, i, j] * mask[n, tap, y, x] * read(data[n, channel], at_y, at_x)
        out[n, f, y, x] = total
    return out


def rotated(data, rois, high, wide, scale, samples):
    out = np.empty((len(rois), data.shape[1], high, wide))
    for r, c, i, j in np.ndindex(*out.shape):
        image, centre_x, centre_y, width, height, degrees = rois[r]
        width, height, turn = max(width * scale, 1), max(height * scale, 1), math.radians(degrees)
        total = 0.0
        for k, m in np.ndindex(samples, samples):
            y = -height / 2 + (i + (k + 0.5) / samples) * height / high
            x = -width / 2 + (j + (m + 0.5) / samples) * width / wide
            at_x = x * math.cos(turn) + y * math.sin(turn) + centre_x * scale
            at_y = y * math.cos(turn) - x * math.sin(turn) + centre_y * scale
            if -1 <= at_y <= data.shape[2] and -1 <= at_x <= data.shape[3]:
                at_y, at_x = (
                    min(max(v, 0), n - 1) for v, n in ((at_y, data.shape[2]), (at_x, data.shape[3]))
                )
                total += read(data[int(image), c], at_y, at_x)
        out[r, c, i, j] = total / samples**2
    return out


SHAPE = {"kernel": (2, 2), "stride": (2, 2), "pad": (1, 1), "dilate": (2, 2), "num_filter": 2}

CASES = [
    OpCase(
        "_contrib_ModulatedDeformableConvolution",
        (
            normal(2, 4, 4, 4),
            1.5 * normal(2, 16, 2, 2),
            random.rand(2, 8, 2, 2),
            normal(2, 2, 2, 2),
            normal(2),
        ),
        {**SHAPE, "num_group": 2, "num_deformable_group": 2},
        lambda *inputs: modulated(*inputs, 2, 2, 2, 1, 2),
    ),
    OpCase(
        "_contrib_ModulatedDeformableConvolution",
        (normal(1, 2, 3, 3), normal(1, 8, 2, 2), random.rand(1, 4, 2, 2), normal(2, 2, 2, 2)),
        {"kernel": (2, 2), "num_filter": 2, "no_bias": True},
        lambda *inputs: modulated(*inputs, [0, 0], 1, 1, 1, 0, 1),
    ),
    OpCase(
        "_contrib_RROIAlign",
        (normal(2, 2, 5, 6), np.array([[1, 6, 5, 7, 4, 30], [0, 5, 5, 30, 3, -75], [1, 1, 2, 4, 4, 0.0]])),
        {"pooled_size": (2, 3), "spatial_scale": 0.5, "sampling_ratio": 2},
        lambda data, rois: rotated(data, rois, 2, 3, 0.5, 2),
        grad=(0,),
    ),
]
