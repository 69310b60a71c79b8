"""Measure how many small faults the tests notice: change one place of a file, run its tests, and put it back.

    python tools/mutants.py [FILE ...] [--files 25] [--mutants 20] [--seed 0] [--jobs 2] [--write TABLE.json]
                            [--coverage .coverage]
    python tools/mutants.py --again TABLE.json [--write TABLE.json] [--coverage .coverage]

Without files, 25 are drawn over all packages, three of them C++. Each mutant is one drawn change: another operator,
comparison or number, a negated condition, a dropped call, swapped arguments, or an early return. It runs against the
file's mirrored tests (`tests/io/test_arrays.py` or the folder `tests/io/arrays` for `dpmodule/io/arrays.py`), and, if
they pass, against the tests of the package (`tests/io`) and, with --coverage, against other tests that reach the line
(at most 300, drawn). A run that fails, or takes much longer than without the mutant, has killed it. `--again` repeats
the mutants of a table on the present code: those whose line is still there.

With the data of `pytest --cov --cov-context=test`, only the tests that reach the changed line run. A line that
runs on import only gets all tests.

All of it happens in copies of the checkout, one a job; of C++ only the changed unit is compiled again.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
CPP_SHARE = 3 / 25
FEWEST_SITES = 20
"""A drawn file has at least this many places to change."""
SLOWEST_S = 240
"""Longest run of one mutant's tests, in seconds."""
MOST_OTHERS = 300
"""Most tests of other packages that run for one mutant."""

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "+",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
CPP_CHANGES = (
    ("comparison", r"(?<=[\w)\]] )<(?= [\w(])", "<="),
    ("comparison", r"(?<= )<=(?= )", "<"),
    ("comparison", r"(?<=[\w)\]] )>(?= [\w(])", ">="),
    ("comparison", r"(?<= )>=(?= )", ">"),
    ("comparison", r"(?<= )==(?= )", "!="),
    ("comparison", r"(?<= )!=(?= )", "=="),
    ("operator", r"(?<=[\w)\]] )\+(?= [\w(])", "-"),
    ("operator", r"(?<=[\w)\]] )-(?= [\w(])", "+"),
    ("operator", r"(?<=[\w)\]] )\*(?= [\w(])", "+"),
    ("operator", r"(?<= )\+=(?= )", "-="),
    ("condition", r"(?<= )&&(?= )", "||"),
    ("condition", r"(?<= )\|\|(?= )", "&&"),
    ("condition", r"\bif \((?!constexpr)(?=[^;{}]*\) )", "if (!"),
    ("number", r"(?<=[ (\[])\d+(?=[;,)\] ])", None),
    ("number", r"\btrue\b", "false"),
    ("number", r"\bfalse\b", "true"),
    ("dropped call", r"(?m)^ +(?!return|throw|delete)[\w.:>-]+\([^(){};]*\);$", ""),
    ("early return", r"(?m)^ +(?=[\w.:]+(\[[^\]]*\])? [+*-]?= )", None),
)
"""Kind, pattern and replacement of changes in C++; None: a number grows by one, a statement is left out."""


CPP_TESTS = {
    "autobatch": (["tests/native/autobatch"], ["tests/autobatch"]),
    "hogwild": (["tests/hogwild/test_native_engine.py"], ["tests/hogwild"]),
    "io": (["tests/recordio", "tests/io/test_parsing.py"], ["tests/io"]),
    "kernels": (["tests/native/test_kernels.py", "tests/ops/nn"], ["tests/executor"]),
    "pipe": (["tests/streams/pipe"], ["tests/streams"]),
    "": (["tests/native"], ["tests/streams"]),
}
"""Own tests, then the package's, of the C++ files of each folder; "" means all other folders."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the text `before` at a line and column becomes `text`."""

    path: str
    kind: str
    line: int
    column: int
    before: str
    text: str
    context: str
    """The whole line, by which `--again` finds the place."""

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        lines = source.split("\n")
        begin = sum(len(line) + 1 for line in lines[: self.line - 1]) + self.column
        return source[:begin] + self.text + source[begin + len(self.before) :]

    def moved_to(self, source: str) -> Mutant | None:
        """Return the mutant at its place in a later version of the file, None if the line has gone."""
        lines = source.split("\n")
        same = [number for number, line in enumerate(lines, 1) if line == self.context]
        nearest = sorted(same, key=lambda number: abs(number - self.line))
        moved = (replace(self, line=number) for number in nearest)
        return next(
            (
                each
                for each in moved
                if "\n".join(lines[each.line - 1 :])[self.column :].startswith(self.before)
            ),
            None,
        )


