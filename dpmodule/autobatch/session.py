"""The graph under construction, and settings."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch

from .. import native
from .._devices.generators import generator
from .._devices.generators import seed as seed_all
from ..base import did_you_mean, dtype_name
from ..context import Context, cpu, gpu, is_gpu, num_gpus
from ..log import get_logger
from .arguments import as_integer, flag, number_from
from .errors import ArgumentError
from .graph import EngineGraph, Options
from .native_engine.graph import NativeGraph
from .python_engine.graph import PythonGraph


class State:
    """State shared by the package's functions: the graph and the settings."""

    __slots__ = ("_graphs", "engine", "graph", "options", "weight_decay")

    def __init__(self) -> None:
        self.options = Options(generator=generator(cpu()))
        self.weight_decay = 0.0
        self.engine = "auto"
        self._graphs: dict[bool, EngineGraph] = {}
        self.graph = self._engine_graph()
        self.graph.renew()

    def choose_engine(self, name: str) -> None:
        """Choose the engine of new graphs."""
        if not isinstance(name, str) or name not in ("auto", "python", "native"):
            raise ArgumentError(f'engine is {name!r}, expected "auto", "python" or "native"')
        if name == "native" and native.core is None:
            raise ArgumentError(f'engine is "native", but the extension is not installed: {native.error}')
        self.engine = name

    def renew(self) -> None:
        """Start a new graph with the current settings."""
        found = self._engine_graph()
        for other in self._graphs.values():
            other.deactivate()
        found.version = max(self.graph.version, found.version)
        self.graph = found
        found.renew()

    def _engine_graph(self) -> EngineGraph:
        """Return the graph of the engine for the current settings."""
        is_native = self._is_native()
        found = self._graphs.get(is_native)
        if found is None:
            found = NativeGraph(native.core, self.options) if is_native else PythonGraph(self.options)
            self._graphs[is_native] = found
        return found

    def _is_native(self) -> bool:
        """Return True for the native engine, which supports float32 on the CPU."""
        options = self.options
        fits = options.dtype is torch.float32 and options.device.type == "cpu"
        return native.core is not None and self.engine != "python" and fits


state = State()


ComputationGraph = PythonGraph


def renew_cg(
    immediate_compute: bool = False, check_validity: bool = False, autobatching: bool | None = None
) -> EngineGraph:
    """Discard the graph and start a new one; older expressions become invalid.

    Args:
        immediate_compute: compute every expression on creation, which helps to find errors.
        check_validity: raise an error for non-finite values; implies `immediate_compute`.
        autobatching: True to batch this graph; by default as set by `configure`.

    Raises:
        ForeignValueError: an argument is not a bool.
        StateError: a function called by the graph calls it, or another thread is computing the graph.

    Source: DyNet's `renew_cg`.
    """
    state.graph.renew(
        flag(immediate_compute, "immediate_compute"),
        flag(check_validity, "check_validity"),
        None if autobatching is None else flag(autobatching, "autobatching"),
    )
    return state.graph


def cg() -> EngineGraph:
    """Return the graph under construction."""
    return state.graph


def cg_version() -> int:
    """Return the number of previous graphs."""
    return state.graph.version


def cg_checkpoint() -> None:
    """Save the size of the graph for `cg_revert`.

    Raises:
        StateError: a function called by the graph calls it, or another thread is computing the graph.

    Source: DyNet's `cg_checkpoint`.
    """
    state.graph.checkpoint()


def cg_revert() -> None:
    """Remove all expressions made since `cg_checkpoint`.

    Raises:
        StateError: there is no checkpoint to revert to.

    Source: DyNet's `cg_revert`.
    """
    state.graph.revert()


