"""Fourier transforms: the inverse undoes the transform."""

from helpers.arrays import randn
from helpers.op_case import run, values_test

test_the_inverse_undoes_the_transform_times_the_length = values_test(
    ("_contrib_ifft", (run("_contrib_fft", randn(2, 3, 5)),), {}, 5 * randn(2, 3, 5))
)
