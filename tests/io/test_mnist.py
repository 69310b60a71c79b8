import gzip
import json

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import FileError, FileFormatError, ShapeError
from helpers.pictures import FORMATS, goldens

INFO = json.loads((FORMATS / "files_index.json").read_text())
IMAGES, LABELS = FORMATS / "t20-images-idx3-ubyte", FORMATS / "t20-labels-idx1-ubyte"


def digits(**options):
    return mx.io.MNISTIter(**{"image": IMAGES, "label": LABELS, "batch_size": 8, "silent": True, **options})


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
def test_a_seed_gives_mxnets_order(seed):
    labels = digits(batch_size=20, shuffle=True, seed=seed).next().label[0].asnumpy()
    np.testing.assert_array_equal(labels, goldens()[f"digits/{seed}"])


def test_every_epoch_is_the_same():
    it = digits(seed=1)
    first = [b.label[0].asnumpy().tolist() for b in it]
    it.reset()
    assert [b.label[0].asnumpy().tolist() for b in it] == first


def test_parts_cover_all_images():
    parts = [digits(batch_size=1, shuffle=False, num_parts=3, part_index=i) for i in range(3)]
    labels = [b.label[0].asnumpy()[0] for part in parts for b in part]
    assert labels == digits(batch_size=20, shuffle=False).next().label[0].asnumpy().tolist()


def test_a_gzipped_file_is_found_under_the_plain_name(tmp_path):
    (tmp_path / "i.gz").write_bytes(gzip.compress(IMAGES.read_bytes()))
    assert digits(image=tmp_path / "i").next().data[0].shape == (8, 1, 28, 28)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (IMAGES.read_bytes()[:-1], r"byte 15695: the file is cut short"),
        (IMAGES.read_bytes()[:9], r"byte 9: the file ends within its head"),
        (LABELS.read_bytes(), r"byte 0: .*expected an idx file of bytes with 3 axes"),
        (b"", r"byte 0: the file is empty"),
        (b"<html>", r"byte 0: "),
        (gzip.compress(IMAGES.read_bytes())[:-20], r"gzip stream is damaged"),
    ],
)
def test_damage_is_told_with_file_and_byte(tmp_path, data, message):
    (tmp_path / "i").write_bytes(data)
    with pytest.raises(FileFormatError, match=message):
        digits(image=tmp_path / "i")


def test_missing_files_and_labels_are_told(tmp_path):
    with pytest.raises(FileError, match="nothing"):
        digits(image=tmp_path / "nothing")
    few = bytearray(LABELS.read_bytes()[:-1])
    few[7] = 19
    (tmp_path / "l").write_bytes(bytes(few))
    with pytest.raises(ShapeError, match="19 labels for 20 images"):
        digits(label=tmp_path / "l")
