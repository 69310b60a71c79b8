"""Record what MXNet 1.9.1 computes for resampling, correlation, CTC and their like, as `spatial.json` and `.npz`.

Run beside this file in an environment with MXNet: ``python make_spatial.py``. The format is told in README.md.
"""

import json
from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).parent
rng = np.random.RandomState(4)


def normal(*shape):
    """Return standard normal float32 values."""
    return rng.standard_normal(shape).astype("f4")


def image(height=5, width=6):
    """Return two images of two channels."""
    return normal(2, 2, height, width)


def statistics():
    """Return the vectors of a batch normalisation with three channels."""
    vectors = {"gamma": normal(3), "beta": normal(3)}
    return {**vectors, "moving_mean": normal(3), "moving_var": rng.rand(3).astype("f4") + 0.5}


def deconvolutions():
    """Yield transposed convolutions; target shapes are left out, since the CPU build refuses most of them."""
    for rank in (1, 2, 3):
        weight = normal(4, 1, *(3, 2, 2)[:rank])
        attrs = {"kernel": (3, 2, 2)[:rank], "num_filter": 2, "num_group": 2, "stride": (2, 3, 2)[:rank]}
        more = {"adj": (1, 2, 0)[:rank], "pad": (1, 0, 0)[:rank], "no_bias": False}
        inputs = {"data": normal(2, 4, *(3, 2, 3)[:rank]), "weight": weight, "bias": normal(2)}
        yield f"deconv{rank}d_all", "Deconvolution", {**attrs, **more}, inputs
    dilated = {"kernel": (3, 2), "num_filter": 3, "dilate": (2, 3), "stride": (1, 2)}
    yield (
        "deconv2d_dilate_stride",
        "Deconvolution",
        dilated,
        {"data": image(3, 4), "weight": normal(2, 3, 3, 2)},
    )


