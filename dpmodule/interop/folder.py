"""Saving a network as a folder with a model card, and loading it from there or from a repository."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .._files import Writer, naming_errors, path_text, read_committed, write_set
from ..base import ArgumentError, DTypeError, FileError, FileFormatError, MissingPackageError, dtype_name
from ..checkpoint.network import split_params
from ..graph.node import printable
from ..io import DataDesc
from ..libinfo import __version__
from ..ndarray import NDArray
from ..ndarray.convert import jsonable
from ..symbol import Symbol
from ..symbol import load as load_symbol
from .weights import INDEX_FILE, WEIGHTS_FILE, is_weights_file, load_weights, weight_files


def make_card(
    name: str,
    config: Mapping[str, Any],
    count: int,
    operators: Mapping[str, int],
    preprocessor: Mapping[str, Any] | None,
    body: str | None,
) -> str:
    """Return a card in Markdown, with YAML before it.

    Args:
        config: content of ``config.json``.
        preprocessor: content of ``preprocessor.json``, or None.
        body: text below the YAML; None for a generated text. A text that begins with YAML is the whole card.
    """
    if body is not None and body.startswith("---"):
        return body
    front = [
        "---",
        "library_name: dpmodule",
        "tags:",
        *(f"- {tag}" for tag in ("dpmodule", "mxnet", "pytorch")),
    ]
    text = _default_text(name, config, count, operators, preprocessor) if body is None else body.strip()
    return "\n".join([*front, "---", "", text, ""])


def _default_text(
    name: str,
    config: Mapping[str, Any],
    count: int,
    operators: Mapping[str, int],
    preprocessor: Mapping[str, Any] | None,
) -> str:
    counts = ", ".join(f"{operator} {times}" for operator, times in sorted(operators.items()))
    lines = [
        f"# {name}",
        "",
        f"A symbolic network of dpmodule {config['library_version']}: {count:,} numbers of parameters.",
        "",
        *_table(config["data"]),
        "",
        f"Outputs: {', '.join(map(_code, config['outputs']))}. Operators: {counts or 'none'}.",
        "",
        "```python",
        "import dpmodule as mx",
        "",
        "module = mx.mod.Module.from_pretrained(FOLDER)  # or the repository's id",
        "outputs = module.predict(...)  # an iterator over batches of the inputs above",
        "```",
    ]
    if preprocessor:
        lines += [
            "",
            f"`preprocessor.json` describes the preprocessing of the data: {', '.join(sorted(preprocessor))}.",
        ]
    return "\n".join(lines)


def _code(name: str) -> str:
    """Return a name as inline code of a table, with line breaks, bars and backquotes escaped."""
    text = printable(name).replace("|", r"\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _table(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [f"| {_code(entry['name'])} | {tuple(entry['shape'])} | {entry['dtype']} |" for entry in inputs]
    return ["| input | shape, the batch first | type |", "|---|---|---|", *rows]


_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FETCHED_FILES = ["*.json", "*.safetensors", "README.md"]


def local_folder(name: str, revision: str | None = None) -> str:
    """Return the path of a folder, or of the local copy of the repository with this id."""
    if os.path.isdir(name):
        return name
    if not _ID.fullmatch(name):
        raise FileError(2, "no such folder, and no repository's id such as user/name", name)
    try:
        import huggingface_hub
    except ImportError:
        raise MissingPackageError(
            f"{name!r} is not a folder here; to fetch it as a repository's id, pip install huggingface_hub"
        ) from None
    try:
        return str(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=_FETCHED_FILES))
    except Exception as error:  # huggingface_hub's error classes change with its versions
        raise FileError(
            getattr(error, "errno", None) or 5, f"cannot fetch the repository: {error}", name
        ) from error


CONFIG_FILE = "config.json"
SYMBOL_FILE = "symbol.json"
PREPROCESSOR_FILE = "preprocessor.json"
_CARD_FILE = "README.md"

MAX_SHARD_BYTES = 5 * 10**9
"""Default limit of the bytes of parameters in one file, as model hubs recommend."""

_VERSION = 1
_PREPROCESSING = ("labels", "mean", "scale", "size")


class Pretrained(NamedTuple):
    """Content of a folder.

    Attributes:
        symbol: the network.
        arg_params: its parameters by name.
        aux_params: its auxiliary states by name.
        config: content of ``config.json``: "data" is a list of dicts with "name", "shape" and "dtype"; "label_names"
            and "state_names" are lists of names.
        preprocessor: preprocessing of the data: "mean", "scale", "size", "labels"; empty if the folder has none.
    """

    symbol: Symbol
    arg_params: dict[str, NDArray]
    aux_params: dict[str, NDArray]
    config: dict[str, Any]
    preprocessor: dict[str, Any]

    @property
    def data_shapes(self) -> list[DataDesc]:
        """Names, shapes and types of the inputs, the batch first, as `Module.bind` takes them."""
        return [DataDesc(entry["name"], entry["shape"], entry["dtype"]) for entry in self.config["data"]]


def save_pretrained(
    folder: str | os.PathLike[str],
    symbol: Symbol,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    data_shapes: Sequence[Any],
    label_names: Sequence[str] = (),
    state_names: Sequence[str] = (),
    preprocessor: Mapping[str, Any] | None = None,
    card: str | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Save a network as a folder, which is created if missing; files of an earlier save are replaced together.

    Args:
        folder: path of the folder.
        arg_params: parameters by name.
        aux_params: auxiliary states by name.
        data_shapes: name and shape, the batch first, of each input, or its `DataDesc`.
        state_names: inputs that carry state from batch to batch.
        preprocessor: some of "mean", "scale", "size" and "labels", as numbers, texts, lists or arrays; None leaves the
            present file.
        card: text of the model card ``README.md``; None leaves the present card, or generates one.
        max_shard_bytes: most bytes of parameters in one file.

    Raises:
        ArgumentError: parameters do not fit the graph or are sparse, or another argument is invalid.
        FileError: a file cannot be written; the present files stay.

    Example:
        >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
        >>> params = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.zeros((2,))}
        >>> mx.interop.save_pretrained("net", net, params, {}, [("data", (1, 3))])
        >>> sorted(os.listdir("net"))
        ['README.md', 'config.json', 'model.safetensors', 'symbol.json']
    """
    path = path_text(folder, "folder")
    params = {**arg_params, **aux_params}
    config = _config(
        symbol, params, _inputs(data_shapes), {"label_names": label_names, "state_names": state_names}
    )
    problems = _mismatches(symbol, params, config)
    if problems:
        raise ArgumentError(f"save_pretrained: {'; '.join(problems)}")
    weights = weight_files(params, max_shard_bytes)
    config["weights"] = INDEX_FILE if INDEX_FILE in weights else WEIGHTS_FILE
    files: dict[str, bytes | Writer] = {
        CONFIG_FILE: json.dumps(config, indent=2).encode(),
        SYMBOL_FILE: symbol.tojson().encode(),
        **weights,
    }
    if preprocessor is not None:
        files[PREPROCESSOR_FILE] = json.dumps(_preprocessing(preprocessor), indent=2).encode()
    if card is not None or not os.path.exists(os.path.join(path, _CARD_FILE)):
        operators = Counter(node.op.name for node in symbol.graph.nodes if node.op is not None)
        count = sum(array.size for array in params.values())
        name = os.path.basename(os.path.abspath(path))
        files[_CARD_FILE] = make_card(name, config, count, operators, preprocessor, card).encode()
    _write(path, files)


