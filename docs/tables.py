"""Writes the pages that are tables of the code: environment variables, and errors with what to do.

``python docs/tables.py OUT`` writes ``OUT/environment.md`` and ``OUT/errors.md``; the build of the site calls `write`.
What an error of an example says is what running it gave.
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
    """What to do about an error, and lines that bring it about."""

    todo: str
    code: str = ""


ERRORS = {
    "MXNetError": Help("Catch it to catch all of this package's errors; old programs do."),
    "ArgumentError": Help(
        "Compare what the text says was given with what it says was expected; for misspelt names it offers near ones.",
        'mx.metric.create("acuracy")',
    ),
    "SignatureError": Help(
        "Look at the names that the text lists; it is a `TypeError` too, as Python's own for wrong arguments is.",
        'mx.optimizer.create("sgd", learning_rat=0.1)',
    ),
    "OpError": Help(
        "Look the operator up in the [reference](operators/index.md): which attributes it takes, of which type.",
        'mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden="many")',
    ),
    "BoundsError": Help("Look at the index and at the sizes in the text.", "mx.nd.zeros((2, 3))[5]"),
    "ShapeError": Help(
        "Print `module.summary()` or `symbol.infer_shape_partial(...)`, and compare with the node in the text; "
        "see [shape errors](../guides/shape_errors.md).",
        'mx.sym.elemwise_add(mx.sym.Variable("a"), mx.sym.Variable("b")).infer_shape(a=(2, 3), b=(4, 3))',
    ),
    "DTypeError": Help(
        "Convert with `astype`, or declare the type: `Variable(dtype=...)`, `DataDesc(..., dtype=...)`.",
        'mx.nd.zeros((2,), dtype="float31")',
    ),
    "StateError": Help(
        "Make the call that the text names first, such as `bind`, `init_params` or `init_optimizer`.",
        'mx.mod.Module(mx.sym.Variable("data"), label_names=None).forward(None)',
    ),
    "NotSupportedError": Help(
        "Use an object of the family that takes the call: to display a world, one with `numthreads` 1."
    ),
    "DeviceError": Help(
        "Use a device that is there: `mx.num_gpus()` counts GPUs, `dpmodule info` lists them.",
        "mx.nd.zeros((2,), ctx=mx.gpu(99))",
    ),
    "FileError": Help("Look at the path and at its permissions.", 'mx.nd.load("nowhere.params")'),
    "FileFormatError": Help(
        "The file is not what it is read as, or was cut off: the text says where. `dpmodule check FOLDER` looks at "
        "a whole folder.",
        'with open("broken.params", "wb") as file: file.write(b"none")\nmx.nd.load("broken.params")',
    ),
    "MissingPackageError": Help("Install the package by the command in the text."),
    "OutOfMemoryError": Help(
        "Look at the shape in the text: make the batch, the layer or the attribute behind it smaller.",
        "mx.nd.zeros((10**9, 10**9))",
    ),
    "NodeError": Help(
        "Look at the node, at its inputs' shapes and at the line of your program that the text names.",
    ),
    "LostWorkerError": Help(
        "Look at the log of the rank that is named, start the job again with `resume`; see "
        "[several processes](../guides/several_processes.md).",
    ),
    "NonFiniteError": Help(
        "See [debugging a NaN](../guides/nan.md): the text names the node where it began."
    ),
    "NotImplementedForSymbol": Help(
        "Bind the symbol first, or use what the text offers.", 'mx.sym.Variable("x").asnumpy()'
    ),
    "NotSupportedForSparseNDArray": Help(
        'Convert with `tostype("default")`, which makes a dense copy.',
        'mx.nd.sparse.zeros("csr", (2, 3)).reshape((3, 2))',
    ),
    "InternalError": Help("Never raised here; the name is kept for programs that catch MXNet's."),
}
"""What to do about each error of the family; what is not here says itself what to do, by its own description."""


def classes() -> list[type[MXNetError]]:
    """Return every public class of errors: the family of `base` first, in its order, then the others by name."""
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
    """Return which other classes catch it: builtin ones, and those of the family above it."""
    above = [each for each in one.__mro__[1:] if each not in (object, BaseException, Exception)]
    return ", ".join(f"`{each.__name__}`" for each in above) or "–"


def message(code: str) -> str:
    """Run an example that fails, in a folder of its own, and return what its error says.

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
        "Every error of this package is an `mx.base.MXNetError` and, beside it, of the built-in class that MXNet "
        "raised in the same place, so handlers of old programs go on working. Its text says what was called, what "
        "came, what was expected and what to do.",
        "",
        "```python",
        "import dpmodule as mx",
        "",
        "try:",
        '    mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=-1)',
        "except ValueError as error:  # as in MXNet; mx.base.MXNetError and mx.base.OpError catch it, too",
        "    print(error)",
        "```",
        "",
        "## The family",
        "",
        "These stand in `mx.base`.",
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
        "## Of single parts",
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
        "All that this package reads or sets. `dpmodule info` prints those of its own and of MXNet's that are set. "
        "*Read* says when a variable is looked at: a program that sets it later changes nothing.",
        "",
        "```bash",
        "DPMODULE_NATIVE=0 dpmodule info",
        "```",
        "",
    ]
    titles = {
        "dpmodule": "Of this package",
        "MXNet": "Of MXNet",
        "ParlAI": "Of ParlAI",
        "torch": "Of torch and torchrun",
        "NVIDIA": "Of NVIDIA's libraries",
        "compilers": "Of compilers",
        "Windows": "Of Windows",
    }
    for owner, title in titles.items():
        lines += [
            f"## {title}",
            "",
            "| variable | values | without it | read | what it does |",
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
    """Write both pages into a folder, those that differ from what is there alone; return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    made = {"environment.md": environment_page(), "errors.md": errors_page()}
    for name, text in made.items():
        path = out / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return [out / name for name in made]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/tables.py OUT")
    sys.stdout.write("\n".join(map(str, write(Path(sys.argv[1])))) + "\n")
