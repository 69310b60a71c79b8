"""Record what MXNet 1.9.1 makes of the factorization machine in helpers/factorization.py.

Run with an interpreter that has MXNet: ``python tests/data/goldens/sparse/make_sparse.py``.
"""

import sys
from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from helpers.factorization import OPTIMIZERS, train  # noqa: E402

found = {}
for name in OPTIMIZERS:
    for key, value in train(mx, name, mx.cpu()).items():
        found[f"{name}:{key}"] = value
np.savez_compressed(HERE / "factorization.npz", **found)
