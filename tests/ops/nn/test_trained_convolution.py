"""Convolutions of the native extension: who uses the kernels, gradients, strides; values: native/test_kernels.py."""

from itertools import product
from types import SimpleNamespace

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from torch.nn import functional as F

from dpmodule.ops.nn import linear, unfold
from dpmodule.ops.nn import trained_convolution as module
from dpmodule.ops.nn.image_layers import TiledConvolution
from dpmodule.ops.nn.trained_convolution import (
    ROWS,
    TrainingKernels,
    can_train,
    train_convolution,
    training_kernels,
    transposed_kernels,
)
from dpmodule.ops.nn.unfold import WindowGrid
from helpers.arrays import numbers
from helpers.walk import walks

core = linear.kernels()
needs_kernels = pytest.mark.skipif(
    not hasattr(core, "conv3x3") or core.conv3x3_lanes() == 0,
    reason="there are no kernels for this compiler or processor",
)


SMALL = TrainingKernels("3x3", "3x3", "3x3")
ALL, NONE = TrainingKernels("tiles", "tiles", "tiles"), TrainingKernels("", "", "")


def grid_of(step):
    return WindowGrid((3, 3), (step, step), (1, 1), (1, 1))


def given(images, channels, filters, height, width, step, bias=True):
    """Return images of which the result has these sides, a weight, and a bias."""
    x = numbers(images, channels, step * height, step * width)
    weight = numbers(filters, channels, 3, 3, seed=1).contiguous()
    return x, weight, numbers(filters, seed=2) if bias else None


def is_ours(x, weight, bias, grid):
    return training_kernels(x.shape, weight.shape[0], grid).is_ours and can_train(x, weight, bias, grid, NONE)


def results(tensors, grad, function):
    """Return result and gradients; the gradient of the result is of the given shape."""
    leaves = [each.detach().requires_grad_() for each in tensors if each is not None]
    out = function(*leaves[:2], leaves[2] if len(leaves) > 2 else None)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad.to(out.dtype))]


def by(chosen, grid):
    return lambda x, weight, bias: train_convolution(x, weight, bias, grid, chosen)


def by_torch(grid):
    return lambda x, weight, bias: F.conv2d(x, weight, bias, grid.stride, grid.pad, grid.dilate)


def in_doubles(tensors):
    return [None if each is None else each.double() for each in tensors]


def agree(found, wanted, tolerance=1e-4):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype), rtol=1e-5, atol=tolerance)


@pytest.fixture
def small_only(monkeypatch):
    """Leave only the kernels for 3x3 windows."""
    monkeypatch.setattr(module, "has_tiles", lambda: False)


@needs_kernels
@pytest.mark.usefixtures("small_only")
@walks(product([(4, 16, 16, 8), (36, 16, 11, 8), (32, 16, 16, 8)], (1, 2), (False, True)))
def test_results_and_gradients_of_small_windows(sizes, step, bias):
    tensors, grid = given(3, *sizes, step, bias), grid_of(step)
    assert is_ours(*tensors, grid)
    grad = numbers(3, *sizes[1:], seed=3)
    chosen = training_kernels(tensors[0].shape, sizes[1], grid)
    assert chosen == TrainingKernels("3x3", "3x3" if sizes[0] == 32 else "", "3x3")
    found = results(tensors, grad, by(chosen, grid))
    agree(found, results(in_doubles(tensors), grad, by_torch(grid)))
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in found[:2])


GRIDS = [((3, 3), (1, 1), (1, 1), (1, 1)), ((1, 1), (2, 2), (0, 0), (1, 1)), ((5, 4), (1, 2), (2, 0), (2, 1))]
GRIDS += [((4, 6), (2, 3), (3, 1), (1, 1)), ((7, 2), (3, 1), (3, 1), (1, 1))]


@needs_kernels
@walks(product(GRIDS, [(2, 31, 27, 12, 9), (5, 3, 8, 9, 4), (1, 20, 70, 8, 17)], (False, True), (1, 2)))
def test_results_and_gradients_of_tiles(geometry, sizes, bias, threads):
    grid, (images, channels, filters, *sides) = WindowGrid(*geometry), sizes
    x = numbers(images, channels, *sides)
    weight = numbers(channels, filters, *grid.kernel, seed=1).transpose(0, 1)  # of any strides
    tensors = x, weight, numbers(filters, seed=2) if bias else None
    grad = numbers(images, filters, *grid.counts(sides), seed=3)
    has_data = all(1 in pair for pair in zip(grid.stride, grid.dilate))
    for chosen in (
        TrainingKernels("tiles", "tiles" if has_data else "", "tiles"),
        TrainingKernels("", "windows" if grid.dilate[1] == 1 else "", "tiles"),
        TrainingKernels("windows" if grid == GRIDS[0] else "", "", "tiles"),
    ):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            found = results(tensors, grad, by(chosen, grid))
        finally:
            torch.set_num_threads(before)
        agree(found, results(in_doubles(tensors), grad, by_torch(grid)))
        assert found[0].is_contiguous(memory_format=torch.channels_last)
        assert found[2].stride() == torch.empty_like(weight).stride()


