"""Save and load a network: symbol, parameters and optimizer states under one prefix, as MXNet names them.

``<prefix>-symbol.json`` holds the graph, ``<prefix>-<epoch>.params`` the parameters under keys such as
"arg:fc1_weight" and "aux:bn_moving_mean", ``<prefix>-<epoch>.states`` the optimizer's states. Keys without "arg:" and
"aux:", as gluon's ``collect_params().save`` writes them, are read as well: the graph distinguishes states from
parameters. The files of one save are replaced together: after a killed save, loading finds the old set or the new one.

In the format "safetensors" one file, ``<prefix>-<epoch>.safetensors``, holds parameters and graph: the same keys, and
the graph's JSON as the text `SYMBOL`. Loading finds either format.

Files that a run saves within an epoch have "last" (`LAST`) in place of the epoch's number.
"""

from __future__ import annotations

import logging
import operator
import os
import re
from collections.abc import Callable, Collection, Mapping
from typing import SupportsIndex

from .._files import Writer, finish_commit, path_text, read_committed, regular_file, write_set
from ..base import ArgumentError, FileError, FileFormatError
from ..ndarray import NDArray, safetensors, serial
from ..ndarray.convert import bytes_of
from ..ndarray.row_source import FetchedArray
from ..ndarray.sparse_base import fetched
from ..symbol import Symbol, load_json
from ..symbol import load as load_symbol
from . import tables

Params = dict[str, NDArray]
Epoch = SupportsIndex | str

LAST = "last"
"""Replacement of the epoch's number in the names of files that are saved within an epoch."""

FORMATS = ("params", "safetensors")
"""Formats of parameters; also the endings of their files."""

SYMBOL = "symbol"
"""Name of the text that holds the graph in a safetensors file."""


def symbol_file(prefix: str) -> str:
    """Return the name of the file that holds the graph.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
    """
    return f"{path_text(prefix, 'prefix')}-symbol.json"


def params_file(prefix: str, epoch: Epoch, format: str = "params") -> str:
    """Return the name of the file that holds an epoch's parameters in one of `FORMATS`.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
        epoch: its number from 0, or ``"last"``.
        format: ``"params"`` or ``"safetensors"``.
    """
    if format not in FORMATS:
        raise ArgumentError(f"format is {format!r}, expected one of {', '.join(FORMATS)}")
    return f"{path_text(prefix, 'prefix')}-{_tag(epoch)}.{format}"


def states_file(prefix: str, epoch: Epoch) -> str:
    """Return the name of the file that holds an epoch's optimizer states.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
        epoch: its number from 0, or ``"last"``.
    """
    return f"{path_text(prefix, 'prefix')}-{_tag(epoch)}.states"


def run_file(prefix: str, epoch: Epoch) -> str:
    """Return the name of the file that holds the state of a run after an epoch.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
        epoch: its number from 0, or ``"last"``.
    """
    return f"{path_text(prefix, 'prefix')}-{_tag(epoch)}.run"


def tables_file(prefix: str, epoch: Epoch) -> str:
    """Return the name of the manifest of an epoch's tables whose rows are spread over processes.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
        epoch: its number from 0, or ``"last"``.
    """
    return f"{path_text(prefix, 'prefix')}-{_tag(epoch)}.tables"


