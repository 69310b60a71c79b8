"""Attributes by which programs and subclasses written for MXNet reach into a module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ndarray import NDArray
from .base_module import BaseModule
from .executor_group import DataParallelExecutorGroup
from .stage import Stage
from .updates import Updates

__all__ = ["MXNetNames"]


class MXNetNames(BaseModule):
    """What `Module` keeps under other names, or not at all, under the names that MXNet gives it.

    Setting works where MXNet's own programs do it: a module made from a checkpoint by hand sets `_arg_params`,
    `_aux_params`, `params_initialized` and `_preload_opt_states`; one that is to be bound or initialized anew sets
    `binded`, `params_initialized` or `optimizer_initialized` to False.

    Source: MXNet 1.9.1 `Module`. Parameters live on the devices alone, so none are ever out of step.
    """

    _stage: Stage
    _group: DataParallelExecutorGroup | None
    _preloaded: tuple[Mapping[str, NDArray], Mapping[str, NDArray]] | None
    _preloaded_states: str | None
    _workload: list[float] | None
    _updates: Updates | None
    _unbound: bool = False  # bound, but to be bound anew by the next `bind`

    @property
    def group(self) -> DataParallelExecutorGroup:
        """The executor group."""
        raise NotImplementedError

    # parameters

    @property
    def _arg_params(self) -> Mapping[str, NDArray] | None:
        return self._values(0)

    @_arg_params.setter
    def _arg_params(self, values: Mapping[str, NDArray] | None) -> None:
        self._set_values(values, self._values(1))

    @property
    def _aux_params(self) -> Mapping[str, NDArray] | None:
        return self._values(1)

    @_aux_params.setter
    def _aux_params(self, values: Mapping[str, NDArray] | None) -> None:
        self._set_values(self._values(0), values)

    def _values(self, part: int) -> Mapping[str, NDArray] | None:
        if self._stage >= Stage.INITIALIZED:
            return self.get_params()[part]
        return None if self._preloaded is None else self._preloaded[part]

    def _set_values(self, args: Mapping[str, NDArray] | None, aux: Mapping[str, NDArray] | None) -> None:
        if self._stage >= Stage.INITIALIZED:
            self.set_params(args or {}, aux or {}, allow_missing=True)
        elif args is None and aux is None:
            self._preloaded = None
        else:
            self._preloaded = args or {}, aux or {}

    @property
    def _params_dirty(self) -> bool:
        return False

    @_params_dirty.setter
    def _params_dirty(self, dirty: bool) -> None:
        pass

    def _sync_params_from_devices(self) -> None:
        pass

    @property
    def _preload_opt_states(self) -> str | None:
        return self._preloaded_states

    @_preload_opt_states.setter
    def _preload_opt_states(self, path: str | None) -> None:
        self._preloaded_states = path

    # how far the module has come

    @property
    def binded(self) -> bool:
        """Whether `bind` has been called; set to False to bind anew, with the parameters' values kept."""
        return self._stage >= Stage.BOUND and not self._unbound

    @binded.setter
    def binded(self, done: bool) -> None:
        self._unbound = not done

    @property
    def params_initialized(self) -> bool:
        """Whether parameters have values; set to False to have `init_params` give new ones."""
        return self._stage >= Stage.INITIALIZED

    @params_initialized.setter
    def params_initialized(self, done: bool) -> None:
        if not done:
            self._stage = min(self._stage, Stage.BOUND)

    @property
    def optimizer_initialized(self) -> bool:
        """Whether an optimizer is installed; set to False to have `init_optimizer` install another."""
        return self._stage >= Stage.READY

    @optimizer_initialized.setter
    def optimizer_initialized(self, done: bool) -> None:
        if not done:
            self._stage = min(self._stage, Stage.INITIALIZED)

    def _reset_bind(self) -> None:
        self.binded = False

    # the executors and the optimizer

    @property
    def _exec_group(self) -> DataParallelExecutorGroup:
        return self.group

    @property
    def _total_exec_bytes(self) -> int:
        pools = self.group.shared_data_arrays
        return sum(array.raw.nbytes for pool in pools for array in pool.values())

    @property
    def _kvstore(self) -> Any:
        return None if self._updates is None else self._updates.store

    @property
    def _updater(self) -> Any:
        return None if self._updates is None else self._updates.updater

    @property
    def _update_on_kvstore(self) -> bool:
        return self._updates is not None and self._updates.updater is None

    # names and shapes

    @property
    def _output_names(self) -> list[str]:
        return self.output_names

    @property
    def _aux_names(self) -> list[str]:
        return list(self._symbol.list_auxiliary_states())

    @property
    def _data_shapes(self) -> Any:
        return None if self._group is None else self._group.data_shapes

    @property
    def _label_shapes(self) -> Any:
        return None if self._group is None else self._group.label_shapes

    @property
    def _work_load_list(self) -> Sequence[float] | None:
        return self._workload
