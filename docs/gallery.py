"""Write the gallery: the examples, each with its picture, its figure and its time.

``python docs/gallery.py OUT`` writes ``OUT/gallery.md`` from the docstrings of ``examples``, from ``docs/gallery.json``
and from ``docs/pictures``; the build of the site calls `write`. ``python docs/gallery.py --run [NAME ...]`` measures
all examples or some, such as ``hogwild/skip_gram``: it runs each of them in full and with --smoke, writes figures and
times into ``docs/gallery.json`` and times into the docstring, and draws the picture.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, PICTURES, RECORDS = ROOT / "examples", ROOT / "docs" / "pictures", ROOT / "docs" / "gallery.json"

FORMS = ("full", "smoke")

FOLDERS = {
    "": "Networks and training",
    "autobatch": "Automatic batching",
    "hogwild": "Training from files",
    "agents": "Agents",
    "streams": "Streams",
    "distributed": "Several processes",
    "interop": "Import and export",
}
"""Folders of examples in the order of the page, and titles."""

FORM = """\
Figure: WHAT, at least 0.9; 0.8 with --smoke.
Time: 0 s; 0 s with --smoke.
Run: python examples/{name}.py [--smoke]
where "most" may replace "least", and "; 0.8 with --smoke" is omitted if the target is the same; \
`python docs/gallery.py --run {name}` fills the times in"""
"""End of a docstring. The last line that the example prints is ``WHAT: VALUE, target at least 0.9``."""

_FORM = re.compile(
    r"(?P<title>[^\n]+\.)\n(?P<text>.*?)\n"
    r"Figure: (?P<what>.+?),\sat\s(?P<sense>least|most)\s(?P<full>\S+?)(;\s(?P<smoke>\S+)\swith\s--smoke)?\.\n"
    r"Time: (?P<time>\d+ s); (?P<smoke_time>\d+ s) with --smoke\.\n"
    r"Run: (?P<run>[^\n]+)(?P<more>.*)",
    re.DOTALL,
)
_LAST = re.compile(r"(?P<what>.+): (?P<value>\S+), target (?P<target>at (?P<sense>least|most) \S+)")


@dataclass(frozen=True)
class Example:
    """Docstring of an example.

    Attributes:
        path: file of the example.
        title: first line.
        text: description of the example.
        what: name of its figure.
        targets: targets of the full and the short form, such as "at least 0.9".
        times: times of both, such as "4 s".
        run: command to run it, with options in brackets.
    """

    path: Path
    title: str
    text: str
    what: str
    targets: tuple[str, str]
    times: tuple[str, str]
    run: str

    @property
    def name(self) -> str:
        """Name such as "hogwild/skip_gram"."""
        return name_of(self.path)

    @property
    def place(self) -> str:
        """File and first line of the example, for messages."""
        return f"examples/{self.name}.py:1"

    @property
    def draws(self) -> bool:
        """True if it has an option that draws its picture."""
        return "--picture" in self.run

    @property
    def picture(self) -> Path:
        """File of the example's picture."""
        return PICTURES / f"{self.name.replace('/', '-')}.{'png' if self.draws else 'svg'}"

    def missed(self, line: str, short: bool) -> str | None:
        """Return an error about its last printed line, or None.

        Args:
            line: last printed line.
            short: True for the form of --smoke.
        """
        expected = f"{self.what}: VALUE, target {self.targets[short]}"
        match = _LAST.fullmatch(line)
        if not match or (match["what"], match["target"]) != (self.what, self.targets[short]):
            return f"{self.place}: expected the last line {expected!r}, as in the docstring; got {line!r}"
        value, target = float(match["value"]), float(match["target"].split()[-1])
        if value > target if match["sense"] == "most" else value < target:
            return f"{self.place}: missed its target: {line!r}"
        return None


def files() -> list[Path]:
    """Return the files of all examples, in the order of the page.

    Raises:
        ValueError: a folder of examples has no title on the page.
    """
    order = list(FOLDERS)
    paths = [path for path in EXAMPLES.rglob("*.py") if path.name != "setup.py"]
    for path in paths:
        if folder_of(path) not in order:
            raise ValueError(
                f"examples/{name_of(path)}.py:1: the folder is new; add a title to FOLDERS of docs/gallery.py"
            )
    return sorted(paths, key=lambda path: (order.index(folder_of(path)), path))


