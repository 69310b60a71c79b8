"""`ParallelExecutor`, on one place."""

from __future__ import annotations

from typing import Any

from .executor import Executor
from .program import default_main_program


class ParallelExecutor:
    """Runs a program on one place, like `Executor`.

    Args:
        use_cuda: must be False.
        loss_name: accepted.
        main_program: the program; None: the current one.
        share_vars_from: accepted; programs of a startup program share parameters.
        exec_strategy: accepted.
        build_strategy: accepted.
        num_trainers: accepted.
        trainer_id: accepted.
        scope: where the parameters are; None: the current scope.

    Raises:
        DeviceError: `use_cuda` is True.

    Source: Paddle 1.8 `ParallelExecutor`.
    """

    device_count = 1

    def __init__(
        self,
        use_cuda: bool = False,
        loss_name: str | None = None,
        main_program: Any = None,
        share_vars_from: Any = None,
        exec_strategy: Any = None,
        build_strategy: Any = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Any = None,
    ) -> None:
        self._executor = Executor("CUDAPlace" if use_cuda else None)
        self._program = default_main_program() if main_program is None else main_program
        self._scope = scope

    def run(
        self, fetch_list: Any = None, feed: Any = None, feed_dict: Any = None, return_numpy: bool = True
    ) -> list[Any]:
        """Run the program on a batch; see `Executor.run`.

        Args:
            fetch_list: variables or names to return.
            feed: arrays by name, or a list with one such dict.
            feed_dict: the same, by its older name.
            return_numpy: whether to return NumPy arrays.
        """
        given = feed_dict if feed is None else feed
        return self._executor.run(
            self._program, given, fetch_list, scope=self._scope, return_numpy=return_numpy
        )

    def drop_local_exe_scopes(self) -> None:
        """Do nothing, since runs have no scopes of their own."""
