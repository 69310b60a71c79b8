"""Record what MXNet 1.9.1 makes of images: run with its Python in this folder, beside ``*.png``.

The PNG files are random pixels (``noise``, 13 x 17), random pixels of 24 x 36 (``wide``) and a gradient (``ramp``).
"""

import json
import os
import random
import shutil
import tempfile

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ("noise", "wide", "ramp")
SIZES = ((8, 6), (30, 21), (18, 12), (9, 30), (1, 1), (40, 5))
TWO = [[2, 5, 0, 0.1, 0.1, 0.5, 0.6, 1, 0.2, 0.2, 0.9, 0.8], [2, 5, 1, 0.1, 0.1, 0.5, 0.6], [2, 5, 2, 0, 0, 1, 1]]
RECORDS = {
    "plain": {}, "small": {"data_shape": (3, 30, 20)}, "grey": {"data_shape": (1, 12, 14)}, "mirror": {"mirror": True},
    "pad": {"pad": 3, "fill_value": 9}, "resize": {"resize": 15}, "cubic": {"resize": 15, "inter_method": 2},
    "auto": {"resize": 15, "inter_method": 9}, "rotate": {"rotate": 30, "fill_value": 99},
    "scale": {"max_random_scale": 1.5, "min_random_scale": 1.5}, "square": {"max_crop_size": 11, "min_crop_size": 11},
    "limit": {"max_img_size": 16, "fill_value": 50}, "int8": {"dtype": "int8", "mean_r": 127.6, "mean_g": 5},
    "uint8": {"dtype": "uint8"}, "mean": {"mean_r": 10, "mean_g": 20, "std_r": 2, "std_b": 4, "scale": 0.1},
    "brightness": {"brightness": 0.4, "seed_aug": 1}, "contrast": {"contrast": 0.4, "seed_aug": 1},
    "saturation": {"saturation": 0.4, "seed_aug": 2}, "pca": {"pca_noise": 0.5, "seed_aug": 3},
    "jitter": {"brightness": 0.2, "contrast": 0.3, "saturation": 0.4, "seed_aug": 4},
    "area": {"random_resized_crop": True, "min_random_area": 0.3, "max_random_area": 0.9, "max_aspect_ratio": 0.3,
             "seed_aug": 2},
    "crop": {"rand_crop": True, "rand_mirror": True, "seed_aug": 3},
    "light": {"max_random_contrast": 0.3, "max_random_illumination": 20, "seed_aug": 1},
}
DETECT = {
    "plain": {}, "mean": {"mean_r": 10, "mean_g": 3, "std_r": 2, "scale": 0.5}, "std": {"std_r": 2, "std_b": 3},
    "fit": {"resize_mode": "fit", "data_shape": (3, 20, 20)}, "mirror": {"rand_mirror_prob": 1.0},
    "width": {"label_pad_width": 30, "label_pad_value": -7, "resize": 9},
}
CHANGES = [
    {"resize": 20, "rand_crop": True, "rand_resize": True, "rand_mirror": True, "mean": True, "std": True,
     "brightness": 0.1, "contrast": 0.2, "saturation": 0.3, "hue": 0.1, "pca_noise": 0.1, "rand_gray": 0.5,
     "inter_method": 1},
    {"rand_mirror": True, "hue": 0.5, "rand_gray": 1.0},
]
DET_CHANGES = [
    {"resize": 20, "rand_crop": 0.9, "rand_pad": 0.9, "rand_mirror": True, "mean": True, "std": True,
     "rand_gray": 0.5, "brightness": 0.1, "pca_noise": 0.1, "hue": 0.1, "min_object_covered": [0.1, 0.5]},
    {"rand_crop": 1.0, "aspect_ratio_range": (0.2, 5), "area_range": (0.1, 4.0), "min_object_covered": 0.5},
]


def sizes_and_borders(out, images):
    for name, image in images.items():
        for width, height in SIZES:
            for interp in range(5):
                for dtype in ("uint8", "float32"):
                    made = mx.image.imresize(mx.nd.array(image, dtype=dtype), width, height, interp).asnumpy()
                    out["resize/%s/%d/%d/%d/%s" % (name, width, height, interp, dtype)] = made
    for kind in range(5):
        made = mx.image.copyMakeBorder(mx.nd.array(images["noise"], dtype="uint8"), 2, 3, 4, 1, kind, values=(7, 8, 9))
        out["border/%d" % kind] = made.asnumpy()
    stack = np.random.RandomState(0).rand(2, 3, 9, 12).astype("f4")
    out["in/stack"] = stack
    for name, zoom in (("plain", {}), ("in", {"zoom_in": True}), ("out", {"zoom_out": True})):
        out["turn/" + name] = mx.image.imrotate(mx.nd.array(stack), mx.nd.array([30, -75]), **zoom).asnumpy()


