import importlib
import tracemalloc
from collections import OrderedDict

import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.executor import program
from helpers.switched import fired, same_with_and_without

S = mx.sym
NAME = "native_convolutions"
SHAPE = {"data": (2, 3, 16, 32)}
LANES = getattr(native.core, "conv3x3_lanes", lambda: 0)()
needs_kernels = pytest.mark.skipif(LANES == 0, reason="there are no kernels")


@pytest.fixture
def convolved(monkeypatch):
    """Note the steps of the convolutions that the kernels run."""
    steps, module = [], importlib.import_module("dpmodule.executor.passes.native_convolutions")
    train = module.train_convolution
    monkeypatch.setattr(
        module, "train_convolution", lambda *args: steps.append(args[3].stride[0]) or train(*args)
    )
    return steps


@pytest.fixture
def small_only(monkeypatch):
    """Leave only the kernels for 3x3 windows."""
    monkeypatch.setattr("dpmodule.ops.nn.trained_convolution.has_tiles", lambda: False)


@pytest.fixture
def converts(monkeypatch):
    """Convert data in the usual layout, or not, and note the sizes for which it is asked."""

    def choose(does):
        asked, trained = [], "dpmodule.ops.nn.trained_convolution"
        monkeypatch.setattr(f"{trained}.pays", lambda _, sizes: asked.append(sizes) or does)
        monkeypatch.setattr(f"{trained}.predict", lambda *_: 1.0)
        monkeypatch.setattr(program, "_cache", OrderedDict())  # programs of other tests have chosen
        return asked

    return choose


def layer(value, name, **attrs):
    return S.Convolution(value, name=name, **{"kernel": (3, 3), "pad": (1, 1), "num_filter": 16, **attrs})


def net(**attrs):
    value = layer(S.Variable("data"), "first", no_bias=True)
    value = S.Activation(S.BatchNorm(value, fix_gamma=False, name="norm"), act_type="relu")
    return S.MakeLoss(S.square(layer(value, "second", **attrs)), name="loss")


@needs_kernels
@pytest.mark.parametrize("attrs", [{}, {"stride": (2, 2), "no_bias": True}], ids=["1", "2"])
@pytest.mark.parametrize("off", [(), ("channels_last",)])
def test_results_are_those_without(attrs, off, convolved):
    counts = same_with_and_without(net(**attrs), SHAPE, NAME, *off, rtol=1e-4, grad_req="add")
    assert counts[NAME] == 2
    assert set(convolved) == {1, attrs.get("stride", (1,))[0]}


@needs_kernels
def test_one_channel_alone_keeps_the_usual_layout(convolved, converts):
    converts(False)
    data, first = (
        {"data": (4, 1, 56, 56)},
        layer(S.Variable("data"), "first", kernel=(1, 1), pad=(), num_filter=128),
    )
    assert same_with_and_without(S.MakeLoss(first, name="loss"), data, NAME, rtol=1e-4)[NAME] == 1
    assert not convolved
    loss = S.MakeLoss(layer(first, "second"), name="loss")
    same_with_and_without(loss, data, NAME, rtol=1e-4, grad_req="add")
    assert len(convolved) >= 2


def sequence_net(axes, **attrs):
    value = S.transpose(S.Variable("data"), axes=axes) if axes else S.Variable("data")
    value = S.relu(S.Convolution(value, name="first", num_filter=24, **attrs))
    return S.MakeLoss(S.square(S.Convolution(value, name="second", kernel=(1,), num_filter=16)), name="loss")


@needs_kernels
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel": (3,), "pad": (1,), "layout": "NCW"},
        {"kernel": (4,), "stride": (2,), "no_bias": True},
        {"kernel": (3,), "dilate": (2,), "pad": (3,)},
    ],
    ids=["padded", "strided", "dilated"],
)
def test_results_for_sequences_are_those_without(attrs, convolved):
    net = sequence_net((0, 2, 1), **attrs)
    counts = same_with_and_without(net, {"data": (4, 60, 40)}, NAME, rtol=1e-4, grad_req="add")
    assert counts[NAME] == 2
    assert len(convolved) >= 2


@needs_kernels
@pytest.mark.parametrize("does", [False, True])
def test_data_in_the_usual_layout_is_converted_for_a_gain(does, convolved, converts):
    converts(does)
    image = S.MakeLoss(layer(S.Variable("data"), "only", kernel=(5, 5)), name="loss")
    for symbol, shape in ((sequence_net((), kernel=(3,)), (4, 40, 60)), (image, (8, 16, 20, 20))):
        same_with_and_without(symbol, {"data": shape}, NAME, rtol=1e-4, grad_req="add")
        assert bool(convolved) == does
        convolved.clear()


@needs_kernels
def test_data_is_also_converted_in_training_mode_without_gradients(convolved):
    image = S.MakeLoss(layer(S.Variable("data"), "only"), name="loss")
    for symbol, shape in ((image, (2, 8, 14, 14)), (sequence_net((), kernel=(3,)), (4, 40, 60))):
        same_with_and_without(symbol, {"data": shape}, NAME, rtol=1e-4, grad_req="null")
        assert convolved
        convolved.clear()


@needs_kernels
@pytest.mark.parametrize("wanted", ["null", "add"])
def test_the_choice_depends_on_the_gradient_of_the_data(wanted, converts):
    asked = converts(True)
    net = S.MakeLoss(layer(S.Variable("data"), "only", kernel=(5, 5)), name="loss")
    requests = {"data": wanted, "only_weight": "write", "only_bias": "add"}
    same_with_and_without(net, {"data": (8, 3, 20, 20)}, NAME, rtol=1e-4, grad_req=requests)
    assert {sizes[-1] for sizes in asked} == {wanted != "null"}


