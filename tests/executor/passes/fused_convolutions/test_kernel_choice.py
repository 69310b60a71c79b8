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
from dpmodule.executor.passes.fused_convolutions import call, kernel_choice
from dpmodule.ops.nn.image_layers import TiledConvolution

ROOT = Path(__file__).parents[4]
TABLE = Path(kernel_choice.__file__).with_name("kernel_choices.json")
NAMES = [json.loads(line)[0] for line in TABLE.read_text(encoding="utf-8").splitlines()]
LAYOUTS = [name for name in NAMES if "tiles" not in name]


def predicted(name, shape, filters, kernel=3, stride=1, groups=1, in_run=False):
    geometry = (kernel,) * 2, (stride,) * 2, (1, 1), (kernel // 2,) * 2
    sizes = TiledConvolution(filters, *geometry, groups).sizes(shape)
    return kernel_choice.predict(
        kernel_choice.trees(name), kernel_choice.features(sizes, groups, False, in_run)
    )


def test_table_has_each_processor_once(monkeypatch):
    found = set()
    for is_fastest, is_wide in ((False, False), (True, False), (False, True)):
        monkeypatch.setattr(kernel_choice, "mkl_is_fastest", lambda value=is_fastest: value)
        monkeypatch.setattr(kernel_choice, "beats_mkl_by_width", lambda value=is_wide: value)
        for names in product(("avx2", "avx512"), ("tiles", "1", "default")):
            found.add(kernel_choice.name_of(*names))
    assert sorted(found) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_choice_depends_on_sizes(name):
    rng = random.Random(0)
    found = set()
    for _ in range(200):
        shape = (*rng.choices((1, 4, 16, 64), k=2), *[rng.choice((1, 7, 28, 112))] * 2)
        found.add(predicted(name, shape, rng.choice((2, 64))) > 0)
    assert found == {True, False}


@pytest.mark.parametrize("name", NAMES)
def test_small_convolutions_of_several_images_run_by_tiles(name):
    for shape, filters, kernel, stride in (((4, 8, 4, 4), 16, 3, 1), ((8, 16, 7, 7), 32, 3, 1)):
        assert predicted(name, shape, filters, kernel, stride) > 0


@pytest.mark.parametrize("name", LAYOUTS)
def test_depthwise_convolutions_of_large_windows_are_worth_a_conversion(name):
    for channels, size, kernel in ((16, 33, 3), (64, 14, 5)):
        assert predicted(name, (1, channels, size, size), channels, kernel, 2, channels) > 0


def test_the_tool_measures_all_kernels(monkeypatch):
    spec = importlib.util.spec_from_file_location("choose_kernels", ROOT / "tools/choose_kernels.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    for name in ("keeps_usual_layout", "prefers_tiles"):  # which the tool exchanges
        monkeypatch.setattr(call, name, getattr(call, name))
    monkeypatch.setattr(tool, "TURN_S", 1e-9)
    layouts, native = [], []

    def convolve(*given, run=call.FusedConvolution._one_by_one, **named):
        layouts.append(named.get("keeps_layout", False))
        return run(*given, **named)

    def faster(*given, run=call.FusedConvolution.is_faster):
        native.append(run(*given))
        return native[-1]

    monkeypatch.setattr(call.FusedConvolution, "_one_by_one", convolve)
    monkeypatch.setattr(call.FusedConvolution, "is_faster", faster)
    square = {
        "axes": 2, "rows": 2, "channels": 8, "side": 16, "num_filter": 8, "kernel": 3, "stride": 1, "dilate": 1,
        "pad": 1, "num_group": 1,
    }  # fmt: skip
    features, alone, in_run = tool.measure(square, False)
    assert features[:3] == (2, 8, 8)
    assert list(alone), list(in_run) == (["usual", "tiles", "onednn"], ["tiles", "onednn"])
    assert min(*alone.values(), *in_run.values()) > 0
    assert layouts == [True] * 2 * tool.TURNS  # each turn runs twice
    assert set(native) <= {True, False}


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
