"""Record what MXNet 1.9.1 computes for detection: regions, boxes, anchors, proposals, deformable operators.

Run beside this file in an environment with MXNet: ``python make_detection.py``. It writes `detection.json` and
`.npz`; the format is told in README.md. Boxes and scores tie in every second case.
"""

import json
from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).parent
rng = np.random.RandomState(11)


def normal(*shape):
    """Return standard normal float32 values."""
    return rng.standard_normal(shape).astype("f4")


def regions(count, images, width, height, beyond=False):
    """Return regions of interest; some reach beyond the image, or have their corners swapped, if `beyond`."""
    corners = rng.rand(count, 4) * [width, height, width, height]
    if beyond:
        corners = corners * 1.5 - 0.25 * np.array([width, height, width, height])
    else:
        corners = np.concatenate(
            [np.minimum(corners[:, :2], corners[:, 2:]), np.maximum(corners[:, :2], corners[:, 2:]) + 1], 1
        )
    return np.concatenate([rng.randint(0, images, (count, 1)), corners], 1).astype("f4")


def boxes(*shape, ties=False):
    """Return boxes given by corners."""
    centre, size = rng.rand(*shape, 2), rng.rand(*shape, 2) * 0.6 + 0.1
    found = np.concatenate([centre - size / 2, centre + size / 2], -1)
    return (np.round(found * 8) / 8 if ties else found).astype("f4")


def pooling():
    """Yield every way to pool or read regions."""
    for number in range(4):
        rois = regions(6, 2, 20, 16, beyond=number % 2 == 1)
        attrs = {"pooled_size": (2, 3), "spatial_scale": 0.5} if number < 2 else {}
        attrs = attrs or {"pooled_size": (7, 5), "spatial_scale": 0.3}
        yield f"roi_max_{number}", "ROIPooling", attrs, {"data": normal(2, 3, 8, 10), "rois": rois}, ["data"]
        for ratio, apart, aligned in ((-1, False, False), (2, True, False), (0, False, True), (-1, True, True))[
            number : number + 1
        ]:
            size = (2, 2) if apart else (3, 2)
            more = {"sample_ratio": ratio, "position_sensitive": apart, "aligned": aligned}
            attrs = {"pooled_size": size, "spatial_scale": 0.5, **more}
            own = regions(5, 2, 20, 16, beyond=not aligned)
            inputs = {"data": normal(2, 8, 8, 10), "rois": own}
            yield f"roi_align_{number}", "_contrib_ROIAlign", attrs, inputs, ["data"]
        turned = np.concatenate(
            [rng.randint(0, 2, (5, 1)), rng.rand(5, 4) * [20, 16, 12, 10], rng.rand(5, 1) * 360 - 180], 1
        )
        attrs = {"pooled_size": (3, 2), "spatial_scale": 0.5, "sampling_ratio": number - 1}
        inputs = {"data": normal(2, 2, 8, 10), "rois": turned.astype("f4")}
        yield f"roi_rotated_{number}", "_contrib_RROIAlign", attrs, inputs, []
        group = (0, 3, 2, 4)[number]
        attrs = {"spatial_scale": 0.5, "output_dim": 2, "pooled_size": 3, "group_size": group}
        inputs = {"data": normal(2, 2 * (group or 3) ** 2, 8, 10), "rois": rois}
        yield f"psroi_{number}", "_contrib_PSROIPooling", attrs, inputs, ["data"]
        attrs = {"spatial_scale": 0.5, "output_dim": 4, "pooled_size": 3, "group_size": (3, 2, 1, 3)[number]}
        attrs.update(part_size=(0, 2, 3, 3)[number], sample_per_part=number + 1, trans_std=0.2)
        attrs["no_trans"] = number == 3
        inputs = {"data": normal(2, 4 * attrs["group_size"] ** 2, 8, 10), "rois": rois}
        if number < 3:
            parts = attrs["part_size"] or 3
            inputs["trans"] = normal(6, (2, 4, 8)[number], parts, parts)
        grads = [key for key in inputs if key != "rois"]
        yield f"deformable_psroi_{number}", "_contrib_DeformablePSROIPooling", attrs, inputs, grads


