"""The named networks."""

import pytest

from dpmodule.cli import networks


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("sample", [(1, 4, 4), (1, 8, 8), (3, 33, 28)])
def test_gives_one_probability_per_class(name, sample):
    net = networks.build(name, sample, 7)
    assert net.infer_shape(data=(5, *sample))[1] == [(5, 7)]
    assert networks.label_names(net) == ["softmax_label"]


def test_residual_blocks_grow_with_their_number():
    small, big = networks.resnet(10), networks.resnet(10, widths=(8, 16, 32), blocks=2)
    assert len(big.list_arguments()) > 2 * len(small.list_arguments())
    networks.build("mlp", (64,), 10)
