"""Look for the extension in a source tree without one: TREE SITE EXTENSION, a folder for an installed one, and one."""

import importlib
import os
import shutil
import sys

tree, site, extension = sys.argv[1:]
for name in [name for name in sys.modules if name.partition(".")[0] == "dpmodule"]:
    del sys.modules[name]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path = [tree, *(path for path in sys.path if not os.path.exists(os.path.join(path, "dpmodule"))), site]
native = importlib.import_module("dpmodule.native")
assert native.__file__.startswith(tree)


def look():
    importlib.reload(native)
    print(native.core and native.core.__file__.startswith(site), native.error)


look()
shutil.copy(extension, os.path.join(site, "dpmodule"))
folder = os.path.join(tree, "dpmodule", "native")
os.rename(f"{folder}/errors.cpp", f"{folder}/failures.cpp")
look()
os.rename(f"{folder}/failures.cpp", f"{folder}/errors.cpp")
look()
importlib.import_module("dpmodule.cli.__main__").main(["info"])
