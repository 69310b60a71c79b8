"""Graphs of both engines have what expressions ask for, and nobody else asks which engine it is."""

import ast
import inspect
from pathlib import Path

import pytest

import dpmodule
from dpmodule import native
from dpmodule.autobatch.graph import EngineGraph, Options
from dpmodule.autobatch.native_engine.graph import NativeGraph
from dpmodule.autobatch.python_engine.graph import PythonGraph

ENGINES = {"session.py", "expression.py"}
"""Files beside the engines that know a graph's class: its maker, DyNet's name for one, the way without native code."""


def members():
    return {name for name in dir(EngineGraph) if not name.startswith("_")} | set(EngineGraph.__annotations__)


@pytest.mark.parametrize("kind", [PythonGraph, NativeGraph])
def test_graphs_have_the_whole_interface(kind):
    if kind is NativeGraph and native.core is None:
        pytest.skip("no native extension")
    graph = PythonGraph(Options()) if kind is PythonGraph else NativeGraph(native.core, Options())
    assert len(members()) > 35
    assert {name for name in members() if not hasattr(graph, name)} == set()
    for name in members():
        wanted = getattr(EngineGraph, name, None)
        if inspect.isfunction(wanted):
            found = inspect.signature(getattr(kind, name)).parameters
            assert [(each.name, each.default) for each in found.values()] == [
                (each.name, each.default) for each in inspect.signature(wanted).parameters.values()
            ], name
    graph.deactivate()


def test_nobody_asks_which_engine_a_graph_is_of():
    asking = []
    for path in Path(dpmodule.__file__).parent.rglob("*.py"):
        text, names = path.read_text(encoding="utf-8"), {"NativeGraph", "EngineGraph"}
        for node in ast.walk(ast.parse(text)) if any(name in text for name in names) else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass", "type"):
                words = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                if words & names:
                    asking.append(f"{path.name}:{node.lineno}")
    assert asking == []


def test_few_files_know_the_classes():
    folder = Path(dpmodule.__file__).parent / "autobatch"
    found = {
        path.name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in ("python_engine.graph", "native_engine.graph")
    }
    assert found == ENGINES
