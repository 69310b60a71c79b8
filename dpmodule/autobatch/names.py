"""What DyNet's module has besides: versions, and ways to set it up that now only pass their settings on."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from .errors import ArgumentError
from .options import configure, take_arguments
from .picture import graphviz_text

__all__ = ["DynetParams", "HAVE_CUDA", "dump_cg", "init", "init_from_params"]

HAVE_CUDA = torch.cuda.is_available()
"""Whether graphs can be on a GPU."""


class DynetParams:
    """Settings collected first and put into force by `init`; `configure` does both at once."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def from_args(self, shared_parameters: Any = None) -> None:
        """Take the ``--dynet-...`` arguments out of `sys.argv`."""
        found = take_arguments(sys.argv)
        for name, kind in (("autobatch", int), ("random_seed", int), ("weight_decay", float)):
            if name in found:
                self._settings[name] = kind(found[name])

    def from_config(self, conf: Mapping[str, Any]) -> None:
        """Take the settings that `dynet_config.get()` returns.

        Args:
            conf: by name: "seed", "autobatch", "weight_decay", "requested_gpus", "gpu_mask"; others do nothing.
        """
        self.set_random_seed(int(conf["seed"]))
        self.set_autobatch(bool(conf["autobatch"]))
        self.set_weight_decay(float(conf["weight_decay"]))
        self.set_requested_gpus(conf["requested_gpus"])
        self.set_gpu_mask(conf["gpu_mask"] or [])

    def set_autobatch(self, autobatch: bool) -> None:
        """Choose whether graphs are batched."""
        self._settings["autobatch"] = autobatch

    def set_random_seed(self, random_seed: int) -> None:
        """Choose the seed of random numbers."""
        self._settings["random_seed"] = random_seed

    def set_weight_decay(self, weight_decay: float) -> None:
        """Choose the weight decay of new collections."""
        self._settings["weight_decay"] = weight_decay

    def set_requested_gpus(self, requested_gpus: int) -> None:
        """Choose whether graphs are on a GPU."""
        if requested_gpus:
            self._settings["device"] = "GPU:0"

    def set_cpu_mode(self) -> None:
        """Choose the CPU."""
        self._settings["device"] = "CPU"

    def set_mem(self, mem: int) -> None:
        """Do nothing: memory grows as it is needed."""

    def set_profiling(self, profiling: int) -> None:
        """Do nothing; see `explain`."""

    def set_shared_parameters(self, shared_parameters: bool) -> None:
        """Do nothing: use `mx.hogwild` to train with several processes."""

    def set_gpu_mask(self, gpu_mask: list[int]) -> None:
        """Choose a GPU by ones and zeros.

        Raises:
            ArgumentError: there is anything else in the list.
        """
        if any(each not in (0, 1) for each in gpu_mask):
            raise ArgumentError("gpu_mask should only contain 0 and 1s")
        if 1 in gpu_mask:
            self._settings["device"] = f"GPU:{gpu_mask.index(1)}"

    def init(self) -> None:
        """Put the settings into force."""
        configure(**self._settings)


def init(shared_parameters: Any = None) -> None:
    """Take the ``--dynet-...`` arguments out of `sys.argv` and follow them; importing the package has done so."""
    params = DynetParams()
    params.from_args()
    params.init()


def init_from_params(params: DynetParams) -> None:
    """Put settings into force."""
    params.init()


def dump_cg(
    filename: str = "", show_values: bool = True, show_gradients: bool = True, nan_check_only: bool = False
) -> None:
    """Write the graph under construction in graphviz' language.

    Args:
        filename: where to; the standard error output if not given.
        show_values: taken for DyNet's signature.
        show_gradients: taken for DyNet's signature.
        nan_check_only: taken for DyNet's signature.
    """
    if filename:
        with open(filename, "w", encoding="utf-8") as target:
            target.write(graphviz_text())
    else:
        sys.stderr.write(graphviz_text())