def folder_of(path: Path) -> str:
    """Return the folder of a file in examples, "" for the top folder."""
    return path.relative_to(EXAMPLES).parts[0] if path.parent != EXAMPLES else ""


def name_of(path: Path) -> str:
    """Return an example's file within the folder of examples, without suffix."""
    return path.relative_to(EXAMPLES).with_suffix("").as_posix()


def read(path: Path) -> Example:
    """Return the parsed docstring of an example.

    Raises:
        ValueError: the docstring is missing or has another form.
    """
    name = name_of(path)
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    match = _FORM.fullmatch(doc)
    if match is None:
        line = 1 + doc[: max(doc.find("\nFigure:") + 1, 0)].count("\n")
        raise ValueError(
            f"examples/{name}.py:{line}: expected a docstring with a title of one line, a description, and\n"
            f"{FORM.format(name=name)}"
        )
    targets = [f"at {match['sense']} {match[form] or match['full']}" for form in ("full", "smoke")]
    text = "\n\n".join(part.strip("\n") for part in (match["text"], match["more"]) if part.strip())
    what = " ".join(match["what"].split())
    times = match["time"], match["smoke_time"]
    return Example(path, match["title"], text, what, (targets[0], targets[1]), times, match["run"])


def records() -> dict[str, Any]:
    """Return the measurements by examples' names."""
    return json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}


def problems(example: Example, known: dict[str, Any]) -> Iterator[str]:
    """Yield the contradictions between an example's docstring, its code and its measurements.

    Args:
        example: the example.
        known: measurements by name.
    """
    again = f"run `python docs/gallery.py --run {example.name}`"
    constants = ast.walk(ast.parse(example.path.read_text(encoding="utf-8")))
    numbers = [node.value for node in constants if isinstance(node, ast.Constant)]
    for target in example.targets:
        if float(target.split()[-1]) not in [each for each in numbers if type(each) in (int, float)]:
            yield f"{example.place}: the code does not contain the docstring's target {target!r}; make them agree"
    if example.name not in known:
        yield f"{example.place}: docs/gallery.json has no measurements of this example; {again}"
        return
    if not example.picture.exists():
        yield f"{example.place}: docs/pictures/{example.picture.name} does not exist; {again}"
    for short, form in enumerate(FORMS):
        record = known[example.name][form]
        if wrong := example.missed(record["last"], bool(short)):
            yield f"{wrong} (from docs/gallery.json); {again}"
        elif example.times[short] != shown(record["seconds"]):
            measured = f"docs/gallery.json has {shown(record['seconds'])}"
            yield f"{example.place}: the docstring has {example.times[short]}, {measured}; {again}"


def shown(seconds: float) -> str:
    """Return a time in full seconds, 1 at least."""
    return f"{max(1, round(seconds))} s"


def commands(example: Example) -> list[list[str]]:
    """Return how an example is run, as its docstring says, without options."""
    programs = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
    parts = re.sub(r" \[.*?\]", "", example.run).split(" && ")
    return [[*programs[program], *rest] for program, *rest in map(shlex.split, parts)]


