"""Write the pages of environment variables and of errors from the code.

``python docs/tables.py OUT`` writes ``OUT/environment.md`` and ``OUT/errors.md``; the build of the site calls `write`.
The message of each example comes from running it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import dpmodule as mx
from dpmodule._core.environment import VARIABLES
from dpmodule.base import MXNetError


@dataclass(frozen=True)
class Help:
    """Advice about an error, and code that causes it."""

    todo: str
    code: str = ""


ERRORS = {
    "MXNetError": Help("Catch it to catch all of this package's errors; old programs do."),
    "ArgumentError": Help(
        "Compare the given and the expected value in the message; for misspelt names it suggests near ones.",
        'mx.metric.create("acuracy")',
    ),
    "SignatureError": Help(
        "Check the names and types in the message; the error is also a `TypeError`, like Python's own for such calls.",
        'mx.optimizer.create("sgd", learning_rat=0.1)',
    ),
    "UnknownNameError": Help(
        "Choose one of the names in the message; the error is also a `KeyError`.", 'mx.Context("tpu")'
    ),
    "OpError": Help(
        "Find the operator's attributes and their types in the [reference](operators/index.md).",
        'mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden="many")',
    ),
    "BoundsError": Help("Compare the index with the sizes in the message.", "mx.nd.zeros((2, 3))[5]"),
    "ShapeError": Help(
        "Print `module.summary()` or `symbol.infer_shape_partial(...)`, and compare with the node in the message; "
        "see [Fix shape errors](../guides/shape_errors.md).",
        'mx.sym.elemwise_add(mx.sym.Variable("a"), mx.sym.Variable("b")).infer_shape(a=(2, 3), b=(4, 3))',
    ),
    "DTypeError": Help(
        "Convert with `astype`, or declare the type: `Variable(dtype=...)`, `DataDesc(..., dtype=...)`.",
        'mx.nd.zeros((2,), dtype="float31")',
    ),
    "StateError": Help(
        "First make the call that the message names, such as `bind`, `init_params` or `init_optimizer`.",
        'mx.mod.Module(mx.sym.Variable("data"), label_names=None).forward(None)',
    ),
    "NotSupportedError": Help(
        "Use an object that supports the call: to display a world, one with `numthreads` 1."
    ),
    "DeviceError": Help(
        "Use an existing device: `mx.num_gpus()` counts GPUs, `dpmodule info` lists them.",
        "mx.nd.zeros((2,), ctx=mx.gpu(99))",
    ),
    "FileError": Help("Check the path and its permissions.", 'mx.nd.load("nowhere.params")'),
    "FileFormatError": Help(
        "The file has another format or is truncated: the message gives the position. `dpmodule check FOLDER` checks a "
        "whole folder.",
        'with open("broken.params", "wb") as file: file.write(b"none")\nmx.nd.load("broken.params")',
    ),
    "MissingPackageError": Help("Install the package with the command in the message."),
    "OutOfMemoryError": Help(
        "Check the shape in the message: reduce the batch, the layer or the attribute that causes it.",
        "mx.nd.zeros((10**9, 10**9))",
    ),
    "NodeError": Help(
        "Check the node, its inputs' shapes and the line of your program in the message.",
    ),
    "LostWorkerError": Help(
        "Check the log of the rank in the message, and restart the job with `resume`; see "
        "[Train in several processes](../guides/several_processes.md).",
    ),
    "NonFiniteError": Help(
        "The message names the first node; see [Find the source of NaN](../guides/nan.md)."
    ),
    "NotImplementedForSymbol": Help(
        "Bind the symbol first, or use the alternative in the message.", 'mx.sym.Variable("x").asnumpy()'
    ),
    "NotSupportedForSparseNDArray": Help(
        'Convert with `tostype("default")`, which makes a dense copy.',
        'mx.nd.sparse.zeros("csr", (2, 3)).reshape((3, 2))',
    ),
    "InternalError": Help("dpmodule never raises it; the name exists for programs that catch it."),
}
"""Advice about each error of `base`; the description of any other error contains it."""


def classes() -> list[type[MXNetError]]:
    """Return every public error class: those of `base` in order, then the others by name."""
    for found in pkgutil.walk_packages(mx.__path__, "dpmodule."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    pending, found_classes = [MXNetError], set[type[MXNetError]]()
    while pending:
        one = pending.pop()
        found_classes.add(one)
        pending += [each for each in one.__subclasses__() if each not in found_classes]
    public = [
        one for one in found_classes if one.__module__.startswith("dpmodule.") and one.__name__[0] != "_"
    ]
    order = {name: number for number, name in enumerate(ERRORS)}
    return sorted(public, key=lambda one: (order.get(one.__name__, len(order)), one.__name__))


def _also(one: type[MXNetError]) -> str:
    """Return the other classes that catch it: its base classes, including built-in ones."""
    above = [each for each in one.__mro__[1:] if each not in (object, BaseException, Exception)]
    return ", ".join(f"`{each.__name__}`" for each in above) or "–"


def message(code: str) -> str:
    """Run a failing example in a temporary folder, and return the message of its error.

    Raises:
        StateError: it does not fail.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            exec(code, {"mx": mx})  # the examples are written above
        except MXNetError as error:
            return str(error)
        finally:
            os.chdir(before)
    raise mx.base.StateError(f"no error from: {code}")


