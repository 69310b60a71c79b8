import io

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.base import FileFormatError
from helpers import image_cases, pictures
from helpers.pictures import FORMATS, NAMES, OPTIONS, file_of, goldens, write_records

EXPECTED = np.load(FORMATS / "files_expected.npz")
WARPED = {"rotate", "scale", "limit", "contrast", "jitter"}
"""Changes whose pixels may differ from MXNet's by one count, where a half is rounded."""


def images(name="images_l1", **given):
    path = FORMATS / f"{name}.rec"
    given = {"path_imgrec": path, "data_shape": (3, 20, 20), "batch_size": 2, "verbose": False, **given}
    return mx.io.ImageRecordIter(**given)


def labels(it):
    return [b.label[0].asnumpy().tolist() for b in it]


def pixels(it):
    return [b.data[0].asnumpy() for b in it]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("indexed", [False, True])
def test_batches_are_mxnets(width, indexed):
    name = f"images_l{width}"
    it = images(name, label_width=width, path_imgidx=FORMATS / f"{name}.idx" if indexed else "")
    found = list(it)
    np.testing.assert_array_equal(pixels(found), EXPECTED[f"{name}|data"])
    np.testing.assert_array_equal(labels(found), EXPECTED[f"{name}|label"])
    assert [b.pad for b in found] == EXPECTED[f"{name}|pad"].tolist()
    assert it.provide_label[0].shape == ((2,) if width == 1 else (2, 3))
    crop = {"mean_r": 10, "mean_g": 20, "mean_b": 30, "std_r": 2, "std_g": 4, "std_b": 5, "scale": 0.5}
    (cut,) = pixels(images(name, data_shape=(3, 12, 14), batch_size=5, label_width=width, **crop))
    np.testing.assert_allclose(cut, EXPECTED[f"{name}|crop_mean_std"], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return image_cases.recorded(mx, tmp_path_factory.mktemp("recorded"))


def test_changes_and_orders_are_mxnets(recorded):
    for key, array in recorded.items():
        kind, name, *_ = key.split("/")
        if kind != "det":
            pictures.compare({key: array}, 1 if name in WARPED else 1e-4, 0.02)


def test_the_next_epoch_goes_on_behind_the_images_that_filled_up():
    it = images()
    for epoch in ([[0, 1], [2, 3], [4, 0]], [[1, 2], [3, 4]]):
        found = list(it)
        assert [batch.index.tolist() for batch in found] == labels(found) == epoch
        it.reset()
    it.next()
    it.reset()  # left early: from the start
    assert labels(it) == [[0, 1], [2, 3], [4, 0]]
    it = images(round_batch=False)
    assert [[b.pad for b in it], it.reset(), [b.pad for b in it]] == [[0, 0, 1], None, [0, 0, 1]]


def test_parts_cover_all_records():
    for index in ("", FORMATS / "images_l1.idx"):
        parts = [images(batch_size=1, num_parts=3, part_index=i, path_imgidx=index) for i in range(3)]
        assert [labels(part) for part in parts] == [[[0], [1]], [[2], [3]], [[4]]]


def test_labels_come_from_a_list(tmp_path):
    (tmp_path / "a.lst").write_text("".join(f"{i}\t{i * 2}\t{i * 3}\tsome/file.png\n" for i in range(5)))
    assert labels(images(path_imglist=tmp_path / "a.lst", label_width=2))[0] == [[0, 0], [2, 3]]


def test_a_mean_image_is_computed_saved_and_read(tmp_path):
    path = tmp_path / "mean.nd"
    (raw,) = pixels(images(batch_size=5))
    for _ in range(2):
        (found,) = pixels(images(batch_size=5, mean_img=path))
        np.testing.assert_allclose(found, raw - raw.mean(0), atol=1e-3)
        np.testing.assert_allclose(mx.nd.load(str(path))["mean_img"].asnumpy(), raw.mean(0), rtol=1e-5)
    with pytest.raises(FileFormatError, match="mean image has shape"):
        images(data_shape=(3, 10, 10), mean_img=path).next()


CHANGES = {
    "nothing": {},
    "cut": {"data_shape": (3, 17, 19), "rand_crop": True, "rand_mirror": True},
    "narrow": {"data_shape": (3, 5, 3), "mirror": True},
    "colors": {"mean_r": 12.5, "mean_g": 3.3, "mean_b": -7.1, "std_r": 3.0, "std_b": 0.3, "scale": 1 / 3},
    "light": {"max_random_contrast": 0.4, "max_random_illumination": 20.0, "std_g": 7.0, "mirror": True},
    "grey": {"data_shape": (1, 20, 20), "mean_r": 100.0, "rand_mirror": True},
    "enlarged": {"data_shape": (3, 41, 45), "rand_crop": True},
    "resized": {"data_shape": (3, 12, 13), "resize": 15, "rand_crop": True, "rand_mirror": True},
    "warm": {"data_shape": (3, 8, 9), "brightness": 0.3, "saturation": 0.3, "pca_noise": 0.1, "random_h": 20},
    "bordered": {"pad": 3, "rand_crop": True},
    "bytes": {"dtype": "uint8", "rand_mirror": True},
}


@pytest.mark.parametrize("given", CHANGES.values(), ids=CHANGES)
def test_threads_do_not_change_what_comes_out(given, monkeypatch):
    """Nor does the extension."""

    def epochs(threads):
        it = images(seed=7, preprocess_threads=threads, **given)
        found = pixels(it)
        it.reset()
        return [*found, *pixels(it)]

    wanted = epochs(4)
    for stand_in in (native.core, None):
        monkeypatch.setattr(native, "core", stand_in)
        for one, other in zip(epochs(1), wanted, strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def test_photographs_are_read_where_they_are_decoded(tmp_path):
    """A photograph in JPEG, one with a palette, one with four channels, and one too large for one block of memory."""
    image = pytest.importorskip("PIL.Image")
    small = np.random.default_rng(0).integers(0, 256, (30, 33, 3), np.uint8)
    files = []
    for times, mode, kind in ((1, "RGB", "JPEG"), (1, "P", "PNG"), (1, "CMYK", "JPEG"), (100, "RGB", "BMP")):
        target = io.BytesIO()
        image.fromarray(np.tile(small, (times, times, 1))).convert(mode).save(target, kind)
        files.append(target.getvalue())
    path = write_records(tmp_path / "a.rec", files, [0.0] * len(files))
    (found,) = pixels(images(path_imgrec=path, data_shape=(3, 30, 33), batch_size=len(files)))
    for file, shown in zip(files, found, strict=True):
        whole = mx.image.imdecode(file).asnumpy()
        y, x = (whole.shape[0] - 30) // 2, (whole.shape[1] - 33) // 2
        np.testing.assert_array_equal(shown, whole[y : y + 30, x : x + 33].transpose(2, 0, 1))


def test_a_batch_that_is_held_stays_as_it_is():
    it = images(batch_size=1, prefetch_buffer=1)
    first = [data.copy() for data in pixels(it)]
    it.reset()
    held = list(it)
    views = [batch.data[0].asnumpy()[0, :, 2:5] for batch in held]
    for _ in range(2):
        for _ in range(3):
            it.reset()
            assert len(list(it)) == 5
        np.testing.assert_array_equal(pixels(held), first[: len(held)])
        np.testing.assert_array_equal(views, [each[0, :, 2:5] for each in first])
        held.clear()
    views.clear()
    places = set()
    for _ in range(6):
        places |= {batch.data[0].raw.data_ptr() for batch in it}
        it.reset()
    assert len(places) <= 8  # of 30 batches: memory is used again


def test_kinds_have_their_types():
    for make, dtype in ((mx.io.ImageRecordUInt8Iter, np.uint8), (mx.io.ImageRecordInt8Iter, np.int8)):
        it = make(path_imgrec=FORMATS / "images_l1.rec", data_shape=(3, 20, 20), batch_size=2)
        assert isinstance(it, mx.io.MXDataIter)
        assert it.provide_data[0].dtype is it.next().data[0].dtype is dtype


def test_errors_of_threads_reach_next_and_the_batch_after_comes(tmp_path):
    good = file_of("wide")
    path = write_records(tmp_path / "a.rec", [good, b"junk", good, good], [0.0, 1.0, 2.0, 3.0])
    it = images(path_imgrec=path)
    with pytest.raises(FileFormatError, match=r"a\.rec: byte \d+: image 1 of 4 bytes cannot be decoded"):
        it.next()
    assert labels(it) == [[2, 3]]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("records") / "det.rec"
    return write_records(target, [file_of(name) for name in NAMES], OPTIONS["objects"])


def detections(path, **given):
    given = {"data_shape": (3, 12, 14), "batch_size": 3, "verbose": False, **given}
    return mx.io.ImageDetRecordIter(path_imgrec=path, **given)


@pytest.mark.parametrize("key", OPTIONS["det"])
def test_detection_batches_are_mxnets(key, recorded):
    pictures.compare({f"det/{key}/label": recorded[f"det/{key}/label"]}, 1e-5)
    data, expected = recorded[f"det/{key}/data"], goldens()[f"det/{key}/data"]
    for found, want, label in zip(data, expected, goldens()[f"det/{key}/label"], strict=True):
        rows, columns = label[1:3].astype(int)
        # beyond an image that is smaller than its place, MXNet leaves what was there
        np.testing.assert_allclose(found[:, :rows, :columns], want[:, :rows, :columns], atol=1e-3)


def test_memory_that_was_used_before_is_cleared_beside_an_image(path):
    it = detections(path, data_shape=(3, 40, 50), batch_size=1, prefetch_buffer=1, resize_mode="shrink")
    first = [data.copy() for data in pixels(it)]
    it.reset()
    for batch, want in zip(it, first, strict=True):
        assert (want == 0).all(0).any()
        batch.data[0][:] = 7
    it.reset()
    for found, want in zip(pixels(it), first, strict=True):
        np.testing.assert_array_equal(found, want)


def test_random_changes_keep_objects_within_the_image(path):
    crop = {"min_crop_scales": (0.3, 0.5), "max_crop_scales": 0.9, "num_crop_sampler": 2}
    crop |= {"min_crop_aspect_ratios": 0.5, "max_crop_aspect_ratios": 2.0, "crop_emit_mode": "overlap"}
    colors = {"max_random_hue": 20, "max_random_contrast": 0.3, "max_pad_scale": 3.0, "inter_method": 10}
    often = {"rand_crop_prob": 0.8, "random_hue_prob": 0.5, "random_contrast_prob": 0.5}
    it = detections(path, **crop, **colors, **often, rand_pad_prob=0.8, rand_mirror_prob=0.5)
    changed = 0
    for _ in range(10):
        for label in np.concatenate([batch.label[0].asnumpy() for batch in it]):
            rows = label[6 : 4 + int(label[3])].reshape(-1, 5)
            assert len(rows)
            assert ((rows[:, 1:] >= 0) & (rows[:, 1:] <= 1)).all()
            assert (rows[:, 3:] > rows[:, 1:3]).all()
            changed += int(not np.isclose(rows[0, 1], (0.1, 0.0)).any())
        it.reset()
    assert changed > 10
