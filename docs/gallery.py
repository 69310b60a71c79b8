"""Writes the gallery: the examples, each with its picture, its figure and its time.

``python docs/gallery.py OUT`` writes ``OUT/gallery.md`` from the docstrings of ``examples``, from ``docs/gallery.json``
and from ``docs/pictures``; the build of the site calls `write`. ``python docs/gallery.py --run [NAME ...]`` renews what
is measured, of all examples or of some, such as ``hogwild/skip_gram``: it runs each of them in full and with --smoke,
puts what it has reached and taken into ``docs/gallery.json`` and the times into its docstring, and draws its picture.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import dpmodule as mx
import dpmodule.autobatch as dy

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES, PICTURES, RECORDS = ROOT / "examples", ROOT / "docs" / "pictures", ROOT / "docs" / "gallery.json"

FOLDERS = {
    "": "Networks and training",
    "autobatch": "Automatic batching",
    "hogwild": "Training from files",
    "agents": "Agents",
    "streams": "Streams",
    "distributed": "Several processes",
    "interop": "In and out",
}
"""Folders of examples in the order of the page, and titles."""

FORM = """\
Figure: WHAT, at least TARGET; TARGET with --smoke.   (or "at most"; without "; ..." where both targets are the same)
Time: 0 s; 0 s with --smoke.   (python docs/gallery.py --run {name} fills it in)
Run: python {path} [--smoke]"""
"""The end of an example's docstring; what it prints last is ``WHAT: VALUE, target at least TARGET``."""

_FORM = re.compile(
    r"^(?P<text>.*?)^Figure: (?P<what>.+?),\sat\s(?P<sense>least|most)\s(?P<full>\S+?)(;\s(?P<smoke>\S+)\swith\s--smoke)?\.$"
    r"\n^Time: (?P<time>\d+ s); (?P<smoke_time>\d+ s) with --smoke\.$"
    r"\n^Run: (?P<run>[^\n]+)$(?P<more>.*)",
    re.MULTILINE | re.DOTALL,
)
_LAST = re.compile(r"(?P<what>.+): (?P<value>\S+), target (?P<target>at (least|most) \S+)")


@dataclass(frozen=True)
class Example:
    """What a docstring says.

    Attributes:
        path: the file.
        title: first line.
        text: what it shows.
        what: what the figure is.
        targets: of the full form and of the short one, such as "at least 0.9".
        times: of both, such as "4 s".
        run: how it is started, with options in brackets.
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
        """Its file within the folder of examples, without suffix."""
        return self.path.relative_to(EXAMPLES).with_suffix("").as_posix()

    @property
    def picture(self) -> Path:
        """The file of its picture."""
        return PICTURES / f"{self.name.replace('/', '-')}.{'png' if self.draws else 'svg'}"

    @property
    def draws(self) -> bool:
        """Whether it has an option that draws a picture."""
        return "--picture" in self.run

    def missed(self, line: str, short: bool) -> str | None:
        """Return what is wrong with the last line that it printed, if anything is.

        Args:
            line: what it printed last.
            short: it was the form of --smoke.
        """
        expected = f"{self.what}: VALUE, target {self.targets[short]}"
        found = _LAST.fullmatch(line)
        if not found or found["what"] != self.what or found["target"] != self.targets[short]:
            return f"{self.path}:1: expected as last line {expected!r}, as its docstring says; got {line!r}"
        value, target = float(found["value"]), float(found["target"].split()[-1])
        if value > target if found[4] == "most" else value < target:
            return f"{self.path}:1: the target is missed: {line!r}"
        return None


def files() -> list[Path]:
    """Return the files of all examples."""
    found = (path for folder in FOLDERS for path in sorted((EXAMPLES / folder).glob("*.py")))
    return [*found, *(path for path in sorted(EXAMPLES.rglob("*/*/*.py")) if path.name != "setup.py")]


def read(path: Path) -> Example:
    """Return what an example's docstring says.

    Raises:
        ValueError: it has none, or not the end that `FORM` shows; names file and line, and says what to do.
    """
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    found = _FORM.fullmatch(text)
    title, _, body = (found["text"] if found else "").partition("\n\n")
    if found is None or not title.endswith("."):
        line = next(
            (number for number, each in enumerate(text.splitlines(), 1) if each.startswith("Figure")), 1
        )
        inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        form = FORM.format(name=inside.with_suffix("").as_posix().removeprefix("examples/"), path=inside)
        raise ValueError(
            f"{inside}:{line}: expected a docstring of a title of one line that ends in a full stop, what the example "
            f"shows, and at its end\n{form}"
        )
    targets = tuple(f"at {found['sense']} {found[each] or found['full']}" for each in ("full", "smoke"))
    text = "\n\n".join(part.strip("\n") for part in (body, found["more"]) if part.strip())
    what = " ".join(found["what"].split())
    return Example(path, title, text, what, targets, (found["time"], found["smoke_time"]), found["run"])


def records() -> dict[str, Any]:
    """Return what was measured, by examples' names."""
    return json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else {}


