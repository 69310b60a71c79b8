"""Further functions of DyNet's module: its ways to change settings, and `dump_cg`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from ..base import FileError
from .arguments import as_integer, file_name, flag, number_from
from .errors import ArgumentError, user_line, wrong_type
from .explain import graphviz_text
from .expression import as_list
from .session import configure, from_command_line, gpus, settings_from

HAVE_CUDA = torch.cuda.is_available()
"""True if graphs can run on a GPU."""


class DynetParams:
    """Settings that `init` applies together; `configure` sets and applies them in one call.

    Source: DyNet's `DynetParams`.
    """

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def from_args(self, shared_parameters: Any = None) -> None:
        """Remove the ``--dynet-...`` arguments from `sys.argv` and store them.

        Args:
            shared_parameters: ignored; accepted for compatibility with DyNet.

        Raises:
            ArgumentError: an argument is invalid; then none is removed.
        """
        self._settings.update(settings_from(sys.argv))

    def from_config(self, conf: Mapping[str, Any]) -> None:
        """Store the settings returned by `dynet_config.get()`.

        Args:
            conf: settings by name: "seed", "autobatch", "weight_decay", "requested_gpus", "gpu_mask"; others are
                ignored.

        Raises:
            ForeignValueError: `conf` is not a dict, or a setting has the wrong type.
            KeyError: a setting is missing, as in DyNet.
        """
        if not isinstance(conf, Mapping):
            raise wrong_type("from_config", conf, "is not a dict of settings")
        self.set_random_seed(conf["seed"])
        self.set_autobatch(conf["autobatch"])
        self.set_weight_decay(conf["weight_decay"])
        self.set_requested_gpus(conf["requested_gpus"])
        self.set_gpu_mask(conf["gpu_mask"] or [])

    def set_autobatch(self, autobatch: bool) -> None:
        """Switch batching of graphs on or off.

        Args:
            autobatch: True or False.

        Raises:
            ForeignValueError: it is neither True nor False.
        """
        self._settings["autobatch"] = flag(autobatch, "autobatch")

    def set_random_seed(self, random_seed: int) -> None:
        """Set the random seed.

        Args:
            random_seed: an integer; 0 leaves generators as they are, as in DyNet.

        Raises:
            ForeignValueError: it is not an integer.
        """
        self._settings["random_seed"] = as_integer(random_seed, "random_seed")

    def set_weight_decay(self, weight_decay: float) -> None:
        """Set the weight decay of new collections.

        Args:
            weight_decay: fraction that each update subtracts from a parameter.

        Raises:
            ArgumentError: it is negative or NaN.
            ForeignValueError: it is not a number.
        """
        self._settings["weight_decay"] = number_from(weight_decay, 0.0, "weight_decay")

    def set_requested_gpus(self, requested_gpus: int) -> None:
        """Choose between the CPU and a GPU.

        Args:
            requested_gpus: 0 for the CPU, 1 for the first GPU.

        Raises:
            ArgumentError: the machine has fewer GPUs.
            ForeignValueError: it is not an integer.
        """
        if names := gpus(as_integer(requested_gpus, "requested_gpus")):
            self._settings["device"] = names[0]

    def set_cpu_mode(self) -> None:
        """Choose the CPU."""
        self._settings["device"] = "CPU"

    def set_mem(self, mem: int) -> None:
        """Do nothing: memory grows as needed."""

    def set_profiling(self, profiling: int) -> None:
        """Do nothing; see `explain`."""

    def set_shared_parameters(self, shared_parameters: bool) -> None:
        """Do nothing: use `mx.hogwild` to train with several processes."""

    def set_gpu_mask(self, gpu_mask: list[int]) -> None:
        """Choose a GPU by ones and zeros.

        Args:
            gpu_mask: one number per GPU: 1 for the chosen one, 0 for others.

        Raises:
            ArgumentError: the list contains other numbers.
            ForeignValueError: it is not a list of integers.
        """
        mask = [as_integer(each, "gpu_mask") for each in as_list("gpu_mask", gpu_mask)]
        if any(each not in (0, 1) for each in mask):
            raise ArgumentError(f"gpu_mask should only contain 0 and 1s, got {mask} (at {user_line()})")
        if 1 in mask:
            self._settings["device"] = f"GPU:{mask.index(1)}"

    def init(self) -> None:
        """Apply the settings.

        Raises:
            ArgumentError: a setting is invalid; see `configure`.
        """
        configure(**self._settings)


def init(shared_parameters: Any = None) -> None:
    """Remove the ``--dynet-...`` arguments from `sys.argv` and apply them, as on import.

    Args:
        shared_parameters: ignored; accepted for compatibility with DyNet.

    Raises:
        ArgumentError: an argument is invalid, such as a missing device; then none is removed.
    """
    from_command_line()


def init_from_params(params: DynetParams) -> None:
    """Apply settings.

    Raises:
        ForeignValueError: `params` is not a `DynetParams`.

    Source: DyNet's `init_from_params`.
    """
    if not isinstance(params, DynetParams):
        raise wrong_type("init_from_params", params, "is not a DynetParams")
    params.init()


def dump_cg(
    filename: str = "", show_values: bool = True, show_gradients: bool = True, nan_check_only: bool = False
) -> None:
    """Write the graph under construction in Graphviz's DOT language.

    Args:
        filename: the file; standard error by default.
        show_values: ignored; accepted for compatibility with DyNet.
        show_gradients: ignored; accepted for compatibility with DyNet.
        nan_check_only: ignored; accepted for compatibility with DyNet.

    Raises:
        ArgumentError: `filename` is not a possible file name.
        FileError: the file cannot be written.
        ForeignValueError: `filename` is not a string.

    Source: DyNet's `dump_cg`, with the same arguments.
    """
    if not isinstance(filename, str) or filename:
        try:
            with open(file_name(filename, "dump_cg: filename"), "w", encoding="utf-8") as target:
                target.write(graphviz_text())
        except OSError as failure:
            raise FileError(
                failure.errno, f"cannot write the graph: {failure.strerror}", filename
            ) from failure
    else:
        sys.stderr.write(graphviz_text())
