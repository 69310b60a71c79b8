import numpy as np

from dpmodule.ops.contrib import deformable
from helpers.arrays import randn
from helpers.op_case import gradients, rules_test, run

PLAIN, MODULATED = "_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution"
ATTRS = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 2}
INPUTS = [randn(3, 2, 4, 5), randn(3, 18, 4, 5), randn(2, 2, 3, 3), np.ones(2)]


def test_a_batch_in_parts_gives_the_same_values_and_gradients(monkeypatch):
    found, head = [], randn(3, 2, 4, 5, seed=1)
    for columns in (deformable._COLUMNS, 1):
        monkeypatch.setattr(deformable, "_COLUMNS", columns)
        found.append([run(PLAIN, *INPUTS, **ATTRS), *gradients(PLAIN, *INPUTS, head=head, **ATTRS)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-10, 1e-12)


WANTED = [(2, 4, 8, 9), (2, 36, 8, 9), (2, 18, 8, 9), (2, 4, 3, 3), (2,)]
test_shapes = rules_test(
    (MODULATED, [(2, 4, 8, 9), *[None] * 4], {**ATTRS, "num_deformable_group": 2}, WANTED, [(2, 2, 8, 9)])
)
