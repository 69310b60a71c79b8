"""Options of the image record iterators, with the names of MXNet."""

from __future__ import annotations

from ...ops.attrs import boolean, choice, integer, ints, optional, real, reals, shape, string
from ...ops.spec import Attr
from ..data_iter import BATCH, NAMES, PARTS, PREFETCH, THREADS, Options

_NOT_NEGATIVE = integer(low=0)
_METHODS = "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 chosen by size, 10 random"

_FILES: Options = {
    "path_imglist": Attr(
        string, "path of an image list (.lst), whose labels replace those of the records", ""
    ),
    "path_imgrec": Attr(string, "path of the record file (.rec), several joined by ';', or a folder", ""),
}

_READING: Options = {
    "data_shape": Attr(shape, "shape of one image: (channels, height, width), with 1, 3 or 4 channels"),
    **THREADS,
    "verbose": Attr(boolean, "if True, the files are logged", True),
    **PARTS,
    "shuffle_chunk_size": Attr(_NOT_NEGATIVE, "ignored: all records are shuffled", 0),
    "shuffle_chunk_seed": Attr(integer(), "ignored; see `seed`", 0),
    "shuffle": Attr(boolean, "if True, each epoch takes the images in a new random order", False),
    "seed": Attr(integer(), "seed of the order and of the augmentation", 0),
    **BATCH,
    "round_batch": Attr(
        boolean,
        "if True, the last batch is padded from the start, and the next epoch continues after that",
        True,
    ),
    **PREFETCH,
}

_MEANS: Options = {
    "mean_img": Attr(
        string, "file of an image to subtract; it is computed and saved if it does not exist", ""
    ),
    **{f"mean_{c}": Attr(real, f"number to subtract from channel {c}", 0.0) for c in "rgba"},
}

_CHANGES: Options = {
    "resize": Attr(
        integer(), "new length of the shorter edge in pixels, before other changes; -1 does not resize", -1
    ),
    "rand_crop": Attr(
        boolean, "if True, images are cropped at a random position, otherwise at the center", False
    ),
    "random_resized_crop": Attr(
        boolean, "if True, a random area with a random aspect ratio is cropped and resized", False
    ),
    "max_rotate_angle": Attr(_NOT_NEGATIVE, "largest rotation in degrees, in either direction", 0),
    "max_aspect_ratio": Attr(
        real,
        "largest difference of the aspect ratio from 1; the largest ratio if `min_aspect_ratio` is given",
        0.0,
    ),
    "min_aspect_ratio": Attr(optional(real), "smallest aspect ratio", None),
    "max_shear_ratio": Attr(real, "largest shear in either direction", 0.0),
    "max_crop_size": Attr(integer(), "largest edge of the cropped square in pixels; -1 does not crop", -1),
    "min_crop_size": Attr(integer(), "smallest edge of the cropped square in pixels; -1 does not crop", -1),
    "max_random_scale": Attr(real, "largest factor to scale by", 1.0),
    "min_random_scale": Attr(real, "smallest factor to scale by", 1.0),
    "max_random_area": Attr(real, "largest area of `random_resized_crop` as a fraction of the image", 1.0),
    "min_random_area": Attr(real, "smallest area of `random_resized_crop` as a fraction of the image", 1.0),
    "max_img_size": Attr(real, "largest edge in pixels after scaling", 1e10),
    "min_img_size": Attr(real, "smallest edge in pixels after scaling", 0.0),
    "brightness": Attr(real, "largest relative change of brightness", 0.0),
    "contrast": Attr(real, "largest relative change of contrast", 0.0),
    "saturation": Attr(real, "largest relative change of saturation", 0.0),
    "pca_noise": Attr(real, "standard deviation of noise along the principal axes of colors", 0.0),
    "random_h": Attr(_NOT_NEGATIVE, "largest change of hue, which is 0 to 180", 0),
    "random_s": Attr(_NOT_NEGATIVE, "largest change of saturation, which is 0 to 255", 0),
    "random_l": Attr(_NOT_NEGATIVE, "largest change of lightness, which is 0 to 255", 0),
    "rotate": Attr(integer(), "rotation in degrees, replaces `max_rotate_angle`; -1 does not", -1),
    "rotate_list": Attr(ints, "rotations in degrees to choose from", ()),
    "fill_value": Attr(integer(), "value of empty pixels", 255),
    "inter_method": Attr(integer(), _METHODS, 1),
    "pad": Attr(_NOT_NEGATIVE, "width in pixels of a border around the image", 0),
}

