"""The named networks."""

import pytest

from dpmodule.cli import networks


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("sample", [(1, 4, 4), (1, 8, 8), (3, 33, 28)])
def test_gives_one_probability_per_class(name, sample):
    net = networks.build(name, sample, 7)
    assert net.infer_shape(data=(5, *sample))[1] == [(5, 7)]
    assert networks.label_names(net) == ["softmax_label"]
