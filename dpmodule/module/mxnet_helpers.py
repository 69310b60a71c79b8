"""Helpers of MXNet's `module` and `model` for programs with their own modules or executor groups.

Detection programs of 2016 to 2019 define variants of `Module` and `DataParallelExecutorGroup` with these helpers,
under private names: ``module.base_module._parse_data_desc``, ``module.executor_group._load_data``,
``model._create_kvstore`` and so on. Those modules export the functions of this one under the old names.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from .. import kvstore as kv
from ..base import ArgumentError, did_you_mean
from ..io import DataDesc
from ..kvstore import create_kvstore as create_kvstore
from ..ndarray import NDArray, concatenate
from ..ndarray import op as array_ops

if TYPE_CHECKING:
    from ..symbol import Symbol
    from .types import BatchLike, ShapesLike

Columns = Sequence[Sequence[Any]]
"""For each parameter, its arrays on all devices."""


_PARAMETER_ENDINGS = ("_weight", "_bias", "_gamma", "_beta")
"""Suffixes of parameter names; other names may be inputs."""


def _raise_or_warn(text: str, throw: bool) -> None:
    if throw:
        raise ArgumentError(text)
    warnings.warn(text, stacklevel=5)


def names_of(names: Sequence[str] | None, argument: str) -> list[str]:
    """Return the names of an argument as a list; None is the empty list."""
    if isinstance(names, str):
        raise ArgumentError(f"{argument} is {names!r}, expected a list of names: [{names!r}]")
    return list(names or ())


def matching(method: str, patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that match a pattern, in their order."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ArgumentError(
                f"{method}: {pattern!r} matches none of the parameters {', '.join(names)}{did_you_mean(pattern, names)}"
            )
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def check_input_names(symbol: Symbol, names: Sequence[str], typename: str, throw: bool) -> None:
    """Raise ArgumentError or warn if the symbol lacks an input.

    Args:
        throw: True to raise, False to warn.
    """
    arguments = symbol.list_arguments()
    for name in names:
        if name not in arguments:
            are_parameters = typename == "fixed_param"
            candidates = [arg for arg in arguments if arg.endswith(_PARAMETER_ENDINGS) == are_parameters]
            hint = did_you_mean(name, arguments) or f"; it has {', '.join(candidates) or 'none of this kind'}"
            _raise_or_warn(
                f"{typename}_names holds {name!r}, which is not an argument of the symbol{hint}", throw
            )


def check_descriptions(shapes: object, argument: str) -> None:
    """Raise ArgumentError for a single description of an array instead of a list."""
    if isinstance(shapes, Mapping) or (isinstance(shapes, tuple) and shapes and isinstance(shapes[0], str)):
        raise ArgumentError(f"{argument} is {shapes!r}, expected a list: [(name, shape), ...]")


def check_names_match(data_names: Sequence[str], data_shapes: ShapesLike, name: str, throw: bool) -> None:
    """Raise ArgumentError or warn if the described inputs are not the module's inputs, in any order."""
    described = [desc[0] for desc in data_shapes]
    if sorted(data_names) != sorted(described):
        _raise_or_warn(
            f"{name}_shapes describe {', '.join(described) or 'nothing'}, but {name}_names are "
            f"{', '.join(data_names) or 'empty'}",
            throw,
        )


def parse_data_desc(
    data_names: Sequence[str],
    label_names: Sequence[str],
    data_shapes: ShapesLike,
    label_shapes: ShapesLike | None,
) -> tuple[list[DataDesc], list[DataDesc] | None]:
    """Return descriptions of inputs and labels as `DataDesc` records.

    Args:
        label_names: the module's labels; if the descriptions differ from these, it warns.
        label_shapes: as `data_shapes`; None = no labels.
    """
    data = [d if isinstance(d, DataDesc) else DataDesc(*d) for d in data_shapes]
    check_names_match(data_names, data, "data", True)
    labels = None
    if label_shapes is not None:
        labels = [d if isinstance(d, DataDesc) else DataDesc(*d) for d in label_shapes]
    check_names_match(label_names, labels or [], "label", False)
    return data, labels


def _copy_slice(source: NDArray, part: slice, target: NDArray, axis: int) -> None:
    """Copy a slice of a batch; without a batch axis, all of it."""
    if axis < 0 or (part.start == 0 and source.shape[axis] == part.stop):
        source.copyto(target)
        return
    if source.stype == "ragged":
        source[part].copyto(target)
        return
    array_ops.slice_axis(source, axis=axis, begin=part.start, end=part.stop).copyto(target)


def load_general(data: Sequence[Any], targets: Sequence[Any], major_axis: Sequence[int]) -> None:
    """Copy arrays into executors' arrays.

    Args:
        data: for each input an array, or a list of one for each device.
        targets: for each input an array, a list of one for each device, or a list of (slice of the batch, array).
        major_axis: each input's batch axis, negative if it has none.

    Shape:
        data[i]: (N, ...), N samples on the axis `major_axis[i]`.
        targets[i]: the same, or the part of a device on that axis.

    Source: MXNet 1.9.1 `module.executor_group._load_general`.
    """
    for source, target, axis in zip(data, targets, major_axis):
        if isinstance(target, NDArray):
            source.copyto(target)
        elif isinstance(source, (list, tuple)):
            for own, array in zip(source, target):
                own.copyto(array)
        else:
            for part, array in target:
                _copy_slice(source, part, array, axis)


