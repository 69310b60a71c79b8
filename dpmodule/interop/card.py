"""The model card of a folder: what it holds and how it is used, for people and for sites that list models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..graph.node import printable


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
        config: what ``config.json`` holds.
        preprocessor: what ``preprocessor.json`` holds, None without one.
        body: the text below the YAML, None = one that is made here. A text that begins with YAML itself is taken whole.
    """
    if body is not None and body.startswith("---"):
        return body
    front = [
        "---",
        "library_name: dpmodule",
        "tags:",
        *(f"- {tag}" for tag in ("dpmodule", "mxnet", "pytorch")),
    ]
    text = _body(name, config, count, operators, preprocessor) if body is None else body.strip()
    return "\n".join([*front, "---", "", text, ""])


def _body(
    name: str,
    config: Mapping[str, Any],
    count: int,
    operators: Mapping[str, int],
    preprocessor: Mapping[str, Any] | None,
) -> str:
    kinds = ", ".join(f"{kind} {times}" for kind, times in sorted(operators.items()))
    lines = [
        f"# {name}",
        "",
        f"A symbolic network of dpmodule {config['library_version']}: {count:,} numbers of parameters.",
        "",
        *_table(config["data"]),
        "",
        f"Outputs: {', '.join(map(_code, config['outputs']))}. Operators: {kinds or 'none'}.",
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
            f"What is done to the data before is in `preprocessor.json`: {', '.join(sorted(preprocessor))}.",
        ]
    return "\n".join(lines)


def _code(name: str) -> str:
    """Return a name as code in a table: neither a line, nor a column, nor the code ends in it."""
    text = printable(name).replace("|", r"\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}"


def _table(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [f"| {_code(each['name'])} | {tuple(each['shape'])} | {each['dtype']} |" for each in inputs]
    return ["| input | shape, the batch first | type |", "|---|---|---|", *rows]
