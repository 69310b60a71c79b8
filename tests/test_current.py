"""MXNet's class attributes that hold what is current, in each thread on its own."""

from concurrent.futures import ThreadPoolExecutor

import dpmodule as mx
from dpmodule.attribute import AttrScope
from dpmodule.name import NameManager


def in_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_default_context():
    try:
        mx.Context.default_ctx = mx.cpu(3)
        assert mx.current_context() == mx.Context.default_ctx == mx.nd.ones(1).context == mx.cpu(3)
        assert in_thread(lambda: mx.Context.default_ctx) == mx.cpu(0)
        with mx.cpu(5):
            assert mx.Context.default_ctx == mx.cpu(5)
    finally:
        mx.Context.default_ctx = mx.cpu(0)


def test_attribute_scope():
    try:
        AttrScope.current = AttrScope(lr_mult="2", note="hi")
        assert mx.sym.var("x").attr("note") == "hi"
        assert in_thread(lambda: mx.sym.var("x").attr("note")) is None
        with AttrScope(note="inner"):
            assert AttrScope.current.get(None) == {"__lr_mult__": "2", "note": "inner"}
    finally:
        AttrScope.current = AttrScope()


def test_name_manager():
    before = NameManager.current
    try:
        NameManager.current = mx.name.Prefix("p_")
        assert mx.sym.exp(mx.sym.var("x")).name == "p_exp0"
        assert mx.name.Prefix.current is NameManager.current
        assert in_thread(lambda: NameManager.current.get(None, "exp")) == "exp0"
    finally:
        NameManager.current = before
