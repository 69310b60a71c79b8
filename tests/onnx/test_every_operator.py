"""Every operator that has a counterpart in ONNX computes the same there; the others say why not."""

import re
from contextlib import contextmanager

import pytest

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import ArgumentError
from dpmodule.onnx.to_onnx.translation import builders
from dpmodule.ops.spec import AUX, PARAM
from helpers.onnx_runs import check_same, in_single
from helpers.op_tables import arrays_of, recorded_calls, table_rows
from helpers.walk import family_of, walks

EVERY = sorted({ops.get(name).name for name in ops.names()})
MAPPED = [name for name in EVERY if not ops.get(name).onnx.missing]

NOT_COMPARED = {
    "_onnx_bitwise(kind=left_shift)": "ONNX shifts only unsigned integers",
    "_onnx_bitwise(kind=right_shift)": "ONNX shifts only unsigned integers",
}
"""Rows of the tables, or recorded calls, that ONNX refuses or rounds otherwise: a reason for each."""


def head_of(case):
    return mx.sym.load_json(case["symbol_json"]).graph.heads[0][0]


ROWS = [row for row in table_rows() if ops.get(row.name).name in MAPPED and not ops.get(row.name).random]
RECORDED = [
    (group, case)
    for group, case in recorded_calls()
    if head_of(case).op.name in MAPPED and not head_of(case).op.random
]


def params_of(node, names):
    """Return which of an operator's inputs are parameters."""
    if node.op.variadic is not None:
        return []
    kinds = [each.kind for each in node.op.active_inputs(node.a, len(node.inputs))]
    return [name for name, kind in zip(names, kinds, strict=True) if kind in (PARAM, AUX)]


def symbol_of(row):
    """Return a row's operator on variables, and their names."""
    op = ops.get(row.name)
    names = [f"x{i}" for i in range(len(row.inputs))]
    face = mx.symbol.symbol.op_function(row.name)
    made = face(*[mx.sym.Variable(name) for name in names], name="op", **row.attrs)
    return op, names, made


@contextmanager
def unless_too_old(opset):
    """Let an operator pass that is refused since a newer version than this brings what it needs."""
    try:
        yield
    except ArgumentError as error:
        found = re.search(r"from opset (\d+) on", str(error))
        if found is None or int(found[1]) <= opset:
            raise


def check_row(row, opset):
    if str(row) in NOT_COMPARED:
        return
    _, names, symbol = symbol_of(row)
    arrays = dict(zip(names, map(in_single, row.inputs), strict=True))
    node = symbol.graph.heads[0][0]
    check_same(symbol, arrays, params_of(node, names), opset=opset)


def check_recorded(group, case, opset):
    if case["name"] in NOT_COMPARED:
        return
    data, name = arrays_of(group), case["name"]
    symbol = mx.sym.load_json(case["symbol_json"])
    arrays = {key: in_single(data[f"{name}/in/{key}"]) for key in case["arguments"]}
    arrays.update({key: in_single(data[f"{name}/aux_in/{key}"]) for key in case["aux"]})
    node = symbol.graph.heads[0][0]
    names = [child.name for child, _ in node.inputs]
    check_same(symbol, arrays, [n for n in params_of(node, names) if n in arrays], opset=opset)


@walks(ROWS, family=lambda row: family_of(row.name))
def test_rows_of_the_tables(row):
    with unless_too_old(17):
        check_row(row, 17)


@walks(RECORDED, family=lambda group, case: group)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_recorded_calls(group, case):
    check_recorded(group, case, 17)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 15, 18, 21])
@walks(ROWS, family=lambda row: family_of(row.name))
def test_rows_of_the_tables_in_other_versions(row, opset):
    with unless_too_old(opset):
        check_row(row, opset)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 15, 18, 21])
@walks(RECORDED, family=lambda group, case: group)
@pytest.mark.filterwarnings("ignore:.*lstm_state_clip")
def test_recorded_calls_in_other_versions(group, case, opset):
    with unless_too_old(opset):
        check_recorded(group, case, opset)


def test_every_builder_belongs_to_an_operator():
    named = {ops.get(name).onnx.builder for name in MAPPED} - {""}
    assert named - set(builders()) == set(), "operators name functions that there are not"
    assert set(builders()) - named == set(), "functions that no operator names"


def test_plain_records_say_what_becomes_of_every_attribute():
    for name in MAPPED:
        op = ops.get(name)
        if op.onnx.builder:
            continue
        said = {*op.onnx.rename, *op.onnx.drop, *(["scalar"] if op.onnx.scalar else [])}
        assert set(op.attrs) == said, name


def test_at_least_340_operators_are_mapped():
    assert len(MAPPED) >= 340
    assert all(ops.get(name).onnx.missing for name in EVERY if name not in MAPPED)
