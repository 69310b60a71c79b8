"""What a module is in the middle of training, beyond its parameters: states of contexts, optimizers, gradients kept."""

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
    """Return what has to be the same for a run to go on: the network, the optimizer, the data's form, the steps.

    Args:
        how: what else changes the steps, as plain data by names in words.
        params: what its `get_params` returned, if that is at hand.
    """
    arg_params, aux_params = module.get_params() if params is None else params
    shapes = {name: list(array.shape) for name, array in {**arg_params, **aux_params}.items()}
    symbol = module.symbol if isinstance(getattr(module, "symbol", None), Symbol) else None
    chain = module.all_updates()
    return {
        "network": None
        if symbol is None
        else hashlib.sha256(repr(_structure(symbol.graph)).encode()).hexdigest(),
        "parameters": shapes,
        "optimizer": [_optimizer_text(each.optimizer) for each in chain],
        "rates": [rate_of(each.optimizer) for each in chain],
        "contexts": [[str(context) for context in each.group.contexts] for each in chain],
        "batch_size": getattr(data, "batch_size", None),
        "examples": getattr(data, "num_data", None),
        "workers": workers,
        "how": {
            "the types of 16 bits (amp)": [_half_types(each.group.symbol) for each in chain],
            "the parameters that are trained": [sorted(each.names) for each in chain],
            "the multipliers of the weight decay": [described(each.optimizer.wd_mult) for each in chain],
            "the compression of gradients": [_compression(each.store) for each in chain],
            "dist_async": [getattr(each.store, "adds_up", True) is False for each in chain],
            **(how or {}),
        },
    }


def _half_types(symbol: object) -> list[str]:
    """Return the types to which a network casts for the sake of speed."""
    graph = getattr(symbol, "graph", None)
    nodes = graph.nodes if isinstance(graph, Graph) else ()
    found = {str(node.params.get("dtype")) for node in nodes if node.op and node.op.name == "amp_cast"}
    return sorted(found - {"float32"})


def _compression(store: object) -> list[Any] | None:
    found = getattr(store, "compression", None)
    return None if found is None else [found.type, found.threshold]


def _structure(graph: Graph) -> list[Any]:
    """Return a graph without the names of its operators, which a program that names none gets anew each time."""
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
    """Return how two results of `fingerprint` differ, in words."""
    found = []
    if saved["parameters"] != here["parameters"]:
        names = sorted({*saved["parameters"], *here["parameters"]})
        there, now = saved["parameters"].get, here["parameters"].get
        found += [
            f"parameter {name!r} was {there(name)}, is {now(name)}"
            for name in names
            if there(name) != now(name)
        ]
    elif saved["network"] != here["network"]:
        found.append("the network has other operators or attributes")
    words = {"optimizer": "the optimizer", "contexts": "the contexts", "batch_size": "the batch size"}
    words |= {"examples": "the number of examples", "workers": "the number of processes"}
    found += [
        f"{what} was {saved[key]}, is {here[key]}" for key, what in words.items() if saved[key] != here[key]
    ]
    there, now = saved["how"], here["how"]
    return found + [
        f"{what} was {_plain_value(there.get(what))}, is {_plain_value(now.get(what))}"
        for what in dict.fromkeys([*there, *now])
        if there.get(what) != now.get(what)
    ]


def _plain_value(value: Any) -> Any:
    """Return a value as messages show it: that of a single module without the list around it."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _optimizer_text(optimizer: Optimizer) -> str:
    """Return an optimizer's class and the settings that no schedule changes."""
    plain = _settings(optimizer)
    return f"{type(optimizer).__name__}({', '.join(f'{key}={value}' for key, value in plain.items())})"


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    return {
        key: value
        for key, value in sorted(vars(optimizer).items())
        if isinstance(value, (int, float, str, bool)) and not key.startswith("_") and key not in _SCHEDULED
    }


_rates: weakref.WeakKeyDictionary[Optimizer, Any] = weakref.WeakKeyDictionary()
"""What `rate_of` has returned: training changes an optimizer, which may be used in a second `fit`."""


def rate_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return the learning rate, its schedule and its multipliers as the program gave them, as plain data."""
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
    """Say how the learning rate, or its schedule, differs from that of a saved run; None if it does not."""
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
    """Return an optimizer's states with its counts."""
    return updates.active_updater().get_states(dump_optimizer=True)


