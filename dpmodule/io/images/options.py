"""Options of the image record iterators, as MXNet names them."""

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
    "verbose": Attr(boolean, "whether what is read is logged", True),
    **PARTS,
    "shuffle_chunk_size": Attr(_NOT_NEGATIVE, "accepted and without effect: all records are shuffled", 0),
    "shuffle_chunk_seed": Attr(integer(), "accepted and without effect; see `seed`", 0),
    "shuffle": Attr(boolean, "whether each epoch takes the images in a new random order", False),
    "seed": Attr(integer(), "seed of the order and of the changes to images", 0),
    **BATCH,
    "round_batch": Attr(
        boolean, "whether the last batch is padded from the start, where the next epoch goes on", True
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
    "resize": Attr(integer(), "length in pixels that the shorter edge gets first; -1 for none", -1),
    "rand_crop": Attr(boolean, "whether images are cropped at a random place, not in the middle", False),
    "random_resized_crop": Attr(
        boolean, "whether a random area of random aspect is cropped and resized", False
    ),
    "max_rotate_angle": Attr(_NOT_NEGATIVE, "rotate by up to so many degrees, either way", 0),
    "max_aspect_ratio": Attr(
        real, "aspect ratios are up to 1 +- this, or up to this if `min_aspect_ratio` is given", 0.0
    ),
    "min_aspect_ratio": Attr(optional(real), "smallest aspect ratio", None),
    "max_shear_ratio": Attr(real, "shear by up to this, either way", 0.0),
    "max_crop_size": Attr(integer(), "largest edge in pixels of the square that is cropped; -1 for none", -1),
    "min_crop_size": Attr(
        integer(), "smallest edge in pixels of the square that is cropped; -1 for none", -1
    ),
    "max_random_scale": Attr(real, "largest factor to scale by", 1.0),
    "min_random_scale": Attr(real, "smallest factor to scale by", 1.0),
    "max_random_area": Attr(real, "largest part of the area that `random_resized_crop` takes", 1.0),
    "min_random_area": Attr(real, "smallest part of the area that `random_resized_crop` takes", 1.0),
    "max_img_size": Attr(real, "largest edge in pixels after scaling", 1e10),
    "min_img_size": Attr(real, "smallest edge in pixels after scaling", 0.0),
    "brightness": Attr(real, "change brightness by a factor of up to 1 +- this", 0.0),
    "contrast": Attr(real, "change contrast by a factor of up to 1 +- this", 0.0),
    "saturation": Attr(real, "change saturation by a factor of up to 1 +- this", 0.0),
    "pca_noise": Attr(real, "standard deviation of noise along the colors' principal axes", 0.0),
    "random_h": Attr(_NOT_NEGATIVE, "change hue, 0 to 180, by up to this, either way", 0),
    "random_s": Attr(_NOT_NEGATIVE, "change saturation, 0 to 255, by up to this, either way", 0),
    "random_l": Attr(_NOT_NEGATIVE, "change lightness, 0 to 255, by up to this, either way", 0),
    "rotate": Attr(integer(), "rotate by so many degrees, in place of `max_rotate_angle`; -1 for none", -1),
    "rotate_list": Attr(ints, "degrees to choose from for rotating", ()),
    "fill_value": Attr(integer(), "what is put where no pixel is", 255),
    "inter_method": Attr(integer(), _METHODS, 1),
    "pad": Attr(_NOT_NEGATIVE, "width in pixels of a border around the image", 0),
}

_NORMALIZE: Options = {
    "mirror": Attr(boolean, "whether images are mirrored left to right", False),
    "rand_mirror": Attr(boolean, "whether every other image, at random, is mirrored", False),
    **_MEANS,
    **{f"std_{c}": Attr(real, f"number to divide channel {c} by", 1.0) for c in "rgba"},
    "scale": Attr(real, "factor of everything", 1.0),
    "max_random_contrast": Attr(real, "change values by a factor of up to 1 +- this", 0.0),
    "max_random_illumination": Attr(real, "add up to this, either way", 0.0),
}

