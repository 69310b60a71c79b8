"""Only the part about agents and worlds: `python -m benchmarks.agents` is `python -m benchmarks agents`."""

from __future__ import annotations

import sys

from .__main__ import main

if __name__ == "__main__":
    sys.exit(main(["agents", *sys.argv[1:]]))
