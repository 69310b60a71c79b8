import random

import numpy as np
import pytest

import dpmodule as mx
from helpers.pictures import FOLDER, FORMATS, NAMES

I = mx.image  # noqa: E741
LISTED = [[i, f"{name}.png"] for i, name in enumerate(NAMES)]


def images(**given):
    given = {"batch_size": 2, "data_shape": (3, 12, 14), "imglist": LISTED, "path_root": FOLDER, **given}
    return I.ImageIter(**given)


def epoch(it):
    return [(b.label[0].asnumpy().tolist(), b.pad) for b in it]


def test_last_batches_are_handled_as_in_mxnet():
    for handle, want in (
        ("pad", [[([0, 1], 0), ([2, 0], 1)]] * 3),
        ("discard", [[([0, 1], 0)]] * 3),
        ("roll_over", [[([0, 1], 0)], [([2, 0], 1), ([1, 2], 0)], [([0, 1], 0)]]),
    ):
        it = images(last_batch_handle=handle)
        for found in want:
            assert epoch(it) == found
            it.reset()
        epoch(it)
        it.hard_reset()
        assert epoch(it) == want[0]


def test_shuffling_follows_pythons_seed():
    random.seed(3)
    first = [epoch(images(shuffle=True)) for _ in range(4)]
    random.seed(3)
    assert [epoch(images(shuffle=True)) for _ in range(4)] == first
    assert len({str(each) for each in first}) > 1


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("indexed", [False, True])
def test_record_files_give_the_batches_of_the_fast_iterator(width, indexed):
    name, index = f"images_l{width}", FORMATS / f"images_l{width}.idx" if indexed else None
    files = {"path_imgrec": FORMATS / f"{name}.rec", "path_imgidx": index, "imglist": None}
    it = images(label_width=width, data_shape=(3, 20, 20), **files)
    with np.load(FORMATS / "files_expected.npz") as expected:
        for _ in range(2):
            found = list(it)
            np.testing.assert_array_equal([b.data[0].asnumpy() for b in found], expected[f"{name}|data"])
            np.testing.assert_array_equal([b.label[0].asnumpy() for b in found], expected[f"{name}|label"])
            it.reset()


def test_lists_of_files_are_read(tmp_path):
    lines = "".join(f"{i + 5}\t{i}\t{2 * i}\t{name}.png\n" for i, name in enumerate(NAMES))
    (tmp_path / "a.lst").write_text(lines)
    it = images(imglist=None, path_imglist=tmp_path / "a.lst", label_width=2, batch_size=3)
    assert epoch(it) == [([[0, 0], [1, 2], [2, 4]], 0)]


def test_parts_cover_all_images():
    parts = [images(batch_size=1, num_parts=3, part_index=i) for i in range(3)]
    assert [epoch(part) for part in parts] == [[([0], 0)], [([1], 0)], [([2], 0)]]
