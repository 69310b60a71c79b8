"""Record the visible behaviour of the checkout in the current folder, and compare two records.

    python tools/freeze.py record before.json [--part PART ...]
    python tools/freeze.py compare before.json after.json

A record has four parts:

signatures  of all public names that `docs/versions.json` lists, with their defaults
calls       type and first line of the error of 2,000 seeded random wrong calls
programs    output, exit code and files of all Python blocks of the documentation, examples and notebooks; each runs
            twice, and differences between the two runs are left out
networks    outputs, gradients and parameters after one step of 100 random networks

`compare` prints every difference and exits with 1 if there is one; numbers of networks may differ by 1e-5. The programs
need about a quarter of an hour, the other parts a minute each.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib
import inspect
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path.cwd()
CALLS, CALLS_A_PROCESS, SECONDS_A_CALL = 2000, 100, 5
NETWORKS = 100
SECONDS_A_PROGRAM = 240
TOLERANCE = 1e-5

ARGUMENTS = [
    "None",
    "-1",
    "0",
    "3",
    "2.5",
    "float('nan')",
    "''",
    "'relu'",
    "'no_such_name'",
    "b'x'",
    "True",
    "[]",
    "[1,2]",
    "[[1,2],[3]]",
    "(2,3)",
    "(0,-1)",
    "{}",
    "{'a':1}",
    "object()",
    "print",
    "np.zeros((2,3),'f')",
    "np.arange(4)",
    "np.array('x')",
    "torch.zeros(2,3)",
    "mx.nd.ones((2,3))",
    "mx.sym.Variable('data')",
    "mx.sym.FullyConnected(mx.sym.Variable('data'),num_hidden=3)",
    "mx.cpu()",
    "mx.gpu(9)",
    "mx.init.Xavier()",
    "mx.io.NDArrayIter(np.zeros((4,3),'f'),np.zeros(4,'f'),2)",
    "mx.io.DataDesc('data',(2,3))",
    "dy.inputVector([1,2,3])",
]
"""Arguments of wrong calls, as expressions."""

NOT_CALLED = re.compile(r"main$|notebook|profiler|install|fork|launch|HogwildWorld|run_conformance|input$")
"""Names that are not called: they take long, start servers, or wait for input."""

Record = dict[str, Any]


def public_names() -> list[str]:
    """Return the dotted paths of all public names, without the package's."""
    table = json.loads((ROOT / "docs" / "versions.json").read_text(encoding="utf-8"))
    paths = set()
    for modules in table.values():
        for module, lines in modules.items():
            owner = "dpmodule.ndarray" if module == "operators" else module
            paths.update(f"{owner}:{name}" for line in lines for name in line.split())
    return sorted(paths)


def found_at(path: str) -> Any:
    """Return the object of a path of `public_names`, or None."""
    module, _, name = path.partition(":")
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (AttributeError, ImportError):
        return None


def signatures() -> Record:
    """Return the signature of every public callable, and the type of other objects."""
    record = {}
    for path in public_names():
        value = found_at(path)
        try:
            shown = str(inspect.signature(value))
        except (TypeError, ValueError):
            shown = type(value).__name__
        record[path] = re.sub(r" at 0x\w+", "", shown)
    return record


def drawn_calls() -> list[str]:
    """Return the wrong calls as expressions; they are reproducible."""
    draw = random.Random(0)
    paths = [
        path
        for path in public_names()
        if "." not in path.partition(":")[2]
        and not NOT_CALLED.search(path)
        and (inspect.isroutine(found_at(path)) or inspect.isclass(found_at(path)))
    ]
    calls = []
    for _ in range(CALLS):
        module, _, name = draw.choice(paths).partition(":")
        given = ", ".join(draw.choices(ARGUMENTS, k=draw.choice((0, 1, 1, 2, 2, 3))))
        calls.append(f"importlib.import_module({module!r}).{name}({given})")
    return calls