def _inputs(data_shapes: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"name": desc[0], "shape": list(desc[1]), "dtype": dtype_name(getattr(desc, "dtype", None))}
        for desc in data_shapes
    ]


def _config(
    symbol: Symbol,
    params: Mapping[str, NDArray],
    inputs: list[dict[str, Any]],
    others: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    dtypes = sorted({dtype_name(array.dtype) for array in params.values()})
    arguments = symbol.list_arguments()
    return {
        "format_version": _VERSION,
        "library_name": "dpmodule",
        "library_version": __version__,
        "data": inputs,
        **{key: [name for name in names if name in arguments] for key, names in others.items()},
        "outputs": symbol.list_outputs(),
        "dtype": dtypes[0] if len(dtypes) == 1 else dtypes,
    }


def _mismatches(symbol: Symbol, params: Mapping[str, NDArray], config: Mapping[str, Any]) -> list[str]:
    """Return descriptions of mismatches between a graph, its parameters and its inputs."""
    known = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
    inputs = [entry["name"] for entry in config["data"]]
    unknown = [name for name in inputs if name not in known]
    inputs += [*config["label_names"], *config["state_names"]]
    mismatches = (
        ("no parameters for", [name for name in known if name not in params and name not in inputs]),
        ("parameters that the symbol does not have:", [name for name in params if name not in known]),
        ("inputs that the symbol does not have:", unknown),
        ("inputs that are also parameters:", [name for name in inputs if name in params]),
    )
    return [f"{what} {', '.join(sorted(names))}" for what, names in mismatches if names]


def _preprocessing(values: Mapping[str, Any]) -> Any:
    unknown = sorted(set(values) - set(_PREPROCESSING))
    if unknown:
        raise ArgumentError(
            f"preprocessor has {', '.join(map(repr, unknown))}, expected some of {', '.join(_PREPROCESSING)}"
        )
    return jsonable(values)


def _write(folder: str, files: Mapping[str, bytes | Writer]) -> None:
    """Write the files as one set, and remove the weight files of an earlier save."""
    with naming_errors(folder):
        os.makedirs(folder, exist_ok=True)
    write_set(
        {os.path.join(folder, name): content for name, content in files.items()},
        "pretrained",
        is_weights_file,
    )
    for name in os.listdir(folder):
        if is_weights_file(name) and name not in files:
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))


