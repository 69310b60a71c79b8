"""A network's only convolution: the table that chooses its layout, and equal results in both layouts."""

import importlib.util
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.executor.passes.fused_convolutions import call, layout_choice

ROOT = Path(__file__).parents[4]
PLAIN = ((3, 3), (1, 1), (1, 1), 1, False)


TREES = layout_choice._trees()


@pytest.mark.parametrize("is_fastest", [False, True])
def test_table_knows_all_processors(is_fastest, monkeypatch):
    monkeypatch.setattr(layout_choice, "mkl_is_fastest", lambda: is_fastest)
    for isa, threads in product(("avx2", "avx512"), ("1", "default")):
        assert layout_choice.name_of(isa, threads) in TREES


def test_few_filters_of_single_pixels_keep_the_layout_where_mkl_is_the_fastest():
    sizes = layout_choice.features((2, 96, 56, 56), 16, (1, 1), *PLAIN[1:])
    found = [layout_choice.choose(TREES[name], sizes) for name in ("avx512 1", "avx512 1 mkl")]
    assert found == [False, True]


@pytest.mark.parametrize("name", TREES)
def test_table_prefers_each_layout_for_some_sizes(name):
    rng = random.Random(0)
    found = set()
    for _ in range(200):
        shape = (*rng.choices((1, 4, 16, 64), k=2), *[rng.choice((1, 7, 28, 112))] * 2)
        found.add(
            layout_choice.choose(TREES[name], layout_choice.features(shape, rng.choice((2, 64)), *PLAIN))
        )
    assert found == {True, False}


@pytest.mark.parametrize("name", TREES)
def test_table_converts_where_the_extension_takes_a_fraction_of_the_time(name):
    for shape, channels, kernel, step in [((1, 16, 33, 33), 16, 3, 2), ((1, 64, 14, 14), 64, 5, 2)]:
        depthwise = (kernel,) * 2, (step,) * 2, (1, 1), channels, False
        assert not layout_choice.choose(TREES[name], layout_choice.features(shape, channels, *depthwise))


def test_the_tool_measures_both_layouts(monkeypatch):
    spec = importlib.util.spec_from_file_location("choose_layouts", ROOT / "tools/choose_layouts.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(call, "keeps_usual_layout", call.keeps_usual_layout)  # which the tool exchanges
    monkeypatch.setattr(tool, "TURN_S", 1e-9)
    layouts = []

    def convolve(*given, run=call.FusedConvolution._one_by_one, **named):
        layouts.append(named.get("keeps_layout", False))
        return run(*given, **named)

    monkeypatch.setattr(call.FusedConvolution, "_one_by_one", convolve)
    square = {
        "rows": 2,
        "channels": 8,
        "side": 16,
        "num_filter": 8,
        "kernel": 3,
        "stride": 1,
        "dilate": 1,
        "pad": 1,
    }
    features, *times = tool.compare({**square, "num_group": 1}, False)
    assert features[:3] == (2, 8, 8)
    assert min(times) > 0
    assert layouts == [True] * 2 * tool.TURNS  # each turn runs twice


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_results_equal_torch_in_both_layouts(seed, keeps, monkeypatch):
    asked = []
    monkeypatch.setattr(call, "keeps_usual_layout", lambda *given: asked.append(given) or keeps)
    rng = random.Random(seed)
    groups = rng.choice((1, 1, 2, 4))
    channels, filters = groups * rng.randint(1, 6), groups * rng.randint(1, 9)
    kernel, stride, pad = rng.randint(1, 3), rng.randint(1, 2), rng.randint(0, 1)
    shape = (rng.randint(1, 3), channels, rng.randint(3, 9), rng.randint(3, 9))
    torch.manual_seed(seed)
    data, weight = torch.randn(shape), torch.randn(filters, channels // groups, kernel, kernel)
    net = mx.sym.Convolution(
        mx.sym.var("data"), mx.sym.var("w"), kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2,
        num_filter=filters, num_group=groups, no_bias=True, name=f"conv_{keeps}",
    )  # fmt: skip
    wanted = torch.conv2d(data, weight, None, stride, pad, 1, groups)
    if rng.random() < 0.5:
        net, wanted = mx.sym.relu(net), wanted.relu()
    arrays = {"data": mx.nd.array(data.numpy()), "w": mx.nd.array(weight.numpy())}
    bound = net.bind(mx.cpu(), arrays)  # programs of equal names are one, and choose once
    for _ in range(3):  # packed weights are made in the second run
        np.testing.assert_allclose(bound.forward()[0].asnumpy(), wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert asked
