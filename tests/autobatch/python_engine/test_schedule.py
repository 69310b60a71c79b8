"""Components of signature graphs, their order, and what is joined to one batch."""

from __future__ import annotations

import numpy as np

from dpmodule.autobatch.python_engine.schedule import ranks
from helpers.walk import walks


def found(edges, kinds):
    source, target = (np.array([e[i] for e in edges], np.int64) for i in (0, 1))
    return [array.tolist() for array in ranks(source, target, np.array(kinds))]


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
