"""Cases of the operators that move, resample or compare pixels."""

import numpy as np

from helpers.op_case import OpCase

rng = np.random.RandomState(3)


def deconvolution(stride, pad, adj=(0, 0), dilate=(1, 1), groups=1):
    """Return the transposed convolution of two axes, one product at a time."""

    def expect(data, weight, bias=None):
        rows, channels, *spatial = data.shape
        kernel, each = weight.shape[2:], weight.shape[1]
        whole = [
            s * (x - 1) + d * (k - 1) + 1 for x, k, s, d in zip(spatial, kernel, stride, dilate, strict=True)
        ]
        out = np.zeros((rows, each * groups, whole[0] + adj[0], whole[1] + adj[1]))
        for c in range(channels):
            first = c // (channels // groups) * each
            for y, x, i, j in np.ndindex(*spatial, *kernel):
                at = y * stride[0] + i * dilate[0], x * stride[1] + j * dilate[1]
                part = out[:, first : first + each, at[0], at[1]]
                part += data[:, c, y, x, None] * weight[c, :, i, j]
        out = out[:, :, pad[0] : out.shape[2] - pad[0], pad[1] : out.shape[3] - pad[1]]
        return out if bias is None else out + bias[:, None, None]

    return expect


def sample(image, y, x):
    """Return the bilinear value of an image (C, H, W) at a place in pixels; zero outside."""
    total = np.zeros(image.shape[0])
    for i, j in np.ndindex(2, 2):
        row, column = int(np.floor(y)) + i, int(np.floor(x)) + j
        if 0 <= row < image.shape[1] and 0 <= column < image.shape[2]:
            total += image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def bilinear_sampler(data, grid):
    """Return the images read at the places of the grid."""
    height, width = data.shape[2:]
    out = np.zeros((*data.shape[:2], *grid.shape[2:]))
    for n, i, j in np.ndindex(len(data), *grid.shape[2:]):
        x, y = (grid[n, :, i, j] + 1) * (np.array([width, height]) - 1) / 2
        out[n, :, i, j] = sample(data[n], y, x)
    return out


def affine_grid(height, width):
    """Return the places that affine maps give to a grid."""

    def expect(theta):
        y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
        points = np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
        return (theta.reshape(-1, 2, 3) @ points).reshape(len(theta), 2, height, width)

    return expect


def warp_grid(flow):
    """Return the places of pixels moved by a flow."""
    height, width = flow.shape[2:]
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    half = np.array([width - 1, height - 1]).reshape(2, 1, 1) / 2
    return (flow + np.stack([x, y])) / half - 1


