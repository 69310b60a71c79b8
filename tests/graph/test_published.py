"""Graph files that people have published, in several dialects; MXNet 1.9.1 said what is expected."""

import hashlib
import json
from pathlib import Path

import pytest

import dpmodule as mx

DATA = Path(__file__).parents[1] / "data" / "symbols"
EXPECTED = json.loads((DATA / "expected.json").read_text())


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_names_attributes_and_shapes_and_stable_text(name):
    symbol, want = mx.sym.load(str(DATA / f"{name}-symbol.json")), EXPECTED[name]
    assert symbol.list_arguments() == want["arguments"]
    assert symbol.list_outputs() == want["outputs"]
    assert symbol.list_auxiliary_states() == want["aux"]
    internals = symbol.get_internals().list_outputs()
    digest = hashlib.sha1(json.dumps(internals).encode()).hexdigest()[:16]
    assert [len(internals), digest] == want["internals"]
    assert len(symbol.attr_dict()) == want["attr_names"]
    shapes = symbol.infer_shape(**{k: tuple(v) for k, v in want["infer_inputs"].items()})
    assert json.loads(json.dumps(shapes)) == want["shapes"]
    text = symbol.tojson()
    again = mx.sym.load_json(text)
    assert again.tojson() == text
    assert again.attr_dict() == symbol.attr_dict()
