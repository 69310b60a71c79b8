"""Saving and loading networks for prediction, and parameters to continue training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from typing import Any

from .._core import lazy
from .._files import read_committed
from ..base import ArgumentError, FileFormatError, StateError
from ..checkpoint import load_checkpoint, save_checkpoint, states_file
from ..checkpoint import load_params as load_network_params
from ..graph import variable_dtype, variable_shape
from ..symbol import Group, Symbol
from .executor import check_initialized, runner_of
from .program import Program, default_main_program, load_values
from .reader import DataLoader as DataLoader
from .reader import PyReader as PyReader
from .readers import batch as batch
from .readers import buffered as buffered
from .readers import cache as cache
from .readers import chain as chain
from .readers import compose as compose
from .readers import firstn as firstn
from .readers import map_readers as map_readers
from .readers import shuffle as shuffle
from .variable import Data, LayerState, ParamAttr, Parameter, Variable, declared_shape

_FEED = "__feed__"
_RAGGED = "101"


def _prefix(call: str, path: Any, name: str | None = None) -> str:
    """Return the prefix of file names in a folder, or the folder's own path if `name` is None."""
    try:
        return os.fspath(path) if name is None else os.path.join(os.fspath(path), name)
    except TypeError as error:
        what = "model_path" if name is None else "dirname"
        raise ArgumentError(f"{call}: {what} is {path!r}, expected a path") from error


def _program(call: str, given: Any) -> Program:
    program = default_main_program() if given is None else given
    if not isinstance(program, Program):
        raise ArgumentError(f"{call}: main_program is {program!r}, expected a Program of fluid")
    return program


def save_inference_model(
    dirname: Any,
    feeded_var_names: Sequence[str],
    target_vars: Sequence[Any],
    executor: Any = None,
    main_program: Any = None,
    model_filename: None = None,
    params_filename: None = None,
) -> list[str]:
    """Save the network of some targets: ``model-symbol.json`` and ``model-0000.params`` in a folder.

    Args:
        dirname: the folder, created if needed.
        feeded_var_names: names of the data that the targets depend on, in the order that loading returns.
        target_vars: variables or names.
        executor: ignored.
        main_program: the program; None: the current one.
        model_filename: must be None.
        params_filename: must be None.

    Returns:
        The names of the targets.

    Raises:
        ArgumentError: the targets depend on other data, or an argument is not valid.
        StateError: parameters have no values yet.
        FileError: a file cannot be written.

    Example:
        >>> import dpmodule.fluid as fluid
        >>> program, startup, executor = fluid.Program(), fluid.Program(), fluid.Executor()
        >>> with fluid.program_guard(program, startup):
        ...     out = fluid.layers.fc(fluid.layers.data("x", [3]), 2, act="softmax", name="out")
        >>> executor.run(startup)
        []
        >>> fluid.io.save_inference_model("saved", ["x"], [out], executor, program)
        ['out']
        >>> mx.mod.Module.load("saved/model", 0, data_names=["x"], label_names=None)
        <Module: not bound; x -> out_output; 2 parameters; on cpu(0)>
    """
    call = "save_inference_model"
    program = _program(call, main_program)
    _check_filenames(call, model_filename, params_filename)
    feeds = [feeded_var_names] if isinstance(feeded_var_names, str) else list(feeded_var_names)
    given = target_vars if isinstance(target_vars, (list, tuple)) else [target_vars]
    targets: list[Any] = [program.var(each) if isinstance(each, str) else each for each in given]
    if not targets or not all(isinstance(each, Variable) for each in targets):
        raise ArgumentError(f"{call}: target_vars is {target_vars!r}, expected variables of fluid")
    if not all(each.is_computed for each in targets):
        raise ArgumentError(f"{call}: a target is data or a parameter, expected computed variables")
    symbol = copy(Group([each.symbol for each in targets]))
    needed = [each.name for each in program.data_of(symbol)]
    if sorted(feeds) != sorted(needed):
        raise ArgumentError(
            f"{call}: feeded_var_names is {feeds}, but the targets depend on {', '.join(needed)}"
        )
    internals = symbol.get_internals()
    for number, name in enumerate(feeds):
        internals[name]._set_attr(**{_FEED: str(number)})
    check_initialized(program, symbol)
    arguments, states = (
        {name: program.store.value(name, 0) for name in names if name not in needed}
        for names in (symbol.list_arguments(), symbol.list_auxiliary_states())
    )
    prefix = _prefix(call, dirname, "model")
    os.makedirs(os.fspath(dirname), exist_ok=True)
    save_checkpoint(prefix, 0, symbol, arguments, states)
    return [each.name for each in targets]


