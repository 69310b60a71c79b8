"""What is made of pictures, by MXNet, which recorded it (data/record_mxnet.py), and by this package."""

import json
import random
from itertools import product
from pathlib import Path

import numpy as np

DATA = Path(__file__).parents[1] / "data"
FOLDER, DIGITS = DATA / "goldens" / "image", str(DATA / "formats" / "t20-")
NAMES = ("noise", "wide", "ramp")
OPTIONS = json.loads((FOLDER / "image.json").read_text())
SHAPE = (3, 12, 14)
OBJECTS = [[0, 0.1, 0.2, 0.5, 0.8], [3, 0.4, 0.3, 0.9, 0.95]]


def made(mx, folder):
    """Return everything by name; files are written into a folder."""
    return {**sized(mx), **turned(mx), **changed(mx), **recorded(mx, folder), **digits(mx)}


def picture(mx, name):
    return mx.image.imread(str(FOLDER / f"{name}.png"))


def sized(mx):
    found, sizes = {}, ((8, 6), (30, 21), (18, 12), (9, 30), (1, 1), (40, 5))
    for name, (width, height), interp, dtype in product(NAMES, sizes, range(5), ("uint8", "float32")):
        resized = mx.image.imresize(picture(mx, name).astype(dtype), width, height, interp)
        found[f"resize/{name}/{width}/{height}/{interp}/{dtype}"] = resized.asnumpy()
    for kind in range(5):
        border = mx.image.copyMakeBorder(picture(mx, "noise"), 2, 3, 4, 1, kind, values=(7, 8, 9))
        found[f"border/{kind}"] = border.asnumpy()
    return found


def turned(mx):
    found = {"in/stack": np.random.RandomState(0).rand(2, 3, 9, 12).astype("f4")}
    for name, zoom in (("plain", {}), ("in", {"zoom_in": True}), ("out", {"zoom_out": True})):
        turn = mx.image.imrotate(mx.nd.array(found["in/stack"]), mx.nd.array([30, -75]), **zoom)
        found[f"turn/{name}"] = turn.asnumpy()
    return found


def changed(mx):
    """Change a picture, and objects in it, at random."""
    found = {}
    for kind, make in (("change", mx.image.CreateAugmenter), ("detchange", mx.image.CreateDetAugmenter)):
        for i, options in enumerate(OPTIONS[kind]):
            options = {key: tuple(value) if "range" in key else value for key, value in options.items()}
            made = make(SHAPE, **options)
            found[f"{kind}/{i}/dumps"] = np.array(json.dumps([each.dumps() for each in made]))
            for seed in range(3 if kind == "change" else 4):
                random.seed(seed)
                np.random.seed(seed)
                now = (picture(mx, "wide"), np.array(OBJECTS, "f4"))[: 1 + (kind == "detchange")]
                for each in make(SHAPE, **options):  # they shuffle themselves
                    now = each(*now)
                    now = now if isinstance(now, tuple) else (now,)
                found[f"{kind}/{i}/{seed}"] = now[0].asnumpy()
                found.update({f"{kind}/{i}/{seed}/label": label for label in now[1:]})
    return found


def write(mx, path, labels, names=NAMES):
    """Write pictures in turn, with these labels, and an index beside them."""
    record = mx.recordio.MXIndexedRecordIO(f"{path}.idx", f"{path}.rec", "w")
    for i, label in enumerate(labels):
        content = (FOLDER / f"{names[i % len(names)]}.png").read_bytes()
        record.write_idx(i, mx.recordio.pack((0, label, i, 0), content))
    record.close()


def recorded(mx, folder):
    """Read record files with every option, and in random order."""
    found = {}

    def read(kind, name, size, options, **more):
        options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        options = {"data_shape": SHAPE, "preprocess_threads": 1, "verbose": False, **options, **more}
        return getattr(mx.io, kind)(path_imgrec=f"{folder}/{name}.rec", batch_size=size, **options)

    for name in NAMES[:2]:
        write(mx, folder / name, [1.0], [name])
    write(mx, folder / "det", [np.array(row, "f4") for row in OPTIONS["objects"]])
    write(mx, folder / "many", map(float, range(23)))
    for (key, options), name in product(OPTIONS["record"].items(), NAMES[:2]):
        found[f"record/{key}/{name}"] = read("ImageRecordIter", name, 1, options).next().data[0].asnumpy()[0]
    for key, options in OPTIONS["det"].items():
        batch = read("ImageDetRecordIter", "det", 3, options).next()
        found[f"det/{key}/data"] = batch.data[0].asnumpy()
        found[f"det/{key}/label"] = batch.label[0].asnumpy()
    for index in ("", f"{folder}/many.idx"):
        it = read("ImageRecordIter", "many", 4, {}, path_imgidx=index, shuffle=True, seed=5)
        for epoch in range(2):
            labels = np.concatenate([batch.label[0].asnumpy() for batch in it])
            found[f"order/{bool(index):d}/{epoch}"] = labels
            it.reset()
    return found


def digits(mx):
    found, files = {}, {"image": f"{DIGITS}images-idx3-ubyte", "label": f"{DIGITS}labels-idx1-ubyte"}
    for seed in (0, 7):
        it = mx.io.MNISTIter(batch_size=20, shuffle=True, silent=True, seed=seed, **files)
        found[f"digits/{seed}"] = it.next().label[0].asnumpy()
    return found
