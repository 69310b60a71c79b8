"""Print the size and structure of the code, and the difference to another revision in git.

Usage: python tools/sizes.py [--against main] [--top 8] [--no-batch]

For dpmodule: files, lines of code (without docstrings, comments and blank lines), the longest function, single-use
bases (classes with exactly one subclass that are never made; public ones apart), circles of imports inside packages,
class names that several modules define, the percentage of parameters annotated with `Any` alone (without `*args` and
`**kwargs`), and the calls and files of a steady batch (see `benchmarks/sides/way.py`). Then lines per
package, and the largest files and functions.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from structure import Package, sources_at, sources_in

ROOT = Path(__file__).resolve().parents[1]
GROUPS = ("dpmodule", "tests", "examples", "benchmarks")
NATIVE = ("dpmodule/native/*pp", "dpmodule/native/*.h", "setup.py")
"""Sources of the extension."""
TYPED = ("symbol", "ndarray", "module")
"""Public packages, whose percentage of bare `Any` is shown separately."""


def group_of(path: str) -> str:
    """Return the package of a file: the subpackage of dpmodule, else the top folder."""
    parts = Path(path).parts
    return "/".join(parts[:2]) if parts[0] == "dpmodule" and len(parts) > 2 else parts[0]


def per_group(sources: Mapping[str, str]) -> Counter[str]:
    """Add up lines per package."""
    total: Counter[str] = Counter()
    for path, text in sources.items():
        total[group_of(path)] += text.count("\n")
    return total


def package_of(sources: Mapping[str, str]) -> Package:
    """Return dpmodule alone."""
    return Package({path: text for path, text in sources.items() if path.startswith("dpmodule/")})


def figures(package: Package) -> dict[str, float]:
    """Return what is compared, by its title."""
    modules = package.modules.values()
    bases = package.single_use_bases()
    public = sum(each.is_public for each in bases)
    return {
        "files": len(modules),
        "lines of code": sum(module.lines_of_code for module in modules),
        "longest function": max(count for count, _ in functions(package)),
        "single-use bases": len(bases) - public,
        "single-use bases, public": public,
        "circles of imports": sum(map(len, package.circles().values())),
        "class names of several meanings": len(package.several_meanings()),
        "bare Any, % of named parameters": any_share(package, "dpmodule"),
        **{f"  in {name}": any_share(package, f"dpmodule.{name}") for name in TYPED},
    }


def any_share(package: Package, home: str) -> float:
    """Return the share of bare `Any` among a package's parameters, in percent."""
    bare, every = package.bare_any(home)
    return round(100 * bare / max(every, 1), 1)


def functions(package: Package) -> list[tuple[int, str]]:
    """Return (lines, where) of every function, the longest first."""
    spans = (
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{module.path}:{node.lineno} {node.name}")
        for module in package.modules.values()
        for node in module.functions
    )
    return sorted(spans, reverse=True)


def batch(folder: str | None = None) -> dict[str, int]:
    """Return the calls and files of a steady batch, optionally of the dpmodule in a folder."""
    sys.path.append(str(ROOT))
    from benchmarks.harness import Worker

    with Worker("way", before=folder) as side:
        stations = side.ask("stations")
    return {"calls a batch": len(stations), "files a batch": len({file for file, _ in stations})}


def batch_at(revision: str) -> dict[str, int]:
    """Return the calls and files of a revision's steady batch, with the extension of this checkout.

    A revision with other C++ code has no figures, as its extension would have to be built.
    """
    diff = subprocess.run(["git", "-C", ROOT, "diff", "--quiet", revision, "--", *NATIVE], check=False)
    if diff.returncode:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        archive = ["git", "-C", ROOT, "archive", revision, "--", "dpmodule"]
        packed = subprocess.run(archive, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        for extension in (ROOT / "dpmodule").glob("_native*"):
            shutil.copy(extension, Path(folder, "dpmodule"))
        return batch(folder)


def show(title: str, rows: Mapping[str, float], before: Mapping[str, float], revision: str) -> None:
    """Print a table: before, now, difference."""
    print(f"{title:32}{revision[:12]:>12}{'now':>10}{'difference':>12}")
    for name, count in rows.items():
        known = name in before
        print(
            f"{name:32}{f'{before[name]:g}' if known else '?':>12}{count:>10g}"
            + (f"{count - before[name]:>+12g}" if known else "")
        )
    print()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--against", default="main", help="revision to compare with (default: main)")
    parser.add_argument("--top", type=int, default=8, help="number of largest entries to print (default: 8)")
    parser.add_argument(
        "--no-batch", action="store_true", help="do not run a batch, which takes some seconds"
    )
    args = parser.parse_args()
    if not args.no_batch and find_spec("torch") is None:
        parser.error("torch is not installed, which running a batch needs; install it, or use --no-batch")
    now, then = sources_in(ROOT, *GROUPS), sources_at(ROOT, args.against, *GROUPS)
    package, other = package_of(now), package_of(then)
    found, before = figures(package), figures(other)
    if not args.no_batch:
        found |= batch()
        before |= batch_at(args.against)
    show("dpmodule", found, before, args.against)
    groups = per_group(now)
    show(
        "lines of",
        dict(sorted(groups.items())),
        per_group(then) + Counter(dict.fromkeys(groups, 0)),
        args.against,
    )
    print("largest files, lines of code")
    for module in sorted(package.modules.values(), key=lambda each: -each.lines_of_code)[: args.top]:
        print(f"{module.lines_of_code:8}  {module.path}")
    print("\nlongest functions, lines")
    for count, where in functions(package)[: args.top]:
        print(f"{count:8}  {where}")
    print("\nsingle-use bases")
    for single in package.single_use_bases():
        print(f"{'public' if single.is_public else '':>8}  {single.name} <- {single.subclass}")
    print("\nclass names of several meanings")
    for name, classes in package.several_meanings().items():
        print(f"          {name}: {', '.join(single.rpartition('.')[0] for single in classes)}")
    print("\ncircles of imports")
    for name, groups_of in package.circles().items():
        for circle in groups_of:
            print(f"          {name}: {', '.join(circle)}")


if __name__ == "__main__":
    main()
