"""State of a module during training other than its parameters: contexts, optimizers, kept gradients."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import native
from .._object_state import described, equal
from ..base import ArgumentError
from ..context import gpu_module, num_gpus
from ..graph import Graph
from ..ndarray import NDArray
from ..ops.nn.linear import onednn_is_faster
from ..optimizer.states import load_states
from ..symbol import Symbol
from .updates import Updates

if TYPE_CHECKING:
    from ..optimizer import Optimizer
    from ..params import ParamStore
    from .protocol import Resumable
    from .types import Params


def fingerprint(
    module: Resumable,
    data: object,
    workers: int = 1,
    how: Mapping[str, Any] | None = None,
    params: Params | None = None,
) -> dict[str, Any]:
    """Return what a resumed run must have in common with the saved run: network, optimizer, form of the data, steps.

    Args:
        how: further settings that change the steps, as plain data by description.
        params: result of the module's `get_params`, if available.
    """
    arg_params, aux_params = getattr(module, "live_params", module.get_params)() if params is None else params
    shapes = {name: list(array.shape) for name, array in {**arg_params, **aux_params}.items()}
    symbol = module.symbol if isinstance(getattr(module, "symbol", None), Symbol) else None
    chain = module.all_updates()
    return {
        "network": None
        if symbol is None
        else hashlib.sha256(repr(_structure(symbol.graph)).encode()).hexdigest(),
        "parameters": shapes,
        "optimizer": [_optimizer_text(updates.optimizer) for updates in chain],
        "rates": [rate_of(updates.optimizer) for updates in chain],
        "contexts": [[str(context) for context in updates.group.contexts] for updates in chain],
        "batch_size": getattr(data, "batch_size", None),
        "examples": getattr(data, "num_data", None),
        "workers": workers,
        "how": {
            "the types of 16 bits (amp)": [_half_types(updates.group.symbol) for updates in chain],
            "the parameters that are trained": [sorted(updates.names) for updates in chain],
            "the multipliers of the weight decay": [
                described(updates.optimizer.wd_mult) for updates in chain
            ],
            "the compression of gradients": [_compression(updates.store) for updates in chain],
            "dist_async": [getattr(updates.store, "adds_up", True) is False for updates in chain],
            **(how or {}),
        },
    }


def _half_types(symbol: object) -> list[str]:
    """Return the 16-bit types that a network casts to."""
    graph = getattr(symbol, "graph", None)
    nodes = graph.nodes if isinstance(graph, Graph) else ()
    types = {str(node.params.get("dtype")) for node in nodes if node.op and node.op.name == "amp_cast"}
    return sorted(types - {"float32"})


def _compression(store: object) -> list[Any] | None:
    compression = getattr(store, "compression", None)
    return None if compression is None else [compression.type, compression.threshold]


def _structure(graph: Graph) -> list[Any]:
    """Return a graph without the names of its operators, since automatic names change in every run."""
    return [
        [
            node.name if node.op is None else node.op.name,
            sorted(node.params.items()),
            [(graph.index[child], i) for child, i in node.inputs],
            [_structure(inner) for inner in node.subgraphs],
        ]
        for node in graph.nodes
    ]


def differences(saved: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return descriptions of the differences between two results of `fingerprint`."""
    lines = []
    if saved["parameters"] != here["parameters"]:
        names = sorted({*saved["parameters"], *here["parameters"]})
        before, now = saved["parameters"].get, here["parameters"].get
        lines += [
            f"parameter {name!r} was {before(name)}, is {now(name)}"
            for name in names
            if before(name) != now(name)
        ]
    elif saved["network"] != here["network"]:
        lines.append("the network has other operators or attributes")
    words = {"optimizer": "the optimizer", "contexts": "the contexts", "batch_size": "the batch size"}
    words |= {"examples": "the number of examples", "workers": "the number of processes"}
    lines += [
        f"{what} was {saved[key]}, is {here[key]}" for key, what in words.items() if saved[key] != here[key]
    ]
    before, now = saved["how"], here["how"]
    return lines + [
        f"{what} was {_plain_value(before.get(what))}, is {_plain_value(now.get(what))}"
        for what in dict.fromkeys([*before, *now])
        if before.get(what) != now.get(what)
    ]