def save_checkpoint(
    prefix: str,
    epoch: Epoch,
    symbol: Symbol | None,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    remove_amp_cast: bool = True,
    states: bytes | None = None,
    more: Mapping[str, bytes] | None = None,
    format: str = "params",
) -> None:
    """Save a network's graph, parameters and, if given, optimizer states.

    The files replace older ones of the same name together: a kill at any moment leaves either the old set or the new
    one. Files of other epochs stay, and so does an older states file if `states` is None.
    MXNet 1.9.1 reads all of them but safetensors.

    Parameters whose rows are spread over processes are saved in parts, see `tables`; all processes must call this, and
    rank 0 writes the other files.

    Args:
        prefix: path up to the first "-" of the file names; its folder must exist.
        epoch: number of the epoch, from 0, or `LAST`.
        symbol: the graph; None leaves the present file.
        arg_params: parameters by name.
        aux_params: auxiliary states by name.
        remove_amp_cast: remove automatic casts from the saved graph.
        states: the optimizer's states, as `optimizer.Updater.get_states` returns them.
        more: content of further files of the set by path.
        format: "params" is MXNet's; "safetensors" writes ``<prefix>-<epoch>.safetensors``, which also holds the graph.
            An existing file of the other format stays; see `load_params`.

    Raises:
        ArgumentError: `epoch` is neither a number from 0 nor `LAST`, a parameter is not an NDArray, or the format is
            unknown or cannot hold it.
        FileError: a file cannot be written; the old ones stay.
        StateError: tables are spread over processes, and another process does not save.

    Example:
        >>> data = mx.sym.Variable("data")
        >>> net = mx.sym.FullyConnected(data, num_hidden=2, name="fc")
        >>> params = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.zeros((2,))}
        >>> mx.checkpoint.save_checkpoint("net", 1, net, params, {})
        >>> sorted(os.listdir("."))
        ['net-0001.params', 'net-symbol.json']

    Source: MXNet 1.9.1 `model.save_checkpoint`, file for file; MXNet writes them in place, one by one.
    """
    spread = {name: array for name, array in arg_params.items() if _is_spread(array)}
    manifest = tables_file(prefix, epoch)
    if spread:
        whole = {name: array for name, array in arg_params.items() if name not in spread}

        def write(content: bytes) -> None:
            files = {**(more or {}), manifest: content}
            _write(prefix, epoch, symbol, whole, aux_params, remove_amp_cast, states, files, format)

        tables.save(manifest, spread, states is not None, write)
        return
    files = dict(more or {})
    finish_commit(manifest)
    had_tables = os.path.exists(manifest)
    if had_tables:  # of an older save, which the set replaces
        files[manifest] = tables.NO_TABLES
    _write(prefix, epoch, symbol, arg_params, aux_params, remove_amp_cast, states, files, format)
    if had_tables:
        tables.remove(manifest)


def _is_spread(array: NDArray) -> bool:
    return isinstance(array, FetchedArray) and hasattr(array.source, "exchange")


def _write(
    prefix: str,
    epoch: Epoch,
    symbol: Symbol | None,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    remove_amp_cast: bool,
    states: bytes | None,
    more: Mapping[str, bytes],
    format: str,
) -> None:
    """Write the files of `save_checkpoint`."""
    arrays = {**_keyed("arg", arg_params), **_keyed("aux", aux_params)}
    params = params_file(prefix, epoch, format)
    files: dict[str, bytes | Writer] = {}
    text = None if symbol is None else symbol.tojson(remove_amp_cast=remove_amp_cast)
    if format == "safetensors":
        texts = {} if text is None else {SYMBOL: text}
        files[params] = lambda file: safetensors.write(file, arrays, texts)
    else:
        if text is not None and not _holds(symbol_file(prefix), text.encode()):
            files[symbol_file(prefix)] = text.encode()
        files[params] = lambda file: serial.write(file, arrays)
    if states is not None:
        files[states_file(prefix, epoch)] = states
    files.update({path: content for path, content in more.items() if not _holds(path, content)})
    write_set(files, os.path.basename(params).removesuffix(f".{format}"), _file_matcher(prefix))
    logging.info('Saved checkpoint to "%s"', params)
    if states is not None:
        logging.info('Saved optimizer state to "%s"', states_file(prefix, epoch))


def load_checkpoint(prefix: str, epoch: Epoch, fetch: bool = True) -> tuple[Symbol, Params, Params]:
    """Load a network that `save_checkpoint` saved in either format, or that any MXNet saved.

    Args:
        prefix: as in `save_checkpoint`.
        epoch: number of the epoch, or `LAST`.
        fetch: False to return tables that were saved in parts as arrays that read their files when they are read.

    Returns:
        (symbol, arg_params, aux_params); the graph comes from the safetensors file if that has one.

    Raises:
        ArgumentError: the epoch is saved in both formats, and they differ.
        FileError: a file is missing; the message lists the saved epochs.
        FileFormatError: a file is damaged or not a checkpoint.
    """
    symbol = saved_symbol(prefix, epoch)
    return (symbol, *_load_params(prefix, epoch, lambda: symbol, fetch))


