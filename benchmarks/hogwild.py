"""Only the part about Hogwild training: `python -m benchmarks.hogwild` is `python -m benchmarks hogwild`."""

from __future__ import annotations

import sys

from .__main__ import main

if __name__ == "__main__":
    sys.exit(main(["hogwild", *sys.argv[1:]]))
