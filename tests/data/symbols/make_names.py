"""Record what MXNet 1.9.1 makes of the calls in `name_cases.py`: python make_names.py (Python 3.8, NumPy < 1.24)."""

import json
from pathlib import Path

import mxnet as mx
from name_cases import cases, described

HERE = Path(__file__).parent
found = {name: described(mx, make) for name, make in cases(mx).items()}
(HERE / "names.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")
