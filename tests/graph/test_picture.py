"""Pictures of symbols: every operator in a box of its own, repeated blocks once, any name."""

import itertools
import json
import math
from collections import Counter
from functools import reduce
from xml.etree import ElementTree

import pytest

import dpmodule as mx
from benchmarks.networks import NETWORKS
from helpers import random_graphs
from helpers.detection_nets import ssd
from helpers.models import DATA

SVG = "{http://www.w3.org/2000/svg}"


def drawn(symbol):
    return ElementTree.fromstring(symbol._repr_svg_())


def rectangles(root, kind):
    """Return (left, top, right, bottom) of boxes or frames."""
    found = [each for each in root.iter(f"{SVG}rect") if each.get("class") == kind]
    sizes = [[float(each.get(key)) for key in ("x", "y", "width", "height")] for each in found]
    return [(x, y, x + width, y + height) for x, y, width, height in sizes]


def words(root, tag="text"):
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}{tag}")]


def meet(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def contains(frame, box):
    return frame[0] < box[0] and frame[1] < box[1] and box[2] < frame[2] and box[3] < frame[3]


def overlaps(root):
    """Return the pairs of boxes that overlap, the pairs with a frame that do so in part, and what leaves the page."""
    boxes, frames = rectangles(root, "box"), rectangles(root, "frame")
    page = (-1.0, -1.0, float(root.get("width")) + 1, float(root.get("height")) + 1)
    found = [pair for pair in itertools.combinations(boxes, 2) if meet(*pair)]
    pairs = [pair for pair in itertools.product(frames, [*boxes, *frames]) if pair[0] is not pair[1]]
    found += [(a, b) for a, b in pairs if meet(a, b) and not contains(a, b) and not contains(b, a)]
    return found + [(page, each) for each in [*boxes, *frames] if not contains(page, each)]


def unrolled(cell, steps):
    outputs, _ = cell.unroll(steps, mx.sym.Variable("data"), merge_outputs=True)
    return mx.sym.FullyConnected(outputs, num_hidden=3, name="last")


def built():
    """Yield graphs of benchmarks and tests, saved and read again."""
    yield from ((name, NETWORKS[name](mx, 10)) for name in ("mlp", "lenet", "lstm", "resnet18", "resnet50"))
    yield "ssd", ssd(mx)[0]
    yield "gru", unrolled(mx.rnn.GRUCell(4), 12)
    yield "both", unrolled(mx.rnn.BidirectionalCell(mx.rnn.RNNCell(4), mx.rnn.RNNCell(4)), 12)
    yield from ((f"random{seed}", random_graphs.random_graph(seed)[0]) for seed in range(30))


def saved():
    files = sorted(DATA.rglob("*symbol.json")) + [DATA / "symbols" / "save_000800.json"]
    yield from ((str(path.relative_to(DATA)), mx.sym.load(str(path))) for path in files)
    yield from ((name, mx.sym.load_json(symbol.tojson())) for name, symbol in built())


def operators(root):
    """Return how many operators of each kind a picture stands for: each box as often as the frames around it say."""
    frames = rectangles(root, "frame")
    times = [int(word[1:]) for word in words(root) if word.startswith("\u00d7")]
    found = Counter()
    groups = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}rect[@class='box']") is not None]
    for group, box in zip(groups, rectangles(root, "box"), strict=True):
        if group.find(f"{SVG}rect").get("rx") == "4":
            around = [n for frame, n in zip(frames, times, strict=True) if contains(frame, box)]
            found[group.find(f"{SVG}text").text] += math.prod(around)
    return found


@pytest.mark.filterwarnings("ignore")
def test_no_boxes_overlap_in_sixty_saved_graphs_and_no_operator_is_lost():
    wrong, count, folds = [], 0, 0
    for name, symbol in saved():
        root, count = drawn(symbol), count + 1
        folds += bool(rectangles(root, "frame"))
        inside = sum(node["op"] != "null" for node in json.loads(symbol.tojson())["nodes"])
        if overlaps(root) or operators(root).total() != inside:
            wrong.append((name, overlaps(root), operators(root)))
    assert wrong == []
    assert count >= 60
    assert folds >= 10


def residual(data, name, filters=8):
    net = mx.sym.Activation(mx.sym.BatchNorm(data, name=f"{name}_bn"), act_type="relu", name=f"{name}_relu")
    net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=filters, name=f"{name}_conv")
    return mx.sym.elemwise_add(net, data, name=f"{name}_sum")


def units(count, net=None, filters=lambda i: 8):
    """Return what each of some residual units makes."""
    found = [mx.sym.Variable("data") if net is None else net]
    for i in range(count):
        found.append(residual(found[-1], f"unit{i}", filters(i)))
    return found[1:]


def test_repeated_blocks_are_drawn_once():
    first = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=8, name="first")
    root = drawn(mx.sym.Flatten(units(7, first)[-1], name="flat"))
    found = Counter(words(root))
    assert found["\u00d77"] == found["unit0_conv"] == found["BatchNorm"] == found["flat"] == 1
    assert not any(word.startswith("unit1") for word in found)
    assert [len(rectangles(root, kind)) for kind in ("frame", "box")] == [1, 3 + 4]
    root = drawn(units(4, filters=lambda i: 8 + i)[-1])  # which differ
    assert rectangles(root, "frame") == []
    assert {f"unit{i}_conv" for i in range(4)} <= set(words(root))
    found = words(drawn(unrolled(mx.rnn.LSTMCell(8, prefix="cell_"), 30)))
    assert "\u00d729" in found or "\u00d728" in found


def test_a_block_of_which_alone_something_is_read_later_stays_outside_the_fold():
    made = units(6)
    found = words(drawn(mx.sym.Concat(made[-1], made[1], dim=1, name="both")))
    assert {"unit0_sum", "unit1_sum", "unit2_sum", "\u00d74"} <= set(found)
    assert "unit3_sum" not in found
    found = words(drawn(mx.sym.Concat(*made, dim=1, name="all")))
    assert "\u00d76" in found
    assert "unit1_sum" not in found


def test_tangled_graphs_and_more_than_anyone_looks_at():
    net = [mx.sym.Variable("data")]
    for i in range(120):
        net.append(mx.sym.FullyConnected(mx.sym.Concat(*net, dim=1), num_hidden=i + 1))
    assert overlaps(drawn(net[-1])) == []
    assert reduce(lambda x, _: mx.sym.tanh(x), range(2000), net[0])._repr_svg_() is None


def test_weights_are_left_out_and_what_is_computed_of_them_is_not():
    weight = mx.sym.Variable("w")
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), weight, num_hidden=2, no_bias=True, name="fc")
    found = ["w" in words(drawn(each)) for each in (net, mx.sym.dot(net, weight), weight)]
    assert found == [False, True, True]


def test_attributes_and_loops_are_told():
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 5), stride=(2, 2), num_filter=7, name="conv")
    root = drawn(net)
    assert {"Convolution", "3x5/2x2, 7", "conv"} <= set(words(root))
    assert any("kernel = (3, 5)" in title for title in words(root, "title"))
    rows, start = mx.sym.Variable("rows"), mx.sym.Variable("start")
    out, _ = mx.sym.contrib.foreach(lambda row, total: (row + total, row * total), rows, start)
    assert any(word.endswith("nodes inside") for word in words(drawn(out)))