def _check_filenames(call: str, *names: Any) -> None:
    if any(name is not None for name in names):
        raise ArgumentError(
            f"{call}: file names are not supported; the files are always model-symbol.json and model-0000.params"
        )


def load_inference_model(
    dirname: Any, executor: Any = None, model_filename: None = None, params_filename: None = None
) -> list[Any]:
    """Load a network of `save_inference_model` into a new program with its own parameters.

    Args:
        model_filename: must be None.
        params_filename: must be None.

    Returns:
        A list of the program, the names of its data, and the variables of the targets.

    Raises:
        FileError: a file is missing.
        FileFormatError: a file is damaged.
    """
    _check_filenames("load_inference_model", model_filename, params_filename)
    symbol, arguments, states = load_checkpoint(_prefix("load_inference_model", dirname, "model"), 0)
    program = Program()
    program.join(Program())
    program.is_test = True
    attributes, internals = symbol.attr_dict(), symbol.get_internals()
    order: dict[int, str] = {}
    values = {**arguments, **states}
    for name in symbol.list_inputs():
        node, own = internals[name], attributes.get(name, {})
        kind = variable_dtype(node.entries[0][0]) or "float32"
        if name in values:
            made = LayerState if name in states else Parameter
            program.add(made(program, node, name, values[name].shape, kind, ParamAttr(name)))
        else:
            program.add(_data(program, node, name, kind, own))
            number = own.get(_FEED, str(len(order)))
            if not number.isdecimal() or int(number) in order:
                raise FileFormatError(
                    f"input {name!r} has {_FEED}={number!r}, expected its index among the inputs"
                )
            order[int(number)] = name
    load_values(program.store, _parameters(program), values)
    targets = [program.add(_target(program, each)) for each in symbol]
    return [program, [order[number] for number in sorted(order)], targets]


def _data(program: Program, symbol: Symbol, name: str, dtype: str, attributes: Any) -> Data:
    """Return the variable of an input from its attributes."""
    level = int(attributes.get("__storage_type__") == _RAGGED)
    variable_shape(symbol.entries[0][0])  # raises for an invalid shape
    shape = declared_shape(attributes)
    if not shape:
        raise FileFormatError(
            f"input {name!r} has no shape; expected a network that save_inference_model saved"
        )
    whole = tuple(size or -1 for size in shape)
    return Data(program, symbol, name, (-1, 1) if level and whole == (-1,) else whole, dtype, level)


def _target(program: Program, symbol: Symbol) -> Variable:
    """Return the variable of an output."""
    return Variable(program, symbol, symbol.entries[0][0].name)


def _saved(program: Program) -> dict[str, Any]:
    names = [each.name for each in program.all_parameters()]
    empty = [name for name in names if name not in program.store.filled]
    if empty:
        raise StateError(
            f"{', '.join(empty)}: these parameters have no values; run the startup program first"
        )
    return {name: program.store.value(name, 0) for name in names}


def _parameters(program: Program) -> dict[str, Parameter]:
    return {each.name: each for each in program.all_parameters()}


