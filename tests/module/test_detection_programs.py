"""A small Faster R-CNN as detection programs of 2016 to 2019 write one, with a module and executors of its own.

Proposals from an operator, targets from an operator in Python, losses reshaped before they are grouped, one list of
shapes per device, batches of changing size. Figures were recorded by running this file's `train` with MXNet 1.9.1.
"""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import ndarray as nd
from dpmodule import optimizer as opt
from dpmodule.io import DataBatch, DataDesc
from dpmodule.model import _create_kvstore, _initialize_kvstore, _update_params, _update_params_on_kvstore
from dpmodule.module.base_module import BaseModule, _check_input_names, _parse_data_desc
from dpmodule.module.executor_group import _load_general, _merge_multi_context

INPUTS = ["data", "im_info", "gt_boxes"]
LABELS = ["label", "bbox_target", "bbox_weight"]
ANCHORS, CLASSES, ROIS = 4, 3, 8


class Target(mx.operator.CustomOp):
    """Label every proposal with the box it overlaps most."""

    def forward(self, is_train, req, in_data, out_data, aux):
        rois, boxes = in_data[0].asnumpy()[:ROIS], in_data[1].asnumpy()
        low, high = np.maximum(rois[:, None, 1:3], boxes[:, :2]), np.minimum(rois[:, None, 3:], boxes[:, 2:4])
        inter = np.prod(np.maximum(high - low + 1, 0), axis=2)
        own, theirs = rois[:, 3:] - rois[:, 1:3] + 1, boxes[:, 2:4] - boxes[:, :2] + 1
        areas = own.prod(axis=1)[:, None] + theirs.prod(axis=1)
        best, overlap = inter.argmax(axis=1), (inter / (areas - inter)).max(axis=1)
        label = np.where(overlap > 0.2, boxes[best, 4], 0)
        weight = np.repeat(np.eye(CLASSES)[label.astype(int)] * (label > 0)[:, None], 4, axis=1)
        shift = np.tile((boxes[best, :4] - rois[:, 1:]) / 16, CLASSES)
        for i, value in enumerate([rois, label, shift * weight, weight]):
            self.assign(out_data[i], req[i], value)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        for i, each in enumerate(in_grad):
            self.assign(each, req[i], 0)


@mx.operator.register("tests_detection_target")
class TargetProp(mx.operator.CustomOpProp):
    def __init__(self, count, scales="(1,)"):
        super().__init__(need_top_grad=False)
        self.count, self.scales = int(count), np.fromstring(scales[1:-1], sep=",")

    def list_arguments(self):
        return ["rois", "gt_boxes"]

    def list_outputs(self):
        return ["rois_output", "label", "bbox_target", "bbox_weight"]

    def infer_shape(self, in_shape):
        wide = (self.count, 4 * CLASSES)
        return in_shape, [(self.count, 5), (self.count,), wide, wide]

    def create_operator(self, ctx, shapes, dtypes):
        assert self.scales.tolist() == [1, 2]
        return Target()

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return []