def _plain_value(value: Any) -> Any:
    """Return a value for messages, a list of one without the list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _optimizer_text(optimizer: Optimizer) -> str:
    """Return the class of an optimizer and the settings that no schedule changes, as text."""
    plain = _settings(optimizer)
    return f"{type(optimizer).__name__}({', '.join(f'{key}={value}' for key, value in plain.items())})"


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    return {
        key: value
        for key, value in sorted(vars(optimizer).items())
        if isinstance(value, (int, float, str, bool)) and not key.startswith("_") and key not in _SCHEDULED
    }


_rates: weakref.WeakKeyDictionary[Optimizer, Any] = weakref.WeakKeyDictionary()
"""Results of `rate_of`: training changes an optimizer, which a second `fit` may use."""


def rate_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return the learning rate, its schedule and its multipliers as set by the program, as plain data."""
    if optimizer not in _rates:
        schedule = optimizer.lr_scheduler
        settings = described(vars(schedule)) if hasattr(schedule, "__dict__") else {}
        _rates[optimizer] = {
            "learning rate": described(optimizer.lr),
            "schedule": None if schedule is None else {"class": type(schedule).__name__, **settings},
            "multipliers": described(optimizer.lr_mult),
        }
    rate: dict[str, Any] = _rates[optimizer]
    return rate


def _rate_change(saved: Mapping[str, Any], optimizer: Optimizer) -> str | None:
    """Describe a change of the learning rate or its schedule since the saved run; None if there is none."""
    here = rate_of(optimizer)
    if equal(dict(saved), here):
        return None
    return f"the {_rate_text(saved)} of the saved run becomes {_rate_text(here)}"


def _rate_text(rate: Mapping[str, Any]) -> str:
    schedule = rate["schedule"]
    if schedule is None:
        text = f"learning rate {rate['learning rate']}"
    else:
        words = [f"{name}={value}" for name, value in schedule.items() if name != "class" and name[0] != "_"]
        text = f"schedule {schedule['class']}({', '.join(words)})"
    return f"{text} with the multipliers {rate['multipliers']}" if rate["multipliers"] else text


_SCHEDULED = frozenset({"num_update", "begin_num_update", "lr", "aggregate_num", "m_schedule"})
_SCHEDULED |= {"cur_lr", "last_lr", "skip", "lbmult", "admult"}


def optimizer_bytes(updates: Updates) -> bytes:
    """Return the states and update counts of an optimizer."""
    return updates.saved_states(with_optimizer=True)


def load_optimizer_bytes(updates: Updates, data: bytes, rate: Mapping[str, Any]) -> str | None:
    """Load the result of `optimizer_bytes` into the present optimizer.

    Args:
        rate: result of `rate_of` for the saved optimizer; the program may set another learning rate or schedule.

    Returns:
        Description of a change of the learning rate or its schedule; None if there is none.
    """
    states, saved = load_states(data)
    own = updates.optimizer
    if saved is None or type(saved) is not type(own):
        raise ArgumentError(
            f"the saved optimizer is a {type(saved).__name__}, this one a {type(own).__name__}; resume with the same"
        )
    schedule = {} if saved.lr_scheduler is None else vars(saved.lr_scheduler)
    return _restore_optimizer(updates, vars(saved), schedule, states, rate)


def optimizer_state(updates: Updates) -> dict[str, Any]:
    """Return the states, counts and schedule of an optimizer as plain data and arrays."""
    updater, own = updates.active_updater(), updates.optimizer
    attributes = own.__getstate__()
    return {
        "attributes": {key: value for key, value in attributes.items() if key not in _NOT_SAVED},
        "schedule": {} if own.lr_scheduler is None else vars(own.lr_scheduler),
        "states": updater.states,
    }


def load_optimizer_state(updates: Updates, state: Mapping[str, Any], rate: Mapping[str, Any]) -> str | None:
    """Load the result of `optimizer_state`; see `load_optimizer_bytes`."""
    made = type(updates.optimizer).__new__(type(updates.optimizer))
    made.__setstate__({**updates.optimizer.__getstate__(), **state["attributes"]})
    return _restore_optimizer(updates, vars(made), state["schedule"], state["states"], rate)


def keep_settings(updates: Updates, own: Optimizer) -> None:
    """Replace an optimizer that was loaded with its states by `own`, which continues its counts."""
    updater = updates.active_updater()
    loaded = updater.optimizer
    if loaded is own or type(loaded) is not type(own):
        return
    settings = {*_settings(own), *_NOT_SAVED, "lr", "lr_mult", "wd_mult"}
    vars(own).update({key: value for key, value in vars(loaded).items() if key not in settings})
    updater.optimizer = own


