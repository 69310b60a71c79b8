"""Only the part about streams: `python -m benchmarks.streams` is `python -m benchmarks streams`."""

from __future__ import annotations

import sys

from .__main__ import main

if __name__ == "__main__":
    sys.exit(main(["streams", *sys.argv[1:]]))
