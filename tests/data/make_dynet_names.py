"""Write down the public names of DyNet's Python module, and the public members of its classes.

Run in an environment with DyNet (pip install dyNET38 "numpy<1.24", Python 3.8), from the folder of this file:

    python make_dynet_names.py

It writes dynet_names.json: names of functions and values, and of each class its members, as one line of words.
"""

import json
import types

import _dynet
import dynet


def public(owner):
    return [name for name in dir(owner) if not name.startswith("_")]


names, classes = [], {}
for name in public(dynet):
    value = getattr(dynet, name)
    if isinstance(value, types.ModuleType):
        continue
    if isinstance(value, type) and value.__module__.split(".")[-1] in ("_dynet", "dynet"):
        members = [
            member
            for member in public(value)
            if not any(member in dir(base) for base in (Exception, object, tuple, list))
        ]
        classes[name] = " ".join(members)
    elif getattr(value, "__module__", "_dynet") in ("_dynet", "dynet", None):
        names.append(name)
with open("dynet_names.json", "w") as file:
    json.dump({"version": getattr(_dynet, "__version__", 2.1), "names": " ".join(names), "classes": classes}, file, indent=1)
    file.write("\n")