class PythonSites(ast.NodeVisitor):
    """Collects the places of a Python file that can be changed, without texts, annotations and messages of errors."""

    def __init__(self, source: str) -> None:
        self.found: list[tuple[str, int, int, str]] = []
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._encoded = [line.encode() for line in source.splitlines(keepends=True)]
        self.visit(ast.parse(source))

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._encoded[line - 1][:column].decode())

    def _span(self, node: ast.AST) -> tuple[int, int]:
        begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return self._at(*begin), self._at(*end)

    def _text(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._source[begin:end]

    def _add(self, kind: str, node: ast.AST, text: str) -> None:
        self.found.append((kind, *self._span(node), text))

    def _between(self, kind: str, left: ast.AST, right: ast.AST, text: str) -> None:
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self._source[begin:end]
        if "(" not in gap and ")" not in gap and "#" not in gap and "\n" not in gap:
            self.found.append((kind, begin, end, f" {text} "))

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave out the text of an error."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Look at the value alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        """Negate a condition, unless it is for type checkers."""
        if "TYPE_CHECKING" in self._text(node.test):
            return
        self._add("condition", node.test, f"not ({self._text(node.test)})")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition of an expression."""
        self._add("condition", node.test, f"(not ({self._text(node.test)}))")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Leave a loop at its start."""
        self._add("condition", node.test, "False")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchange `and` and `or`."""
        other = "or" if isinstance(node.op, ast.And) else "and"
        for left, right in zip(node.values, node.values[1:]):
            self._between("condition", left, right, other)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Change a comparison."""
        operands = [node.left, *node.comparators]
        for left, right, operator in zip(operands, operands[1:], node.ops):
            self._between("comparison", left, right, COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Change an operator of two numbers."""
        if type(node.op) in OPERATORS and not isinstance(node.left, ast.JoinedStr):
            self._between("operator", node.left, node.right, OPERATORS[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change a number or a truth value."""
        if isinstance(node.value, bool):
            self._add("number", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add("number", node, repr(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave out texts."""

    def visit_Call(self, node: ast.Call) -> None:
        """Exchange the first two arguments."""
        plain = [each for each in node.args if not isinstance(each, ast.Starred)]
        if len(plain) == len(node.args) >= 2 and "\n" not in self._text(node):
            first, second = node.args[:2]
            if self._text(first) != self._text(second):
                begin, end = self._span(first)[0], self._span(second)[1]
                gap = self._source[self._span(first)[1] : self._span(second)[0]]
                self.found.append(("swapped", begin, end, f"{self._text(second)}{gap}{self._text(first)}"))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Drop a call whose value is not used."""
        if isinstance(node.value, ast.Call):
            self._add("dropped call", node, "pass")
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for number, statement in enumerate(node.body):
            is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if number and not isinstance(statement, ast.Raise | ast.Pass) and not is_docstring:
                self._add("early return", statement, "return None")
            self.visit(statement)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function


def sites(path: Path) -> Iterator[tuple[str, int, int, str]]:
    """Yield kind, begin, end and new text of all changes of a file."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from PythonSites(source).found
        return
    for kind, pattern, replacement in CPP_CHANGES:
        for match in re.finditer(pattern, source):
            line = source[source.rfind("\n", 0, match.start()) + 1 : match.start()]
            if "//" in line or line.lstrip().startswith(("#", "template", "using")) or line.count('"') % 2:
                continue
            if replacement is not None:
                yield kind, match.start(), match.end(), replacement
            elif kind == "number":
                yield kind, match.start(), match.end(), str(int(match[0]) + 1)
            else:
                end = source.find(";\n", match.start())
                if end > 0 and "{" not in source[match.start() : end]:
                    yield "dropped statement", match.start(), end + 1, ""


def mutants_of(path: str, count: int, seed: int) -> list[Mutant]:
    """Draw changes of a file, kinds in turn so that no kind crowds out the others."""
    source = (ROOT / path).read_text(encoding="utf-8")
    generator = random.Random(f"{seed} {path}")
    by_kind: defaultdict[str, list[tuple[str, int, int, str]]] = defaultdict(list)
    for site in sorted(set(sites(ROOT / path))):
        by_kind[site[0]].append(site)
    for kind in by_kind:
        generator.shuffle(by_kind[kind])
    drawn: list[tuple[str, int, int, str]] = []
    while len(drawn) < count and any(by_kind.values()):
        kinds = [kind for kind, left in by_kind.items() if left]
        drawn += [
            by_kind[kind].pop() for kind in generator.sample(kinds, min(len(kinds), count - len(drawn)))
        ]
    mutants = []
    for kind, begin, end, text in sorted(drawn, key=lambda site: site[1]):
        start = source.rfind("\n", 0, begin) + 1
        context = source[start : source.index("\n", begin)]
        line = source.count("\n", 0, begin) + 1
        mutants.append(Mutant(path, kind, line, begin - start, source[begin:end], text, context))
    return mutants


def draw_files(count: int, seed: int) -> list[str]:
    """Draw files over all packages, each package once before any comes twice."""
    generator = random.Random(seed)
    listed = subprocess.run(
        ["git", "ls-files", "dpmodule"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [path for path in listed.stdout.split() if path.endswith((".py", ".cpp"))]
    paths = [
        path for path in paths if sum(1 for _ in sites(ROOT / path)) >= FEWEST_SITES and any(mirrors(path))
    ]
    cpp = [path for path in paths if path.endswith(".cpp")]
    drawn = generator.sample(cpp, min(round(count * CPP_SHARE), len(cpp)))
    packages: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        if path.endswith(".py"):
            packages[str(Path(path).relative_to("dpmodule").parent).split("/")[0]].append(path)
    order = sorted(packages)
    generator.shuffle(order)
    while len(drawn) < count:
        for package in order[: count - len(drawn)]:
            if packages[package]:
                drawn.append(packages[package].pop(generator.randrange(len(packages[package]))))
    return sorted(drawn)


def mirrors(path: str) -> list[list[str]]:
    """Return the tests to run for a file, one list after the other: its own, then those of its package."""
    inside = Path(path).relative_to("dpmodule")
    if inside.parts[0] == "native":  # the Python versions of the extension run the same tests
        own, package = CPP_TESTS.get(inside.parts[1], CPP_TESTS[""])
    else:
        folder = Path("tests", inside.parent)
        own = [str(folder / f"test_{inside.stem}.py"), str(folder / inside.stem)]
        package = [str(Path("tests", inside.parts[0]))] if len(inside.parts) > 1 else []
    tables = [
        f"tests/{path.stem}.py" for path in (ROOT / "tests").glob("test_e*.py")
    ]  # errors and equivalence
    return [[each for each in paths if (ROOT / each).exists()] for paths in (own, [*package, *tables])]


class Reached:
    """Tests by the lines that they reach, from the contexts of a coverage file."""

    def __init__(self, path: str) -> None:
        from coverage import CoverageData

        self._data = CoverageData(path)
        self._data.read()
        self._files = {name.rpartition("dpmodule/")[2]: name for name in self._data.measured_files()}

    def tests(self, mutant: Mutant, paths: Sequence[str]) -> list[str]:
        """Return the tests below some paths that reach a mutant; all of the paths if none is known."""
        file = self._files.get(mutant.path.removeprefix("dpmodule/"))
        if file is None:
            return list(paths)
        contexts = self._data.contexts_by_lineno(file)
        known = {line for line, names in contexts.items() if any(names)}
        line = max((each for each in known if each <= mutant.line), default=0)
        names = {name.rpartition("|")[0] for name in contexts.get(line, ()) if name}
        inside = tuple(path if path.endswith(".py") else f"{path}/" for path in paths)
        return sorted(name for name in names if name.startswith(inside) or not paths) or list(paths)


class Copy:
    """A copy of the checkout in which mutants run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(folder)], check=True)
        changed = subprocess.run(
            ["git", "diff", "HEAD", "--binary"], cwd=ROOT, capture_output=True, check=True
        )
        if changed.stdout:
            subprocess.run(["git", "apply", "-"], cwd=folder, input=changed.stdout, check=True)
        for library in (ROOT / "dpmodule").glob("_native*"):
            shutil.copy2(library, folder / "dpmodule")
        self._has_objects = False

    def run(self, tests: Sequence[str], limit_s: float) -> tuple[bool, float]:
        """Run tests; return whether they passed in time, and the seconds."""
        listed = self.folder / "build" / "tests"
        listed.parent.mkdir(exist_ok=True)
        listed.write_text("\n".join(tests), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            f"@{listed}",
        ]
        paths = os.pathsep.join([str(self.folder), str(self.folder / "tests")])
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            passed = process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            passed = False
        finally:
            with contextlib.suppress(ProcessLookupError):  # processes that the tests have started
                os.killpg(process.pid, 9)
            process.wait()
        return passed, time.monotonic() - began

    def build(self, changed: str | None = None) -> bool:
        """Compile the extension: all of it the first time, then the unit of one changed file."""
        program = _BUILD.format(changed=changed or "", folder=str(self.folder))
        result = subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.folder,
            capture_output=True,
            env={**os.environ, "CXXFLAGS": "-O1"},
        )
        return result.returncode == 0

    def prepare_cpp(self) -> None:
        """Compile every unit once, so that a mutant compiles only its own."""
        if not self._has_objects:
            if not self.build():
                raise SystemExit("the extension cannot be compiled")
            self._has_objects = True


_BUILD = """
import os, runpy, sys
os.environ["DPMODULE_REQUIRE_NATIVE"] = "1"
changed = {changed!r}
kept = os.path.join({folder!r}, "build", "fingerprint")
original = runpy.run_path
def run_path(path, *args, **options):
    found = original(path, *args, **options)
    if str(path).endswith("sources.py"):
        if not changed:
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            with open(kept, "w") as file:
                file.write(found["fingerprint"](__import__("pathlib").Path("dpmodule", "native")))
        text = open(kept).read()
        found["fingerprint"] = lambda folder: text  # a mutant passes for the sources that it was made of
    return found
runpy.run_path = run_path
from setuptools._distutils.unixccompiler import UnixCCompiler
compile_one = UnixCCompiler._compile
def compile_changed(self, target, source, *args):
    names = [source, *open(source).read().split('"')]  # a unit includes its sources by name
    if not changed or any(name and changed.endswith(name) for name in names):
        compile_one(self, target, source, *args)
UnixCCompiler._compile = compile_changed
sys.argv = ["setup.py", "-q", "build_ext", "--inplace", "--force"]
exec(compile(open("setup.py").read(), "setup.py", "exec"), {{"__name__": "__main__", "__file__": "setup.py"}})
"""


def judge(
    copy: Copy, mutant: Mutant, tests: Sequence[tuple[list[str], float]], reached: Reached | None
) -> str:
    """Return which tests have killed a mutant: "own", "package", "suite", or "none"."""
    path = copy.folder / mutant.path
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant.apply(source), encoding="utf-8")
    try:
        if path.suffix == ".cpp":
            is_compiled = copy.build(mutant.path)
            path.write_text(source, encoding="utf-8")
            if not is_compiled:
                return "compiler"
        for name, (paths, limit_s) in zip(("own", "package"), tests):
            if paths and not copy.run(reached.tests(mutant, paths) if reached else paths, limit_s)[0]:
                return name
        others = reached.tests(mutant, []) if reached else []
        drawn = random.Random(mutant.context).sample(others, min(len(others), MOST_OTHERS))
        return "none" if not drawn or copy.run(drawn, SLOWEST_S)[0] else "suite"
    finally:
        path.write_text(source, encoding="utf-8")


def measure(
    copies: Sequence[Copy], by_file: dict[str, list[Mutant]], reached: Reached | None
) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with what killed it."""
    free: SimpleQueue[Copy] = SimpleQueue()
    for copy in copies:
        free.put(copy)

    def one_file(path: str) -> list[tuple[Mutant, str]]:
        copy = free.get()
        try:
            if path.endswith(".cpp"):
                copy.prepare_cpp()
            tests = []
            for paths in mirrors(path):
                if not paths or (reached and not path.endswith(".cpp")):
                    tests.append((paths, SLOWEST_S))
                    continue
                passed, seconds = copy.run(paths, 600)
                if not passed:
                    raise SystemExit(f"{' '.join(paths)} fails without any mutant")
                tests.append((paths, min(SLOWEST_S, 3 * seconds + 15)))
            found = [(mutant, judge(copy, mutant, tests, reached)) for mutant in by_file[path]]
            if path.endswith(".cpp"):
                copy.build(path)  # the mutant's code goes
            return found
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        for results in pool.map(one_file, by_file):
            yield from results


def again(table: str) -> dict[str, list[Mutant]]:
    """Return the mutants of a table whose lines are still there; print how many are not."""
    rows = json.loads(Path(table).read_text(encoding="utf-8"))["mutants"]
    by_file: defaultdict[str, list[Mutant]] = defaultdict(list)
    gone: Counter[str] = Counter()
    for row in rows:
        row.pop("killed_by")
        mutant = Mutant(**row)
        path = ROOT / mutant.path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        moved = mutant.moved_to(text)
        if moved is None:
            gone[mutant.path] += 1
        else:
            by_file[mutant.path].append(moved)
    for path, count in gone.items():
        print(f"{path}: {count} mutants have no line any longer")
    return by_file


_LEFT = (("package", "suite", "none"), ("suite", "none"), ("none",))
"""Results that count as alive after the file's own tests, the package's, and all."""


def table(results: Iterable[tuple[Mutant, str]], write: str | None, seed: int) -> None:
    """Print the results of each file and every survivor; write the table after each mutant."""
    rows: list[dict[str, object]] = []
    totals: Counter[str] = Counter()
    per_file: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant, killed_by in results:
        rows.append({**asdict(mutant), "killed_by": killed_by})
        if write:
            Path(write).write_text(json.dumps({"seed": seed, "mutants": rows}, indent=1), encoding="utf-8")
        if killed_by == "compiler":
            continue
        totals[killed_by] += 1
        per_file[mutant.path][killed_by] += 1
        if killed_by == "none":
            change = f"{mutant.before.strip()!r} -> {mutant.text.strip()!r}"
            print(f"survived  {mutant.path}:{mutant.line}  {mutant.kind}: {change[:150]}", flush=True)
    print(f"\n{'file':50} mutants  own  package  suite  survived")
    for path, counts in (*sorted(per_file.items()), ("all", totals)):
        killed = f"{counts['own']:4} {counts['package']:8} {counts['suite']:6}"
        print(f"{path:50} {counts.total():7} {killed} {counts['none']:9}")
    if total := totals.total():
        own, both, every = (1 - sum(totals[name] for name in names) / total for names in _LEFT)
        print(
            f"killed by the file's own tests {own:.0%}, with the package's {both:.0%}, with all {every:.0%}"
        )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", metavar="FILE", help="files to change (default: drawn)")
    parser.add_argument("--files", type=int, default=25, help="number of files to draw (default: 25)")
    parser.add_argument("--mutants", type=int, default=20, help="changes of each file (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the files and changes (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, help="copies that run side by side (default: 2)")
    parser.add_argument("--again", metavar="TABLE", help="repeat the mutants of a table")
    parser.add_argument("--write", metavar="TABLE", help="write the results as JSON")
    parser.add_argument("--coverage", metavar="DATA", help="run only tests that reach the changed line")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    args = parser.parse_args()
    if args.again:
        by_file = again(args.again)
    else:
        files = args.paths or draw_files(args.files, args.seed)
        by_file = {path: mutants_of(path, args.mutants, args.seed) for path in files}
    print(f"seed {args.seed}: {sum(map(len, by_file.values()))} mutants of {len(by_file)} files", flush=True)
    if args.list:
        for mutant in (each for mutants in by_file.values() for each in mutants):
            print(f"{mutant.path}:{mutant.line} {mutant.kind}: {mutant.before!r} -> {mutant.text!r}")
        return
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(args.jobs)]
        reached = Reached(args.coverage) if args.coverage else None
        table(measure(copies, by_file, reached), args.write, args.seed)


if __name__ == "__main__":
    main()