@pytest.fixture
def convolved_by_channel(monkeypatch):
    """Note the windows of the depthwise convolutions that the kernels run."""
    grids, module = [], importlib.import_module("dpmodule.executor.passes.native_convolutions")
    convolve = module.convolve_depthwise
    monkeypatch.setattr(module, "convolve_depthwise", lambda *args: grids.append(args[3]) or convolve(*args))
    return grids


@needs_kernels
@pytest.mark.parametrize(
    "attrs", [{}, {"stride": (2, 2), "kernel": (5, 3), "no_bias": True}], ids=["3x3", "5x3"]
)
@pytest.mark.parametrize("off", [(), ("channels_last",)])
def test_depthwise_results_are_those_without(attrs, off, convolved_by_channel):
    counts = same_with_and_without(net(num_group=16, **attrs), SHAPE, NAME, *off, rtol=1e-4, grad_req="add")
    assert counts[NAME] == 2
    assert {grid.kernel for grid in convolved_by_channel} == {attrs.get("kernel", (3, 3))}


OTHERS = [("dilate", (2, 2)), ("pad", (0, 0)), ("stride", (1, 2)), ("stride", (3, 3)), ("kernel", (1, 1))]


@pytest.mark.usefixtures("small_only")
def test_other_windows_are_left_alone():
    for each in [("num_group", 2), *OTHERS]:
        assert fired(net(**dict([each])), SHAPE)[NAME] == 1, each


@needs_kernels
@pytest.mark.parametrize("each", OTHERS, ids=lambda each: f"{each[0]}{each[1][0]}")
def test_tiles_compute_them(each, convolved):
    counts = same_with_and_without(net(**dict([each])), SHAPE, NAME, rtol=1e-4, grad_req="add")
    assert counts[NAME] == 2
    assert len(convolved) >= 2


def generator(**attrs):
    value = S.Deconvolution(S.Variable("data"), name="first", kernel=(4, 4), num_filter=16, **attrs)
    value = S.relu(S.BatchNorm(value, fix_gamma=False, name="norm"))
    attrs = {**attrs, "no_bias": False}
    return S.MakeLoss(S.square(S.Deconvolution(value, name="second", kernel=(4, 4), num_filter=5, **attrs)))


@needs_kernels
@pytest.mark.parametrize(
    "attrs",
    [{}, {"stride": (2, 2), "pad": (1, 1), "adj": (1, 0)}, {"target_shape": (40, 60), "stride": (2, 2)}],
)
def test_transposed_convolutions_are_those_without(attrs, monkeypatch):
    shapes, module = [], importlib.import_module("dpmodule.executor.passes.native_convolutions")
    train = module.train_deconvolution
    monkeypatch.setattr(module, "train_deconvolution", lambda *args: shapes.append(args[3]) or train(*args))
    if "target_shape" in attrs:
        value = S.relu(S.Deconvolution(S.Variable("data"), name="one", kernel=(4, 4), num_filter=8, **attrs))
        net = S.MakeLoss(S.square(S.BatchNorm(value, fix_gamma=False, name="norm")))
    else:
        net = generator(**attrs)
    counts = same_with_and_without(net, {"data": (4, 6, 20, 32)}, NAME, rtol=2e-4, grad_req="add")
    assert counts[NAME] == len({*shapes}) > 0


@needs_kernels
@pytest.mark.parametrize("attrs", [{}, {"stride": (2, 2), "pad": (1, 1), "adj": (1, 0)}])
def test_transposed_convolutions_of_few_pixels_are_products(attrs, monkeypatch):
    module = importlib.import_module("dpmodule.executor.passes.native_convolutions")
    chosen, train = [], module.train_deconvolution
    monkeypatch.setattr(module, "train_deconvolution", lambda *args: chosen.append(args[5]) or train(*args))
    layer = S.Deconvolution(
        S.Variable("data"), name="one", kernel=(4, 4), num_filter=96, no_bias=False, **attrs
    )
    net = S.MakeLoss(S.square(S.BatchNorm(layer, fix_gamma=False, name="norm")))
    counts = same_with_and_without(net, {"data": (2, 128, 2, 3)}, NAME, rtol=2e-4, grad_req="add")
    assert counts[NAME] == 1
    assert chosen[0] == ("rows", "rows", "rows")


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_have_the_same_bits(dtype, convolved):
    one = S.MakeLoss(layer(S.Variable("data"), "c"))
    assert same_with_and_without(one, SHAPE, NAME, rtol=0, dtype=dtype)[NAME] == 1
    assert not convolved


def test_the_choices_for_many_sizes_are_forgotten():
    net = mx.sym.Convolution(
        mx.sym.Variable("data"), num_filter=4, kernel=(3, 3), pad=(1, 1), name="forgetful"
    )
    net = mx.sym.Deconvolution(net, num_filter=2, kernel=(2, 2), stride=(2, 2), name="forgetful_too")
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (1, 2, 8, 8))])
    module.init_params()
    here = tracemalloc.Filter(True, "*/executor/passes/*convolutions.py")
    counts = []
    tracemalloc.start()
    try:
        for height in (8, 9):
            for width in range(150):
                module.forward(mx.io.DataBatch([mx.nd.ones((1, 2, height, 9 + width))]), is_train=True)
            found = tracemalloc.take_snapshot().filter_traces([here]).statistics("filename")
            counts.append(sum(each.count for each in found))
    finally:
        tracemalloc.stop()
    assert counts[1] < 1.5 * counts[0]  # it doubles if nothing is forgotten
