"""Random number generators: one `torch.Generator` per Context and one NumPy generator for the host.

Nothing in the package draws from torch's global generator, so seeding here repeats a run and leaves the
user's own torch code alone. A program that never calls `seed` runs under seed 0, as in MXNet.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..base import ArgumentError
from ..context import Context, gpu_module, num_gpus

_generators: dict[Context, torch.Generator] = {}
_base_seed = 0
_num_children = 0
_rank = 0
_host: np.random.RandomState | None = None


def _seed_of(ctx: Context) -> int:
    """Return a different seed for every context of every rank."""
    # torch's CPU generator only uses the low 32 bits
    return (_base_seed + ctx.device_id * 0x9E3779B9 + _rank * 0x85EBCA6B) % 2**32


def set_rank(rank: int) -> None:
    """Draw other numbers than the other ranks do under the same seed.

    Args:
        rank: rank of this process; 0 draws the numbers of a single process. A new rank restarts the streams.
    """
    global _rank
    if rank == _rank:
        return
    _rank = rank
    for ctx, gen in _generators.items():
        gen.manual_seed(_seed_of(ctx))
    if _host is not None:
        _host.seed(_seed_of(Context("cpu", 0)))


def generator(ctx: Context) -> torch.Generator:
    """Return the generator of a context, making it on first use."""
    gen = _generators.get(ctx)
    if gen is None:
        gen = _generators[ctx] = torch.Generator(device=ctx.torch_device)
        gen.manual_seed(_seed_of(ctx))
    return gen


def host() -> Any:
    """Return the NumPy generator for shuffling on the host.

    Until `seed` is called this is NumPy's global generator, as in MXNet, so that ``numpy.random.seed``
    repeats a shuffle; afterwards it is a generator seeded by `seed`.
    """
    return np.random if _host is None else _host


def drawn_seed() -> int:
    """Draw a seed from the generator of the host."""
    return int(host().randint(0, 2**31 - 1))


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Seed the generator of one context, or of every context and the host.

    Args:
        seed_state: an integer; negative ones are taken modulo 2^32.
        ctx: a Context, a torch device, a device type such as "cpu" for its first device, or "all".

    Raises:
        ArgumentError: `seed_state` is not an integer, or `ctx` is not one of these.
    """
    global _base_seed, _num_children, _host
    if isinstance(seed_state, bool) or not isinstance(seed_state, (int, np.integer)):
        raise ArgumentError(f"seed_state is {seed_state!r}, expected an integer")
    number = int(seed_state) % 2**32
    if ctx == "all":
        _base_seed, _num_children = number, 0
        _host = np.random.RandomState(_seed_of(Context("cpu", 0)))
        for context, gen in _generators.items():
            gen.manual_seed(_seed_of(context))
    elif isinstance(ctx, (Context, torch.device, str)):
        generator(Context(ctx)).manual_seed(number)
    else:
        raise ArgumentError(f'ctx is {ctx!r}, expected a Context, a device type or "all"')


def seed_all(number: int) -> None:
    """Seed all random number generators: Python, NumPy, torch on all devices, and this package.

    Args:
        number: an integer; negative ones are taken modulo 2^32.

    Raises:
        ArgumentError: `number` is not an integer.

    Example:
        >>> mx.random.seed_all(7)
        >>> first = random.random()
        >>> mx.random.seed_all(7)
        >>> random.random() == first
        True
    """
    seed(number)
    low = int(number) % 2**32
    random.seed(low)
    np.random.seed(low)
    torch.manual_seed(low)


def child_seed() -> tuple[int, int]:
    """Return the entropy of the next child process for `seed_process`: this process's seed and the child's number."""
    global _num_children
    _num_children += 1
    importlib.import_module("numpy.random")  # NumPy imports it late; forked children inherit it
    return _base_seed, _num_children


def seed_process(entropy: Sequence[int]) -> None:
    """Seed all generators of this process: Python, NumPy, torch, and those of every context.

    The host draws from NumPy's global generator afterwards, as in a program that has not called `seed`.

    Args:
        entropy: integers from 0; different ones give different numbers.
    """
    global _base_seed, _num_children, _host
    numbers = [int(number) for number in np.random.SeedSequence(entropy).generate_state(4)]
    random.seed(numbers[0])
    np.random.seed(numbers[1])
    torch.manual_seed(numbers[2])
    _base_seed, _num_children, _host = numbers[3], 0, None
    for context, gen in _generators.items():
        gen.manual_seed(_seed_of(context))


def get_state() -> dict[str, Any]:
    """Return the state of every generator, to hand to `set_state`."""
    return {
        "contexts": {ctx: gen.get_state() for ctx, gen in _generators.items()},
        "host": host().get_state(),
        "seeded": _host is not None,
    }


def set_state(state: dict[str, Any]) -> None:
    """Restore every generator to a state that `get_state` returned."""
    global _host
    for ctx, saved in state["contexts"].items():
        generator(ctx).set_state(saved)
    _host = np.random.RandomState() if state["seeded"] else None
    host().set_state(state["host"])


def state_dict() -> dict[str, Any]:
    """Return the states of all generators, including Python, NumPy and torch, as plain data and arrays."""
    return {
        "contexts": [[ctx.device_type, ctx.device_id, gen.get_state()] for ctx, gen in _generators.items()],
        "host": None if _host is None else list(_host.get_state()),
        "seed": _base_seed,
        "children": _num_children,
        "python": _listed(random.getstate()),
        "numpy": list(np.random.get_state()),
        "torch": torch.get_rng_state(),
        "cuda": gpu_module().get_rng_state_all() if num_gpus() else [],
    }


def load_state_dict(state: Mapping[str, Any]) -> None:
    """Restore all generators to the states that `state_dict` returned."""
    global _base_seed, _num_children, _host
    _base_seed, _num_children = state["seed"], state["children"]
    for kind, number, saved in state["contexts"]:
        generator(Context(kind, number)).set_state(saved)
    _host = None if state["host"] is None else np.random.RandomState()
    if _host is not None:
        _host.set_state(tuple(state["host"]))
    version, numbers, spare = state["python"]
    random.setstate((version, tuple(int(number) for number in numbers), spare))
    np.random.set_state(tuple(state["numpy"]))
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        gpu_module().set_rng_state_all(list(state["cuda"]))


def _listed(state: tuple[Any, ...]) -> list[Any]:
    """Return the state of Python's generator with its numbers in an array."""
    version, numbers, spare = state
    return [version, np.array(numbers, np.int64), spare]