CLASSIFY: Options = {
    **_FILES,
    "path_imgidx": Attr(string, "path of the index (.idx) of the record file", ""),
    "aug_seq": Attr(choice("aug_default", ""), "whether images are changed at all", "aug_default"),
    "label_width": Attr(integer(low=1), "number of labels of an image", 1),
    **_READING,
    "device_id": Attr(integer(), "accepted and without effect: batches are in ordinary memory", 0),
    "seed_aug": Attr(
        optional(integer()), "seed of the changes to images; with one, all epochs repeat the first", None
    ),
    "dtype": Attr(optional(choice("float32", "uint8", "int8")), "type of the pixels; None is float32", None),
    **_CHANGES,
    **_NORMALIZE,
    **NAMES,
}

_TABLES = {
    "scales": ("edge, as a part of the image's", (0.0,), (1.0,)),
    "aspect_ratios": ("aspect ratio", (1.0,), (1.0,)),
    "overlaps": ("intersection over union with an object", (0.0,), (1.0,)),
    "sample_coverages": ("part of the crop that is an object", (0.0,), (1.0,)),
    "object_coverages": ("part of an object that is in the crop", (0.0,), (1.0,)),
}

_DETECTION_CHANGES: Options = {
    "resize": Attr(integer(), "length in pixels that the shorter edge gets first; -1 for none", -1),
    "rand_crop_prob": Attr(real, "probability of cropping", 0.0),
    **{
        f"{end}_crop_{name}": Attr(reals, f"{word} {what} of a crop, one per sampler", default)
        for name, (what, *defaults) in _TABLES.items()
        for end, word, default in (("min", "smallest", defaults[0]), ("max", "largest", defaults[1]))
    },
    "num_crop_sampler": Attr(_NOT_NEGATIVE, "number of crop samplers", 1),
    "crop_emit_mode": Attr(
        choice("center", "overlap"),
        "objects are dropped whose center is outside, or that overlap too little",
        "center",
    ),
    "emit_overlap_thresh": Attr(real, "part of an object that has to stay, for overlap", 0.3),
    "max_crop_trials": Attr(ints, "number of crops that are tried, one per sampler", (25,)),
    "rand_pad_prob": Attr(real, "probability of a border", 0.0),
    "max_pad_scale": Attr(real, "largest factor that a border enlarges the image by", 1.0),
    "max_random_hue": Attr(_NOT_NEGATIVE, "change hue, 0 to 180, by up to this, either way", 0),
    "random_hue_prob": Attr(real, "probability of that", 0.0),
    "max_random_saturation": Attr(_NOT_NEGATIVE, "change saturation, 0 to 255, by up to this", 0),
    "random_saturation_prob": Attr(real, "probability of that", 0.0),
    "max_random_illumination": Attr(_NOT_NEGATIVE, "change lightness, 0 to 255, by up to this", 0),
    "random_illumination_prob": Attr(real, "probability of that", 0.0),
    "max_random_contrast": Attr(real, "change contrast by a factor of up to 1 +- this", 0.0),
    "random_contrast_prob": Attr(real, "probability of that", 0.0),
    "rand_mirror_prob": Attr(real, "probability of mirroring left to right", 0.0),
    "fill_value": Attr(integer(), "what is put where no pixel is", 127),
    "inter_method": Attr(integer(), _METHODS, 1),
    "resize_mode": Attr(
        choice("fit", "force", "shrink"),
        "force the image into data_shape, shrink it until it fits, or fit it either way, keeping its aspect",
        "force",
    ),
}

DETECT: Options = {
    **_FILES,
    "aug_seq": Attr(choice("det_aug_default"), "how images are changed", "det_aug_default"),
    "label_width": Attr(integer(), "number of labels of an image; -1 for any number", -1),
    **_READING,
    "label_pad_width": Attr(
        integer(), "number of labels that each image is padded to; -1 or 0: as needed", 0
    ),
    "label_pad_value": Attr(real, "what labels are padded with", -1.0),
    "dtype": Attr(optional(choice("float32")), "type of the pixels; None is float32", None),
    **_DETECTION_CHANGES,
    **_MEANS,
    **{f"std_{c}": Attr(real, f"number to divide channel {c} by; 0 for none", 0.0) for c in "rgba"},
    "scale": Attr(real, "factor of everything", 1.0),
    **NAMES,
}
