"""Gluon is left out: programs may name it; making or calling something of it says what takes its place."""

import importlib
from abc import ABC
from contextlib import suppress

import pytest

import dpmodule as mx
from dpmodule.gluon.names_left_out import MODULES


def test_a_twin_may_be_defined_beside_a_symbol():
    from dpmodule.gluon import nn

    @mx.util.use_np_shape
    class Net(mx.gluon.HybridBlock, ABC):
        def __init__(self, units):
            super().__init__()
            self.body = nn.Dense(units)

        def hybrid_forward(self, F, x):
            return self.body(x)

    class Deeper(Net, nn.HybridSequential):
        pass

    assert issubclass(Deeper, mx.gluon.HybridBlock)
    assert not isinstance(mx.sym.Variable("x"), (Net, nn.Dense, mx.gluon.Block))
    assert not hasattr(Net, "no_such_attribute")
    with pytest.raises(mx.MXNetError, match=r"gluon\.HybridBlock, from which Net derives, is not available"):
        Net(3)
    with pytest.raises(mx.MXNetError, match="from which Deeper derives"):
        Deeper(units=3)
    with pytest.raises(ZeroDivisionError), suppress(mx.gluon.parameter.DeferredInitializationError):
        _ = 1 / 0


def test_every_module_of_gluon_can_be_imported_with_its_names():
    from dpmodule.gluon.nn.basic_layers import Dense

    assert Dense is mx.gluon.nn.Dense
    assert mx.gluon.nn.Block is mx.gluon.block.Block is mx.gluon.Block
    for package, modules in MODULES.items():
        found: dict[str, object] = {}
        exec(f"from dpmodule.gluon{'.' if package else ''}{package} import *", found)
        for module, names in modules.items():
            assert set(names.split()) <= set(found)
            home = importlib.import_module(".".join(filter(None, ("dpmodule.gluon", package, module))))
            assert all(isinstance(getattr(home, name), type) for name in names.split())
