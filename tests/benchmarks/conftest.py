"""The suite of benchmarks lies beside the package and is not installed."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)  # last, so that an installed dpmodule stays the one that is tested
