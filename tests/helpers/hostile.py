"""Names that would be code, markup, commands or paths if somebody wrote them somewhere unescaped."""

from __future__ import annotations

import builtins
import os

import numpy as np

import dpmodule as mx

__all__ = ["INPUT", "NAMES", "expected", "network", "outputs", "single", "watched"]

_OPENINGS = (
    "", '"', "'", '"""', "\\", "\n", "\r\n", "\0", "w)", "w]", "w;", "w\n    ", 'w")', "w'):", "`", "$(", "w|",
    "\x1b[2J", '"/><script>', "</title><script>", "]]>", "-->", "../", "/", "lambda.",
)  # fmt: skip
_BODIES = (
    "ran()",
    '__import__("builtins").ran()',
    'training"), ran(), ("',
    "x=ran(), y",
    "ran(); touch ran #",
    "%s\u2028ran()",
    "x:y:n]; node [label=ran",
    "<b onclick='ran()'>ran()</b>",
)
NAMES = [opening + body for opening in _OPENINGS for body in _BODIES]

INPUT = np.array([[1, 2]], np.float32)


class Calls(list):
    """What was called; a file named ``ran`` counts, too."""

    def __bool__(self):
        return len(self) > 0 or os.path.exists("ran")


def watched(monkeypatch):
    """Return what lists the calls of the function that the names call."""
    calls = Calls()
    monkeypatch.setattr(builtins, "ran", lambda *args: calls.append(args), raising=False)
    return calls


def single(name):
    """Return a network with one parameter, under a name, and its parameters."""
    weight = mx.sym.Variable(name, shape=(2,))
    net = mx.sym.broadcast_add(mx.sym.Variable("data"), weight, name=f"{name}+")
    return net, {name: mx.nd.array([3, 5])}


def network(names):
    """Return a network with parameters and operators of these names, and its parameters."""
    net, values = mx.sym.Variable("data"), {}
    for number, name in enumerate(names):
        net = mx.sym.broadcast_add(net, mx.sym.Variable(name, shape=(2,)), name=f"{name}+")
        values[name] = mx.nd.array([number, 1])
    return net, values


def expected(names):
    """Return what `network` computes of `INPUT`."""
    return INPUT + np.array([sum(range(len(names))), len(names)])


def outputs(net, values):
    """Run a network on `INPUT`."""
    return net.bind(mx.cpu(), {"data": mx.nd.array(INPUT), **values}).forward()[0].asnumpy()