@needs_kernels
@walks(
    product(
        GRIDS,
        [(2, 31, 27, 5, 3), (1, 8, 70, 3, 7)],
        (False, True),
        (torch.channels_last, torch.contiguous_format),
    )
)
def test_results_and_gradients_of_transposed_convolutions(geometry, sizes, bias, layout):
    grid, (images, filters, channels, *sides) = WindowGrid(*geometry), sizes
    pairs = list(zip(grid.kernel, grid.stride, grid.pad, grid.dilate, sides))
    adds = [s - 1 for s in grid.stride]  # elements that no window reads
    shape = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + add for (k, s, p, d, n), add in zip(pairs, adds)]
    x = numbers(images, channels, *sides).contiguous(memory_format=layout)
    tensors = x, numbers(channels, filters, *grid.kernel, seed=1), numbers(filters, seed=2) if bias else None
    head = numbers(images, filters, *shape, seed=3)
    has_data = all(1 in pair for pair in zip(grid.stride, grid.dilate))
    wanted = results(
        in_doubles(tensors),
        head,
        lambda *given: F.conv_transpose2d(*given, grid.stride, grid.pad, adds, 1, grid.dilate),
    )
    for chosen in (
        TrainingKernels("tiles", "tiles" if has_data else "", "tiles"),
        TrainingKernels("", "windows" if grid.dilate[1] == 1 else "", "tiles"),
        ROWS,
    ):
        assert can_train(*tensors, grid, chosen, is_transposed=True)
        found = results(
            tensors,
            head,
            lambda *given, chosen=chosen: module.train_deconvolution(
                *given, (images, filters, *shape), grid, chosen
            ),
        )
        agree(found, wanted)


LAYOUTS = {
    "NCHW": lambda x: x.contiguous(),
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "apart": lambda x: torch.stack([x, x], -1)[..., 0],
}


def pairs(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@needs_kernels
@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(
    st.tuples(*[st.integers(1, 5), st.integers(1, 20)], *[st.integers(1, 9)] * 2),
    st.integers(1, 9),
    st.booleans(),
    st.builds(WindowGrid, kernel=pairs(1, 4), stride=pairs(1, 3), pad=pairs(0, 3), dilate=pairs(1, 3)),
    st.sampled_from(sorted(LAYOUTS)),
)
def test_products_of_windows_are_convolutions(shape, filters, has_bias, grid, layout):
    hypothesis.assume(min(grid.counts(shape[2:])) > 0)
    x, weight = (
        LAYOUTS[layout](numbers(*shape)),
        numbers(filters, shape[1], *grid.kernel, seed=1).contiguous(),
    )
    tensors = x, weight, numbers(filters, seed=2) if has_bias else None
    assert can_train(*tensors, grid, ROWS)
    grad = numbers(shape[0], filters, *grid.counts(shape[2:]), seed=3)
    found = results(tensors, grad, by(ROWS, grid))
    agree(found, results(in_doubles(tensors), grad, by_torch(grid)))
    assert found[2].is_contiguous()


@needs_kernels
def test_gradients_of_the_gradients_of_products():
    grid, found = WindowGrid((3, 3), (1, 2), (1, 1), (1, 1)), []
    for way in (by(ROWS, grid), by_torch(grid)):
        leaves = [numbers(1, 2, 4, 5).requires_grad_(), numbers(3, 2, 3, 3, seed=1).requires_grad_()]
        first = torch.autograd.grad((way(*leaves, None) ** 3).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum((each**2).sum() for each in first), leaves))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@needs_kernels
@pytest.mark.parametrize("kernel", ["3x3", "tiles", "rows"])
def test_only_the_gradients_that_are_wanted(kernel):
    tensors, grad = given(2, 16, 16, 8, 16, 1), numbers(2, 16, 8, 16, seed=3)
    function = by(TrainingKernels(kernel, kernel, kernel), grid_of(1))
    _, *every = results(tensors, grad, function)
    for wanted in list(product((False, True), repeat=3))[1:]:
        leaves = [each.detach().requires_grad_(want) for each, want in zip(tensors, wanted)]
        function(*leaves).backward(grad)
        assert [leaf.grad is not None for leaf in leaves] == list(wanted)
        found = [leaf.grad for leaf in leaves if leaf.grad is not None]
        agree(found, [grad for grad, want in zip(every, wanted) if want])


