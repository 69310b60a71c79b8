import numpy as np
import pytest
import torch

from dpmodule.ops.contrib import deformable
from helpers.arrays import f8, randn
from helpers.op_case import call, gradients, rules_test, run

PLAIN, MODULATED = "_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution"
ATTRS, POINT = (
    {"kernel": (3, 3), "pad": (1, 1), "num_filter": 2},
    {"kernel": (1, 1), "num_filter": 1, "no_bias": True},
)
INPUTS = [randn(3, 2, 4, 5), randn(3, 18, 4, 5), randn(2, 2, 3, 3), np.ones(2)]


def test_without_offsets_it_is_a_convolution():
    data, offset, weight, bias = INPUTS
    expected, mask = run("Convolution", data, weight, bias, **ATTRS), np.ones((3, 9, 4, 5))
    np.testing.assert_allclose(run(PLAIN, data, 0 * offset, weight, bias, **ATTRS), expected, 1e-10)
    np.testing.assert_allclose(run(MODULATED, data, 0 * offset, mask, weight, bias, **ATTRS), expected, 1e-10)
    np.testing.assert_allclose(run(MODULATED, data, 0 * offset, 0 * mask, weight, bias, **ATTRS), 1.0)


def test_an_offset_of_a_pixel_moves_the_image():
    data, offset = np.arange(20.0).reshape(1, 1, 4, 5), np.zeros((1, 2, 4, 5))
    offset[:, 1] = 1
    found = run(PLAIN, data, offset, np.ones((1, 1, 1, 1)), **POINT)
    np.testing.assert_array_equal(found, np.pad(data[..., 1:], [(0, 0)] * 3 + [(0, 1)]))


@pytest.mark.parametrize(
    ("move", "plain", "modulated"), [(-0.25, 0.0, 0.75), (2.25, 1.0, 0.75), (3.0, 0.0, 0.0)]
)
def test_the_border_of_both_kinds(move, plain, modulated):
    data, weight, offset = (
        np.ones((1, 1, 3, 3)),
        np.ones((1, 1, 1, 1)),
        np.full((1, 2, 3, 3), [[[[0.0]], [[move]]]]),
    )
    assert run(PLAIN, data, offset, weight, **POINT)[0, 0, 0, 0] == pytest.approx(plain)
    assert run(MODULATED, data, offset, data, weight, **POINT)[0, 0, 0, 0] == pytest.approx(modulated)


def test_a_batch_in_parts_gives_the_same_values_and_gradients(monkeypatch):
    found, head = [], randn(3, 2, 4, 5, seed=1)
    for columns in (deformable._COLUMNS, 1):
        monkeypatch.setattr(deformable, "_COLUMNS", columns)
        found.append([run(PLAIN, *INPUTS, **ATTRS), *gradients(PLAIN, *INPUTS, head=head, **ATTRS)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-10, 1e-12)


@pytest.mark.parametrize(("kind", "tolerance"), [(torch.float16, 0.1), (torch.float32, 1e-4)])
def test_other_precisions(kind, tolerance):
    found = call(PLAIN, *(torch.from_numpy(x).to(kind) for x in INPUTS), **ATTRS)[0]
    assert found.dtype == kind
    np.testing.assert_allclose(found.double().numpy(), run(PLAIN, *INPUTS, **ATTRS), tolerance, tolerance)


WANTED = [(2, 4, 8, 9), (2, 36, 8, 9), (2, 18, 8, 9), (2, 4, 3, 3), (2,)]
test_shapes = rules_test(
    [(MODULATED, [(2, 4, 8, 9), *[None] * 4], {**ATTRS, "num_deformable_group": 2}, WANTED, [(2, 2, 8, 9)])]
)


def test_bins_moved_by_offsets():
    name, trans = "_contrib_DeformablePSROIPooling", np.zeros((1, 2, 2, 2))
    data, rois = (
        np.stack(np.meshgrid(np.arange(9.0), np.arange(12.0), indexing="ij"))[None],
        f8([[0, 2, 2, 5, 5]]),
    )
    attrs = {"spatial_scale": 1.0, "output_dim": 2, "group_size": 1, "pooled_size": 2, "sample_per_part": 2}
    np.testing.assert_allclose(run(name, data, rois, no_trans=True, **attrs)[0, 1], [[2, 4], [2, 4]])
    trans[0, 0, 0, 1] = 1.0
    np.testing.assert_allclose(run(name, data, rois, trans, trans_std=0.25, **attrs)[0, 1], [[2, 5], [2, 4]])
    assert not run(name, data, rois + [0, 50, 50, 50, 50], no_trans=True, **attrs).any()
