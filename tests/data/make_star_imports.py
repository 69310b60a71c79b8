"""Write `star_imports.json`: the names that a star import of each of MXNet's modules brings.

Run it where MXNet 1.9.1 is installed, from any folder: ``python make_star_imports.py``. Left out are modules of Gluon
and of the interface of NumPy, those that MXNet's build generates, and scripts.
"""

import json
import pkgutil
import warnings
from pathlib import Path

import mxnet

OTHERS = ("gluon", "numpy", "cython", "libmxnet", "setup", "_", "gen_")


def modules():
    """Return the names of MXNet's public modules below the package, "" first."""
    found = (each.name for each in pkgutil.walk_packages(mxnet.__path__, "mxnet.", onerror=lambda name: None))
    below = (name.partition(".")[2] for name in found)
    return ["", *sorted(name for name in below if not any(p.startswith(OTHERS) for p in name.split(".")))]


def names(module):
    """Return what a star import of a module brings, with blanks between."""
    found = {}
    exec(f"from mxnet{'.' if module else ''}{module} import *", found)  # as a program does it
    return " ".join(sorted(set(found) - {"__builtins__"}))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    text = json.dumps({module: names(module) for module in modules()}, indent=1)
    Path(__file__).with_name("star_imports.json").write_text(text + "\n")
