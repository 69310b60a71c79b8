"""Attributes by which programs and subclasses written for MXNet reach into a bucketing module."""

from __future__ import annotations

from typing import Any

from ..context import current_context
from .base_module import BaseModule
from .module import Module

__all__ = ["BucketingNames"]


class BucketingNames(BaseModule):
    """What `BucketingModule` keeps under other names, under the names that MXNet gives it.

    Source: MXNet 1.9.1 `BucketingModule`. Parameters live on the devices alone, so none are ever out of step.
    """

    _options: dict[str, Any]
    _binding: dict[str, Any]
    _default_key: Any
    _key: Any
    _current: Module
    _params_dirty = False

    @property
    def _default_bucket_key(self) -> Any:
        return self._default_key

    @property
    def _curr_bucket_key(self) -> Any:
        return self._key

    @property
    def _curr_module(self) -> Module:
        return self._current

    @property
    def _context(self) -> Any:
        given = self._options["context"]
        return current_context() if given is None else given

    @property
    def _work_load_list(self) -> Any:
        return self._options["work_load_list"]

    @property
    def _fixed_param_names(self) -> list[str]:
        return list(self._options["fixed_param_names"] or ())

    @property
    def _state_names(self) -> list[str]:
        return list(self._options["state_names"] or ())

    @property
    def _group2ctxs(self) -> Any:
        return self._options["group2ctxs"]

    @property
    def _compression_params(self) -> Any:
        return self._options["compression_params"]

    @property
    def _grad_req(self) -> Any:
        return self._binding.get("grad_req")

    @property
    def _total_exec_bytes(self) -> int:
        return 0