# setting of each argument (without "--dynet-"), and True if a value follows
_ARGUMENTS: dict[str, tuple[str | None, bool]] = {
    "autobatch": ("autobatch", True),
    "seed": ("random_seed", True),
    "weight-decay": ("weight_decay", True),
    "gpus": ("gpus", True),
    "gpu": ("gpu", False),
    "gpu-ids": ("gpu_ids", True),
    "devices": ("devices", True),
    **dict.fromkeys(("mem", "profiling", "autotune"), (None, True)),
    **dict.fromkeys(("viz", "autobatch-debug", "shared-params", "mem-test"), (None, False)),
}

_WITHOUT_EFFECT = {"mem", "profiling", "shared_parameters", "requested_gpus", "gpu_mask"}
"""DyNet's settings that are accepted but ignored."""


def _device(given: Any) -> torch.device:
    """Return the torch device for a Context or a device name of DyNet or torch."""
    if isinstance(given, Context):
        return given.torch_device
    text = str(given)
    if text.upper().startswith("GPU"):
        text = gpu().torch_device.type + text[3:]
    elif text.upper() == "CPU":
        text = "cpu"
    try:
        torch_device = torch.device(text)
    except RuntimeError:
        raise ArgumentError(
            f"device is {given!r}, expected a Context, or a name such as CPU, GPU:0, cuda:0"
        ) from None
    if torch_device.type == "cpu":
        return torch.device("cpu")
    if not is_gpu(torch_device):
        raise ArgumentError(f"device is {given!r}, expected the CPU or a GPU")
    index, count = torch_device.index or 0, num_gpus()
    if index >= count:
        raise ArgumentError(f"device is {given!r}, but torch finds {count or 'no'} GPU on this machine")
    return gpu(index).torch_device


def configure(
    autobatch: bool | int | None = None,
    random_seed: int | None = None,
    weight_decay: float | None = None,
    device: Any = None,
    dtype: Any = None,
    engine: str | None = None,
    **others: Any,
) -> None:
    """Change settings for new graphs and collections, and start a new graph.

    Settings that are not given keep their values. DyNet's other settings (`mem`, `profiling`, `shared_parameters`,
    `requested_gpus`, `gpu_mask`) are ignored: memory grows as needed.

    Args:
        autobatch: True to batch graphs; False initially, as in DyNet.
        random_seed: see `set_random_seed`; 0 is ignored, as in DyNet.
        weight_decay: weight decay of new collections, see `ParameterCollection.set_weight_decay`.
        device: device of new graphs and parameters: a Context, or a name such as "CPU", "GPU:0", "cuda:0".
        dtype: dtype of new graphs and parameters, "float32" (initially) or "float64".
        engine: "python", "native" (requires the extension), or "auto" (initially) for the faster one.
        **others: DyNet's other settings, which are ignored.

    Raises:
        ArgumentError: a setting is unknown, or a value is invalid; then nothing is changed.
        ForeignValueError: a value has the wrong type; then nothing is changed.
        StateError: a function called by the graph calls it.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> dy.configure(autobatch=True, random_seed=1)
        >>> dy.settings()["autobatch"]
        True
        >>> dy.configure(autobatch=False)
    """
    unknown = sorted(set(others) - _WITHOUT_EFFECT)
    if unknown:
        known = [*list(inspect.signature(configure).parameters)[:-1], *_WITHOUT_EFFECT]
        raise ArgumentError(
            f"configure: there is no setting {', '.join(unknown)}{did_you_mean(unknown[0], known, *unknown[1:])}"
        )
    state.graph.check_free("configure")
    options = state.options
    # validate all settings before changing any
    new_dtype = options.dtype if dtype is None else _dtype(dtype)
    new_device = options.device if device is None else _device(device)
    new_autobatch = options.autobatch if autobatch is None else flag(autobatch, "autobatch")
    decay = state.weight_decay if weight_decay is None else number_from(weight_decay, 0.0, "weight_decay")
    seed = 0 if random_seed is None else as_integer(random_seed, "random_seed")
    if engine is not None:
        state.choose_engine(engine)
    if device is not None:
        options.generator = generator(_context(new_device))
    options.dtype, options.device = new_dtype, new_device
    options.autobatch, state.weight_decay = new_autobatch, decay
    if seed:
        set_random_seed(seed)
    state.renew()