_NORMALIZE: Options = {
    "mirror": Attr(boolean, "if True, images are mirrored left to right", False),
    "rand_mirror": Attr(boolean, "if True, images are mirrored with probability 0.5", False),
    **_MEANS,
    **{f"std_{c}": Attr(real, f"number to divide channel {c} by", 1.0) for c in "rgba"},
    "scale": Attr(real, "factor of all values", 1.0),
    "max_random_contrast": Attr(real, "largest relative change of values", 0.0),
    "max_random_illumination": Attr(real, "largest number added or subtracted", 0.0),
}

CLASSIFY: Options = {
    **_FILES,
    "path_imgidx": Attr(string, "path of the index (.idx) of the record file", ""),
    "aug_seq": Attr(
        choice("aug_default", ""), "'aug_default' augments images, an empty string does not", "aug_default"
    ),
    "label_width": Attr(integer(low=1), "number of labels of an image", 1),
    **_READING,
    "device_id": Attr(integer(), "ignored: batches are in ordinary memory", 0),
    "seed_aug": Attr(
        optional(integer()), "seed of the augmentation; if set, all epochs repeat the first", None
    ),
    "dtype": Attr(optional(choice("float32", "uint8", "int8")), "type of the pixels; None is float32", None),
    **_CHANGES,
    **_NORMALIZE,
    **NAMES,
}

_TABLES = {
    "scales": ("edge, as a fraction of the image's", (0.0,), (1.0,)),
    "aspect_ratios": ("aspect ratio", (1.0,), (1.0,)),
    "overlaps": ("intersection over union with an object", (0.0,), (1.0,)),
    "sample_coverages": ("fraction of the crop that is an object", (0.0,), (1.0,)),
    "object_coverages": ("fraction of an object that is in the crop", (0.0,), (1.0,)),
}

_DETECTION_CHANGES: Options = {
    "resize": Attr(
        integer(), "new length of the shorter edge in pixels, before other changes; -1 does not resize", -1
    ),
    "rand_crop_prob": Attr(real, "probability of cropping", 0.0),
    **{
        f"{end}_crop_{name}": Attr(reals, f"{word} {what} of a crop, one per sampler", default)
        for name, (what, *defaults) in _TABLES.items()
        for end, word, default in (("min", "smallest", defaults[0]), ("max", "largest", defaults[1]))
    },
    "num_crop_sampler": Attr(_NOT_NEGATIVE, "number of crop samplers", 1),
    "crop_emit_mode": Attr(
        choice("center", "overlap"),
        "drop objects with their center outside, or with too little overlap",
        "center",
    ),
    "emit_overlap_thresh": Attr(real, "smallest fraction of an object inside, for overlap", 0.3),
    "max_crop_trials": Attr(ints, "numbers of attempts to crop, one per sampler", (25,)),
    "rand_pad_prob": Attr(real, "probability of a border", 0.0),
    "max_pad_scale": Attr(real, "largest factor by which a border enlarges the image", 1.0),
    "max_random_hue": Attr(_NOT_NEGATIVE, "largest change of hue, which is 0 to 180", 0),
    "random_hue_prob": Attr(real, "probability of that change", 0.0),
    "max_random_saturation": Attr(_NOT_NEGATIVE, "largest change of saturation, which is 0 to 255", 0),
    "random_saturation_prob": Attr(real, "probability of that change", 0.0),
    "max_random_illumination": Attr(_NOT_NEGATIVE, "largest change of lightness, which is 0 to 255", 0),
    "random_illumination_prob": Attr(real, "probability of that change", 0.0),
    "max_random_contrast": Attr(real, "largest relative change of contrast", 0.0),
    "random_contrast_prob": Attr(real, "probability of that change", 0.0),
    "rand_mirror_prob": Attr(real, "probability of mirroring left to right", 0.0),
    "fill_value": Attr(integer(), "value of empty pixels", 127),
    "inter_method": Attr(integer(), _METHODS, 1),
    "resize_mode": Attr(
        choice("fit", "force", "shrink"),
        "force the size of data_shape; or keep the aspect ratio and fit, or only shrink",
        "force",
    ),
}

DETECT: Options = {
    **_FILES,
    "aug_seq": Attr(choice("det_aug_default"), "augmentation of images", "det_aug_default"),
    "label_width": Attr(integer(), "number of labels of an image; -1 for any number", -1),
    **_READING,
    "label_pad_width": Attr(
        integer(), "number of labels that each image is padded to; -1 or 0: the largest number", 0
    ),
    "label_pad_value": Attr(real, "value that pads labels", -1.0),
    "dtype": Attr(optional(choice("float32")), "type of the pixels; None is float32", None),
    **_DETECTION_CHANGES,
    **_MEANS,
    **{f"std_{c}": Attr(real, f"number to divide channel {c} by; 0 does not divide", 0.0) for c in "rgba"},
    "scale": Attr(real, "factor of all values", 1.0),
    **NAMES,
}