def problems(example: Example, known: dict[str, Any]) -> Iterator[str]:
    """Yield what does not fit between an example's docstring, its code and what was measured.

    Args:
        example: the example.
        known: what was measured, by name.
    """
    again = f"run `python docs/gallery.py --run {example.name}`"
    tree = ast.parse(example.path.read_text(encoding="utf-8"))
    numbers = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float)
    }
    for target in example.targets:
        if float(target.split()[-1]) not in numbers:
            yield f"{example.path}:1: the docstring says {target!r}, but the code has no such number"
    if not example.picture.exists():
        yield f"{example.picture}: missing; {again}"
    for short, (form, time) in enumerate(zip(("full", "smoke"), example.times)):
        record = known.get(example.name, {}).get(form)
        if record is None:
            yield f"{RECORDS}: nothing was measured of {example.name}; {again}"
        elif wrong := example.missed(record["last"], bool(short)):
            yield f"{wrong}; that stands in {RECORDS.name}: {again}"
        elif time != shown(record["seconds"]):
            yield f"{example.path}:1: the docstring says {time}, measured were {shown(record['seconds'])}; {again}"


def shown(seconds: float) -> str:
    """Return a time in full seconds, 1 at least."""
    return f"{max(1, round(seconds))} s"


def _explained(losses: Callable[[ModuleType], list[dy.Expression]]) -> Callable[[ModuleType], Any]:
    """Return what shows how the losses of some examples were computed together."""

    def explain(example: ModuleType) -> Any:
        dy.configure(autobatch=True, random_seed=1)
        dy.renew_cg()
        dy.esum(losses(example)).value()
        return dy.explain()

    return explain


def _acceptor(example: ModuleType) -> list[dy.Expression]:
    return [example.Program().batch_loss(example.examples(example.BATCH_SIZE))]


def _parser(example: ModuleType) -> list[dy.Expression]:
    parser, draw = example.Parser(24, 24), random.Random(0)
    return [loss for _ in range(example.BATCH_SIZE) for loss in parser.losses(*example.sentence(draw))]


def _tagger(example: ModuleType) -> list[dy.Expression]:
    data = example.sentences()[:32]
    tagger = example.Tagger(data, 32, 24)
    return [
        dy.pickneglogsoftmax(scores, tag)
        for words, tags in data
        for scores, tag in zip(tagger.scores(words), tags)
    ]


def _treelstm(example: ModuleType) -> list[dy.Expression]:
    net, draw = example.TreeLSTM(32), random.Random(0)
    return [dy.sum_elems(net.run(example.statement(draw, 3))[0]) for _ in range(32)]


def _dialogue(example: ModuleType) -> mx.sym.Symbol:
    agent = example.Seq2seqAgent({"task": "reverse"})
    return agent.sym_gen(agent.opt, agent.dict)(("train", 8, 8))


