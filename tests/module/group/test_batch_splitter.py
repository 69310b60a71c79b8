from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.module.group.batch_splitter import split_batch

WORKLOADS = st.lists(st.one_of(st.integers(1, 9), st.floats(0.1, 9)), min_size=1, max_size=8)


@settings(max_examples=400)
@given(st.integers(0, 200), WORKLOADS)
def test_shares_cover_the_batch_and_are_the_quota_rounded(size, workload):
    slices = split_batch(size, workload)
    assert ([s.start for s in slices], slices[-1].stop) == ([0, *(s.stop for s in slices[:-1])], size)
    for part, weight in zip(slices, workload):
        assert abs((part.stop - part.start) - weight * size / sum(workload)) < 1
