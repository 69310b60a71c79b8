"""Links for single backticks in docstrings: a link if the text names something public, otherwise code.

Types in signatures are resolved in the same way; types of other packages remain text.
"""

from __future__ import annotations

import builtins
import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

__all__ = ["find", "setup"]

SHORT = {
    "mx": "dpmodule",
    "nd": "dpmodule.ndarray",
    "sym": "dpmodule.symbol",
    "mod": "dpmodule.module",
    "init": "dpmodule.initializer",
    "kv": "dpmodule.kvstore",
    "opt": "dpmodule.optimizer",
    "mon": "dpmodule.monitor",
    "rnd": "dpmodule.random",
    "img": "dpmodule.image",
    "viz": "dpmodule.visualization",
    "dy": "dpmodule.autobatch",
}
"""Short names of packages in programs."""

KINDS = ("public", "obj", "class", "exc", "func", "meth", "attr", "data", "mod", "type")
"""Roles of references to names."""

FOREIGN_PAGES = re.compile(r"moving/.*(?<!-names)")
"""Pages on which a name without a module usually belongs to another system."""

LINK_PARENTS = (nodes.paragraph, nodes.term, nodes.emphasis, nodes.strong)
"""Nodes in which code may become a link: not titles, nor links."""

OUTSIDE_PAGES = {
    "results": "benchmarks/RESULTS.md",
    "results_tables": "benchmarks/results_tables.md",
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
}
"""Pages that are files outside the folder."""

SEPARATE_PACKAGES = ("fluid", "gluon", "contrib")
"""Packages whose names apply only inside them if other packages have the same name."""

NAME = re.compile(r"[A-Za-z_][\w.]*")


def spelled_out(name: str) -> str:
    """Return a name with full package names: "mx.nd.zeros" -> "dpmodule.ndarray.zeros"."""
    first, dot, rest = name.partition(".")
    if dot and first in SHORT:
        name = f"{SHORT[first]}.{rest}"
    first, dot, rest = name.removeprefix("dpmodule.").partition(".")
    return f"{SHORT[first]}.{rest}" if dot and name.startswith("dpmodule.") and first in SHORT else name


def by_last_part(env: BuildEnvironment) -> dict[str, list[str]]:
    """Return the full names of all objects by their last part, computed once per build."""
    if not hasattr(env, "dpmodule_names"):
        names_of = defaultdict(list)
        for name, entry in env.domains.python_domain.objects.items():
            if not entry.aliased:
                names_of[name.rpartition(".")[2]].append(name)
        env.dpmodule_names = names_of
    return env.dpmodule_names


def find(env: BuildEnvironment, name: str, module: str, owner: str) -> str | None:
    """Return the full name of the public object that a name refers to, or None.

    Args:
        env: has all entries of the reference.
        name: the name in the docstring or signature.
        module: module of the docstring; "" outside a module.
        owner: class of the docstring; "" outside a class.
    """
    objects = env.domains.python_domain.objects
    name = spelled_out(name)
    for full in (f"{module}.{owner}.{name}", f"{module}.{name}", name, f"dpmodule.{name}"):
        if full in objects:
            return full
    if not name[:1].isupper():
        return None  # "data" or "shape" is usually an argument, not a method
    same = [full for full in by_last_part(env)[name.rpartition(".")[2]] if full.endswith(f".{name}")]
    near = [full for full in same if full.split(".")[1] == module.partition(".")[2].partition(".")[0]]
    chosen = near or [full for full in same if full.split(".")[1] not in SEPARATE_PACKAGES]
    return chosen[0] if len(chosen) == 1 else None


def is_internal(name: str) -> bool:
    """Return True for the name of a private object of this package: a base class, a type in a signature."""
    module, dot, last = name.rpartition(".")
    if not dot:
        return False
    try:
        return hasattr(importlib.import_module(module), last)
    except ImportError:
        return is_internal(module)


def is_text(node: pending_xref) -> bool:
    """Return True for a reference that remains text: it names nothing public, or a type without an entry."""
    target = node["reftarget"]
    foreign = target != "dpmodule" and not target.startswith("dpmodule.")
    return node["reftype"] == "public" or foreign or is_internal(target)


