"""Only the part about automatic batching: `python -m benchmarks.autobatch` is `python -m benchmarks autobatch`."""

from __future__ import annotations

import sys

from .__main__ import main

if __name__ == "__main__":
    sys.exit(main(["autobatch", *sys.argv[1:]]))