def load_states_only(updates: Updates, data: bytes) -> None:
    """Load the states and counts from `optimizer_bytes` into a newly installed optimizer."""
    own = updates.optimizer
    updates.active_updater().set_states(data)
    keep_settings(updates, own)


_NOT_SAVED = ("idx2name", "param_dict", "sym_info", "lr_scheduler")
"""Attributes of an optimizer that the program sets, not the saved run."""


def _restore_optimizer(
    updates: Updates,
    attributes: Mapping[str, Any],
    schedule: Mapping[str, Any],
    states: dict[Any, Any],
    rate: Mapping[str, Any],
) -> str | None:
    """Restore attributes, schedule and states of an optimizer; describe a change of its rate."""
    updater, own = updates.active_updater(), updates.optimizer
    change = _rate_change(rate, own)
    names = _NOT_SAVED if change is None else (*_NOT_SAVED, "lr", "lr_mult")
    if change is None and own.lr_scheduler is not None:
        vars(own.lr_scheduler).update(schedule)
    kept = {key: getattr(own, key) for key in names if hasattr(own, key)}
    vars(own).update({**attributes, **kept})
    updater.states = states
    updater.states_synced = dict.fromkeys(states, False)
    return change


def kernels() -> dict[str, str]:
    """Return the settings that decide which kernels run, by name."""
    return {
        "torch": str(torch.__version__),
        "extension": "none" if native.core is None else "native",
        "large products": "oneDNN" if onednn_is_faster() else "torch",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "GPUs": ", ".join(gpu_module().get_device_name(i) for i in range(num_gpus())) or "none",
    }


def rounding_differences(state: Mapping[str, Any]) -> list[str]:
    """Describe the differences from a saved run that may change the rounding of sums.

    Args:
        state: saved state with the result of `kernels` and the number of threads.
    """
    now = {**kernels(), "threads": torch.get_num_threads()}
    then = {**state["kernels"], "threads": state["threads"]}
    return [f"with {what}: {then[what]}, here {now[what]}" for what in then if then[what] != now.get(what)]


def module_state(module: Resumable) -> dict[str, Any]:
    """Return what `load_module` restores in addition to parameters: differences between contexts, kept gradients."""
    chain = module.all_updates()
    return {
        "kept": [updates.kept.state_dict() for updates in chain],
        "contexts": [_differing_arrays(store) for store in module.stores()],
        "loss_scales": [each.state_dict() for each in module.loss_scales()],
        "owed": [each.state_dict() for each in _compressions(chain)],
    }


def _compressions(chain: Sequence[Updates]) -> list[Any]:
    compressions = [getattr(updates.store, "compression", None) for updates in chain]
    return [compression for compression in compressions if compression is not None]


def load_module(module: Resumable, state: Mapping[str, Any]) -> None:
    """Restore the result of `module_state`."""
    chain = module.all_updates()
    for updates, kept in zip(chain, state["kept"], strict=True):
        updates.kept.load_state_dict(kept, updates.group.contexts)
    for compression, owed in zip(_compressions(chain), state["owed"], strict=True):
        compression.load_state_dict(owed)
    for scale, saved in zip(module.loss_scales(), state["loss_scales"]):
        scale.load_state_dict(saved)
    for store, contexts in zip(module.stores(), state["contexts"], strict=True):
        for k, arrays in enumerate(contexts):
            for name, array in arrays.items():
                target: NDArray = store.aux(name, k) if name in store.aux_names() else store.array(name, k)
                target[:] = array.as_in_context(target.context)


def _differing_arrays(store: ParamStore) -> list[dict[str, NDArray]]:
    """Return the arrays that differ between contexts, for each context; an empty list for one context."""
    count = len(store.contexts)
    if count == 1:
        return []
    aux = [{name: store.aux(name, k) for name in store.aux_names()} for k in range(count)]
    args = [{name: store.array(name, k) for name in store.names()} for k in range(count)]
    differing = []
    for k in range(count):
        rows = {**args[k], **aux[k]}
        first = {**args[0], **aux[0]}
        differing.append(
            {n: a for n, a in rows.items() if not np.array_equal(a.asnumpy(), first[n].asnumpy())}
        )
    # the first context differs from the mean if any other differs from it
    names = {name for each in differing for name in each}
    differing[0] = {name: {**args[0], **aux[0]}[name] for name in names}
    return differing