def records(out, folder):
    path = os.path.join(folder, "a.rec")
    det, many = os.path.join(folder, "det.rec"), os.path.join(folder, "many")
    files = [open(os.path.join(HERE, name + ".png"), "rb").read() for name in NAMES]
    for name, file in zip(NAMES[:2], files):
        writer = mx.recordio.MXRecordIO(path, "w")
        writer.write(mx.recordio.pack((0, 1.0, 7, 0), file))
        writer.close()
        for key, options in RECORDS.items():
            options = dict({"data_shape": (3, 12, 14)}, **options)
            it = mx.io.ImageRecordIter(path_imgrec=path, batch_size=1, preprocess_threads=1, verbose=False, **options)
            out["record/%s/%s" % (key, name)] = it.next().data[0].asnumpy()[0]
    writer = mx.recordio.MXRecordIO(det, "w")
    for i, file in enumerate(files):
        writer.write(mx.recordio.pack((0, np.array(TWO[i], "f4"), i, 0), file))
    writer.close()
    for key, options in DETECT.items():
        options = dict({"data_shape": (3, 12, 14)}, **options)
        it = mx.io.ImageDetRecordIter(path_imgrec=det, batch_size=3, preprocess_threads=1, verbose=False, **options)
        batch = it.next()
        out["det/%s/data" % key], out["det/%s/label" % key] = batch.data[0].asnumpy(), batch.label[0].asnumpy()
    writer = mx.recordio.MXIndexedRecordIO(many + ".idx", many + ".rec", "w")
    for i in range(23):
        writer.write_idx(i, mx.recordio.pack((0, float(i), i, 0), files[i % 3]))
    writer.close()
    for index in ("", many + ".idx"):
        it = mx.io.ImageRecordIter(path_imgrec=many + ".rec", path_imgidx=index, data_shape=(3, 12, 14), batch_size=4,
                                   shuffle=True, seed=5, preprocess_threads=1, verbose=False)
        for epoch in range(2):
            out["order/%d/%d" % (bool(index), epoch)] = np.concatenate([b.label[0].asnumpy() for b in it])
            it.reset()


def changes(out):
    image = mx.image.imread(os.path.join(HERE, "wide.png"))
    objects = np.array([[0, 0.1, 0.2, 0.5, 0.8], [3, 0.4, 0.3, 0.9, 0.95]], "f4")
    for i, options in enumerate(CHANGES):
        made = mx.image.CreateAugmenter((3, 12, 14), **options)
        out["change/%d/dumps" % i] = np.array(json.dumps([each.dumps() for each in made]))
        for seed in range(3):
            random.seed(seed)
            np.random.seed(seed)
            found = image
            for each in mx.image.CreateAugmenter((3, 12, 14), **options):  # they shuffle themselves
                found = each(found)
            out["change/%d/%d" % (i, seed)] = found.asnumpy()
    for i, options in enumerate(DET_CHANGES):
        made = mx.image.CreateDetAugmenter((3, 12, 14), **options)
        out["detchange/%d/dumps" % i] = np.array(json.dumps([each.dumps() for each in made]))
        for seed in range(4):
            random.seed(seed)
            np.random.seed(seed)
            found, label = image, objects.copy()
            for each in mx.image.CreateDetAugmenter((3, 12, 14), **options):
                found, label = each(found, label)
            out["detchange/%d/%d" % (i, seed)], out["detchange/%d/%d/label" % (i, seed)] = found.asnumpy(), label


def main():
    out, folder = {}, tempfile.mkdtemp()
    images = {name: mx.image.imread(os.path.join(HERE, name + ".png")).asnumpy() for name in NAMES}
    sizes_and_borders(out, images)
    records(out, folder)
    changes(out)
    for seed in (0, 7):
        digits = os.path.join(HERE, "..", "..", "formats", "t20-")
        it = mx.io.MNISTIter(image=digits + "images-idx3-ubyte", label=digits + "labels-idx1-ubyte", batch_size=20,
                             shuffle=True, silent=True, seed=seed)
        out["digits/%d" % seed] = it.next().label[0].asnumpy()
    shutil.rmtree(folder)
    np.savez_compressed(os.path.join(HERE, "image.npz"), **out)
    options = {"record": RECORDS, "det": DETECT, "change": CHANGES, "detchange": DET_CHANGES, "objects": TWO}
    with open(os.path.join(HERE, "image.json"), "w") as file:
        json.dump(options, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
