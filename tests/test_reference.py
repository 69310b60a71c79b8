"""What the reference says of public names: what each does, and the version it came with."""

import importlib
import importlib.util
import inspect
import re
import sys
from functools import cache
from pathlib import Path

from helpers.walk import walks

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "extensions"))
import public  # noqa: E402 (found by the line above)
import since  # noqa: E402


def in_module(module):
    """Yield what has its entry in a module: functions, classes and their own public methods."""
    names = public.public_names(importlib.import_module(module))
    for name, value in names.items():
        ours = callable(value) and (getattr(value, "__module__", None) or "").startswith("dpmodule.")
        if ours and public.home_of(value, module) == module and public.first_name(value, names) == name:
            yield name, value
            for key in vars(value) if inspect.isclass(value) else ():
                member = getattr(value, key)
                if not key.startswith("_") and inspect.isroutine(member) and not public.is_operator(member):
                    yield f"{name}.{key}", member


@walks(public.listed_modules(), family=lambda name: name[len("dpmodule.")])
def test_everything_is_described(module):
    assert [name for name, value in in_module(module) if not inspect.getdoc(value)] == []


@cache
def script():
    spec = importlib.util.spec_from_file_location("versions", ROOT / "docs" / "versions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flat(names):
    return {f"{module}.{name}" for module, found in names.items() for name in found}


def test_every_public_name_has_its_version():
    known, now = since.read(), script().names()
    kept = [name for of in known.values() for name in flat(of)]
    assert len(kept) == len(set(kept))
    changed = flat(now) ^ set(kept)
    assert not changed, f"run python docs/versions.py: these have come or gone: {', '.join(sorted(changed))}"
    assert since.FILE.read_text(encoding="utf-8") == script().text_of(known), "run python docs/versions.py"
    noted = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(known) <= set(noted)