def network():
    data, info, boxes = (mx.sym.Variable(name) for name in INPUTS)
    label, target, weight = (mx.sym.Variable(name) for name in LABELS)
    feat = data
    for i in range(3):
        size = {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1)}
        feat = mx.sym.Convolution(feat, num_filter=8, name=f"conv{i}", **size)
        feat = mx.sym.Activation(feat, act_type="relu", name=f"relu{i}")
    score = mx.sym.Convolution(feat, num_filter=2 * ANCHORS, kernel=(1, 1), name="rpn_cls_score")
    delta = mx.sym.Convolution(feat, num_filter=4 * ANCHORS, kernel=(1, 1), name="rpn_bbox_pred", lr_mult=2.0)
    pairs = mx.sym.Reshape(score, shape=(0, 2, -1, 0), name="rpn_cls_score_reshape")
    valid = {"multi_output": True, "normalization": "valid", "use_ignore": True, "ignore_label": -1}
    rpn = mx.sym.SoftmaxOutput(pairs, label, name="rpn_cls_prob", **valid)
    diff = weight * mx.sym.smooth_l1(delta - target, scalar=3.0)
    rpn_loss = mx.sym.MakeLoss(diff, grad_scale=1 / 16, name="rpn_bbox_loss")
    prob = mx.sym.Reshape(mx.sym.SoftmaxActivation(pairs, mode="channel"), shape=(0, 2 * ANCHORS, -1, 0))
    rois = mx.contrib.symbol.Proposal(
        cls_prob=prob, bbox_pred=delta, im_info=info, name="rois", feature_stride=8, scales=(1, 2), ratios=(0.5, 2),
        rpn_pre_nms_top_n=60, rpn_post_nms_top_n=ROIS, threshold=0.7, rpn_min_size=2,
    )  # fmt: skip
    boxes = mx.sym.Reshape(boxes, shape=(-1, 5), name="gt_boxes_reshape")
    rois, label, target, weight = mx.sym.Custom(
        rois=rois, gt_boxes=boxes, op_type="tests_detection_target", count=ROIS, scales=(1, 2), name="targets"
    )
    pooled = mx.sym.ROIPooling(feat, rois, pooled_size=(3, 3), spatial_scale=1 / 8, name="roi_pool")
    logits = mx.sym.FullyConnected(pooled, num_hidden=CLASSES, name="cls_score")
    prob = mx.sym.SoftmaxOutput(logits, label, normalization="batch", name="cls_prob")
    delta = mx.sym.FullyConnected(pooled, num_hidden=4 * CLASSES, name="bbox_pred")
    diff = weight * mx.sym.smooth_l1(delta - target, scalar=1.0)
    loss = mx.sym.MakeLoss(diff, grad_scale=1 / ROIS, name="bbox_loss")
    prob = mx.sym.Reshape(prob, shape=(1, -1, CLASSES), name="cls_prob_reshape")
    loss = mx.sym.Reshape(loss, shape=(1, -1, 4 * CLASSES), name="bbox_loss_reshape")
    return mx.sym.Group([rpn, rpn_loss, prob, loss, mx.sym.BlockGrad(mx.sym.Reshape(label, shape=(1, -1)))])


def picture(rng, height, width):
    """Return inputs and labels of one picture with two bright squares, as arrays by name."""
    image, boxes = rng.rand(1, 3, height, width) * 0.1, []
    for kind in (1, 2):
        x, y, side = rng.randint(0, width - 16), rng.randint(0, height - 16), rng.randint(8, 16)
        image[0, kind, y : y + side, x : x + side] += 1
        boxes.append([x, y, x + side - 1, y + side - 1, kind])
    rows, cols = height // 8, width // 8
    weight = np.zeros((1, 4 * ANCHORS, rows, cols))
    label = rng.choice([-1, 0, 1], (1, ANCHORS * rows, cols), p=[0.5, 0.4, 0.1])
    weight[:, :4] = label.reshape(1, ANCHORS, rows, cols)[:, :1] == 1
    shift = rng.randn(*weight.shape) * 0.2
    values = [image, [[height, width, 1]], [boxes], label.reshape(1, -1), shift, weight]
    return [nd.array(np.array(v, np.float32)) for v in values]


def batches(count, shapes):
    """Return batches with a picture for each device."""
    rng, found = np.random.RandomState(3), []
    for i in range(6):
        parts = [picture(rng, *shapes[i % len(shapes)]) for _ in range(count)]
        data, label = [p[:3] for p in parts], [p[3:] for p in parts]
        described = [[[(n, a.shape) for n, a in zip(names, p)] for p in side]
                     for names, side in ((INPUTS, data), (LABELS, label))]  # fmt: skip
        found.append(DataBatch(data, label, provide_data=described[0], provide_label=described[1]))
    return found