def saved_symbol(prefix: str, epoch: Epoch) -> Symbol:
    """Return the graph saved with an epoch, from its safetensors file or else from the prefix's symbol file.

    Args:
        prefix: as in `save_checkpoint`.
        epoch: number of the epoch, or `LAST`.

    Raises:
        FileError: there is no graph; the message lists the saved epochs.
        FileFormatError: it is damaged.
    """
    path = params_file(prefix, epoch, "safetensors")
    if path in params_files(prefix, epoch):
        text = safetensors.read_metadata(path).get(SYMBOL)
        if text is not None:
            try:
                return load_json(text)
            except FileFormatError as error:
                raise FileFormatError(f"{path}: the text {SYMBOL!r}: {error}") from error
    path = symbol_file(prefix)
    finish_commit(path)
    if not os.path.exists(path):
        raise _missing(path, prefix)
    return load_symbol(path)


def load_params(prefix: str, epoch: Epoch, fetch: bool = True) -> tuple[Params, Params]:
    """Load the parameters of an epoch in either format.

    If both formats are saved, as after `dpmodule convert`, they must hold the same parameters. For names without "arg:"
    or "aux:", the saved graph distinguishes auxiliary states.

    Args:
        prefix: as in `save_checkpoint`.
        epoch: number of the epoch, or `LAST`.
        fetch: as in `load_checkpoint`.

    Returns:
        (arg_params, aux_params)

    Raises:
        ArgumentError: the epoch is saved in both formats, and they differ.
        FileError: the file is missing; the message lists the saved epochs.
        FileFormatError: the file is damaged or does not hold parameters of the graph by name.
    """
    return _load_params(prefix, epoch, lambda: saved_symbol(prefix, epoch), fetch)


def _load_params(
    prefix: str, epoch: Epoch, graph: Callable[[], Symbol], fetch: bool
) -> tuple[Params, Params]:
    paths = params_files(prefix, epoch)
    if not paths:
        raise _missing(params_file(prefix, epoch), prefix)
    first, *others = (_named(path) for path in paths)
    if any(not _are_same(first, other) for other in others):
        newest = max(paths, key=os.path.getmtime)
        raise ArgumentError(
            f"{' and '.join(paths)} hold different parameters of the same epoch; remove one of them (the newer is "
            f"{newest})"
        )

    def names() -> tuple[Collection[str], Collection[str]]:
        try:
            symbol = graph()
        except FileError:
            return (), ()
        return symbol.list_arguments(), symbol.list_auxiliary_states()

    arg_params, aux_params, unknown = split_params(first, names)
    for key in unknown:
        if ":" not in key.strip(":"):
            raise FileFormatError(
                f"{paths[0]}: holds an array {key!r}, expected the names of the graph's parameters, such as "
                "'arg:fc1_weight' and 'aux:bn_moving_mean', or without 'arg:' and 'aux:' where the graph is saved "
                "under the same prefix. gluon's save_parameters writes other names: save with net.export or "
                "net.collect_params().save; mx.nd.load reads arrays of any names"
            )
        logging.warning("%s: '%s' is neither arg: nor aux: and is ignored", paths[0], key)
    for name, array in tables.load(tables_file(prefix, epoch)).items():
        arg_params[name] = array.fetched() if fetch else array
    return arg_params, aux_params


def params_files(prefix: str, epoch: Epoch) -> list[str]:
    """Return the files that hold an epoch's parameters: none, one, or one of each format.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
        epoch: its number from 0, or ``"last"``.
    """
    paths = [params_file(prefix, epoch, format) for format in FORMATS]
    for path in paths:
        finish_commit(path)
    return [path for path in paths if os.path.exists(path)]


def _named(path: str) -> Params:
    """Return the arrays of a file by name."""
    arrays = serial.load(path)
    if isinstance(arrays, dict) and arrays:
        return arrays
    if not arrays:
        logging.warning("Params file '%s' is empty", path)
        return {}
    raise FileFormatError(f"{path}: not a checkpoint, since its arrays have no names; read it with nd.load")


def _are_same(arrays: Params, others: Params) -> bool:
    """Return True if arrays have the same names, types, shapes and bits."""
    return set(arrays) == set(others) and all(
        array.stype == other.stype == "default"
        and (array.dtype, array.shape) == (other.dtype, other.shape)
        and bytes_of(array.raw) == bytes_of(other.raw)
        for array, other in ((array, others[name]) for name, array in arrays.items())
    )