def answer(call: str, names: Record) -> str:
    """Return the type and first line of a call's error, or the type of its result."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer in {SECONDS_A_CALL} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS_A_CALL)
    try:
        return f"-> {type(eval(call, names)).__name__}"
    except BaseException as error:  # including SystemExit
        lines = str(error).splitlines() or [""]
        return re.sub(r"0x[0-9a-f]+|/tmp/\S+", "...", f"{type(error).__name__}: {lines[0]}")
    finally:
        signal.alarm(0)


def calls() -> Record:
    """Return the results of the wrong calls; each batch runs in its own process."""
    record: Record = {}
    drawn = drawn_calls()
    for first in range(0, CALLS, CALLS_A_PROCESS):
        chosen = drawn[first : first + CALLS_A_PROCESS]
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reader)
            _answer_all(chosen, writer)
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as pipe:
            answers = [json.loads(line) for line in pipe]
        os.waitpid(pid, 0)
        answers += ["the process ended"] * (len(chosen) - len(answers))
        record.update(
            (f"{first + i} {call}", result) for i, (call, result) in enumerate(zip(chosen, answers))
        )
    return record


def _answer_all(chosen: list[str], writer: int) -> None:
    """Write the results of some calls, one per line, and end this process."""
    import numpy as np
    import torch

    import dpmodule as mx
    from dpmodule import autobatch as dy

    names = {"mx": mx, "np": np, "torch": torch, "dy": dy, "importlib": importlib}
    with tempfile.TemporaryDirectory() as folder, os.fdopen(writer, "w", encoding="utf-8") as pipe:
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        for call in chosen:
            print(json.dumps(answer(call, names)), file=pipe, flush=True)
        pipe.flush()
        os._exit(0)


def networks() -> Record:
    """Return the sums and some numbers of outputs, gradients and parameters after a step, by network."""
    sys.path.append(str(ROOT / "tests"))
    import numpy as np

    import dpmodule as mx
    from helpers.random_nets import random_net

    record = {}
    for seed in range(NETWORKS):
        net, shapes = random_net(seed)[:2]
        mx.random.seed(seed)
        executor = net.simple_bind(mx.cpu(), **shapes)
        numbers = np.random.RandomState(seed)
        for array in executor.arg_dict.values():
            array[:] = numbers.uniform(-0.5, 0.5, array.shape)
        outputs = executor.forward(is_train=True)
        executor.backward([mx.nd.ones(output.shape) for output in outputs])
        update = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
        for number, (name, gradient) in enumerate(executor.grad_dict.items()):
            if gradient is not None and name not in shapes:
                update(number, gradient, executor.arg_dict[name])
        arrays = {f"output {i}": output for i, output in enumerate(outputs)}
        arrays.update(
            (f"gradient {name}", value) for name, value in executor.grad_dict.items() if value is not None
        )
        arrays.update((f"stepped {name}", value) for name, value in executor.arg_dict.items())
        for name, array in arrays.items():
            values = array.asnumpy().astype("float64").ravel()
            record[f"network {seed} {name}"] = [float(values.sum()), *map(float, values[:3])]
    return record


def all_programs() -> Iterator[tuple[str, list[str]]]:
    """Yield the name, and the arguments of the interpreter, of every program."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        for number, block in enumerate(blocks):
            yield f"{page.relative_to(ROOT)} {number}", ["-c", block]
    for example in sorted((ROOT / "examples").rglob("*.py")):
        if "--smoke" in example.read_text(encoding="utf-8"):
            yield str(example.relative_to(ROOT)), [str(example), "--smoke"]
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        yield str(notebook.relative_to(ROOT)), ["-c", re.sub(r"^%.*$", "", code, flags=re.MULTILINE)]


def run_once(arguments: list[str]) -> Record:
    """Run a program in an empty folder; return its output by line, and a digest of every file that it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=SECONDS_A_PROGRAM,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "PYTHONHASHSEED": "0"},
            )
        except subprocess.TimeoutExpired:
            return {"exit code": f"none after {SECONDS_A_PROGRAM} s"}
        record: Record = {"exit code": done.returncode}
        record.update(
            (f"line {i}", line.replace(folder, "...")) for i, line in enumerate(done.stdout.splitlines())
        )
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                record[f"file {path.relative_to(folder)}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        return record


def programs() -> Record:
    """Return the output and files of every program, as far as two runs agree."""
    record = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        named = list(all_programs())
        runs = [[pool.submit(run_once, arguments) for _ in range(2)] for _, arguments in named]
        for (name, _), (first, second) in zip(named, runs):
            one, other = first.result(), second.result()
            record.update((f"{name}: {key}", value) for key, value in one.items() if other.get(key) == value)
    return record


PARTS: dict[str, Callable[[], Record]] = {
    "signatures": signatures,
    "calls": calls,
    "programs": programs,
    "networks": networks,
}


def agree(one: Any, other: Any) -> bool:
    """Return True if two entries are the same; numbers may differ a little."""
    if isinstance(one, list) and isinstance(other, list):
        pairs = list(zip(one, other, strict=True)) if len(one) == len(other) else [(0, 1)]
        return all(
            a == b or abs(a - b) <= TOLERANCE * max(1, abs(a)) or (a != a and b != b) for a, b in pairs
        )
    return bool(one == other)


def compare(before: Record, after: Record) -> int:
    """Print the differences between two records; return their number."""
    count = 0
    for part in sorted(before.keys() & after.keys()):
        one, other = before[part], after[part]
        for key in sorted(one.keys() | other.keys()):
            if not agree(one.get(key), other.get(key)):
                print(f"{part}: {key}\n  before: {one.get(key)}\n  after:  {other.get(key)}")
                count += 1
    print(f"{count} differences in {', '.join(sorted(before.keys() & after.keys()))}")
    return count


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="write a record")
    recorder.add_argument("file", type=Path)
    recorder.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    comparer = commands.add_parser("compare", help="compare two records")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    args = parser.parse_args()
    if args.command == "compare":
        before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (args.before, args.after))
        return int(compare(before, after) > 0)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    sys.path.insert(0, str(ROOT))
    record = {part: PARTS[part]() for part in args.part or PARTS}
    args.file.write_text(json.dumps(record, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