def _starspace(example: ModuleType) -> mx.sym.Symbol:
    agent = example.StarspaceAgent({"task": "docs"})
    return agent.sym_gen(agent.opt, agent.dict)


DRAWN: dict[str, Callable[[ModuleType], Any]] = {
    "bucketing_lm": lambda example: example.generator(5000, 128)(20),
    "chained_modules": lambda example: mx.sym.from_torch(example.Residual(32), torch.zeros(1, 32)),
    "distillation": lambda example: example.by_teacher(example.small()),
    "matrix_factorization": lambda example: example.network(3000, 2000),
    "model_parallel_lstm": lambda example: example.generator(27, 128)(2),
    "sparse_linear": lambda example: example.factorization_machine(4),
    "stateful_lstm": lambda example: example.network(60, 128),
    "stochastic_depth": lambda example: example.network(2, 16, 0.5),
    "svm": lambda example: example.network("svm L2"),
    "text_cnn": lambda example: example.network(5000, 50),
    "autobatch/acceptor": _explained(_acceptor),
    "autobatch/parser": _explained(_parser),
    "autobatch/tagger": _explained(_tagger),
    "autobatch/treelstm_sentiment": _explained(_treelstm),
    "hogwild/bag_of_words": lambda example: example.network(5000),
    "agents/batch": _dialogue,
    "agents/both": _dialogue,
    "agents/hogwild": _starspace,
    "agents/module_agent": lambda example: example.MoodAgent.sym_gen(None, {}, example.MOODS),
    "agents/plain_torch": lambda example: mx.sym.from_torch(
        example.LastAgent({}).model, torch.zeros(1, example.LENGTH, dtype=torch.int64)
    ),
    "interop/come_back": lambda example: mx.sym.from_torch(example.network().eval(), torch.zeros(1, 1, 8, 8)),
}
"""What the picture of an example shows that draws none: its network, or how its work was batched. Without an entry it is
the result of its function `network`."""