@needs_kernels
def test_gradients_of_gradients():
    tensors, grid = given(2, 16, 16, 8, 16, 1), grid_of(1)

    def twice(function):
        leaves = [each.detach().requires_grad_() for each in tensors]
        first = torch.autograd.grad((function(*leaves) ** 3).sum(), leaves[:2], create_graph=True)
        return torch.autograd.grad(sum((each**2).sum() for each in first), leaves)

    for one, other in zip(twice(by(SMALL, grid)), twice(by_torch(grid))):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


@needs_kernels
@pytest.mark.usefixtures("small_only")
@walks(
    # images, channels, filters, height, width
    (True, [(2, 3, 16, 4, 32), (3, 4, 16, 11, 8), (1, 32, 32, 16, 16)]),
    # a third computed twice; odd filters; few positions; one row; many filters
    (False, [(4, 3, 16, 4, 20), (2, 4, 17, 4, 32), (1, 4, 16, 31, 8), (8, 3, 16, 1, 32), (1, 16, 112, 16, 16)]),
)  # fmt: skip
def test_sizes_decide(wanted, cases):
    assert [is_ours(*given(*sizes, 1), grid_of(1)) for sizes in cases] == [wanted] * len(cases)


@needs_kernels
@pytest.mark.usefixtures("small_only")
def test_others_are_left_to_torch():
    grid = grid_of(1)
    x, w, b = tensors = given(2, 16, 16, 8, 16, 1)
    assert is_ours(*tensors, grid)
    others = [[each.double() for each in tensors], (x, w[:, :, :2], b)]
    others += [(x, w[:, :8], b), (x, w, b[:8]), (x, w, b[:1].expand(16)), (x, torch.nn.Parameter(w), b)]
    assert [i for i, each in enumerate(others) if is_ours(*each, grid)] == []
    odd = numbers(2, 16, 17, 32), w, None
    assert [is_ours(*odd, grid_of(step)) for step in (1, 2)] == [True, False]
    assert not module.may_train(WindowGrid((5, 5), (1, 1), (2, 2), (1, 1)))
    seen = []
    torch.vmap(lambda each: seen.append(can_train(each, w, None, grid, NONE)) or each)(torch.stack([x, x]))
    assert seen == [False]


@pytest.fixture
def predicted(monkeypatch):
    """Logarithms of times over that of the tiles, by choice, which replace those of the measurements."""
    times, numbers = {}, []
    core = SimpleNamespace(vector_width=16, convolution_gradients=None, conv3x3_lanes=lambda: 8)
    monkeypatch.setattr(linear, "_native", core)
    monkeypatch.setattr(unfold, "kernel_beats_mkl", lambda: False)
    monkeypatch.setattr(module, "trees_of", lambda choice: choice)
    monkeypatch.setattr(
        module, "predict", lambda choice, sizes: numbers.append(sizes) or times.get(choice, 1.0)
    )
    monkeypatch.setattr(module, "pays", module.predict)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    times["numbers"] = numbers
    return times


