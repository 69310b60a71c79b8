"""How the calls of data/symbols/names.json are run: on MXNet, which recorded them, and on this package."""

import json

import numpy as np


def scoped(mx):
    with mx.AttrScope(ctx_group="dev1", __x__="1"):
        x = mx.sym.Variable("a", lr_mult=3)
        y = mx.sym.FullyConnected(x, num_hidden=2, attr={"__x__": "2"})
    return mx.sym.BatchNorm(y)


def scoped_bare(mx):
    with mx.AttrScope(foo="1"):
        return mx.sym.FullyConnected(mx.sym.Variable("a"), num_hidden=2)


def prefixed(mx):
    with mx.name.Prefix("p_"):
        x = mx.sym.Variable("a")
        y = mx.sym.FullyConnected(x, num_hidden=2)
        return mx.sym.FullyConnected(y, num_hidden=2, name="q")


def shared_states(mx):
    states = {"moving_mean": mx.sym.Variable("m"), "moving_var": mx.sym.Variable("v")}
    x = mx.sym.BatchNorm(mx.sym.Variable("a"), name="b1", **states)
    return mx.sym.BatchNorm(x, name="b2", **states)


def composed(mx):
    one = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc1")
    two = mx.sym.FullyConnected(mx.sym.Variable("data2"), num_hidden=5, name="fc2")
    return two(data2=one, name="composed")


def maker(mx, call):
    """Return a function that makes the symbol of a call; some calls are refused."""
    names = dict(globals(), mx=mx, S=mx.sym, a=lambda: mx.sym.Variable("a"), b=lambda: mx.sym.Variable("b"))
    return lambda: eval(call, dict(names, c=lambda: mx.sym.Variable("c", shape=(2, 3, 4, 4)), np=np))


def described(mx, make):
    """Return what is compared of one call, None if it is refused."""
    with mx.name.NameManager():
        try:
            symbol = make()
        except Exception:
            return None
    graph = json.loads(symbol.tojson())
    return {
        "name": symbol.name, "repr": repr(symbol), "outputs": symbol.list_outputs(),
        "arguments": symbol.list_arguments(), "auxiliary": symbol.list_auxiliary_states(),
        "inputs": symbol.list_inputs(), "attr_dict": symbol.attr_dict(), "debug_str": symbol.debug_str(),
        **{key: graph[key] for key in ("nodes", "arg_nodes", "node_row_ptr", "heads")},
    }  # fmt: skip
