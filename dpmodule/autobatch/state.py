"""The one graph that expressions are added to, and the settings that `configure` changes."""

from __future__ import annotations

import torch

from .. import native
from ..context import cpu
from ..devices.generators import generator
from .errors import ArgumentError
from .interface import EngineGraph, Options
from .native_engine.graph import NativeGraph
from .python_engine.graph import PythonGraph

__all__ = ["State", "state"]


class State:
    """What the package's functions share.

    Attributes:
        options: what graphs are computed with.
        graph: the one under construction.
        weight_decay: of collections made from now on.
        engine: "auto", "python" or "native", as `configure` set it.
    """

    __slots__ = ("_graphs", "engine", "graph", "options", "weight_decay")

    def __init__(self) -> None:
        self.options = Options(generator=generator(cpu()))
        self.weight_decay = 0.0
        self.engine = "auto"
        self._graphs: dict[bool, EngineGraph] = {}
        self.graph = self._engine_graph()
        self.graph.renew()

    def choose_engine(self, name: str) -> None:
        """Choose what computes graphs made from now on.

        Raises:
            ArgumentError: there is no such engine here.
        """
        if not isinstance(name, str) or name not in ("auto", "python", "native"):
            raise ArgumentError(f'engine is {name!r}, expected "auto", "python" or "native"')
        if name == "native" and native.core is None:
            raise ArgumentError(f'engine is "native", but the extension is not here: {native.error}')
        self.engine = name

    def renew(self) -> None:
        """Begin a new graph with the present settings."""
        found = self._engine_graph()
        for other in self._graphs.values():
            other.leave()
        found.version = max(self.graph.version, found.version)
        self.graph = found
        found.renew()

    def _engine_graph(self) -> EngineGraph:
        """Return the graph of the engine that computes what is set."""
        is_native = self._is_native()
        found = self._graphs.get(is_native)
        if found is None:
            found = NativeGraph(native.core, self.options) if is_native else PythonGraph(self.options)
            self._graphs[is_native] = found
        return found

    def _is_native(self) -> bool:
        """The native engine computes in float32 on the CPU."""
        options = self.options
        fits = options.dtype is torch.float32 and options.device.type == "cpu"
        return native.core is not None and self.engine != "python" and fits


state = State()