@pytest.mark.parametrize(
    ("times", "data", "filters", "kernel", "step", "dilate", "wanted"),
    [
        ({}, (32, 24, 20, 20), 40, 1, 1, 1, ALL),
        ({"result": -1, "for_weight": -1}, (8, 40, 20, 20), 40, 5, 2, 1, TrainingKernels("", "tiles", "")),
        # with a stride and a dilation the gradient of the data has no tiles
        ({}, (8, 40, 20, 20), 40, 5, 2, 2, TrainingKernels("tiles", "", "tiles")),
        # 3x3 windows
        ({"result": -1}, (8, 24, 16, 16), 32, 3, 1, 1, SMALL),
        ({}, (8, 24, 16, 16), 103, 3, 1, 1, ALL),
        # sums of windows: of few channels of data or result, and faster than tiles and torch
        ({"for_data windows": -1}, (8, 3, 20, 20), 16, 5, 2, 1, TrainingKernels("tiles", "windows", "tiles")),
        ({"for_data windows": -1, "for_data": -2}, (8, 3, 20, 20), 16, 5, 2, 1, TrainingKernels("tiles", "", "tiles")),
        ({"result windows": -1}, (8, 16, 20, 20), 3, 5, 1, 1, TrainingKernels("windows", "tiles", "tiles")),
        ({"result windows": -1}, (8, 16, 20, 20), 3, 5, 2, 1, ALL),
        ({"result windows": -1}, (32, 16, 20, 20), 3, 1, 1, 1, ALL),
        ({"result windows": -1}, (8, 16, 20, 20), 16, 5, 1, 1, ALL),
        # a large weight for few windows, by torch with and without oneDNN
        ({}, (2, 512, 3, 3), 512, 3, 1, 1, ROWS),
        ({}, (1, 512, 3, 3), 256, 3, 1, 1, ROWS),
        ({}, (1, 64, 6, 6), 64, 5, 1, 1, ROWS),
        ({}, (1, 64, 8, 8), 64, 5, 1, 1, ALL),
        # without oneDNN, little work, or a large weight of 1x1; torch would write outside of its memory; no data
        ({}, (1, 24, 20, 20), 40, 1, 1, 1, NONE),
        ({}, (1, 128, 16, 16), 128, 1, 1, 1, ALL),
        ({}, (1, 128, 15, 15), 128, 1, 1, 1, NONE),
        ({}, (1, 128, 30, 30), 128, 1, 2, 1, ALL),
        ({}, (32, 3, 20, 20), 40, 1, 2, 1, NONE),
        ({}, (0, 24, 20, 20), 40, 3, 1, 1, NONE),
    ],
)  # fmt: skip
def test_each_part_is_computed_by_its_fastest_kernel(
    times, data, filters, kernel, step, dilate, wanted, predicted
):
    predicted.update(times)
    pad = dilate * (kernel // 2)
    grid = WindowGrid((kernel, kernel), (step, step), (pad, pad), (dilate, dilate))
    assert training_kernels(data, filters, grid) == wanted


def test_data_in_the_usual_layout_is_converted_for_a_gain(predicted, monkeypatch):
    sizes = (8, 16, 20, 20), 40, WindowGrid((5, 5), (1, 1), (2, 2), (1, 1))
    for threads, choice in ((1, "train 1"), (2, "train default")):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for gain in (0, 1):
            predicted[choice] = gain
            assert training_kernels(*sizes, is_last=False) == (ALL if gain else NONE)
            assert training_kernels(*sizes) == ALL
        predicted[choice] = 0
        for with_data in (True, False):
            training_kernels(*sizes, is_last=False, with_data=with_data)
            assert predicted["numbers"][-1][-1] is with_data


@needs_kernels
def test_large_products_are_left_to_them(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(module, "predict", lambda *_: 1.0)
    monkeypatch.setattr(module, "has_tiles", lambda: True)
    grid, found = WindowGrid((1, 1), (1, 1), (0, 0), (1, 1)), []
    for beats_mkl in (False, True):
        monkeypatch.setattr(unfold, "kernel_beats_mkl", lambda beats_mkl=beats_mkl: beats_mkl)
        found += [training_kernels(*each, grid) for each in (((8, 32, 60, 60), 48), ((8, 32, 20, 20), 48))]
    assert found == [ALL, ALL, NONE, ALL]


@needs_kernels
def test_transposed_convolutions_with_a_large_weight_and_few_windows_are_products():
    grid = WindowGrid((4, 4), (2, 2), (1, 1), (1, 1))
    few = [((4, 128, 8, 8), 256), ((1, 256, 4, 4), 512), ((8, 64, 4, 4), 128)]
    assert [transposed_kernels(*each, grid) for each in few] == [ROWS] * 3
    small = WindowGrid((3, 3), (1, 1), (1, 1), (1, 1))
    for data, filters, windows in (((8, 64, 16, 16), 128, grid), ((1, 16, 16, 16), 16, small)):
        assert transposed_kernels(data, filters, windows) == training_kernels(data, filters, windows) != ROWS


# tiles, for prediction

needs_tiles = pytest.mark.skipif(
    not hasattr(core, "run_layers") or core.convolution_block(64) == 0,
    reason="there is no kernel for this compiler or processor",
)


def made(filters, kernel=(3, 3), stride=(1, 1), dilate=(1, 1), pad=(1, 1), groups=1):
    return TiledConvolution(filters, kernel, stride, dilate, pad, groups)


@needs_tiles
def test_weights_that_do_not_fit_are_refused():
    assert made(16).pack(numbers(16, 8, 3, 3), None, 8)
    for shape, bias, channels in (
        ((16, 8, 3, 3), None, 9),
        ((16, 8, 3, 2), None, 8),
        ((17, 8, 3, 3), None, 8),
    ):
        assert made(16).pack(numbers(*shape), bias, channels) == ()
    assert made(16).pack(numbers(16, 8, 3, 3), numbers(1), 8) == ()
    for groups, channels in ((2, 34), (4, 16), (16, 16)):
        weight = numbers(16, channels // groups, 3, 3)
        assert made(16, groups=groups).pack(weight, None, channels)
        assert made(16, groups=groups).pack(weight, None, channels + groups) == ()


@pytest.mark.parametrize(
    ("groups", "filters", "channels", "kind"),
    [(1, 8, 8, "convolution"), (8, 8, 8, "depthwise"), (8, 16, 8, "convolution"), (16, 64, 16, "grouped"),
     (8, 32, 16, "grouped"), (2, 8, 8, "grouped"), (2, 8, 16, "convolution"), (2, 32, 8, "convolution")],
)  # fmt: skip
def test_groups_of_few_filters_have_a_kernel_of_their_own(groups, filters, channels, kind):
    assert made(filters, groups=groups).kind(channels) == kind
