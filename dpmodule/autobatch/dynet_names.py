"""What DyNet's module has besides: versions, and ways to set it up that now only pass their settings on."""

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
"""Whether graphs can be on a GPU."""


class DynetParams:
    """Settings collected first and put into force by `init`; `configure` does both at once.

    Source: DyNet's `DynetParams`.
    """

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}

    def from_args(self, shared_parameters: Any = None) -> None:
        """Take the ``--dynet-...`` arguments out of `sys.argv`.

        Args:
            shared_parameters: taken as in DyNet, without effect.

        Raises:
            ArgumentError: an argument cannot be followed; then all of them stay.
        """
        self._settings.update(settings_from(sys.argv))

    def from_config(self, conf: Mapping[str, Any]) -> None:
        """Take the settings that `dynet_config.get()` returns.

        Args:
            conf: by name: "seed", "autobatch", "weight_decay", "requested_gpus", "gpu_mask"; others do nothing.

        Raises:
            ForeignValueError: `conf` is no dict, or a setting of a wrong type.
            KeyError: one of these is missing, as in DyNet.
        """
        if not isinstance(conf, Mapping):
            raise wrong_type("from_config", conf, "is no dict of settings")
        self.set_random_seed(conf["seed"])
        self.set_autobatch(conf["autobatch"])
        self.set_weight_decay(conf["weight_decay"])
        self.set_requested_gpus(conf["requested_gpus"])
        self.set_gpu_mask(conf["gpu_mask"] or [])

    def set_autobatch(self, autobatch: bool) -> None:
        """Choose whether graphs are batched.

        Args:
            autobatch: True or False.

        Raises:
            ForeignValueError: it is neither True nor False.
        """
        self._settings["autobatch"] = flag(autobatch, "autobatch")

    def set_random_seed(self, random_seed: int) -> None:
        """Choose the seed of random numbers.

        Args:
            random_seed: an integer; 0 leaves generators as they are, as in DyNet.

        Raises:
            ForeignValueError: it is no integer.
        """
        self._settings["random_seed"] = as_integer(random_seed, "random_seed")

    def set_weight_decay(self, weight_decay: float) -> None:
        """Choose the weight decay of new collections.

        Args:
            weight_decay: share of a parameter that each update takes away, before the learning rate.

        Raises:
            ArgumentError: it is negative or NaN.
            ForeignValueError: it is no number.
        """
        self._settings["weight_decay"] = number_from(weight_decay, 0.0, "weight_decay")

    def set_requested_gpus(self, requested_gpus: int) -> None:
        """Choose whether graphs are on a GPU.

        Args:
            requested_gpus: 0 for the CPU, 1 for the first GPU.

        Raises:
            ArgumentError: there are fewer GPUs here.
            ForeignValueError: it is no integer.
        """
        if names := gpus(as_integer(requested_gpus, "requested_gpus")):
            self._settings["device"] = names[0]

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

        Args:
            gpu_mask: a number for each GPU; 1 for the one that is meant, 0 for others.

        Raises:
            ArgumentError: there is anything else in the list.
            ForeignValueError: it is no list of integers.
        """
        mask = [as_integer(each, "gpu_mask") for each in as_list("gpu_mask", gpu_mask)]
        if any(each not in (0, 1) for each in mask):
            raise ArgumentError(f"gpu_mask should only contain 0 and 1s, and is {mask} (at {user_line()})")
        if 1 in mask:
            self._settings["device"] = f"GPU:{mask.index(1)}"

    def init(self) -> None:
        """Put the settings into force.

        Raises:
            ArgumentError: a setting is impossible; see `configure`.
        """
        configure(**self._settings)


def init(shared_parameters: Any = None) -> None:
    """Take the ``--dynet-...`` arguments out of `sys.argv` and follow them, as importing the package has done.

    Args:
        shared_parameters: taken as in DyNet, without effect.

    Raises:
        ArgumentError: an argument cannot be followed, such as a device that is not here; then all of them stay.
    """
    from_command_line()


def init_from_params(params: DynetParams) -> None:
    """Put settings into force.

    Raises:
        ForeignValueError: `params` is none of `DynetParams`.

    Source: DyNet's `init_from_params`.
    """
    if not isinstance(params, DynetParams):
        raise wrong_type("init_from_params", params, "is no DynetParams")
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

    Raises:
        ArgumentError: no file can be named so.
        FileError: the file cannot be written.
        ForeignValueError: `filename` is no name of a file.

    Source: DyNet's `dump_cg`, its arguments only.
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