def values(net, shapes):
    """Return first values of the parameters, the same for every library."""
    found, _, _ = net.infer_shape(**shapes)
    rng = np.random.RandomState(5)
    drawn = {n: rng.randn(*s) * 0.3 for n, s in zip(net.list_arguments(), found)}
    return {n: nd.array(v * (not n.endswith("bias"))) for n, v in drawn.items() if n not in shapes}


class Detector(BaseModule):
    """One executor a device; shapes and batches are lists over devices; a new shape binds anew."""

    def __init__(self, net, contexts, fixed=()):
        super().__init__()
        self._symbol, self._contexts = net, contexts
        for names, kind in ((INPUTS, "data"), (LABELS, "label"), (list(fixed), "fixed_param")):
            _check_input_names(net, names, kind, True)
        self._names = [n for n in net.list_arguments() if n not in INPUTS + LABELS]
        self._fixed, self._execs = set(fixed), []

    output_names = property(lambda self: self._symbol.list_outputs())

    def bind(self, data_shapes, label_shapes=None, for_training=True, **kwargs):
        described = [_parse_data_desc(INPUTS, LABELS, d, lab) for d, lab in zip(data_shapes, label_shapes)]
        old, self._execs = self._execs, []
        trained = [n for n in self._names if n not in self._fixed]
        req = {n: "write" if n in trained else "null" for n in self._symbol.list_arguments()}
        for k, (data, label) in enumerate(described):
            shapes = dict(data + label)
            found, _, _ = self._symbol.infer_shape(**shapes)
            sizes = dict(zip(self._symbol.list_arguments(), found))
            share, ctx = old[k] if old else None, self._contexts[k]
            kept = share.arg_dict if share else {}
            args = {n: kept[n] if share and n in self._names else nd.zeros(s, ctx) for n, s in sizes.items()}
            grads = {n: share.grad_dict[n] if share else nd.zeros(sizes[n], ctx) for n in trained}
            self._execs.append(self._symbol.bind(ctx, args, grads, req, aux_states=[], shared_exec=share))
        self._data_shapes = [dict(d) for d, _ in described]
        self.binded, self.for_training = True, for_training

    def init_params(self, arg_params, **kwargs):
        for executor in self._execs:
            executor.copy_params_from(arg_params, {})
        self._arg_params, self.params_initialized = arg_params, True

    def init_optimizer(self, kvstore="local", optimizer="sgd", optimizer_params=(), force_init=False):
        self._kvstore, self._on_store = _create_kvstore(kvstore, len(self._contexts), self._arg_params)
        devices = 1 if self._on_store else len(self._contexts)
        names = {i * devices + k: n for i, n in enumerate(self._names) for k in range(devices)}
        optimizer = opt.create(optimizer, sym=self._symbol, param_idx2name=names, **dict(optimizer_params))
        if self._kvstore:
            _initialize_kvstore(self._kvstore, self._arrays(), self._arg_params, self._names, self._on_store)
        if self._on_store:
            self._kvstore.set_optimizer(optimizer)
        else:
            self._updater = opt.get_updater(optimizer)
        self.optimizer_initialized = True

    def _arrays(self, kind="arg_dict"):
        return [[getattr(e, kind).get(n) for e in self._execs] for n in self._names]

    def forward(self, data_batch, is_train=None):
        if [dict(d) for d in data_batch.provide_data] != self._data_shapes:
            self.bind(data_batch.provide_data, data_batch.provide_label)
        for names, side in ((INPUTS, data_batch.data), (LABELS, data_batch.label)):
            targets = [[e.arg_dict[n] for n in names] for e in self._execs]
            _load_general(side, targets, [0] * len(targets))
        for executor in self._execs:
            executor.forward(is_train=is_train)

    def backward(self, out_grads=None):
        for executor in self._execs:
            executor.backward(out_grads=[])

    def update(self):
        weights, grads = self._arrays(), self._arrays("grad_dict")
        if self._on_store:
            _update_params_on_kvstore(weights, grads, self._kvstore, self._names)
        else:
            _update_params(weights, grads, self._updater, len(self._contexts), self._kvstore, self._names)

    def get_outputs(self, merge_multi_context=True):
        axes = [DataDesc.get_batch_axis(self._symbol[n].attr("__layout__")) for n in self.output_names]
        return _merge_multi_context([[e.outputs[i] for e in self._execs] for i in range(len(axes))], axes)

    def get_params(self):
        pairs = zip(self._names, self._arrays())
        return {n: sum(w.copyto(mx.cpu()) for w in ws) / len(ws) for n, ws in pairs}, {}

    def update_metric(self, eval_metric, labels, pre_sliced=False):
        for executor, own in zip(self._execs, labels):
            eval_metric.update(own, executor.outputs)

    data_names = data_shapes = label_shapes = output_shapes = property(lambda self: None)
    get_input_grads = install_monitor = None


