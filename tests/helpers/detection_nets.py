"""Small detection networks as published programs build them; `mx` is dpmodule or MXNet."""

import numpy as np


def _conv(mx, data, name, filters, step=1, kernel=3, act=True):
    how = {"kernel": (kernel,) * 2, "pad": (kernel // 2,) * 2, "stride": (step,) * 2}
    out = mx.sym.Convolution(data, num_filter=filters, name=name, **how)
    return mx.sym.Activation(out, act_type="relu") if act else out


def ssd(mx):
    """Return a single-shot detector with its training heads, and its input shapes."""
    sym = mx.sym
    label = sym.Variable("label")
    first = _conv(mx, sym.Variable("data"), "c1", 6, 4)
    second = _conv(mx, first, "c2", 6, 2)
    moves, scores, priors = [], [], []
    for i, (body, sizes) in enumerate([(first, (0.2, 0.272)), (second, (0.5, 0.6))]):
        body = sym.L2Normalization(body, mode="channel") if i == 0 else body
        for outs, name, filters in ((moves, "loc", 16), (scores, "cls", 16)):
            head = _conv(mx, body, f"{name}{i}", filters, act=False)
            outs.append(sym.Flatten(sym.transpose(head, axes=(0, 2, 3, 1))))
        prior = sym.contrib.MultiBoxPrior(body, sizes=str(sizes), ratios="(1,2,0.5)", clip=False)
        priors.append(sym.Flatten(prior))
    moves = sym.Concat(*moves, num_args=2, dim=1)
    scores = sym.Reshape(sym.Concat(*scores, num_args=2, dim=1), shape=(0, -1, 4))
    scores = sym.transpose(scores, axes=(0, 2, 1))
    priors = sym.Reshape(sym.Concat(*priors, num_args=2, dim=1), shape=(0, -1, 4))
    target = sym.contrib.MultiBoxTarget(priors, label, scores, negative_mining_ratio=3, name="target")
    how = {"ignore_label": -1, "use_ignore": True, "multi_output": True, "normalization": "valid"}
    prob = sym.SoftmaxOutput(data=scores, label=target[2], name="cls_prob", **how)
    loss = sym.smooth_l1(data=target[1] * (moves - target[0]), scalar=1.0)
    loss = sym.MakeLoss(loss, normalization="valid", name="loc_loss")
    found = sym.contrib.MultiBoxDetection(prob, moves, priors, nms_topk=20, name="detection")
    fixed = [sym.MakeLoss(data=x, grad_scale=0) for x in (target[2], found)]
    return sym.Group([prob, loss, *fixed]), {"data": (2, 3, 24, 24), "label": (2, 4, 6)}


def _proposals(mx, body, multi):
    sym = mx.sym
    rpn = _conv(mx, body, "rpn", 8)
    moves = _conv(mx, rpn, "rpn_bbox_pred", 24, kernel=1, act=False)
    prob = sym.Reshape(_conv(mx, rpn, "rpn_cls_score", 12, kernel=1, act=False), shape=(0, 2, -1, 0))
    prob = sym.Reshape(sym.SoftmaxActivation(prob, mode="channel"), shape=(0, 12, -1, 0))
    operator, info = getattr(sym.contrib, "MultiProposal" if multi else "Proposal"), sym.Variable("im_info")
    how = {"feature_stride": 16, "scales": (1, 2), "ratios": (0.5, 1, 2), "rpn_min_size": 4}
    how |= {"rpn_pre_nms_top_n": 60, "rpn_post_nms_top_n": 6}
    rois = operator(cls_prob=prob, bbox_pred=moves, im_info=info, name="rois", **how)
    return sym.BlockGrad(rois), moves


def _two_heads(mx, body):
    hidden = mx.sym.Activation(mx.sym.FullyConnected(body, num_hidden=8, name="fc6"), act_type="relu")
    return (mx.sym.FullyConnected(hidden, num_hidden=n, name=k) for n, k in ((4, "score"), (16, "move")))


def _faster_pool(mx, body, rois):
    pool = mx.sym.ROIPooling(body, rois, pooled_size=(3, 3), spatial_scale=0.0625)
    return _two_heads(mx, mx.sym.Flatten(pool))


def _rfcn_pool(mx, body, rois):
    for name, depth in (("score", 4), ("move", 16)):
        maps = _conv(mx, body, name, 9 * depth, kernel=1, act=False)
        how = {"group_size": 3, "pooled_size": 3, "output_dim": depth, "spatial_scale": 0.0625}
        bins = mx.sym.contrib.PSROIPooling(maps, rois, **how)
        mean = mx.sym.Pooling(bins, pool_type="avg", global_pool=True, kernel=(3, 3))
        yield mx.sym.Reshape(mean, shape=(-1, depth))


def _deformable_pool(mx, body, rois):
    sym = mx.sym
    offset = sym.Convolution(body, kernel=(3, 3), pad=(2, 2), dilate=(2, 2), num_filter=36, name="offset")
    how = {"num_filter": 8, "pad": (2, 2), "kernel": (3, 3), "dilate": (2, 2), "num_deformable_group": 2}
    body = sym.contrib.DeformableConvolution(data=body, offset=offset, no_bias=True, name="deformable", **how)
    common = {"group_size": 1, "pooled_size": 3, "part_size": 3, "sample_per_part": 2, "output_dim": 8}
    pool = sym.contrib.DeformablePSROIPooling
    still = pool(data=body, rois=rois, no_trans=True, spatial_scale=0.0625, **common)
    moves = sym.Reshape(sym.FullyConnected(still, num_hidden=18, name="moves"), shape=(-1, 2, 3, 3))
    moved = pool(data=body, rois=rois, trans=moves, trans_std=0.1, spatial_scale=0.0625, **common)
    return _two_heads(mx, moved)


def region_net(mx, pool, multi=False):
    """Return a network with proposals and the heads that `pool` makes, and its input shapes."""
    sym = mx.sym
    body = _conv(mx, _conv(mx, sym.Variable("data"), "c1", 8, 4), "c2", 8, 4)
    rois, moves = _proposals(mx, body, multi)
    scores, bbox = pool(mx, body, rois)
    prob = sym.SoftmaxOutput(scores, sym.Variable("roi_label"), normalization="valid", name="cls_prob")
    wrong = sym.smooth_l1(bbox - sym.Variable("bbox_target"), scalar=1.0)
    loss = sym.MakeLoss(sym.Variable("bbox_weight") * wrong, grad_scale=0.125)
    rpn_loss = sym.MakeLoss(sym.smooth_l1(moves, scalar=3.0), grad_scale=0.01)
    count = 2 if multi else 1
    return sym.Group([prob, loss, rpn_loss, rois]), {"data": (count, 3, 64, 80), "im_info": (count, 3)}


NETS = {
    "ssd": ssd, "faster_rcnn": lambda mx: region_net(mx, _faster_pool),
    "faster_rcnn_batch": lambda mx: region_net(mx, _faster_pool, multi=True),
    "rfcn": lambda mx: region_net(mx, _rfcn_pool), "deformable": lambda mx: region_net(mx, _deformable_pool),
}  # fmt: skip


def fill(name, shape, random):
    """Return the values of an argument."""
    if name == "label":
        value = np.full(shape, -1.0)
        value[0, :2] = [[1, 0.1, 0.2, 0.5, 0.6, 0], [2, 0.4, 0.4, 0.9, 0.95, 0]]
        value[1, 0] = [0, 0.0, 0.1, 0.3, 0.4, 0]
        return value
    if name == "im_info":
        return np.tile([64.0, 80.0, 1.0], (shape[0], 1))
    if name == "roi_label":
        return random.randint(0, 4, shape)
    scale = 1.0 if name == "data" else 0.2 if name.endswith("_weight") and name != "bbox_weight" else 0.3
    return scale * random.standard_normal(shape)
