#!/usr/bin/env python
"""Write the type stubs of functions and methods that operator declarations create at run time.

    python tools/stubs.py           write the files
    python tools/stubs.py --check   change nothing; exit with 1 if one is outdated

`dpmodule/ndarray/op.pyi` and `dpmodule/symbol/op.pyi` list the operators as functions,
`dpmodule/ndarray/methods.pyi` the operators that are methods of arrays. `dpmodule/ops/lazy_operators.json` lists the
operators of each module.
"""

from __future__ import annotations

import importlib
import json
import keyword
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dpmodule._core.lazy import Method  # noqa: E402 (this checkout, not an installed package)
from dpmodule.ndarray import NDArray  # noqa: E402
from dpmodule.ndarray.methods import FLUENT  # noqa: E402
from dpmodule.ndarray.op_functions import names_in  # noqa: E402
from dpmodule.ops import get  # noqa: E402
from dpmodule.ops.spec import REQUIRED, Op  # noqa: E402

NOTE = '"""Made by tools/stubs.py from the operator declarations; do not edit."""\n'
ARRAY_OUT = "out: NDArray | Sequence[NDArray] | None = None"


def default(op: Op, key: str) -> str:
    """Return the default of an attribute as stub text."""
    value = op.attrs[key].default
    plain = value is None or isinstance(value, (bool, int, str, float))
    if value is REQUIRED or not plain:
        return "..."
    return json.dumps(value) if isinstance(value, str) else repr(value)


def parameters(op: Op, value: str, extra: list[str], method: bool) -> list[str]:
    """Return the parameters of a function: inputs, attributes, then keywords.

    Args:
        op: the operator.
        value: type of an input.
        extra: keywords with types.
        method: True if the first input is ``self``.
    """
    inputs = [i.name for i in op.inputs] if isinstance(op.inputs, tuple) else []
    attributes = [f"{key}: {attr.type.annotation} = {default(op, key)}" for key, attr in op.attrs.items()]
    more = ["**kwargs: Any"] if op.read_attrs is not None or op.accepts_any_keyword else []
    if op.variadic is not None or not isinstance(op.inputs, tuple):
        return [*["self"] * method, f"*args: {value}", *attributes, *extra, *more]
    given = [f"{name}: {value} | None = None" for name in inputs]
    return [*(["self", *given[1:]] if method else given), *attributes, "*", *extra, *more]


def function(name: str, params: list[str], result: str, doc: str, indent: str = "") -> str:
    """Return one function of a stub file."""
    lines = "".join(f"{indent}    {p},\n" for p in params)
    return f'{indent}def {name}(\n{lines}{indent}) -> {result}:\n{indent}    """{doc}"""\n'


def summary(op: Op) -> str:
    """Return the first sentence of an operator's docstring, short enough for one line."""
    first = op.doc.split("\n", 1)[0].replace('"', "'").replace("\\", "")
    return first if len(first) <= 90 else first[:86].rsplit(" ", 1)[0] + " ..."


def functions(value: str, extra: list[str], single: bool) -> str:
    """Return the functions of the main namespace.

    Args:
        value: type of inputs and results.
        extra: keywords with types.
        single: True if several outputs are one value (a symbol), not a list.
    """
    stubs = []
    for public, name in sorted(names_in("").items()):
        op = get(name)
        if not public.isidentifier() or keyword.iskeyword(public):
            continue
        several = "Any" if callable(op.outputs) else f"list[{value}]"
        result = value if single or (not callable(op.outputs) and len(op.outputs) == 1) else several
        stubs.append(function(public, parameters(op, value, extra, False), result, summary(op)))
    return "\n".join(stubs)


def array_functions() -> str:
    """Return the stub of `dpmodule.ndarray.op`."""
    head = "from collections.abc import Sequence\nfrom typing import Any\n\nfrom .ndarray import NDArray\n"
    return f"{NOTE}\n{head}\n{functions('NDArray', [ARRAY_OUT, 'name: str | None = None'], False)}"


def symbol_functions() -> str:
    """Return the stub of `dpmodule.symbol.op`."""
    extra = ["name: str | None = None", "attr: Mapping[str, str] | None = None", "out: Any = None"]
    head = "from collections.abc import Mapping\nfrom typing import Any\n\nfrom .symbol import Symbol\n"
    return f"{NOTE}\n{head}\n{functions('Symbol', extra, True)}"


