"""Graphs of both engines have what expressions ask for."""

import inspect

import pytest

from dpmodule import native
from dpmodule.autobatch.graph import EngineGraph, Options
from dpmodule.autobatch.native_engine.graph import NativeGraph
from dpmodule.autobatch.python_engine.graph import PythonGraph


@pytest.mark.parametrize("kind", [PythonGraph, NativeGraph])
def test_graphs_have_the_whole_interface(kind):
    if kind is NativeGraph and native.core is None:
        pytest.skip("no native extension")
    graph = PythonGraph(Options()) if kind is PythonGraph else NativeGraph(native.core, Options())
    members = {name for name in dir(EngineGraph) if not name.startswith("_")}
    members |= {*EngineGraph.__annotations__}
    assert len(members) > 35
    assert {name for name in members if not hasattr(graph, name)} == set()
    for name in members:
        if inspect.isfunction(getattr(EngineGraph, name, None)):
            both = [inspect.signature(getattr(k, name)).parameters.values() for k in (kind, EngineGraph)]
            found, wanted = ([(p.name, p.default) for p in each] for each in both)
            assert found == wanted, name
    graph.deactivate()
