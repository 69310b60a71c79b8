import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError
from dpmodule.io.images.objects import Objects
from helpers.pictures import NAMES, file_of, goldens, options, write_records


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("records") / "det.rec"
    return write_records(target, [file_of(name) for name in NAMES], options()["objects"])


def images(path, **given):
    return mx.io.ImageDetRecordIter(
        **{"path_imgrec": path, "data_shape": (3, 12, 14), "batch_size": 3, "verbose": False, **given}
    )


@pytest.mark.parametrize("key", options()["det"])
def test_batches_are_mxnets(path, key):
    batch = images(path, **options()["det"][key]).next()
    want = goldens()[f"det/{key}/label"]
    np.testing.assert_allclose(batch.label[0].asnumpy(), want, rtol=1e-6)
    for found, expected, (_, rows, columns) in zip(
        batch.data[0].asnumpy(), goldens()[f"det/{key}/data"], want[:, :3].astype(int), strict=True
    ):
        # beyond an image that is smaller than its place, MXNet leaves what was there
        np.testing.assert_allclose(found[:, :rows, :columns], expected[:, :rows, :columns], atol=1e-3)


def test_what_an_image_does_not_fill_is_the_same_in_memory_that_was_used_before(path):
    it = images(path, data_shape=(3, 40, 50), batch_size=1, prefetch_buffer=1, resize_mode="shrink")
    first = [batch.data[0].asnumpy().copy() for batch in it]
    it.reset()
    for batch, want in zip(it, first, strict=True):
        assert (want == 0).all(0).any()
        batch.data[0][:] = 7
    it.reset()
    for batch, want in zip(it, first, strict=True):
        np.testing.assert_array_equal(batch.data[0].asnumpy(), want)


def test_random_changes_keep_objects_within_the_image(path):
    it = images(
        path,
        rand_crop_prob=0.8,
        num_crop_sampler=2,
        min_crop_scales=(0.3, 0.5),
        max_crop_scales=0.9,
        min_crop_aspect_ratios=0.5,
        max_crop_aspect_ratios=2.0,
        rand_pad_prob=0.8,
        max_pad_scale=3.0,
        rand_mirror_prob=0.5,
        max_random_hue=20,
        random_hue_prob=0.5,
        max_random_contrast=0.3,
        random_contrast_prob=0.5,
        crop_emit_mode="overlap",
        inter_method=10,
    )
    changed = 0
    for _ in range(10):
        for batch in it:
            for label in batch.label[0].asnumpy():
                rows = label[6 : 4 + int(label[3])].reshape(-1, 5)
                assert len(rows)
                assert (rows[:, 1:] >= 0).all()
                assert (rows[:, 1:] <= 1).all()
                assert (rows[:, 3:] > rows[:, 1:3]).all()
                changed += int(not np.isclose(rows[0, 1], (0.1, 0.0)).any())
        it.reset()
    assert changed > 10


def test_widths_that_do_not_fit_are_refused(path):
    with pytest.raises(ArgumentError, match="label_pad_width is 5, but an image has 12 labels"):
        images(path, label_pad_width=5)
    with pytest.raises(ArgumentError, match="expected 1 or 2 numbers"):
        images(path, num_crop_sampler=2, min_crop_scales=(0.1, 0.2, 0.3))
    with pytest.raises(ArgumentError, match="is above max_crop_overlaps"):
        images(path, min_crop_overlaps=0.9, max_crop_overlaps=0.5)


@pytest.mark.parametrize("labels", [1.0, [2, 5, 0], [2, 5, 0, 0.1, 0.1, 0.2, 0.2, 7], [1, 5, 0, 0, 0, 1, 1]])
def test_labels_of_another_form_are_told_with_their_place(tmp_path, labels):
    path = write_records(tmp_path / "a.rec", [file_of("noise")], [labels])
    with pytest.raises(FileFormatError, match=r"a\.rec: byte 0: "):
        images(path, batch_size=1).next()


def test_objects_are_projected_and_dropped():
    objects = Objects(np.array([2, 5, 0, 0.0, 0.0, 0.2, 0.2, 1, 0.5, 0.5, 0.9, 0.7], np.float32))
    limits = np.array([(0, 1)] * 3)
    assert objects.try_crop((0.4, 0.4, 0.5, 0.5), limits, True, 0.3)
    np.testing.assert_allclose(objects.rows, [[1, 0.2, 0.2, 1.0, 0.6]], rtol=1e-5)
    assert not objects.try_crop((0.0, 0.9, 0.1, 0.1), limits, True, 0.3)
    assert len(objects.flat()) == 7