def load_pretrained(folder: str | os.PathLike[str], revision: str | None = None) -> Pretrained:
    """Load the network in a folder that `save_pretrained` wrote.

    Args:
        folder: the folder, or a repository's id such as "user/name", which `huggingface_hub` fetches.
        revision: branch, tag or commit of the repository.

    Raises:
        FileError: there is no such folder, a file is missing, or the repository cannot be fetched.
        FileFormatError: a file is damaged, or parameters do not fit the graph; the message lists all that do not.
        MissingPackageError: `folder` is an id, and `huggingface_hub` is not installed.
    """
    path = local_folder(path_text(folder, "folder"), revision)
    if not os.path.exists(os.path.join(path, CONFIG_FILE)) and not os.path.exists(
        os.path.join(path, SYMBOL_FILE)
    ):
        raise FileError(2, f"the folder has no {CONFIG_FILE}; save_pretrained did not write it", path)
    config = _read_config(os.path.join(path, CONFIG_FILE))
    symbol = load_symbol(os.path.join(path, SYMBOL_FILE))
    params = load_weights(path, config.get("weights") == INDEX_FILE)
    problems = _mismatches(symbol, params, config)
    if problems:
        raise FileFormatError(f"{path}: {'; '.join(problems)}")
    names = (symbol.list_arguments(), symbol.list_auxiliary_states())
    arg_params, aux_params, _ = split_params(params, lambda: names)
    preprocessor_file = os.path.join(path, PREPROCESSOR_FILE)
    preprocessor = _read_json(preprocessor_file) if os.path.exists(preprocessor_file) else {}
    return Pretrained(symbol, arg_params, aux_params, config, preprocessor)


def _read_json(path: str) -> dict[str, Any]:
    try:
        content = json.loads(read_committed(path))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise FileFormatError(f"{path}: holds {type(content).__name__}, expected an object")
    return content


def _read_config(path: str) -> dict[str, Any]:
    config = _read_json(path)
    version, data = config.get("format_version"), config.get("data")
    if version != _VERSION:
        raise FileFormatError(
            f"{path}: format_version is {version!r}, expected {_VERSION}; another library wrote it, or a newer "
            "version of this one"
        )
    if not (isinstance(data, list) and all(map(_is_input, data))):
        raise FileFormatError(f"{path}: data is not a list of inputs with name, shape and dtype")
    for entry in data:
        entry.setdefault("dtype", dtype_name(None))
    for key in ("label_names", "state_names"):
        names = config.setdefault(key, [])
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise FileFormatError(f"{path}: {key} is not a list of names")
    return config


def _is_input(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return False
    shape = entry.get("shape")
    try:
        dtype_name(entry.get("dtype"))
    except DTypeError:
        return False
    return isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)