def _dtype(given: Any) -> torch.dtype:
    """Return the dtype of graphs."""
    name = dtype_name(given)
    if name not in ("float32", "float64"):
        raise ArgumentError(f"dtype is {name}, expected float32 or float64")
    return torch.float64 if name == "float64" else torch.float32


def _context(device: torch.device) -> Context:
    return gpu(device.index or 0) if is_gpu(device) else cpu()


def settings() -> dict[str, Any]:
    """Return the settings as arguments of `configure`."""
    options = state.options
    return {
        "autobatch": options.autobatch,
        "device": str(options.device),
        "dtype": str(options.dtype).removeprefix("torch."),
        "engine": state.engine,
        "weight_decay": state.weight_decay,
    }


def set_random_seed(seed: int) -> None:
    """Seed initial values, dropout, noise and random inputs: all generators of `dpmodule.random`.

    Raises:
        ForeignValueError: `seed` is not an integer.
    """
    seed_all(as_integer(seed, "random_seed"))


reset_random_seed = set_random_seed


def pop_arguments(argv: list[str]) -> dict[str, str]:
    """Remove the ``--dynet-...`` arguments from a command line.

    Returns:
        The settings by name, "1" for those without a value.
    """
    options: dict[str, str] = {}
    kept: list[str] = []
    waiting = iter(argv)
    for word in waiting:
        prefix = next((p for p in ("--dynet-", "--dynet_") if word.startswith(p)), None)
        if prefix is None:
            kept.append(word)
            continue
        name, equals, value = word[len(prefix) :].replace("_", "-").partition("=")
        setting, has_value = _ARGUMENTS.get(name, (None, False))
        if name not in _ARGUMENTS:
            get_logger(__name__).warning("unknown argument %s is ignored", word)
            continue
        if has_value and not equals:
            value = next(waiting, "")
        if has_value and not value:
            raise ArgumentError(f"the argument {word} needs a value")
        options[setting or name] = value or "1"
    argv[:] = kept
    return options


def settings_from(argv: list[str]) -> dict[str, Any]:
    """Remove the ``--dynet-...`` arguments from a command line.

    Args:
        argv: the command line, changed in place unless an argument is invalid.

    Returns:
        The settings as arguments of `configure`.
    """
    rest = list(argv)
    found = pop_arguments(rest)
    chosen: dict[str, Any] = {}
    for name, kind in (("autobatch", int), ("random_seed", int), ("weight_decay", float)):
        if name in found:
            chosen[name] = _number(name, found[name], kind)
    devices = _devices(found)
    for each in devices:
        _device(each)
    if devices:
        chosen["device"] = devices[0]
    argv[:] = rest
    return chosen


def _devices(found: dict[str, str]) -> list[str]:
    """Return the devices named by arguments; graphs use the first one."""
    if "devices" in found:
        return found["devices"].split(",")
    if "gpu_ids" in found:
        return [f"GPU:{_number('gpu_ids', each, int)}" for each in found["gpu_ids"].split(",")]
    return gpus(max(_number("gpus", found.get("gpus", "0"), int), "gpu" in found))


def gpus(count: int) -> list[str]:
    """Return the names of the first `count` GPUs."""
    names = [f"GPU:{index}" for index in range(count)]
    if names:
        _device(names[-1])
    return names


def from_command_line() -> None:
    """Remove DyNet's arguments from `sys.argv` and apply them; called on import and by `init`."""
    chosen = settings_from(sys.argv)
    if chosen:
        configure(**chosen)


def _number(name: str, text: str, kind: type) -> Any:
    """Convert the value of a command-line argument to a number."""
    try:
        return kind(text)
    except ValueError:
        raise ArgumentError(f"the argument for {name} is {text!r}, expected a number") from None
