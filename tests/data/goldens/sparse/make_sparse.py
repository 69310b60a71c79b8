"""Record what MXNet 1.9.1 makes of helpers/factorization.py and helpers/sparse_calls.py.

Run with an interpreter that has MXNet: ``python tests/data/goldens/sparse/make_sparse.py``.
"""

import json
import sys
from pathlib import Path

import mxnet as mx
import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from helpers.factorization import OPTIMIZERS, train  # noqa: E402
from helpers.sparse_calls import calls  # noqa: E402

found = {}
for name in OPTIMIZERS:
    for key, value in train(mx, name, mx.cpu()).items():
        found[f"{name}:{key}"] = value
np.savez_compressed(HERE / "factorization.npz", **found)

made, stypes = {}, {}
for label, function in calls(mx):
    array = function()
    made[label], stypes[label] = array.asnumpy(), array.stype
np.savez_compressed(HERE / "calls.npz", **made)
(HERE / "calls.json").write_text(json.dumps(stypes, indent=0) + "\n")