def errors_page() -> str:
    """Return the page of errors."""
    lines = [
        "# Errors",
        "",
        "Every error of this package is an `mx.base.MXNetError` and also an instance of the built-in class that MXNet "
        "raises in the same place, so handlers of old programs still work. Its message states what was called, "
        "what was given, what was expected and what to do.",
        "",
        "```python",
        "import dpmodule as mx",
        "",
        "try:",
        '    mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=-1)',
        "except ValueError as error:  # as in MXNet; mx.base.MXNetError and mx.base.OpError also catch it",
        "    print(error)",
        "```",
        "",
        "## Errors of mx.base",
        "",
        "The general errors are in `mx.base`.",
        "",
    ]
    rows = []
    for one in classes():
        text = " ".join((inspect.getdoc(one) or "").split("\n\n")[0].split())
        if one.__name__ not in ERRORS:
            home = one.__module__.split(".")[1]
            rows.append(f"| `{one.__name__}` | `dpmodule.{home}` | {text} | {_also(one)} |")
            continue
        known = ERRORS[one.__name__]
        lines += [
            f"(error-{one.__name__.lower()})=",
            f"### {one.__name__}",
            "",
            text,
            "",
            f"Also caught as {_also(one)}.",
            "",
        ]
        lines += [f"**What to do:** {known.todo}", ""]
        if known.code:
            lines += ["```text", *(f">>> {line}" for line in known.code.splitlines())]
            lines += [f"{one.__name__}: {message(known.code)}", "```", ""]
    lines += [
        "## Errors of other modules",
        "",
        "| error | part | when | also caught as |",
        "|---|---|---|---|",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def environment_page() -> str:
    """Return the page of environment variables."""
    lines = [
        "# Environment variables",
        "",
        "All variables that this package reads or sets. `dpmodule info` prints those of dpmodule and MXNet that are "
        "set. The column *read* states when a variable is read: setting it later has no effect.",
        "",
        "```bash",
        "DPMODULE_NATIVE=0 dpmodule info",
        "```",
        "",
    ]
    titles = {
        "dpmodule": "dpmodule",
        "MXNet": "MXNet",
        "ParlAI": "ParlAI",
        "torch": "torch and torchrun",
        "NVIDIA": "NVIDIA's libraries",
        "compilers": "Compilers",
        "Windows": "Windows",
    }
    for owner, title in titles.items():
        lines += [
            f"## {title}",
            "",
            "| variable | values | default | read | effect |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| `{one.name}` | {one.values} | {one.default} | {one.read} | {one.text} |"
            for one in VARIABLES
            if one.owner == owner
        ]
        lines.append("")
    return "\n".join(lines)


def write(out: Path) -> list[Path]:
    """Write the pages that have changed into a folder; return the paths of both."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {"environment.md": environment_page(), "errors.md": errors_page()}
    for name, text in texts.items():
        path = out / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return [out / name for name in texts]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/tables.py OUT")
    sys.stdout.write("\n".join(map(str, write(Path(sys.argv[1])))) + "\n")
