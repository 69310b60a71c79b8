"""Components of signature graphs, their order, and what is joined to one batch."""

from __future__ import annotations

import numpy as np

from dpmodule.autobatch.python_engine.schedule import ranks
from helpers.walk import walks


def found(edges, kinds):
    source, target = (np.array([e[i] for e in edges], np.int64) for i in (0, 1))
    return [array.tolist() for array in ranks(source, target, np.array(kinds))]


def test_independent_vertices_of_a_kind_share_a_depth():
    # a -> x -> x' is a chain of one kind; b -> y of the same kind as x may join either
    depth, _, _ = found([(0, 1), (1, 2), (3, 4), (4, 5)], [0, 9, 9, 1, 8, 9])
    assert depth[1] < depth[2]
    assert depth[5] in (depth[1], depth[2])
    assert depth[4] < depth[5]


@walks(range(30))
def test_edges_lead_deeper(seed):
    draw = np.random.RandomState(seed)
    count = 25
    edges = [tuple(draw.randint(count, size=2)) for _ in range(35)]
    kinds = draw.randint(6, size=count).tolist()
    depth, component, cyclic = found(edges, kinds)
    for start, end in edges:
        if component[start] == component[end]:
            assert cyclic[start]
        else:
            assert depth[start] < depth[end]
