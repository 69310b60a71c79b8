import json

import numpy as np
import pytest

import dpmodule as mx
from helpers.pictures import FORMATS, goldens

INFO = json.loads((FORMATS / "files_index.json").read_text())
IMAGES, LABELS = FORMATS / "t20-images-idx3-ubyte", FORMATS / "t20-labels-idx1-ubyte"


def digits(**options):
    return mx.io.MNISTIter(**{"image": IMAGES, "label": LABELS, "batch_size": 8, "silent": True, **options})


def labels(it):
    return np.concatenate([b.label[0].asnumpy() for b in it]).tolist()


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_batches_are_mxnets(flat, packed):
    want = INFO[f"mnist_flat{flat:d}"]
    it = digits(image=f"{IMAGES}{packed}", label=f"{LABELS}{packed}", flat=flat, shuffle=False)
    found = list(it)
    assert [b.pad for b in found] == want["pads"]
    assert list(it.provide_data[0].shape) == list(found[0].data[0].shape) == want["data_shape"]
    assert found[0].label[0].shape == (8,)
    np.testing.assert_allclose(found[0].data[0].asnumpy().sum(dtype="f8"), want["sum_first"], rtol=1e-6)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_seed_gives_mxnets_order_in_every_epoch(seed):
    it = digits(batch_size=20, shuffle=True, seed=seed)
    for _ in range(2):
        assert labels(it) == goldens()[f"digits/{seed}"].tolist()
        it.reset()


def test_parts_cover_all_images():
    parts = [digits(batch_size=1, shuffle=False, num_parts=3, part_index=i) for i in range(3)]
    assert sum(map(labels, parts), []) == labels(digits(batch_size=20, shuffle=False))