def columns():
    """Yield images as columns and back."""
    attrs = {"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2), "pad": (1, 0)}
    yield "im2col_all", "im2col", attrs, {"data": image()}
    yield "col2im_all", "col2im", {**attrs, "output_size": (5, 6)}, {"data": normal(2, 12, 12)}
    yield "col2im_plain", "col2im", {"kernel": (2, 2), "output_size": (3, 3)}, {"data": normal(2, 8, 4)}


def resizes():
    """Yield every way to tell the size of a resized image."""
    op = "_contrib_BilinearResize2D"
    for corners in (True, False):
        attrs = {"align_corners": corners}
        tail = "" if corners else "_edges"
        yield f"resize_size{tail}", op, {**attrs, "height": 7, "width": 4}, {"data": image()}
        yield f"resize_row{tail}", op, {**attrs, "height": 1, "width": 7}, {"data": image()}
        scales = {"scale_height": 0.6, "scale_width": 1.7}
        yield f"resize_scale{tail}", op, {**attrs, **scales}, {"data": image()}
        yield f"resize_odd_scale{tail}", op, {**attrs, **scales, "mode": "odd_scale"}, {"data": image()}
        like = {"data": image(), "like": normal(2, 2, 4, 9)}
        yield f"resize_like{tail}", op, {**attrs, "mode": "like"}, like
        for mode in ("to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
            yield f"resize_{mode}{tail}", op, {**attrs, "mode": mode}, {"data": image()}
    for name, size in (("none", ()), ("one", 2), ("both", (3, 4)), ("more", (7, 9))):
        attrs = {"output_size": size}
        yield f"adaptive_{name}", "_contrib_AdaptiveAvgPooling2D", attrs, {"data": image()}


def spatial():
    """Yield grids, samplers and transformers that reach beyond the image."""
    attrs = {"transform_type": "affine", "target_shape": (3, 4)}
    yield "grid_affine", "GridGenerator", attrs, {"data": normal(2, 6)}
    yield "grid_warp", "GridGenerator", {"transform_type": "warp"}, {"data": 2 * normal(2, 2, 3, 4)}
    yield "sampler_beyond", "BilinearSampler", {}, {"data": image(), "grid": normal(2, 2, 4, 3)}
    loc = {"data": image(), "loc": normal(2, 6)}
    yield "transformer_beyond", "SpatialTransformer", {**attrs, "sampler_type": "bilinear"}, loc


def correlations():
    """Yield correlations; at last one of inputs with zeros, which tie with each other and the padding."""
    for number, (kernel, reach, step1, step2, pad, multiply) in enumerate(
        [(1, 3, 1, 2, 3, True), (3, 2, 2, 1, 4, True), (3, 3, 1, 3, 2, False), (3, 1, 2, 1, 3, False)]
    ):
        ties = number == 3
        attrs = {"kernel_size": kernel, "max_displacement": reach, "stride1": step1, "stride2": step2}
        inputs = {"data1": normal(2, 3, 6, 7), "data2": normal(2, 3, 6, 7)}
        if ties:
            inputs = {key: value.clip(0) for key, value in inputs.items()}
        attrs = {**attrs, "pad_size": pad, "is_multiply": multiply}
        yield "correlation_ties" if ties else f"correlation_{number}", "Correlation", attrs, inputs


def sequences():
    """Yield CTC losses."""
    last = {"blank_label": "last"}
    labels = np.array([[1, 2, 2], [3, 0, 0]], "f4")
    data = {"data": normal(6, 2, 4), "label": labels}
    yield "ctc_repeats", "CTCLoss", {}, data
    yield (
        "ctc_last",
        "CTCLoss",
        last,
        {"data": normal(6, 2, 4), "label": np.array([[0, 2, 2], [1, -1, 0]], "f4")},
    )
    lengths = {"use_data_lengths": True}
    yield "ctc_data_lengths", "CTCLoss", lengths, {**data, "data_lengths": np.array([5, 3], "f4")}
    empty = np.array([[0, 0], [1, 2]], "f4")
    yield "ctc_no_labels", "CTCLoss", {}, {"data": normal(4, 2, 3), "label": empty}


def others():
    """Yield crops, the sparseness penalty, and relatives of batch normalisation."""
    yield (
        "crop_center_like",
        "Crop",
        {"center_crop": True, "num_args": 2},
        {"arg0": image(), "arg1": image(2, 3)},
    )
    values = {"data": rng.rand(4, 3).astype("f4") * 0.8 + 0.1, "moving_avg": np.full(3, 0.3, "f4")}
    yield "kl_sparse", "IdentityAttachKLSparseReg", {"penalty": 0.1, "momentum": 0.7}, values
    for fix in (True, False):
        for stats in (True, False):
            attrs = {"fix_gamma": fix, "use_global_stats": stats}
            tail = ("_fixed" if fix else "") + ("_global" if stats else "")
            data = {"data": normal(2, 3, 2, 2), **statistics()}
            yield f"bn_relu{tail}", "_contrib_BatchNormWithReLU", attrs, data
            sync = {**attrs, "key": f"bn{tail}", "momentum": 0.6}
            yield f"sync_bn{tail}", "_contrib_SyncBatchNorm", sync, {**data, **statistics()}


AUX = ("moving_mean", "moving_var", "moving_avg")
NO_GRADIENT = ("label", "data_lengths", "label_lengths")


def record(name, op, attrs, inputs, arrays):
    """Run one case, add its arrays, and return its entry."""
    made = getattr(mx.sym.contrib, op[9:]) if op.startswith("_contrib_") else getattr(mx.sym, op)
    plain = [key for key in inputs if key not in AUX]
    symbol = made(*[mx.sym.Variable(key) for key in plain], name="op", **attrs)
    args = {key: mx.nd.array(inputs[key]) for key in plain}
    aux = {f"op_{key}": mx.nd.array(inputs[key]) for key in inputs if key in AUX}
    wanted = sorted(set(plain) - set(NO_GRADIENT))
    grads = {key: mx.nd.zeros(args[key].shape) for key in wanted}
    for kind, group in (("in", args), ("aux_in", aux)):
        arrays.update({f"{name}/{kind}/{key}": value.asnumpy() for key, value in group.items()})
    executor = symbol.bind(mx.cpu(), args, grads, {k: "write" if k in grads else "null" for k in args}, aux)
    outputs = executor.forward(is_train=True)
    head = [normal(*out.shape) for out in outputs]
    executor.backward([mx.nd.array(each) for each in head])
    mx.nd.waitall()
    for i, out in enumerate(outputs):
        arrays[f"{name}/out/{i}"], arrays[f"{name}/head/{i}"] = out.asnumpy(), head[i]
    for kind, group in (("grad", grads), ("aux_out", aux)):
        arrays.update({f"{name}/{kind}/{key}": value.asnumpy() for key, value in group.items()})
    return {
        "arguments": symbol.list_arguments(),
        "attrs": attrs,
        "aux": symbol.list_auxiliary_states(),
        "backward": True,
        "eval_too": False,
        "grads": wanted,
        "head_gradient": True,
        "inputs": plain,
        "is_train": True,
        "name": name,
        "op": op,
        "outputs": symbol.list_outputs(),
        "symbol_json": symbol.tojson(),
    }


def main():
    """Record every case."""
    groups = (deconvolutions, columns, resizes, spatial, correlations, sequences, others)
    arrays = {}
    entries = [record(*case, arrays) for group in groups for case in group()]
    (HERE / "spatial.json").write_text(json.dumps(entries, indent=1) + "\n")
    np.savez_compressed(HERE / "spatial.npz", **arrays)


if __name__ == "__main__":
    main()