def drawn(example: Example) -> str:
    """Return the picture of an example that draws none itself, on white paper."""
    spec = importlib.util.spec_from_file_location(example.path.stem, example.path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{example.path}: not a Python file")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    thing = DRAWN.get(example.name, lambda example: example.network())(module)
    if isinstance(thing, tuple):  # a symbol and names
        thing = thing[0]
    return str(thing._repr_svg_()).replace("<svg ", '<svg style="background: #ffffff" ', 1) + "\n"


def commands(example: Example) -> list[list[str]]:
    """Return what its docstring says how it is run, without options."""
    programs = {"python": [sys.executable], "torchrun": [sys.executable, "-m", "torch.distributed.run"]}
    parts = re.sub(r" \[.*?\]", "", example.run).split(" && ")
    return [[*programs[program], *rest] for program, *rest in map(shlex.split, parts)]


def measured(example: Example, *options: str) -> dict[str, Any]:
    """Run an example with one thread a process; return its last line, and the processor time of all its processes.

    Raises:
        RuntimeError: it has failed.
    """
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    *before, last = commands(example)
    with tempfile.TemporaryDirectory() as folder:
        place = ROOT
        if before:  # something is built, in a copy
            place = Path(shutil.copytree(example.path.parent, Path(folder, "copy")))
        for command in before:
            subprocess.run(command, cwd=place, env=environment, check=True, capture_output=True)
        start = os.times()
        done = subprocess.run([*last, *options], cwd=place, env=environment, capture_output=True, text=True)
        end = os.times()
    if done.returncode:
        raise RuntimeError(
            f"{example.name} {options}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    seconds = end.children_user + end.children_system - start.children_user - start.children_system
    return {"last": done.stdout.strip().splitlines()[-1], "seconds": round(seconds, 1)}


def run(names: list[str]) -> None:
    """Measure and draw examples, all if none is named; what one of them gave is written at once."""
    for example in map(read, files()):
        if names and example.name not in names:
            continue
        record = {
            "full": measured(example),
            "smoke": measured(example, "--smoke"),
            "torch": torch.__version__,
        }
        PICTURES.mkdir(exist_ok=True)
        if example.draws:
            measured(example, "--picture", str(example.picture))
        else:
            example.picture.write_text(drawn(example), encoding="utf-8")
        known = {**records(), example.name: record}
        order = [each for each in map(read, files()) if each.name in known]
        text = json.dumps({each.name: known[each.name] for each in order}, indent=1)
        RECORDS.write_text(text + "\n", encoding="utf-8")
        full, short = (shown(record[form]["seconds"]) for form in ("full", "smoke"))
        code = re.sub(
            "^Time: .*$",
            f"Time: {full}; {short} with --smoke.",
            example.path.read_text("utf-8"),
            count=1,
            flags=re.M,
        )
        example.path.write_text(code, encoding="utf-8")
        sys.stdout.write(f"{example.name}: {record['full']['last']} in {full}\n")
        sys.stdout.flush()


def width_of(picture: Path) -> int:
    """Return how wide a picture is shown, in pixels: as it is, or smaller so that it fits on a page."""
    data = picture.read_bytes()
    if picture.suffix == ".png":
        width, height = struct.unpack(">II", data[16:24])
    else:
        size = re.search(rb'width="(\d+)" height="(\d+)"', data)
        width, height = map(int, size.groups()) if size else (600, 400)
    return int(min(width, 700, width * 500 / height))


def entry(example: Example, record: dict[str, Any]) -> str:
    """Return what the page has of an example."""
    reached = []
    for form, target in zip(("full", "smoke"), example.targets):
        value = record[form]["last"].removeprefix(f"{example.what}: ").partition(",")[0]
        reached.append(
            f"| {form.replace('smoke', '`--smoke`')} | {value} | {target} | {shown(record[form]['seconds'])} |"
        )
    path = example.path.relative_to(ROOT).as_posix()
    return f"""\
### {example.name}

**{example.title}**

{example.text.replace("::" + chr(10) * 2, "")}

```{{image}} pictures/{example.picture.name}
:alt: {"what it draws" if example.draws else "its network, or how its work was batched"}
:width: {width_of(example.picture)}px
```

| form | {example.what} | target | time |
|---|---|---|---|
{chr(10).join(reached)}

{{download}}`{path} <../{path}>`

```bash
{example.run}
```
"""


def page() -> str:
    """Return the page.

    Raises:
        ValueError: something does not fit together; see `problems`.
    """
    known, examples = records(), list(map(read, files()))
    wrong = [each for example in examples for each in problems(example, known)]
    if wrong:
        raise ValueError("\n".join(wrong))
    parts = [
        "# Examples",
        "Programs of one file each, at most 150 lines, without downloads. What each prints last is its figure; it exits "
        "with 1 when the target is missed. `--smoke` is a short form, which the tests run. Times are those of the "
        "processor, of all processes of an example together, with one thread in each and the start of Python included; "
        "pictures are drawn by the example itself where it has `--picture`, else they show its network, or how the work "
        "of a batch was put together. `python docs/gallery.py --run` renews all of that.",
    ]
    for folder, title in FOLDERS.items():
        parts.append(f"## {title}")
        parts += [
            entry(each, known[each.name])
            for each in examples
            if each.name.rpartition("/")[0].split("/")[0] == folder
        ]
    return "\n\n".join(parts)


def write(out: Path) -> list[Path]:
    """Write the page into a folder if it differs from what is there; return its path."""
    path, text = out / "gallery.md", page()
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return [path]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2:])
    elif len(sys.argv) == 2:
        sys.stdout.write("\n".join(map(str, write(Path(sys.argv[1])))) + "\n")
    else:
        sys.exit("usage: python docs/gallery.py OUT | --run [NAME ...]")
