"""Running one torch module from several threads, in either mode, with random numbers of one's own."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..context import gpu_module, is_gpu

_random_lock = threading.RLock()


class Instances:
    """A torch module and as many copies of it as run at the same time.

    `torch.func.functional_call` puts tensors into a module for the time of a call, so that no two threads may use
    one module. A copy shares all parameters and buffers.

    Args:
        module: the module; it is used itself whenever it is free.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._is_free = True
        self._copies: list[torch.nn.Module] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[torch.nn.Module]:
        """Lend the module, or a copy of it in the same modes, for the length of the block."""
        with self._lock:
            is_own, self._is_free = self._is_free, False
            found = self._module if is_own else self._copies.pop() if self._copies else self._copied()
            for own, part in zip(self._module.modules(), () if is_own else found.modules()):
                part.training = own.training
        try:
            yield found
        finally:
            with self._lock:
                if is_own:
                    self._is_free = True
                else:
                    self._copies.append(found)

    def _copied(self) -> torch.nn.Module:
        shared = {id(t): t for t in (*self._module.parameters(), *self._module.buffers())}
        return copy.deepcopy(self._module, shared)


@contextmanager
def in_mode(module: torch.nn.Module, is_train: bool) -> Iterator[None]:
    """Put a module into training or prediction mode for the length of the block.

    A module that is in the mode already stays as it is, parts that its owner has switched apart included.

    Args:
        module: the module.
        is_train: the mode.
    """
    if module.training is is_train:
        yield
        return
    before = [(part, part.training) for part in module.modules()]
    module.train(is_train)
    try:
        yield
    finally:
        for part, flag in before:
            part.training = flag


@contextmanager
def drawing_from(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Let torch's global random functions draw from a generator for the length of the block.

    One thread at a time: torch has one global generator per device.

    Args:
        generator: the generator, which moves on; None leaves torch's own.
        device: where the numbers are drawn.
    """
    if generator is None:
        yield
        return
    with _random_lock:
        outer = _global_state(device)
        _set_global_state(generator.get_state(), device)
        try:
            yield
        finally:
            generator.set_state(_global_state(device))
            _set_global_state(outer, device)


def _global_state(device: torch.device) -> torch.Tensor:
    return gpu_module().get_rng_state(device) if is_gpu(device) else torch.get_rng_state()


def _set_global_state(state: torch.Tensor, device: torch.device) -> None:
    if is_gpu(device):
        gpu_module().set_rng_state(state, device)
    else:
        torch.set_rng_state(state)
