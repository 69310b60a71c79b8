"""`parlai.scripts.build_dict`: a dictionary of the examples of a task."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any

from ..agent import str2class
from ..dictionary import DictionaryAgent
from ..module_agent import training_examples
from ..parser import ParlaiParser
from . import core
from .build_data import make_dir

__all__ = ["build_dict", "main", "setup_args"]


def setup_args(parser: ParlaiParser | None = None) -> ParlaiParser:
    """Return a parser with the flags of `build_dict`.

    Args:
        parser: parser to add them to; None: a new one.
    """
    parser = core.ParlaiParser(True, True) if parser is None else parser
    group = parser.add_argument_group("building a dictionary")
    group.add_argument("--dict-maxexs", type=int, default=-1, help="number of examples; -1: all (default)")
    for split in ("valid", "test"):
        group.add_argument(
            f"--dict-include-{split}",
            type="bool",
            default=False,
            help=f"also use the examples of {split} (default: no)",
        )
    group.add_argument(
        "-ltim", "--log-every-n-secs", type=float, default=2, help="seconds between two lines (default: 2)"
    )
    return parser


def options_of(opt: Mapping[str, Any] | ParlaiParser) -> dict[str, Any]:
    """Return options, or those that a parser finds on the command line."""
    return opt.parse_args() if isinstance(opt, ParlaiParser) else dict(opt)


def build_dict(opt: Mapping[str, Any] | ParlaiParser, skip_if_built: bool = False) -> Any:
    """Write the file ``dict_file`` of a dictionary of the training examples, sorted by falling count; return it.

    Args:
        opt: options: ``dict_file``, ``dict_class``, ``dict_maxexs``, ``dict_include_valid``, ``dict_include_test``, and
            those of the task and of the dictionary.
        skip_if_built: whether to return None if the file exists, which is loaded otherwise.
    """
    opt = options_of(opt)
    path = opt.get("dict_file")
    if not path:
        print("no dictionary is written, since --dict-file is not set")
        return None
    if skip_if_built and os.path.isfile(path):
        print("[ dictionary already built. ]")
        return None
    kind: Any = str2class(opt["dict_class"]) if opt.get("dict_class") else DictionaryAgent
    dictionary = kind(opt)
    if not os.path.isfile(path):
        splits = [split for split in ("valid", "test") if opt.get(f"dict_include_{split}")]
        parts = chain.from_iterable(training_examples(opt, split) for split in ("train:ordered", *splits))
        most = opt.get("dict_maxexs")
        for example in islice(parts, None if most is None or most < 0 else most):
            dictionary.observe(example)
            dictionary.act()
        make_dir(os.path.dirname(path) or os.curdir)
        dictionary.save(path, sort=True)
        print(f"[ dictionary built with {len(dictionary)} tokens ]")
    return dictionary


def main() -> None:
    """Build the dictionary that the command line describes."""
    build_dict(setup_args().parse_args())
