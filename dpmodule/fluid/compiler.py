"""`CompiledProgram` and its strategies; programs are compiled when they first run, on one place."""

from __future__ import annotations

from typing import Any

from .._core import lazy
from ..base import ArgumentError
from .program import Program


class _Settings:
    """Attributes that programs set, and that change nothing here."""

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
        )


class BuildStrategy(_Settings):
    """Settings of the compilation; accepted, since they change no results on one place.

    Source: Paddle 1.8 `BuildStrategy`.
    """

    class ReduceStrategy:
        """How gradients of several places are added."""

        AllReduce, Reduce = 0, 1

    class GradientScaleStrategy:
        """How gradients of several places are scaled."""

        CoeffNumDevice, One, Customized = 0, 1, 2


class ExecutionStrategy(_Settings):
    """Settings of the execution; accepted, since they change no results on one place.

    Source: Paddle 1.8 `ExecutionStrategy`.
    """


class CompiledProgram:
    """A program for `Executor.run`, which runs the program itself.

    Args:
        program_or_graph: the program.
        build_strategy: accepted.

    Raises:
        ArgumentError: it is not a program.

    Source: Paddle 1.8 `CompiledProgram`.
    """

    def __init__(self, program_or_graph: Any, build_strategy: Any = None) -> None:
        if not isinstance(program_or_graph, Program):
            raise ArgumentError(
                f"CompiledProgram: program is of type {type(program_or_graph).__name__}, expected a Program of fluid"
            )
        self.program = program_or_graph

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: Any = None,
        exec_strategy: Any = None,
        share_vars_from: Any = None,
        places: Any = None,
    ) -> CompiledProgram:
        """Return the compiled program, which runs on one place.

        Args:
            loss_name: accepted.
            build_strategy: accepted.
            exec_strategy: accepted.
            share_vars_from: accepted; programs of a startup program share parameters.
            places: None, or a list with one place.

        Raises:
            ArgumentError: there are several places.
        """
        if isinstance(places, (list, tuple)) and len(places) > 1:
            raise ArgumentError(
                f"with_data_parallel: got {len(places)} places, expected one; use run_from_files with several workers"
            )
        return self


__all__ = lazy.own_names(vars())
lazy.publish(__name__, __all__)