def load_states(prefix: str, epoch: Epoch) -> bytes:
    """Return the optimizer states saved with an epoch, for `optimizer.Updater.set_states`.

    Args:
        prefix: as in `save_checkpoint`.
        epoch: number of the epoch, or `LAST`.

    Raises:
        FileError: the file is missing; the message lists the saved epochs.
    """
    path = states_file(prefix, epoch)
    finish_commit(path)
    if not os.path.exists(path):
        raise _missing(path, prefix)
    return read_committed(path)


def epochs(prefix: str) -> list[int]:
    """Return the epochs whose parameters are saved under `prefix`, in ascending order.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
    """
    folder, name = os.path.split(os.fspath(prefix))
    pattern = re.compile(rf"{re.escape(name)}-(\d{{4,}})\.({'|'.join(FORMATS)})", re.DOTALL)
    try:
        matches = map(pattern.fullmatch, os.listdir(folder or "."))
    except OSError:
        return []
    return sorted({int(match[1]) for match in matches if match})


def files(prefix: str) -> list[str]:
    """Return the paths of all files that are saved under `prefix`, sorted.

    Args:
        prefix: path and beginning of the name of every file, such as ``"runs/digits"``.
    """
    folder = os.path.dirname(os.fspath(prefix))
    belongs = _file_matcher(prefix)
    try:
        names = sorted(name for name in os.listdir(folder or ".") if belongs(name))
    except OSError:
        return []
    endings = (*(f".{format}" for format in FORMATS), ".states", ".json", ".run", ".tables")
    return [os.path.join(folder, name) for name in names if name.endswith(endings)]


def _tag(epoch: Epoch) -> str:
    """Return the part of file names that identifies an epoch."""
    if isinstance(epoch, str) and epoch == LAST:
        return epoch
    try:
        number = operator.index(epoch)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise ArgumentError(f"epoch is {epoch!r}, expected a whole number from 0, or {LAST!r}")
    return f"{number:04d}"


def _keyed(kind: str, params: Mapping[str, NDArray]) -> Params:
    for name, array in params.items():
        if not isinstance(array, NDArray):
            raise ArgumentError(
                f"{kind}_params[{name!r}] is a {type(array).__name__}, expected an NDArray; use mx.nd.array"
            )
    # before the files are locked, since other processes may fetch and write at the same time
    return {f"{kind}:{name}": fetched(array) for name, array in params.items()}


def split_params(
    named: Mapping[str, NDArray], graph: Callable[[], tuple[Collection[str], Collection[str]]]
) -> tuple[Params, Params, list[str]]:
    """Return parameters and auxiliary states by their names in the graph, and the names that the graph does not have.

    Args:
        named: the arrays, by names with or without "arg:" or "aux:".
        graph: returns the names of the graph's arguments and of its auxiliary states; called if a name has neither
            "arg:" nor "aux:".
    """
    arg_params: Params = {}
    aux_params: Params = {}
    bare: Params = {}
    for key, array in named.items():
        kind, _, name = key.partition(":")
        if kind in ("arg", "aux") and name:
            (arg_params if kind == "arg" else aux_params)[name] = array
        else:
            bare[key] = array
    arguments, states = graph() if bare else ((), ())
    arg_params.update({key: array for key, array in bare.items() if key in arguments})
    aux_params.update({key: array for key, array in bare.items() if key in states})
    return arg_params, aux_params, [key for key in bare if key not in arguments and key not in states]


def _holds(path: str, content: bytes) -> bool:
    """Return True if a file already has this content, as the graph has after the first epoch."""
    finish_commit(path)
    try:
        with open(path, "rb", opener=regular_file) as file:
            return file.read(len(content) + 1) == content
    except OSError:
        return False


def _file_matcher(prefix: str) -> Callable[[str], bool]:
    """Return a function that is true for the names of files of `prefix`, not of longer prefixes."""
    name = re.escape(os.path.basename(os.fspath(prefix)))
    endings = "|".join((*FORMATS, "states", "run", rf"tables(\.{tables.PART})?"))
    pattern = re.compile(rf"{name}-(symbol\.json|(\d{{4,}}|last)(\.({endings}))?)", re.DOTALL)
    return lambda target: pattern.fullmatch(target) is not None


def _missing(path: str, prefix: str) -> FileError:
    saved = epochs(prefix)
    if saved:
        hint = f"this prefix has the epochs {', '.join(map(str, saved))}"
    else:
        hint = f"nothing is saved under the prefix {os.fspath(prefix)!r}"
    return FileError(2, f"no such file; {hint}", path)
