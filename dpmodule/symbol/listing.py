"""What a symbol says about its graph: names, structure and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from ..attribute import BARE_KEYS, stored_key
from ..base import ArgumentError, OpError
from ..graph import Entry, Graph

__all__ = ["Listing"]


def _shown(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes with the five bare keys shown both ways."""
    shown = dict(attributes)
    shown.update({k: attributes[f"__{k}__"] for k in BARE_KEYS if f"__{k}__" in attributes})
    return shown


class Listing:
    """One or several outputs of a graph, for reading.

    Args:
        entries: (node, output number) of each output.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)

    @cached_property
    def graph(self) -> Graph:
        """The nodes below this symbol."""
        return Graph(self.entries)

    # names and structure

    @property
    def name(self) -> str | None:
        """Name of the node; None for a group of several."""
        nodes = {node for node, _ in self.entries}
        return self.entries[0][0].name if len(nodes) == 1 else None

    def list_arguments(self) -> list[str]:
        """Return the names of the arguments: variables that are given or learnt, inputs first."""
        return list(self.graph.argument_names)

    def list_auxiliary_states(self) -> list[str]:
        """Return the names of the auxiliary states, such as moving averages."""
        return list(self.graph.auxiliary_names)

    def list_inputs(self) -> list[str]:
        """Return the names of all variables, arguments and states, in graph order."""
        return [n.name for n in self.graph.nodes if n.op is None]

    def list_outputs(self) -> list[str]:
        """Return the names of the outputs."""
        return list(self.graph.output_names)

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __repr__(self) -> str:
        if self.name is not None:
            return f"<Symbol {self.name}>"
        return f"<Symbol group [{', '.join(node.name for node, _ in self.entries)}]>"

    def debug_str(self) -> str:
        """Return a listing of every node with its inputs and attributes."""
        if len(self.graph.nodes) == 1 and self.graph.nodes[0].op is None:
            return f"Variable:{self.graph.nodes[0].name}\n"
        from ..graph import input_versions

        versions = input_versions(self.graph)
        lines = ["Symbol Outputs:"]
        lines += [f"\toutput[{k}]={node.name}({i})" for k, (node, i) in enumerate(self.entries)]
        for node in self.graph.nodes:
            if node.op is None:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
            for k, ((child, i), version) in enumerate(zip(node.inputs, versions[node])):
                lines.append(
                    f"\targ[{k}]={child.name}({i})" + (f" version={version}" if child.op is None else "")
                )
            if attributes := node.all_attrs:
                lines += ["Attrs:", *(f"\t{k}={v}" for k, v in sorted(attributes.items()))]
        return "\n".join(lines) + "\n"

    # attributes

    def attr(self, key: str) -> str | None:
        """Return an attribute of this symbol's node; None if it has none of this name, or for a group."""
        return None if self.name is None else self.entries[0][0].all_attrs.get(stored_key(key))

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """Return all attributes of this symbol's node; none for a group.

        Raises:
            ArgumentError: `recursive` is set; MXNet dropped it in favour of `attr_dict`.
        """
        if recursive:
            raise ArgumentError("list_attr(recursive=True) no longer exists; use attr_dict()")
        return {} if self.name is None else _shown(self.entries[0][0].all_attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Return the attributes of every node that has some, by node name."""
        return {node.name: _shown(node.all_attrs) for node in self.graph.nodes if node.all_attrs}

    def _set_attr(self, **kwargs: str) -> None:
        """Set attributes of this symbol's node in place; an operator's own ones too.

        Raises:
            ArgumentError: a value is not a string, or this is a group.
            OpError: an operator does not take the attribute or the value.
        """
        if self.name is None:
            raise ArgumentError("_set_attr: a group has no attributes; choose one of its members")
        node = self.entries[0][0]
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise ArgumentError(f"_set_attr: {key} is {value!r}, expected a string")
            stored = stored_key(key)
            if node.op is not None and stored == key and node.op.owns(key):
                node.set_param(key, value)
            elif node.op is not None and not (stored.startswith("__") and stored.endswith("__")):
                raise OpError(f"{node.describe()} has no attribute {key!r}; free ones have the form __x__")
            else:
                node.attrs[stored] = value