def load_optimizer_bytes(updates: Updates, data: bytes, rate: Mapping[str, Any]) -> str | None:
    """Continue from states and counts that `optimizer_bytes` returned; the optimizer itself stays the object it is.

    Args:
        rate: what `rate_of` returned of the saved optimizer; the program may give another learning rate, or schedule.

    Returns:
        How the learning rate or its schedule changes, None if it does not.
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
    """Return an optimizer's states, its counts and its schedule, as plain data and arrays."""
    updater, own = updates.active_updater(), updates.optimizer
    attributes = own.__getstate__()
    return {
        "attributes": {key: value for key, value in attributes.items() if key not in _NOT_SAVED},
        "schedule": {} if own.lr_scheduler is None else vars(own.lr_scheduler),
        "states": updater.states,
    }


def load_optimizer_state(updates: Updates, state: Mapping[str, Any], rate: Mapping[str, Any]) -> str | None:
    """Continue from what `optimizer_state` returned; see `load_optimizer_bytes`."""
    made = type(updates.optimizer).__new__(type(updates.optimizer))
    made.__setstate__({**updates.optimizer.__getstate__(), **state["attributes"]})
    return _restore_optimizer(updates, vars(made), state["schedule"], state["states"], rate)


def keep_settings(updates: Updates, own: Optimizer) -> None:
    """Go on with an optimizer in place of the one that was loaded with its states, from that one's counts."""
    updater = updates.active_updater()
    loaded = updater.optimizer
    if loaded is own or type(loaded) is not type(own):
        return
    settings = {*_settings(own), *_NOT_SAVED, "lr", "lr_mult", "wd_mult"}
    vars(own).update({key: value for key, value in vars(loaded).items() if key not in settings})
    updater.optimizer = own


def load_states_only(updates: Updates, data: bytes) -> None:
    """Give an optimizer that has just been installed the states and counts that `optimizer_bytes` returned."""
    own = updates.optimizer
    updates.active_updater().set_states(data)
    keep_settings(updates, own)


_NOT_SAVED = ("idx2name", "param_dict", "sym_info", "lr_scheduler")
"""What of an optimizer belongs to the program that made it."""


def _restore_optimizer(
    updates: Updates,
    attributes: Mapping[str, Any],
    schedule: Mapping[str, Any],
    states: dict[Any, Any],
    rate: Mapping[str, Any],
) -> str | None:
    """Give an optimizer the attributes, its schedule's, and the states that were saved; return how its rate changes."""
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
    """Return what decides which kernels compute, by what it is called."""
    return {
        "torch": str(torch.__version__),
        "extension": "none" if native.core is None else "native",
        "large products": "oneDNN" if onednn_is_faster() else "torch",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "GPUs": ", ".join(gpu_module().get_device_name(i) for i in range(num_gpus())) or "none",
    }


def rounding_differences(state: Mapping[str, Any]) -> list[str]:
    """Return in words what differs from a saved run such that sums may be rounded otherwise.

    Args:
        state: with what `kernels` returned then, and the number of threads.
    """
    now = {**kernels(), "threads": torch.get_num_threads()}
    then = {**state["kernels"], "threads": state["threads"]}
    return [f"with {what}: {then[what]}, here {now[what]}" for what in then if then[what] != now.get(what)]


def module_state(module: Resumable) -> dict[str, Any]:
    """Return what `load_module` puts back beyond parameters: what differs from context to context, gradients kept."""
    chain = module.all_updates()
    return {
        "kept": [each.kept.state_dict() for each in chain],
        "contexts": [_differing_arrays(store) for store in module.stores()],
        "loss_scales": [each.state_dict() for each in module.loss_scales()],
        "owed": [each.state_dict() for each in _compressions(chain)],
    }


def _compressions(chain: Sequence[Updates]) -> list[Any]:
    found = [getattr(each.store, "compression", None) for each in chain]
    return [each for each in found if each is not None]


def load_module(module: Resumable, state: Mapping[str, Any]) -> None:
    """Put back what `module_state` returned."""
    chain = module.all_updates()
    for each, kept in zip(chain, state["kept"], strict=True):
        each.kept.load_state_dict(kept, each.group.contexts)
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
    """Return the arrays of each context where several differ; nothing where there is one context."""
    count = len(store.contexts)
    if count == 1:
        return []
    aux = [{name: store.aux(name, k) for name in store.aux_names()} for k in range(count)]
    args = [{name: store.array(name, k) for name in store.names()} for k in range(count)]
    found = []
    for k in range(count):
        rows = {**args[k], **aux[k]}
        first = {**args[0], **aux[0]}
        found.append({n: a for n, a in rows.items() if not np.array_equal(a.asnumpy(), first[n].asnumpy())})
    # the first context differs from the mean if any other differs from it
    names = {name for each in found for name in each}
    found[0] = {name: {**args[0], **aux[0]}[name] for name in names}
    return found
