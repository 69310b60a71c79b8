"""What the reference says of public names: every parameter, and the version each came with."""

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

FILLERS = "the a an of its this that is are to for it as in or and"
SECTION = re.compile(r"^([A-Z]\w+):$")
ENTRY = re.compile(r"^    ((?:\*{0,2}\w+(?:, | and )?)+)(?: \(.*?\))?:(.*)$")


def told(docstring, *headings):
    """Return what the entries of some of a docstring's sections say, by name."""
    found, names, heading = {}, [], None
    for line in docstring.splitlines():
        if line and not line.startswith(" "):
            heading, names = (SECTION.match(line) or [None, None])[1], []
        elif heading in headings and (entry := ENTRY.match(line)):
            names = [name.lstrip("*") for name in re.split(", | and ", entry[1])]
            found.update(dict.fromkeys(names, entry[2]))
        else:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
    return found


def described(docstrings):
    """Return what docstrings say of parameters: the first one before those of the classes below it."""
    found = {}
    for docstring in docstrings[::-1]:
        found |= told(docstring, "Attributes") | told(docstring, "Args")
    return found


def has_own_signature(owner):
    made = owner.__init__ if inspect.isfunction(owner.__init__) else owner.__new__
    return inspect.isfunction(made) and (made.__module__ or "").startswith(("dpmodule", "namedtuple"))


def in_class(owner, name):
    """Yield what a class has to describe: how it is made, its own public methods; with the docstrings that count."""
    family = [each for each in owner.__mro__ if each is not object]
    if has_own_signature(owner):
        texts = [part.__doc__ for each in family for part in (each, vars(each).get("__init__"))]
        yield name, owner, [inspect.cleandoc(text) for text in texts if text]
    for key, value in vars(owner).items():
        value = getattr(value, "__func__", value)
        if not key.startswith("_") and inspect.isfunction(value) and not public.is_operator(value):
            texts = [inspect.getdoc(getattr(each, key)) for each in family if key in vars(each)]
            yield f"{name}.{key}", value, [text for text in texts if text]


def in_module(module):
    """Yield what has its entry in a module and takes parameters; with the docstrings that count."""
    names = public.public_names(importlib.import_module(module))
    for name, value in names.items():
        ours = callable(value) and (getattr(value, "__module__", None) or "").startswith("dpmodule.")
        if ours and public.home_of(value, module) == module and public.first_name(value, names) == name:
            if inspect.isclass(value):
                yield from in_class(value, name)
            else:
                yield name, value, [inspect.getdoc(value) or ""]


def place_of(value):
    value = inspect.unwrap(value)
    try:
        line = inspect.getsourcelines(value)[1]
        return f"{Path(inspect.getsourcefile(value)).relative_to(ROOT)}:{line}"
    except (OSError, TypeError, ValueError):
        return value.__module__


def parameters_of(value):
    return {
        name: one
        for name, one in inspect.signature(value).parameters.items()
        if name.strip("_") and name not in ("self", "cls")
    }


def words(text):
    return set(re.findall(r"[a-z0-9]+", str(text).lower().replace("_", " ")))


def says_nothing(name, annotation, text):
    """Say whether a description only repeats the parameter's name and type."""
    known = words(name) | words("" if annotation is inspect.Parameter.empty else annotation)
    return words(text) - {*FILLERS.split()} <= known | {f"{word}s" for word in known} | {
        word.rstrip("s") for word in known
    }


@walks(public.listed_modules(), family=lambda name: name[len("dpmodule.")])
def test_everything_is_described(module):
    missing = []
    for name, value, docstrings in in_module(module):
        if not docstrings and not (inspect.isclass(value) and value.__doc__):
            missing.append(f"{place_of(value)}: {name}: write what it does in its docstring")
        texts = described(docstrings)
        missing += [
            f"{place_of(value)}: {name}: {key!r} under Args: only repeats its name and type; take it out, or say more"
            for key, one in parameters_of(value).items()
            if key in texts and says_nothing(key, one.annotation, texts[key])
        ]
    assert not missing, "\n".join(missing)


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
