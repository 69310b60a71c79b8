"""The time that the picture of a network takes, as a notebook asks for it.

Run as ``python -m benchmarks.sides.pictures``.
"""

from __future__ import annotations

from typing import Any

from .serve import Clock, serve

__all__ = ["NODES", "prepare"]

NODES = 500
"""Nodes of the network that is drawn."""


def _network() -> Any:
    """Return layers of different widths, so that nothing folds, all of which the last node reads."""
    import dpmodule as mx

    net, chain = mx.sym.Variable("data"), []
    for i in range(NODES // 4):  # weight, bias, layer, activation
        net = mx.sym.Activation(mx.sym.FullyConnected(net, num_hidden=i + 1), act_type="relu")
        chain.append(net)
    return mx.sym.Concat(*chain, dim=1)


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    network = _network()
    network._repr_svg_()  # imports what is imported late

    def draw() -> dict[str, float]:
        clock = Clock()
        network._repr_svg_()
        return clock.read()

    return {"draw": draw}


if __name__ == "__main__":
    serve(prepare)