def save_params(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Save a program's parameters: ``params-0000.params`` in a folder.

    Args:
        dirname: the folder, created if needed.
        main_program: the program; None: the current one.
        filename: prefix of the file names, in place of "params".

    Raises:
        StateError: parameters have no values yet.
        FileError: a file cannot be written.
    """
    program, prefix = (
        _program("save_params", main_program),
        _prefix("save_params", dirname, filename or "params"),
    )
    values = _saved(program)
    os.makedirs(os.fspath(dirname), exist_ok=True)
    save_checkpoint(prefix, 0, None, values, {})


def save_persistables(
    executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None
) -> None:
    """Save a program's parameters and its optimizer's states, to continue training.

    The files are ``persistables-0000.params`` and, after training, ``persistables-0000.states``.

    Args:
        dirname: the folder, created if needed.
        main_program: the program; None: the current one.
        filename: prefix of the file names, in place of "persistables".

    Raises:
        StateError: parameters have no values yet.
        FileError: a file cannot be written.
    """
    call = "save_persistables"
    _save(_program(call, main_program), _prefix(call, dirname, filename or "persistables"))


def _save(program: Program, prefix: str) -> None:
    values = _saved(program)
    os.makedirs(os.path.dirname(prefix) or os.curdir, exist_ok=True)
    save_checkpoint(prefix, 0, None, values, {}, states=runner_of(program).states())


def save(program: Program, model_path: Any) -> None:
    """Save a program's parameters and its optimizer's states: ``model_path-0000.params`` and ``.states``.

    Args:
        program: the program.
        model_path: prefix of the file names; its folder is created if needed.

    Raises:
        ArgumentError: an argument is not valid.
        StateError: parameters have no values yet.
        FileError: a file cannot be written.

    Source: Paddle 1.8 `fluid.save`.
    """
    _save(_program("save", program), _prefix("save", model_path))


def load(program: Program, model_path: Any, executor: Any = None, var_list: Any = None) -> None:
    """Load parameters and, if saved, the optimizer's states of `save`.

    Args:
        program: the program.
        model_path: prefix of the file names, as for `save`.
        executor: ignored.
        var_list: must be None.

    Raises:
        ArgumentError: the file lacks a parameter of the program, or `var_list` is given.
        ShapeError: a parameter has another shape.
        FileError: the file is missing.

    Source: Paddle 1.8 `fluid.load`.
    """
    if var_list is not None:
        raise ArgumentError("load: var_list is not supported; all parameters of the program are loaded")
    _load_all("load", program, _prefix("load", model_path))


def _load(call: str, main_program: Any, prefix: str) -> Program:
    program = _program(call, main_program)
    values, _ = load_network_params(prefix, 0)
    missing = [each.name for each in program.all_parameters() if each.name not in values]
    if missing:
        raise ArgumentError(f"{call}: {prefix}-0000.params lacks {', '.join(missing)}")
    own = _parameters(program)
    load_values(program.store, own, {name: values[name] for name in own})
    return program


def _load_all(call: str, main_program: Any, prefix: str) -> None:
    """Load parameters and, if saved, the optimizer's states."""
    program, path = _load(call, main_program, prefix), states_file(prefix, 0)
    if program.optimizer is not None and os.path.exists(path):
        runner_of(program).load_states(read_committed(path))


def load_params(executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None) -> None:
    """Load parameters of `save_params`.

    Args:
        main_program: the program; None: the current one.
        filename: prefix of the file names, in place of "params".

    Raises:
        ArgumentError: the file lacks a parameter of the program.
        ShapeError: a parameter has another shape.
        FileError: the file is missing.
    """
    _load("load_params", main_program, _prefix("load_params", dirname, filename or "params"))


def load_persistables(
    executor: Any, dirname: Any, main_program: Any = None, filename: str | None = None
) -> None:
    """Load parameters and, if saved, the optimizer's states of `save_persistables`.

    Args:
        main_program: the program, after the same call of `minimize`; None: the current one.
        filename: prefix of the file names, in place of "persistables".

    Raises:
        ArgumentError: the file lacks a parameter of the program.
        ShapeError: a parameter has another shape.
        FileError: the file is missing.
    """
    call = "load_persistables"
    _load_all(call, main_program, _prefix(call, dirname, filename or "persistables"))


_READERS = ("batch", "buffered", "cache", "chain", "compose", "firstn", "map_readers", "shuffle")
__all__ = [*lazy.own_names(vars()), "DataLoader", "PyReader", *_READERS]
lazy.publish(__name__, __all__)
