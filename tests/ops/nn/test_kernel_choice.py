"""Kernels and layouts of convolutions in prediction: the table that chooses them, and equal results by each."""

import importlib.util
import json
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.executor.passes.fused_convolutions import call
from dpmodule.ops.nn import kernel_choice, trained_convolution
from dpmodule.ops.nn.image_layers import TiledConvolution
from dpmodule.ops.nn.linear import kernels
from dpmodule.ops.nn.unfold import WindowGrid

ROOT = Path(__file__).parents[3]
TABLE = Path(kernel_choice.__file__).with_name("kernel_choices.json")
NAMES = [json.loads(line)[0] for line in TABLE.read_text(encoding="utf-8").splitlines()]
PREDICTING = [name for name in NAMES if name.split()[1] in ("tiles", "1", "default")]
LAYOUTS = [name for name in PREDICTING if "tiles" not in name]
PARTS = ("result", "for_data", "for_weight")
needs_tiles = pytest.mark.skipif(not trained_convolution.has_tiles(), reason="there are no tiles")


def predicted(name, shape, filters, kernel=3, stride=1, groups=1):
    geometry = (kernel,) * 2, (stride,) * 2, (1, 1), (kernel // 2,) * 2
    if name in PREDICTING:
        sizes = TiledConvolution(filters, *geometry, groups).sizes(shape)
        numbers = kernel_choice.features(sizes, groups, False)
    else:
        grid = WindowGrid((kernel,) * 2, (stride,) * 2, (kernel // 2,) * 2, (1, 1))
        numbers = trained_convolution.features(trained_convolution.sizes_of(shape, filters, grid))
    return kernel_choice.predict(kernel_choice.trees(name), numbers)


def test_table_has_each_processor_once(monkeypatch):
    found = set()
    choices = (
        "tiles",
        "1",
        "default",
        "train 1",
        "train default",
        *PARTS,
        *(f"{part} windows" for part in PARTS[:2]),
    )
    for is_fastest, is_wide in ((False, False), (True, False), (False, True)):
        monkeypatch.setattr(kernel_choice, "mkl_is_fastest", lambda value=is_fastest: value)
        monkeypatch.setattr(kernel_choice, "beats_mkl_by_width", lambda value=is_wide: value)
        for names in product(("avx2", "avx512"), choices):
            found.add(kernel_choice.name_of(*names))
    assert sorted(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_choice_depends_on_sizes(name):
    rng = random.Random(0)
    found = set()
    for _ in range(200):
        shape = (*rng.choices((1, 4, 16, 64), k=2), *[rng.choice((1, 7, 28, 112))] * 2)
        found.add(predicted(name, shape, rng.choice((2, 64)), rng.choice((1, 3, 7))))
    assert len(found) > 50
    assert -5 < min(found) < max(found) < 5


@pytest.mark.parametrize("name", PREDICTING)
def test_small_convolutions_of_several_images_run_by_tiles(name):
    for shape, filters in (((4, 8, 4, 4), 16), ((8, 16, 7, 7), 32)):
        assert predicted(name, shape, filters) > 0


@pytest.mark.parametrize("name", LAYOUTS)
def test_depthwise_convolutions_of_large_windows_are_worth_a_conversion(name):
    for channels, size, kernel in ((16, 33, 3), (64, 14, 5)):
        assert predicted(name, (1, channels, size, size), channels, kernel, 2, channels) > 0


@pytest.mark.parametrize("name", [f"{isa} for_weight" for isa in ("avx2", "avx512")])
def test_gradients_of_weights_of_few_channels_run_by_tiles(name):
    """Torch takes up to ten times as long."""
    for shape, filters, kernel in (((8, 1, 28, 28), 96, 3), ((4, 4, 33, 33), 256, 1)):
        assert predicted(name, shape, filters, kernel) > 0


@pytest.fixture
def tool(monkeypatch):
    spec = importlib.util.spec_from_file_location("choose_kernels", ROOT / "tools/choose_kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("keeps_usual_layout", "prefers_tiles"):  # which the tool exchanges
        monkeypatch.setattr(call, name, getattr(call, name))
    monkeypatch.setattr(module, "TURN_S", 1e-9)
    return module


SQUARE = {
    "axes": 2,
    "rows": 2,
    "channels": 8,
    "side": 16,
    "num_filter": 8,
    "kernel": 3,
    "stride": 1,
    "dilate": 1,
}
SQUARE |= {"pad": 1, "num_group": 1}


@needs_tiles
def test_the_tool_measures_predictions_by_all_kernels(tool, monkeypatch):
    layouts, native = [], []

    def convolve(*given, run=call.FusedConvolution._one_by_one, **named):
        layouts.append(named.get("keeps_layout", False))
        return run(*given, **named)

    def faster(*given, run=call.FusedConvolution.is_faster):
        native.append(run(*given))
        return native[-1]

    monkeypatch.setattr(call.FusedConvolution, "_one_by_one", convolve)
    monkeypatch.setattr(call.FusedConvolution, "is_faster", faster)
    features, alone, in_run = tool.measure(SQUARE, False)
    assert features[:3] == (2, 8, 8)
    assert (list(alone), list(in_run)) == (["usual", "tiles", "onednn"], ["tiles", "onednn"])
    assert min(*alone.values(), *in_run.values()) > 0
    assert layouts == [True] * 2 * tool.TURNS  # each turn runs twice
    assert set(native) == {True, False}


@needs_tiles
def test_the_tool_measures_each_part_of_training(tool):
    features, parts, usual, conversions = tool.measure_training(SQUARE)
    assert features[:3] == (2, 8, 8)
    assert list(parts) == list(usual) == list(PARTS)
    wide = {"windows"} if kernels().vector_width > 8 else set()
    assert [set(times) - {"3x3"} for times in parts.values()] == [{"", "tiles"} | wide] * 2 + [{"", "tiles"}]
    assert (
        min(conversions, *usual.values(), *(time for times in parts.values() for time in times.values())) > 0
    )
    assert tool.measure_training({**SQUARE, "num_group": 2}) is None
    samples = [tool.measure_training({**SQUARE, "channels": 1 + n, "num_filter": 1 + n}) for n in range(17)]
    table = {choice: tool.fit(tool.part_over_tiles(samples, *pair)) for choice, pair in tool.TRAINED.items()}
    assert len(list(tool.over_converted(samples, table))) == 34


@pytest.mark.parametrize("kernel", ["usual", "tiles", "onednn"])
@pytest.mark.parametrize("seed", range(20))
def test_results_equal_torch_by_all_kernels(seed, kernel, monkeypatch):
    asked = []
    monkeypatch.setattr(call, "keeps_usual_layout", lambda *given: asked.append(given) or kernel == "usual")
    monkeypatch.setattr(call, "prefers_tiles", lambda *_: kernel == "tiles")
    rng = random.Random(seed)
    groups = rng.choice((1, 1, 2, 4))
    channels, filters = groups * rng.randint(1, 6), groups * rng.randint(1, 9)
    size, stride, pad = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 1)
    shape = (rng.randint(1, 3), channels, rng.randint(3, 9), rng.randint(3, 9))
    torch.manual_seed(seed)
    data, weight = torch.randn(shape), torch.randn(filters, channels // groups, size, size)
    net = mx.sym.Convolution(
        mx.sym.var("data"), mx.sym.var("w"), kernel=(size,) * 2, stride=(stride,) * 2, pad=(pad,) * 2,
        num_filter=filters, num_group=groups, no_bias=True, name=f"conv_{kernel}",
    )  # fmt: skip
    wanted = torch.conv2d(data, weight, None, stride, pad, 1, groups)
    if rng.random() < 0.5:
        net, wanted = mx.sym.relu(net), wanted.relu()
    arrays = {"data": mx.nd.array(data.numpy()), "w": mx.nd.array(weight.numpy())}
    bound = net.bind(mx.cpu(), arrays)  # programs of equal names are one, and choose once
    for _ in range(3):  # packed weights are made in the second run
        np.testing.assert_allclose(bound.forward()[0].asnumpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert asked