def _load_field(batch: BatchLike, part: str, targets: Sequence[Any], major_axis: Sequence[int]) -> None:
    if not isinstance(batch, list):
        load_general(getattr(batch, part), targets, major_axis)
        return
    columns = [[getattr(member, part)[i] for member in batch] for i in range(len(targets))]
    load_general(columns, [[array for _, array in target] for target in targets], major_axis)


def load_data(batch: BatchLike, targets: Sequence[Any], major_axis: Sequence[int]) -> None:
    """Copy the inputs of a batch, or of a list of one batch for each device; see `load_general`.

    Shape:
        batch.data[i]: as `data[i]` of `load_general`.

    Source: MXNet 1.9.1 `module.executor_group._load_data`.
    """
    _load_field(batch, "data", targets, major_axis)


def load_label(batch: BatchLike, targets: Sequence[Any], major_axis: Sequence[int]) -> None:
    """Copy the labels of a batch, or of a list of one batch for each device; see `load_general`.

    Shape:
        batch.label[i]: as `data[i]` of `load_general`.

    Source: MXNet 1.9.1 `module.executor_group._load_label`.
    """
    _load_field(batch, "label", targets, major_axis)


def merge_multi_context(outputs: Columns, major_axis: Sequence[int]) -> list[NDArray]:
    """Concatenate the outputs of the devices along the batch axis; without one, return the first device's array.

    Args:
        major_axis: each output's batch axis, negative if it has none.

    Shape:
        outputs[i][k]: (n, ...), the samples of device k on the axis `major_axis[i]`.
        returns[i]: (N, ...), the samples of all devices.

    Source: MXNet 1.9.1 `module.executor_group._merge_multi_context`.
    """
    merged = []
    for arrays, axis in zip(outputs, major_axis):
        if len(arrays) == 1 or axis < 0:
            merged.append(arrays[0])
        else:
            merged.append(concatenate(arrays, axis=axis, always_copy=False))
    return merged


def initialize_kvstore(
    kvstore: kv.KVStore,
    param_arrays: Columns,
    arg_params: Mapping[str, NDArray],
    param_names: Sequence[str],
    update_on_kvstore: bool,
) -> None:
    """Put parameters into a store, and bring them to the devices if the store updates them.

    Args:
        arg_params: values by name.
        param_names: names in the order of `param_arrays`.

    Shape:
        param_arrays[i][k]: that of the parameter, as all of these.
        arg_params[name]: the same.

    Source: MXNet 1.9.1 `model._initialize_kvstore`.
    """
    for name, arrays in zip(param_names, param_arrays):
        if update_on_kvstore and arg_params[name].stype == "default":
            kvstore.broadcast(name, arg_params[name], out=arrays)
        else:
            kvstore.init(name, arg_params[name])


def _push_and_pull(
    kvstore: kv.KVStore, name: str, grads: Sequence[Any], targets: Sequence[Any], priority: int
) -> None:
    """Push gradients and pull what the store makes of them."""
    if grads[0].stype == "default" and targets[0].stype == "default":
        kvstore.pushpull(name, grads, out=targets, priority=priority)
        return
    kvstore.push(name, grads, priority=priority)
    kvstore.pull(name, out=targets, priority=priority)


def update_params_on_kvstore(
    param_arrays: Columns, grad_arrays: Columns, kvstore: kv.KVStore, param_names: Sequence[str]
) -> None:
    """Update parameters inside a store.

    Args:
        grad_arrays: their gradients; a parameter whose first one is None is left alone.
        param_names: names in the order of `param_arrays`.

    Shape:
        param_arrays[i][k], grad_arrays[i][k]: the shape of the parameter.

    Source: MXNet 1.9.1 `model._update_params_on_kvstore`.
    """
    for i, (weights, grads) in enumerate(zip(param_arrays, grad_arrays)):
        if grads[0] is not None:
            _push_and_pull(kvstore, param_names[i], grads, weights, -i)


def update_params(
    param_arrays: Columns,
    grad_arrays: Columns,
    updater: Callable[..., Any],
    num_device: int,
    kvstore: kv.KVStore | None = None,
    param_names: Sequence[str] | None = None,
) -> None:
    """Update parameters device by device; a store, if given, adds up the gradients before.

    Args:
        grad_arrays: their gradients; a parameter whose first one is None is left alone.
        updater: called with indices, gradients and weights; on device k of n, parameter i has the index ``i * n + k``.
        kvstore: the store; None = every device for itself.
        param_names: names in the order of `param_arrays`; a store needs them.

    Shape:
        param_arrays[i][k], grad_arrays[i][k]: the shape of the parameter.
    """
    if kvstore is not None and param_names is None:
        raise ArgumentError(
            "param_names is None, expected the parameters' names: the kvstore needs them as keys"
        )
    used = [i for i, grads in enumerate(grad_arrays) if grads[0] is not None]
    for i in used:
        if kvstore is not None and param_names is not None:
            _push_and_pull(kvstore, param_names[i], grad_arrays[i], grad_arrays[i], -i)
    for k in range(num_device if used else 0):
        updater(
            [i * num_device + k for i in used],
            [grad_arrays[i][k] for i in used],
            [param_arrays[i][k] for i in used],
        )