def correlation(kernel, reach, step1, step2, pad, multiply):
    """Return the comparison of patches, one at a time."""

    def expect(one, other):
        sides = ((0, 0), (0, 0), (pad, pad), (pad, pad))
        one, other = np.pad(one, sides), np.pad(other, sides)
        shifts = [s * step2 for s in range(-(reach // step2), reach // step2 + 1)]
        border = reach + kernel // 2
        sizes = [-(-(n - 2 * border) // step1) for n in one.shape[2:]]
        out = np.zeros((len(one), len(shifts) ** 2, *sizes))
        for t, i, j in np.ndindex(*out.shape[1:]):
            y, x = i * step1 + reach, j * step1 + reach
            dy, dx = shifts[t // len(shifts)], shifts[t % len(shifts)]
            a = one[:, :, y : y + kernel, x : x + kernel]
            b = other[:, :, y + dy : y + dy + kernel, x + dx : x + dx + kernel]
            out[:, t, i, j] = (a * b if multiply else abs(a - b)).mean((1, 2, 3))
        return out

    return expect


def resized(height, width, corners=True):
    """Return images interpolated to a size."""

    def places(n, out):
        if out == 1:
            return np.zeros(1)
        if corners:
            return np.arange(out) * (n - 1) / (out - 1)
        return np.clip((np.arange(out) + 0.5) * n / out - 0.5, 0, n - 1)

    def expect(data, *like):
        rows, columns = places(data.shape[2], height), places(data.shape[3], width)
        out = np.zeros((*data.shape[:2], height, width))
        for n, i, j in np.ndindex(len(data), height, width):
            out[n, :, i, j] = sample(data[n], rows[i], columns[j])
        return out

    return expect


def adaptive(height, width):
    """Return images averaged over windows of about equal size."""

    def expect(data):
        tall, wide = data.shape[2:]
        out = np.zeros((*data.shape[:2], height, width))
        for i, j in np.ndindex(height, width):
            rows = slice(i * tall // height, -(-(i + 1) * tall // height))
            columns = slice(j * wide // width, -(-(j + 1) * wide // width))
            out[:, :, i, j] = data[:, :, rows, columns].mean((2, 3))
        return out

    return expect


def columns(data):
    """Return the windows of 2 x 3, step (1, 2), of images padded by (1, 0)."""
    data = np.pad(data, ((0, 0), (0, 0), (1, 1), (0, 0)))
    rows, channels, height, width = data.shape
    found = [data[:, :, i : i + 2, j : j + 3] for i in range(height - 1) for j in range(0, width - 2, 2)]
    return np.stack([each.reshape(rows, channels * 6) for each in found], 2)


def image(*shape):
    """Return random images."""
    return rng.standard_normal(shape)


_WINDOW = {"kernel": (2, 3), "stride": (1, 2), "pad": (1, 0)}
_BIASED = {"num_filter": 4, "kernel": (3, 2), "stride": (2, 1), "pad": (1, 0), "adj": (1, 0), "num_group": 2}
_RESIZE = "_contrib_BilinearResize2D"

CASES = [
    OpCase(
        "Deconvolution",
        (image(2, 4, 2, 3), image(4, 2, 3, 2), image(4)),
        {**_BIASED, "no_bias": False},
        deconvolution((2, 1), (1, 0), (1, 0), groups=2),
    ),
    OpCase(
        "Deconvolution",
        (image(1, 2, 3, 2), image(2, 1, 2, 3)),
        {"num_filter": 1, "kernel": (2, 3), "dilate": (2, 1), "stride": (1, 2)},
        deconvolution((1, 2), (0, 0), dilate=(2, 1)),
    ),
    OpCase(
        "Deconvolution",
        (image(1, 1, 3, 3), image(1, 2, 4, 4)),
        {"num_filter": 2, "kernel": (4, 4), "stride": (2, 2), "target_shape": (6, 5), "pad": (9, 9)},
        deconvolution((2, 2), (1, 2), (0, 1)),
    ),
    OpCase("im2col", (image(2, 2, 3, 5),), _WINDOW, columns),
    OpCase(
        "im2col",
        (image(1, 2, 5),),
        {"kernel": (2,)},
        lambda x: np.stack([x[:, :, :-1], x[:, :, 1:]], 2).reshape(1, 4, 4),
    ),
    OpCase(
        "im2col",
        (image(1, 1, 2, 2, 3),),
        {"kernel": (1, 2, 3), "pad": (1, 0, 0)},
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0), (0, 0))).reshape(1, 4, 6).swapaxes(1, 2),
    ),
    OpCase(
        "col2im",
        (image(1, 4, 4),),
        {"kernel": (2,), "output_size": (5,)},
        lambda x: (
            np.pad(x.reshape(1, 2, 2, 4)[:, :, 0], ((0, 0), (0, 0), (0, 1)))
            + np.pad(x.reshape(1, 2, 2, 4)[:, :, 1], ((0, 0), (0, 0), (1, 0)))
        ),
    ),
    OpCase(
        "col2im",
        (image(2, 8, 1),),
        {"kernel": (2, 2, 2), "output_size": (2, 2, 2)},
        lambda x: x.reshape(2, 1, 2, 2, 2),
    ),
    OpCase("Crop", (image(2, 1, 4, 5),), {"h_w": (2, 3), "offset": (1, 2)}, lambda x: x[:, :, 1:3, 2:]),
    OpCase(
        "Crop",
        (image(1, 2, 5, 4), image(3, 1, 2, 3)),
        {"center_crop": True},
        lambda x, like: x[:, :, 1:3, :3],
    ),
    OpCase(
        "GridGenerator",
        (image(2, 6),),
        {"transform_type": "affine", "target_shape": (3, 2)},
        affine_grid(3, 2),
    ),
    OpCase("GridGenerator", (image(2, 2, 3, 4),), {"transform_type": "warp"}, warp_grid),
    OpCase("BilinearSampler", (image(2, 2, 3, 4), 0.7 * image(2, 2, 3, 2)), {}, bilinear_sampler),
    OpCase(
        "_grid_sample",
        (image(2, 2, 3, 4), 0.7 * image(2, 3, 2, 2)),
        {},
        lambda data, grid: bilinear_sampler(data, grid.transpose(0, 3, 1, 2) * [[[4 / 3]], [[3 / 2]]]),
    ),
    OpCase(
        "SpatialTransformer",
        (image(2, 1, 3, 4), 0.6 * image(2, 6)),
        {"transform_type": "affine", "sampler_type": "bilinear", "target_shape": (3, 2)},
        lambda data, loc: bilinear_sampler(data, affine_grid(3, 2)(loc)),
    ),
    *(
        OpCase(
            "Correlation",
            (image(1, 2, 5, 4), image(1, 2, 5, 4)),
            dict(
                zip(("kernel_size", "max_displacement", "stride1", "stride2", "pad_size"), each, strict=True)
            )
            | {"is_multiply": multiply},
            correlation(*each, multiply),
        )
        for each, multiply in [((1, 2, 1, 1, 2), True), ((3, 3, 2, 2, 3), True), ((3, 1, 1, 1, 2), False)]
    ),
    OpCase("_contrib_AdaptiveAvgPooling2D", (image(1, 2, 5, 3),), {"output_size": (3, 2)}, adaptive(3, 2)),
    OpCase("_contrib_AdaptiveAvgPooling2D", (image(1, 2, 2, 3),), {}, adaptive(1, 1)),
    OpCase(_RESIZE, (image(1, 2, 3, 4),), {"height": 5, "width": 1}, resized(5, 1)),
    OpCase(
        _RESIZE, (image(1, 2, 3, 4),), {"height": 1, "width": 6, "align_corners": False}, resized(1, 6, False)
    ),
    OpCase(
        _RESIZE,
        (image(1, 1, 3, 4),),
        {"mode": "odd_scale", "scale_height": 2.0, "scale_width": 0.5},
        resized(5, 2),
    ),
    OpCase(_RESIZE, (image(1, 1, 3, 4), image(1, 1, 2, 5)), {"mode": "like"}, resized(2, 5), grad=(0, 1)),
    OpCase(
        _RESIZE, (image(1, 1, 3, 4),), {"mode": "to_even_up", "align_corners": False}, resized(4, 4, False)
    ),
]