class Loss(mx.metric.EvalMetric):
    """Mean logarithm of the true class's probability over proposals, and mean box loss."""

    def __init__(self):
        super().__init__("loss")

    def update(self, labels, preds):
        truth = preds[4].asnumpy().astype(int).ravel()
        prob = preds[2].asnumpy().reshape(-1, CLASSES)[np.arange(len(truth)), truth]
        self.sum_metric += -np.log(prob + 1e-8).sum() + preds[1].asnumpy().sum() + preds[3].asnumpy().sum()
        self.num_inst += len(truth)


def train(count, kvstore, shapes, epochs=3):
    """Train on `count` devices; return the loss of every epoch and sums over parameters."""
    net, todo = network(), batches(count, shapes)
    first = todo[0]
    detector = Detector(net, [mx.cpu(k) for k in range(count)], fixed=["conv0_weight", "conv0_bias"])
    detector.bind(first.provide_data, first.provide_label)
    detector.init_params(values(net, dict(first.provide_data[0] + first.provide_label[0])))
    params = {"learning_rate": 0.05, "momentum": 0.9, "wd": 0.0005, "clip_gradient": 5}
    detector.init_optimizer(kvstore, "sgd", {**params, "rescale_grad": 1 / count})
    metric, losses = Loss(), []
    for _ in range(epochs):
        metric.reset()
        for batch in todo:
            detector.forward_backward(batch)
            detector.update()
            detector.update_metric(metric, batch.label)
        losses.append(metric.get()[1])
    assert detector.get_outputs()[2].shape == (count, ROIS, CLASSES)
    params = detector.get_params()[0]
    names = ("conv0_weight", "conv2_weight", "rpn_bbox_pred_weight", "cls_score_weight")
    return losses, [float(np.abs(params[n].asnumpy()).sum()) for n in names]


SAME, CHANGING = [(48, 64)], [(48, 64), (64, 48), (40, 56)]
RECORDED = {
    (1, 1): ([3.320087, 0.931224, 0.605527], [54.73433, 193.12895, 32.67915, 55.16677]),
    (1, 3): ([3.128344, 0.85547, 0.471667], [54.73433, 186.82852, 32.68301, 54.29118]),
    (2, 1): ([2.548084, 1.67135, 0.73229], [54.73433, 162.77625, 32.24767, 51.64109]),
    (2, 3): ([2.576564, 0.899221, 0.50952], [54.73433, 159.25815, 32.67736, 51.39907]),
}
"""Losses and sums for (devices, sizes of pictures), whichever store adds the gradients up."""


@pytest.mark.parametrize(("count", "kvstore"), [(1, None), (1, "device"), (2, "local"), (2, "device")])
@pytest.mark.parametrize("shapes", [SAME, CHANGING], ids=["same", "changing"])
def test_training_goes_as_with_mxnet(count, kvstore, shapes):
    losses, sums = train(count, kvstore, shapes)
    expected_losses, expected_sums = RECORDED[count, len(shapes)]
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-3)
    np.testing.assert_allclose(sums, expected_sums, rtol=1e-4)
