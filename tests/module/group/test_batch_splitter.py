from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.base import ArgumentError
from dpmodule.module.group.batch_splitter import split_batch, split_input_slice

WORKLOADS = st.lists(st.one_of(st.integers(1, 9), st.floats(0.1, 9)), min_size=1, max_size=8)


@settings(max_examples=400)
@given(st.integers(0, 200), WORKLOADS)
def test_shares_cover_the_batch_and_are_the_quota_rounded(size, workload):
    slices = split_batch(size, workload)
    assert [s.start for s in slices] == [0, *(s.stop for s in slices[:-1])]
    assert slices[-1].stop == size
    for part, weight in zip(slices, workload):
        assert abs((part.stop - part.start) - weight * size / sum(workload)) < 1


@settings(max_examples=400)
@given(st.integers(1, 200), WORKLOADS)
def test_mxnets_split_covers_the_batch_or_is_refused(size, workload):
    try:
        slices = split_input_slice(size, workload)
    except ArgumentError:
        return
    assert slices[0].start == 0
    assert slices[-1].stop == size
    assert all(a.stop == b.start for a, b in zip(slices, slices[1:]))
    assert all(s.stop > s.start for s in slices)
