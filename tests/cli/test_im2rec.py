"""Folders of pictures as record files."""

import os
import shutil

import pytest

import dpmodule as mx
from helpers.pictures import NAMES, file_of


@pytest.fixture
def folder(tmp_path):
    """Ten pictures of three classes, one of them in a folder below another's."""
    for kind, count in (("cats", 4), ("dogs", 4), ("cats/wild", 2)):
        (tmp_path / "photos" / kind).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (tmp_path / "photos" / kind / f"{i}.png").write_bytes(file_of(NAMES[i % 3]))
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    (tmp_path / "photos" / "dogs" / ".hidden.png").write_text("no picture")
    return tmp_path / "photos"


def listed(path):
    """Return number, class and path of each line."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return [(int(number), float(label), name) for number, label, name in rows]


WANTED = [
    *((i, 0, f"cats/{i}.png") for i in range(4)),
    *((4 + i, 1, f"cats/wild/{i}.png") for i in range(2)),
    *((6 + i, 2, f"dogs/{i}.png") for i in range(4)),
]


def read(prefix, shape=(3, 8, 8), **options):
    """Return the pixels and labels of all pictures."""
    it = mx.io.ImageRecordIter(
        path_imgrec=f"{prefix}.rec",
        path_imgidx=f"{prefix}.idx",
        data_shape=shape,
        batch_size=1,
        verbose=False,
        **options,
    )
    found = [(batch.data[0].asnumpy()[0], batch.label[0].asscalar(), int(batch.index[0])) for batch in it]
    return [each[0] for each in found], [each[1] for each in found], [each[2] for each in found]


def test_all_in_one_file(run, folder, tmp_path):
    done = run("im2rec", folder, tmp_path / "out" / "a")
    assert done.code == 0
    assert done.out.splitlines()[:3] == [
        "class 0: cats, 4 pictures",
        "class 1: cats/wild, 2 pictures",
        "class 2: dogs, 4 pictures",
    ]
    assert sorted(os.listdir(tmp_path / "out")) == ["a.idx", "a.lst", "a.rec"]
    assert listed(tmp_path / "out" / "a.lst") == WANTED
    _, labels, numbers = read(tmp_path / "out" / "a", (3, 20, 20))
    assert labels == [row[1] for row in WANTED]
    assert numbers == list(range(10))
    dataset = mx.recordio.RecordDataset(tmp_path / "out" / "a.rec", transform=mx.recordio.unpack)
    assert [dataset[i][1] for i in range(4)] == [file_of(NAMES[i % 3]) for i in range(4)]
    images = mx.image.ImageIter(
        1, (3, 20, 20), path_imglist=str(tmp_path / "out" / "a.lst"), path_root=str(folder)
    )
    assert [batch.label[0].asscalar() for batch in images] == labels


def test_resized_and_encoded(run, folder, tmp_path):
    assert run("im2rec", folder, tmp_path / "a", "--resize", 12).code == 0
    assert run("im2rec", folder, tmp_path / "b", "--resize=12", "--quality=20", "--threads=4").code == 0
    fine, coarse = (mx.recordio.RecordDataset(tmp_path / f"{name}.rec") for name in "ab")
    for one, other in zip(fine, coarse, strict=True):
        (_, large), (_, small) = mx.recordio.unpack_img(one), mx.recordio.unpack_img(other)
        assert min(large.shape[:2]) == min(small.shape[:2]) == 12
        assert len(other) < len(one)
    header, pixels = mx.recordio.unpack_img(fine[1])  # wide
    whole = mx.image.imdecode(file_of(NAMES[1]))
    want = mx.image.resize_short(whole, 12).asnumpy()
    assert header.id == 1
    assert abs(pixels.shape[1] - want.shape[1]) <= 1
    assert abs(float(pixels.mean()) - float(want.mean())) < 3


def test_parts_and_order(run, folder, tmp_path):
    assert run("im2rec", folder, tmp_path / "a", "--train-ratio", "0.5").code == 0
    train, validation = (listed(tmp_path / f"a_{name}.lst") for name in ("train", "val"))
    assert train == [row for row in WANTED if row[0] in (0, 1, 4, 6, 7)]
    assert validation == [row for row in WANTED if row not in train]
    orders = []
    for name, seed in (("b", 1), ("c", 1), ("d", 2)):
        words = ("--train-ratio=0.5", "--shuffle", f"--seed={seed}")
        assert run("im2rec", folder, tmp_path / name, *words).code == 0
        rows = [listed(tmp_path / f"{name}_{part}.lst") for part in ("train", "val")]
        assert sorted(rows[0] + rows[1]) == WANTED
        assert [sum(row[1] == label for row in rows[0]) for label in range(3)] == [2, 1, 2]
        _, labels, numbers = read(tmp_path / f"{name}_train")
        assert numbers == [row[0] for row in rows[0]]
        assert labels == [row[1] for row in rows[0]]
        orders.append(rows)
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][0] != sorted(orders[0][0])


def test_pictures_that_cannot_be_used(run, folder, tmp_path):
    (folder / "cats" / "1.png").write_bytes(b"no picture")
    (folder / "dogs" / "a\tb.png").write_bytes(file_of("ramp"))
    done = run("im2rec", folder, tmp_path / "a")
    assert done.code == 1
    assert "left out: " in done.err
    assert "1.png" in done.err
    assert "rename the file" in done.err
    assert listed(tmp_path / "a.lst") == [row for row in WANTED if row[0] != 1]
    assert read(tmp_path / "a")[2] == [row[0] for row in WANTED if row[0] != 1]


def test_links_are_followed_once(run, folder, tmp_path):
    (folder / "dogs" / "again").symlink_to(folder, target_is_directory=True)
    (tmp_path / "more").mkdir()
    shutil.copy(folder / "dogs" / "0.png", tmp_path / "more" / "x.PNG")
    (folder / "owls").symlink_to(tmp_path / "more", target_is_directory=True)
    assert run("im2rec", folder, tmp_path / "a").code == 0
    assert listed(tmp_path / "a.lst") == [*WANTED, (10, 3, "owls/x.PNG")]


def test_refusals(run, folder, tmp_path):
    assert "nowhere" in run("im2rec", "nowhere", "a").error
    (tmp_path / "empty").mkdir()
    assert (
        "there is no picture in empty; expected folders, one for each class"
        in run("im2rec", "empty", "a").error
    )
    assert "--train-ratio" in run("im2rec", folder, "a", "--train-ratio=1.5").error
    assert "leaves no picture for a_val.rec" in run("im2rec", folder, "a", "--train-ratio=0.99").error
    assert "OUT is 'out/', a folder" in run("im2rec", folder, "out/").error
    for path in folder.rglob("*.png"):
        path.write_bytes(b"none")
    assert "a.rec would be empty: none of its 10 pictures" in run("im2rec", folder, "a").error
    assert sorted(os.listdir(tmp_path)) == ["empty", "photos"]
    (tmp_path / "a.idx").write_text("mine")
    assert "a.idx is there already; take another OUT, or --overwrite" in run("im2rec", folder, "a").error
    (folder / "cats" / "0.png").write_bytes(file_of("ramp"))
    assert run("im2rec", folder, "a", "--overwrite").code == 1
    assert len(listed(tmp_path / "a.lst")) == 1
