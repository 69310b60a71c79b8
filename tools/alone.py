"""Run each test file alone in a fresh process, in a random order of its tests.

    python tools/alone.py [FILE OR FOLDER ...] [--jobs 2]

A test that relies on what the tests of other files did, such as an import or a setting, fails here. Prints the files
that fail with their reports; the seed of the order is in the variable DPMODULE_TEST_SEED, as in any run of the tests.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOTHING = 5
"""Exit status of pytest if it has no tests to run."""


def test_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the test files among paths and below them."""
    for path in paths:
        yield from sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def run(path: Path) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Run one file."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(path)]
    return path, subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def main(arguments: list[str]) -> int:
    """Run the files; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "tests"])
    parser.add_argument("--jobs", type=int, default=2, help="files at the same time")
    options = parser.parse_args(arguments)
    seed = os.environ.setdefault("DPMODULE_TEST_SEED", str(random.randrange(10**6)))
    print(f"DPMODULE_TEST_SEED={seed}")
    count, failed = 0, []
    with ThreadPoolExecutor(options.jobs) as pool:
        for path, done in pool.map(run, test_files(options.paths)):
            count += 1
            if done.returncode not in (0, NOTHING):
                failed.append(path)
                print(f"--- {path}\n{done.stdout}{done.stderr}")
    print(f"{count - len(failed)} of {count} files pass alone", *failed, sep="\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
