"""Only the part about the calls of a batch: `python -m benchmarks.way_of_a_batch` is `python -m benchmarks way`."""

from __future__ import annotations

import sys

from .__main__ import main

if __name__ == "__main__":
    sys.exit(main(["way", *sys.argv[1:]]))
