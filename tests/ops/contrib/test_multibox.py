import numpy as np
import pytest
import torch

from helpers.arrays import f8
from helpers.op_case import call, rules_test, run, values_test

PRIOR, TARGET, DETECTION = (f"_contrib_MultiBox{name}" for name in ("Prior", "Target", "Detection"))
ANCHORS = f8([[[0.1, 0.1, 0.2, 0.2], [0.3, 0.3, 0.6, 0.6], [0.7, 0.7, 0.9, 0.9]]])
MIDDLE, BOX = f8([[[0, 0.3, 0.3, 0.6, 0.6]]]), [0.1, 0.1, 0.5, 0.5]
SCORES = f8([[[0.1, 0.1, 0.1, 0.9], [0.3, 0.8, 0.2, 0.0], [0.6, 0.1, 0.7, 0.1]]])
FOUND = (SCORES, np.zeros((1, 16)), f8([[BOX] * 3 + [[0.6, 0.6, 0.9, 0.9]]]))
LIMITS = {"threshold": 0.5, "nms_threshold": 0.5}
FORCED, TWO = {**LIMITS, "force_suppress": True}, {"sizes": (0.1, 0.2), "ratios": (1, 2, 3)}


def detected(*rows):
    return f8([[*rows, *[[-1.0] * 6] * (4 - len(rows))]])


NOTHING = detected()[:, :2]
test_values = values_test(
    # an anchor is as high as its size, and as wide in pixels
    (PRIOR, (np.zeros((2, 3, 1, 2)),), {"sizes": (0.8,), "clip": True, "steps": (0.3, 0.4), "offsets": (0, 1)},
     f8([[[0.2, 0, 0.6, 0.4], [0.6, 0, 1.0, 0.4]]])),
    (DETECTION, FOUND, FORCED, detected([0, 0.8, *BOX], [-1, 0.7, *BOX], [-1, 0.6, *BOX])),
    (DETECTION, (f8([[[0.9, 0.9], [0.1, 0.1]]]), np.zeros((1, 8)), ANCHORS[:, :2]), {"threshold": 0.5}, NOTHING),
)  # fmt: skip
test_shapes = rules_test(
    (PRIOR, [(4, 3, 5, 0)], TWO, None, [(1, 0, 4)]),
    (PRIOR, [(4, 3, 5, 2)], TWO, None, [(1, 40, 4)]),
    (TARGET, [(1, 7, 4), (2, 3, 5), None], {}, None, [(2, 28), (2, 28), (2, 7)]),
    (TARGET, [None, None, (2, 4, 7)], {}, None, [(2, 28), (2, 28), (2, 7)]),
)


def target(labels, scores, **attrs):
    return [x.numpy() for x in call(TARGET, *map(torch.from_numpy, (ANCHORS, labels, scores)), **attrs)]


@pytest.mark.parametrize(("ratio", "wanted"), [(1, [[-1, 1, 0]]), (9, [[0, 1, 0]])])
def test_the_hardest_negatives_count_and_may_be_fewer_than_wanted(ratio, wanted):
    attrs = {"negative_mining_thresh": 0.5, "negative_mining_ratio": ratio}
    assert target(MIDDLE, f8([[[3, 0, 1], [0, 0, 0]]]), **attrs)[2].tolist() == wanted


@pytest.mark.parametrize("kind", ["f2", "f8"])
def test_halves_and_doubles(kind):
    scores, anchors = f8([[[0.1, 0.9, 0.9], [0.9, 0.1, 0.1]]]).astype(kind), ANCHORS.astype(kind)
    assert run(PRIOR, np.zeros((1, 1, 2, 2), kind)).dtype == kind
    found = run(DETECTION, scores, np.zeros((1, 12), kind), anchors)
    assert (found.dtype, found[0, 0, 0]) == (kind, 0)
    wanted = call(TARGET, *map(torch.from_numpy, (anchors, MIDDLE.astype(kind), scores)))
    assert {x.numpy().dtype for x in wanted} == {np.dtype(kind)}
    assert wanted[2].tolist() == [[0, 1, 0]]