def deformable():
    """Yield deformable convolutions with groups, steps and no bias; the modulated ones have no gradient."""
    for number, (groups, own, bias) in enumerate([(1, 1, True), (2, 2, False), (1, 3, True)]):
        attrs = {"kernel": (3, 2), "stride": (1, 2), "dilate": (2, 1), "pad": (2, 1), "num_filter": 4}
        attrs.update(num_group=groups, num_deformable_group=own, no_bias=not bias)
        inputs = {"data": normal(2, 6, 6, 7), "offset": 2 * normal(2, 12 * own, 6, 4)}
        last = {"weight": normal(4, 6 // groups, 3, 2), **({"bias": normal(4)} if bias else {})}
        every = {**inputs, **last}
        yield f"deformable_{number}", "_contrib_DeformableConvolution", attrs, every, sorted(every)
        if own == 3:
            # MXNet's modulated form wants num_filter to be a multiple of the groups
            attrs = {**attrs, "num_filter": 3}
            last = {key: value[:3] for key, value in last.items()}
        every = {**inputs, "mask": rng.rand(2, 6 * own, 6, 4).astype("f4"), **last}
        yield f"modulated_{number}", "_contrib_ModulatedDeformableConvolution", attrs, every, []


def anchors():
    """Yield priors, targets and detections."""
    for number in range(6):
        ties = number % 2 == 1
        attrs = {"sizes": (0.3, 0.6)[: 1 + number % 2], "ratios": (2, 1, 0.5)[: 1 + number // 2]}
        attrs.update(clip=number == 3, steps=(0.3, 0.2) if number == 4 else (-1, -1), offsets=(0.5, 0.3))
        yield f"prior_{number}", "_contrib_MultiBoxPrior", attrs, {"data": normal(1, 1, 3, 2)}, []
        labels = np.full((3, 4, 5 + ties), -1, "f4")
        for row, count in zip(labels, (3, 0, 4)):
            row[:count, 0], row[:count, 1:5] = rng.randint(0, 3, count), boxes(count, ties=ties)
        attrs = {"overlap_threshold": (0.5, 0.3, 0.5, 0.2, 0, 0.4)[number], "ignore_label": -1 - ties}
        attrs.update(negative_mining_ratio=(-1, 2, 1.5, 3, 1, 1)[number], negative_mining_thresh=0.6)
        scores = normal(3, 4, 30)
        inputs = {"anchor": boxes(1, 30, ties=ties), "label": labels}
        inputs["cls_pred"] = np.round(scores) if ties else scores
        yield f"target_{number}", "_contrib_MultiBoxTarget", attrs, inputs, []
        scores = np.exp(2 * normal(2, 4, 40))
        scores /= scores.sum(1, keepdims=True)
        attrs = {"clip": not ties, "threshold": 0.3, "nms_threshold": (0.5, 0.3, 0, 0.2, 1.5, 1)[number]}
        attrs.update(force_suppress=number in (0, 3), nms_topk=(-1, 5, 3, 12, 0, 100)[number])
        inputs = {"cls_prob": np.round(scores * 10) / 10 if ties else scores}
        inputs.update(loc_pred=0.7 * normal(2, 160), anchor=boxes(1, 40, ties=ties))
        yield f"detection_{number}", "_contrib_MultiBoxDetection", attrs, inputs, []


def pairs():
    """Yield suppression, overlap, matching, encoding and decoding."""
    for number in range(6):
        ties = number % 2 == 1
        corner = boxes(2, 25, ties=ties)
        kinds = ("corner", "center", "corner")[number % 3], ("corner", "corner", "center")[number // 2]
        if kinds[0] == "center":
            corner[..., 2:] -= corner[..., :2]
        score = rng.rand(2, 25, 1)
        # where gradients are recorded, classes lie between integers, at which they change
        kind = rng.randint(-1, 3, (2, 25, 1)) if ties else rng.randint(0, 3, (2, 25, 1)) + 0.5
        parts = [kind, np.round(score * 10) / 10 if ties else score, corner]
        attrs = {"overlap_thresh": 0.3, "valid_thresh": 0.2, "topk": (-1, 4, 12, -1, 0, 100)[number]}
        attrs.update(id_index=(0, -1, 0, 0, 0, 0)[number], background_id=(1, -1, -1, 0, 1, -1)[number])
        attrs.update(force_suppress=number == 2, in_format=kinds[0], out_format=kinds[1])
        inputs = {"data": np.concatenate([p.astype("f4") for p in parts], -1)}
        grads = ["data"] if kinds[0] == kinds[1] and not ties else []
        yield f"nms_{number}", "_contrib_box_nms", attrs, inputs, grads
        scores = rng.rand(2, 5, 4)
        attrs = {"threshold": 0.3, "is_ascend": number in (1, 2), "topk": (-1, 1, 2, -1, 0, 1)[number]}
        inputs = {"data": (np.round(scores * 5) / 5 if ties else scores).astype("f4")}
        yield f"matching_{number}", "_contrib_bipartite_matching", attrs, inputs, []
    for kind in ("corner", "center"):
        inputs = {"lhs": boxes(2, 3), "rhs": boxes(2, 2)}
        yield f"iou_{kind}", "_contrib_box_iou", {"format": kind}, inputs, []
        attrs = {"std0": 0.1, "std1": 0.2, "std2": 0.3, "std3": 0.4, "format": kind, "clip": 0.2}
        inputs = {"data": normal(2, 4, 4), "anchors": boxes(1, 4)}
        yield f"decode_{kind}", "_contrib_box_decode", attrs, inputs, []
    inputs = {"samples": np.array([[1, 0, -1, 1]] * 2, "f4"), "matches": np.array([[2, 0, 1, 1]] * 2, "f4")}
    inputs.update(anchors=boxes(2, 4), refs=boxes(2, 3), means=normal(4), stds=np.full(4, 0.3, "f4"))
    yield "encode", "_contrib_box_encode", {}, inputs, []


def proposals():
    """Yield proposals with too few and too many boxes, for one image and for three."""
    for number in range(6):
        images = 1 if number < 3 else 3
        attrs = {"rpn_pre_nms_top_n": (40, -1, 12)[number % 3], "rpn_post_nms_top_n": (6, 30, 5)[number % 3]}
        attrs.update(threshold=0.5, rpn_min_size=(4, 0, 16)[number % 3], scales=(1.5, 3), ratios=(0.5, 1, 2))
        attrs.update(feature_stride=8, output_score=number % 2 == 1, iou_loss=number in (2, 4))
        info = np.array([[32, 40, 1], [30, 33, 1.5], [32, 24, 1]], "f4")[:images]
        inputs = {"cls_prob": rng.rand(images, 12, 4, 5).astype("f4")}
        inputs.update(bbox_pred=(10 if attrs["iou_loss"] else 0.3) * normal(images, 24, 4, 5), im_info=info)
        op = "_contrib_Proposal" if images == 1 else "_contrib_MultiProposal"
        yield f"proposal_{number}", op, attrs, inputs, []


def record(name, op, attrs, inputs, wanted, arrays):
    """Run one case, add its arrays, and return its entry."""
    made = getattr(mx.sym.contrib, op[9:]) if op.startswith("_contrib_") else getattr(mx.sym, op)
    symbol = made(*[mx.sym.Variable(key) for key in inputs], name="op", **attrs)
    args = {key: mx.nd.array(value) for key, value in inputs.items()}
    grads = {key: mx.nd.zeros(args[key].shape) for key in wanted}
    arrays.update({f"{name}/in/{key}": value.asnumpy() for key, value in args.items()})
    executor = symbol.bind(mx.cpu(), args, grads or None, {k: "write" if k in grads else "null" for k in args})
    outputs = executor.forward(is_train=bool(grads))
    arrays.update({f"{name}/out/{i}": out.asnumpy() for i, out in enumerate(outputs)})
    if grads:
        head = [normal(*out.shape) for out in outputs]
        executor.backward([mx.nd.array(each) for each in head])
        arrays.update({f"{name}/head/{i}": each for i, each in enumerate(head)})
        arrays.update({f"{name}/grad/{key}": value.asnumpy() for key, value in grads.items()})
    return {
        "arguments": symbol.list_arguments(),
        "attrs": attrs,
        "aux": symbol.list_auxiliary_states(),
        "backward": bool(grads),
        "eval_too": False,
        "grads": wanted,
        "head_gradient": bool(grads),
        "inputs": list(inputs),
        "is_train": bool(grads),
        "name": name,
        "op": op,
        "outputs": symbol.list_outputs(),
        "symbol_json": symbol.tojson(),
    }


def main():
    """Record every case."""
    arrays = {}
    groups = (pooling, deformable, anchors, pairs, proposals)
    entries = [record(*case, arrays) for group in groups for case in group()]
    (HERE / "detection.json").write_text(json.dumps(entries, indent=1) + "\n")
    np.savez_compressed(HERE / "detection.npz", **arrays)


if __name__ == "__main__":
    main()
