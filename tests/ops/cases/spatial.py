"""Resampling that no recorded call covers."""

import numpy as np

from helpers.op_case import OpCase

rng = np.random.RandomState(3)


def grid_sample(data, grid):
    """Return the images read at the places of the grid, bilinear; zero outside."""
    height, width = data.shape[2:]
    out = np.zeros((*data.shape[:2], *grid.shape[1:3]))
    for n, i, j, dy, dx in np.ndindex(*grid.shape[:3], 2, 2):
        x, y = ((grid[n, i, j] + 1) * [width, height] - 1) / 2
        row, column = int(np.floor(y)) + dy, int(np.floor(x)) + dx
        if 0 <= row < height and 0 <= column < width:
            out[n, :, i, j] += data[n, :, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return out


CASES = [OpCase("_grid_sample", (rng.randn(2, 2, 3, 4), 0.7 * rng.randn(2, 3, 2, 2)), {}, grid_sample)]