def array_methods() -> str:
    """Return the stub of `dpmodule.ndarray.methods`."""
    head = (
        "from collections.abc import Callable, Sequence\nfrom typing import Any, TypeVar\n\n"
        'from .ndarray import NDArray\n\nT = TypeVar("T", bound=type)\n'
        "FLUENT: tuple[str, ...]\n\n"
        "def fluent(make: Callable[[str], Callable[..., Any]]) -> Callable[[T], T]: ...\n\n"
        "class OpMethods:\n"
    )
    stubs = []
    for name in FLUENT:
        # methods that arrays define have other parameters
        if not isinstance(vars(NDArray).get(name), Method):
            continue
        op = get(name)
        params = parameters(op, "NDArray", [ARRAY_OUT, "name: str | None = None"], True)
        result = "NDArray" if not callable(op.outputs) and len(op.outputs) == 1 else "Any"
        stubs.append(function(name, params, result, summary(op), "    "))
    return f"{NOTE}\n{head}" + "\n".join(stubs)


LATER = (
    "array.axis",
    "array.create",
    "array.copy_cast",
    "array.hashing",
    "array.index",
    "array.join",
    "array.sort",
    "array.reshape",
    "array.slicing",
    "array.expand",
    "math.binary",
    "math.dot",
    "math.linalg",
    "math.pointwise",
    "math.reduce",
    "math.triangle",
    "math.unary",
    "nn.activation",
    "nn.auc",
    "nn.batchnorm",
    "nn.conv",
    "nn.dense",
    "nn.tree",
    "nn.unfold",
    "nn.losses",
    "nn.norm",
    "nn.pool",
    "nn.rnn",
    "nn.roi",
    "nn.sequence",
    "nn.softmax",
    "nn.spatial",
    "control_flow",
    "image",
    "contrib",
    "quantize",
    "random",
    "distributions",
    "update",
    "sparse.lookup",
    "sparse.matrix",
    "sparse.recurrent",
    "sparse.labeling",
    "sparse.sequence_parts",
    "sparse.sequences",
    "sparse.elementwise",
    "numpy.elementwise",
    "numpy.reduce",
    "numpy.shape",
    "numpy.index",
    "numpy.create",
    "numpy.linalg",
    "numpy.random",
    "numpy.extension",
)
"""Modules of `dpmodule.ops` that declare operators; modules that others import come first."""

LISTING = f"""
import importlib, json, dpmodule
from dpmodule.ops.registry import declared
found, before = {{}}, set(declared())
for module in {LATER}:
    importlib.import_module("dpmodule.ops." + module)
    found[module] = sorted(set(declared()) - before)
    before.update(found[module])
print(json.dumps(found))
"""


def late_operators() -> str:
    """Return the table of operators by module, from a process that has not imported any of them."""
    done = subprocess.run(
        [sys.executable, "-c", LISTING], cwd=ROOT, capture_output=True, text=True, check=True, env=fresh()
    )
    found = {module: " ".join(names) for module, names in json.loads(done.stdout).items()}
    return json.dumps(found, indent=1) + "\n"


def fresh() -> dict[str, str]:
    """Return an environment in which this checkout is imported."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


STUBS = {
    "dpmodule/ops/lazy_operators.json": late_operators,
    "dpmodule/ndarray/op.pyi": array_functions,
    "dpmodule/ndarray/methods.pyi": array_methods,
    "dpmodule/symbol/op.pyi": symbol_functions,
}


def main(arguments: list[str]) -> int:
    """Write or check every stub; return the exit status."""
    for module in LATER:  # including operators that are not in the table yet
        importlib.import_module(f"dpmodule.ops.{module}")
    stale = []
    for path, make in STUBS.items():
        text, target = make(), ROOT / path
        if target.exists() and target.read_text() == text:
            continue
        stale.append(path)
        if "--check" not in arguments:
            target.write_text(text)
    for path in stale:
        print(f"{path}: {'outdated; run python tools/stubs.py' if '--check' in arguments else 'written'}")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