def measured(example: Example, *options: str) -> dict[str, Any]:
    """Run an example, one thread in each process; return its last line and the processor time of all its processes.

    Raises:
        RuntimeError: it has failed.
    """
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    *before, last = commands(example)
    with tempfile.TemporaryDirectory() as folder:
        place = ROOT
        if before:  # something is built in the example's folder
            place = Path(shutil.copytree(example.path.parent, Path(folder, "copy")))
        for command in before:
            subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True)
        start = os.times()
        done = subprocess.run([*last, *options], cwd=place, env=environment, capture_output=True, text=True)
        end = os.times()
    if done.returncode:
        raise RuntimeError(f"{example.place}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    seconds = end.children_user + end.children_system - start.children_user - start.children_system
    return {"last": done.stdout.strip().splitlines()[-1], "seconds": round(seconds, 1)}


def renew(example: Example) -> None:
    """Measure and draw an example, and save the results."""
    from gallery_pictures import drawn  # in this folder; the build of the site does not need it

    record = {"full": measured(example), "smoke": measured(example, "--smoke"), "torch": version("torch")}
    PICTURES.mkdir(exist_ok=True)
    if example.draws:
        measured(example, "--picture", str(example.picture))
    else:
        example.picture.write_text(drawn(example.name, example.path), encoding="utf-8")
    known = {**records(), example.name: record}
    names = [each for each in map(name_of, files()) if each in known]
    text = json.dumps({each: known[each] for each in names}, indent=1)
    RECORDS.write_text(text + "\n", encoding="utf-8")
    times = "; ".join(shown(record[form]["seconds"]) for form in FORMS)
    code = example.path.read_text(encoding="utf-8")
    code = re.sub("^Time: .*$", f"Time: {times} with --smoke.", code, count=1, flags=re.MULTILINE)
    example.path.write_text(code, encoding="utf-8")
    sys.stdout.write(f"{example.name}: {record['full']['last']}; {times} with --smoke\n")
    sys.stdout.flush()


def width_of(picture: Path) -> int:
    """Return the displayed width of a picture in pixels: its own, or less to limit the height to 500."""
    data = picture.read_bytes()
    if picture.suffix == ".png":
        width, height = struct.unpack(">II", data[16:24])
    else:
        width, height = map(int, re.findall(rb'(?:width|height)="(\d+)"', data)[:2])
    return int(min(width, width * 500 / height))


def entry(example: Example, record: dict[str, Any]) -> str:
    """Return the page's section about an example."""
    path = example.path.relative_to(ROOT).as_posix()
    shows = "its picture" if example.draws else "a network, or batches"
    rows = []
    for form, target in zip(FORMS, example.targets):
        value = _LAST.fullmatch(record[form]["last"])["value"]
        rows.append(f"| {form} | {value} | {target} | {shown(record[form]['seconds'])} |")
    return f"""\
### {example.name}

**{example.title}**

{example.text}

```{{image}} pictures/{example.picture.name}
:alt: "{example.name}: {shows}"
:width: {width_of(example.picture)}px
```

| form | {example.what} | target | time |
|---|---|---|---|
{rows[0]}
{rows[1]}

{{download}}`{path} <../{path}>`

```bash
{example.run}
```
"""


def page() -> str:
    """Return the page.

    Raises:
        ValueError: an example has contradictions; see `problems`.
    """
    known, examples = records(), list(map(read, files()))
    wrong = [each for example in examples for each in problems(example, known)]
    if wrong:
        raise ValueError("\n".join(wrong))
    versions = ", ".join(sorted({known[each.name]["torch"] for each in examples}))
    parts = [
        "# Examples",
        "Each example is one file of at most 150 lines and does not download anything. Its last printed line is its "
        "figure; it exits with 1 if it misses the target. `--smoke` selects a short form, which the tests run. Times "
        "are the processor time of all processes, with one thread each, including the start of Python. Examples with "
        "`--picture` draw their own picture; the others show the network or the batches. "
        f"`python docs/gallery.py --run` updates figures and pictures; these are from torch {versions}.",
    ]
    for folder, title in FOLDERS.items():
        chosen = [each for each in examples if folder_of(each.path) == folder]
        parts += [f"## {title}", *(entry(each, known[each.name]) for each in chosen)]
    return "\n\n".join(parts)


def write(out: Path) -> list[Path]:
    """Write the page into a folder if it has changed; return its path."""
    path, text = out / "gallery.md", page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return [path]


def main(arguments: list[str]) -> None:
    """Write the page, or measure and draw."""
    if arguments[:1] == ["--run"]:
        chosen = {name_of(path): path for path in files()}
        if unknown := ", ".join(sorted({*arguments[1:]} - {*chosen})):
            sys.exit(f"unknown example {unknown}; expected one of {', '.join(chosen)}")
        for name in arguments[1:] or chosen:
            renew(read(chosen[name]))
    elif len(arguments) == 1:
        sys.stdout.write("\n".join(map(str, write(Path(arguments[0])))) + "\n")
    else:
        sys.exit("usage: python docs/gallery.py OUT | --run [NAME ...]")


if __name__ == "__main__":
    main(sys.argv[1:])