class Links(SphinxPostTransform):
    """Resolve references to names before Sphinx, which would guess among several with the same last part."""

    default_priority = 9

    def run(self, **kwargs: Any) -> None:
        """Resolve the references of a page."""
        del kwargs
        for node in list(self.document.findall(pending_xref)):
            if node.get("refdomain") in ("", "py") and node["reftype"] in KINDS:
                module, owner = node.get("py:module") or "", node.get("py:class") or ""
                link = self.link_to(node["reftarget"], node[0], module, owner)
                if link is not None or is_text(node):
                    node.replace_self(link or node[0])
        foreign = FOREIGN_PAGES.fullmatch(self.env.docname)
        for node in list(self.document.findall(nodes.literal)):
            word = node.astext().removesuffix("()")
            if NAME.fullmatch(word) and not hasattr(builtins, word) and isinstance(node.parent, LINK_PARENTS):
                ours = "." in word or (word[0].isupper() and not foreign)
                link = self.link_to(word, node) if ours else None
                if link is not None:
                    node.replace_self(link)

    def link_to(self, name: str, content: nodes.Node, module: str = "", owner: str = "") -> nodes.Node | None:
        """Return a link to the object that a name refers to, or None."""
        full = find(self.env, name, module, owner)
        if full is None:
            return self.operator(name, content)
        entry = self.env.domains.python_domain.objects[full]
        return self.link(entry.docname, entry.node_id, content, full)

    def operator(self, name: str, content: nodes.Node) -> nodes.Node | None:
        """Return a link to the entry of an operator, "mx.nd.dot" or "Concat", or None."""
        name = spelled_out(name)
        short = name.removeprefix("dpmodule.ndarray.").removeprefix("dpmodule.symbol.")
        if short == name and not name[0].isupper():
            return None  # "sum" or "shape" may be anything
        label = "op-" + re.sub(r"[._]", "-", short.strip("_")).lower()
        page, anchor, _ = self.env.domains.standard_domain.labels.get(label, ("", "", ""))
        return self.link(page, anchor, content, name) if page else None

    def link(self, page: str, anchor: str, content: nodes.Node, title: str) -> nodes.Node:
        """Return a link to an anchor of a page."""
        return make_refnode(self.app.builder, self.env.docname, page, anchor, content.deepcopy(), title)


def redirect_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Read pages from files outside the folder, and direct links to them, and their links, to pages of the site."""
    if docname in OUTSIDE_PAGES:
        file = Path(app.srcdir).parent / OUTSIDE_PAGES[docname]
        text = file.read_text(encoding="utf-8").replace("](docs/", "](")
        source[0] = text.replace("](RESULTS.md", "](results.md").replace(
            "](results.svg", "](../benchmarks/results.svg"
        )
        app.env.note_dependency(str(file))
        return
    up = "../" * docname.count("/")
    for page, file in OUTSIDE_PAGES.items():
        source[0] = source[0].replace(f"](../{up}{file}", f"]({up}{page}.md")
    source[0] = source[0].replace(f"](../{up}notebooks/", f"]({up}notebooks/")  # copied by `generated`
    if docname.startswith("notebooks/"):
        source[0] = source[0].replace("](../docs/", "](../")


def public_role(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None, content: Any = ()
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Parse single backticks, as a Docutils role."""
    del name, lineno, options, content
    text = nodes.unescape(text, restore_backslashes=True)
    code = nodes.literal(rawtext, text)
    word = text.removesuffix("()")
    if not NAME.fullmatch(word) or word in dir(builtins):
        return [code], []
    env = inliner.document.settings.env
    reference = pending_xref(rawtext, code, refdomain="", reftype="public", reftarget=word, refwarn=False)
    reference["py:module"] = env.ref_context.get("py:module")
    reference["py:class"] = env.ref_context.get("py:class")
    reference["refdoc"] = env.docname
    return [reference], []


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect this to Sphinx."""
    app.add_role("public", public_role)
    app.add_post_transform(Links)
    app.connect("source-read", redirect_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
