import json

import numpy as np
import pytest

import dpmodule as mx
from helpers import image_cases, pictures
from helpers.pictures import FORMATS

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


def test_a_seed_gives_mxnets_order_in_every_epoch():
    pictures.compare(image_cases.digits(mx), 0)
    it = digits(batch_size=20, shuffle=True, seed=7)
    assert labels(it) == (it.reset() or labels(it))


def test_parts_cover_all_images():
    parts = [digits(batch_size=1, shuffle=False, num_parts=3, part_index=i) for i in range(3)]
    assert sum(map(labels, parts), []) == labels(digits(batch_size=20, shuffle=False))
