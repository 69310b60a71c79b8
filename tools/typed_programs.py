"""Check the types of the programs in the README, docs/start and docs/guides, as mypy and pyright see the package.

Usage: python tools/typed_programs.py

Exits with 1 if a checker finds an error, or if the types of the calls in tests/programs/typed_calls.py have changed.
pyright is left out where it is not installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LEFT_OUT = {
    "explain_2.py": "times are None unless they are measured",
    "profiling_1.py": "times are None unless they are measured",
    "large_tables_1.py": "the storage type of a parameter is not in its type",
    "sparse_training_0.py": "the storage type of a result is not in its type",
    "sparse_training_1.py": "scipy's types",
    "sparse_training_2.py": "scipy's types",
    "sparse_training_3.py": "pyright does not see methods that are made at run time",
    "nan_4.py": "pyright does not see methods that are made at run time",
    "not_learning_1.py": "an attribute with an underscore, as in MXNet",
    "own_iterator_0.py": "pyright does not accept attributes in place of properties",
    "own_iterator_3.py": "pyright does not accept attributes in place of properties",
    "own_operator_0.py": "a gradient may be None",
    "own_operator_1.py": "a gradient may be None",
    "values_inside_2.py": "torch's type of a tensor cannot be awaited",
    "waiting_for_data_1.py": "torch's loader is declared for datasets only",
    "deploying_0.py": "ONNX Runtime's types",
}
"""Programs that a checker rejects, and why."""

PYRIGHT = {"include": ["."], "extraPaths": [str(ROOT)], "reportPossiblyUnboundVariable": False}
MYPY = ("--config-file=", "--follow-imports=silent", "--ignore-missing-imports", "--pretty")


def write_programs(folder: Path) -> list[str]:
    """Write each program to a file, and return the names."""
    pages = [
        ROOT / "README.md",
        *sorted((ROOT / "docs/start").glob("*.md")),
        *sorted((ROOT / "docs/guides").glob("*.md")),
    ]
    for page in pages:
        for number, code in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
            name = f"{page.stem.replace('-', '_')}_{number}.py"
            if name not in LEFT_OUT:
                (folder / name).write_text(code, encoding="utf-8")
    shutil.copy(ROOT / "tests/programs/typed_calls.py", folder)
    return sorted(path.name for path in folder.glob("*.py"))


def main() -> int:
    """Run the checkers; return 1 if one fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = write_programs(folder)
        checks = [[sys.executable, "-m", "mypy", *MYPY, *programs]]
        if shutil.which("pyright"):
            (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
            checks.append(["pyright", "--pythonpath", sys.executable])
        where = {**os.environ, "MYPYPATH": str(ROOT)}
        failed = [command for command in checks if subprocess.run(command, cwd=folder, env=where).returncode]
    print(f"{len(programs)} programs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
