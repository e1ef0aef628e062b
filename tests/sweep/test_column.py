"""A column: its label and its record are the same thing, and only the record is asked what it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngbkit.api import Sweep
from ngbkit.errors import UnknownNameError
from ngbkit.sweep.column import BASELINE, MARK, Column

NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,9}", fullmatch=True)
VALUES = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
FIRST = 'onnxruntime@1.19.2{"optimization":"basic","precision":"int8"}'


@given(name=NAMES, release=st.sampled_from(["", "1.19.2", "2.0rc1"]), options=st.dictionaries(NAMES, VALUES))
def test_a_label_keeps_its_bytes(name: str, release: str, options: dict[str, Any]) -> None:
    """The label of any machine's column reads back as itself, since trials are identified by it; a mark stays."""
    braces = json.dumps(options, sort_keys=True, separators=(",", ":")) if options else ""
    label = f"{name}{'@' * bool(release)}{release}{braces}"

    assert label == Column.read(label).label
    assert f"{label} {MARK}" == Column.read(f"{label} {MARK}").label


@pytest.mark.parametrize("label", ["identity", "onnxruntime@1.19.2", FIRST, 'openvino{"precision":"f32"}'])
def test_what_a_user_writes_is_what_the_dataset_says(label: str) -> None:
    """A checked label and one of a dataset are one record, and that of a trial, too."""
    (trial,) = Sweep("resnet18", [label], calibrate="random").trials()

    assert Column.parse(label) == Column.read(label) == trial.column
    assert label == trial.compiler == Column.parse(label).label


def test_the_fields_of_a_label() -> None:
    """The precision is a field, and an option for the compiler and in the label."""
    column = Column.read(FIRST)

    assert ("onnxruntime", "1.19.2", "int8") == (column.compiler, column.release, column.precision)
    assert {"optimization": "basic"} == column.options
    assert {"optimization": "basic", "precision": "int8"} == column.settings
    assert ("onnxruntime@1.19.2", FIRST) == (column.name, column.label)
    assert 'onnxruntime@1.19.2{"optimization":"basic"}' == column.base.label


def test_a_label_of_another_machine_is_read() -> None:
    """A compiler that is not here has a column, and only its use fails; a text with torn braces is a compiler."""
    with pytest.raises(UnknownNameError):
        Column.parse('theirs{"level":3}')
    column = Column.read('theirs{"level":3}')

    assert ("theirs", {"level": 3}) == (column.compiler, column.options)
    with pytest.raises(UnknownNameError):
        column.load_compiler()
    assert "theirs@1{level" == Column.read("theirs@1{level").label


@pytest.mark.parametrize(
    ("label", "is_baseline"),
    [
        (BASELINE, True),
        ('identity{"copy":1}', True),
        ('identity{"precision":"bf16"}', False),
        ('identity{"copy":1,"precision":"bf16"}', False),
        ("identity@2.0", False),
        ("onnxruntime", False),
    ],
)
def test_the_baseline_is_its_program(label: str, is_baseline: bool) -> None:
    """A copy of the baseline runs its program, and one in another precision does not."""
    assert is_baseline == Column.read(label).is_baseline


def test_a_mark_makes_no_other_column() -> None:
    """A column is found with its mark and without, and by its options in any order."""
    marked = Column.read(f"{FIRST} {MARK}")

    assert marked.is_marked
    assert marked == Column.read(FIRST)
    assert marked.matches('onnxruntime@1.19.2{"precision": "int8", "optimization": "basic"}')
    assert not marked.matches("onnxruntime@1.19.2")
    assert 1 == len({marked, Column.read(FIRST)})


def test_the_differences_of_columns() -> None:
    """Every field that differs is described, and no other."""
    second = Column.read('onnxruntime@1.20.1{"optimization":"basic"}')

    assert {
        "release": "release 1.19.2 instead of 1.20.1",
        "precision": "precision int8 instead of default",
    } == Column.read(FIRST).differs_from(second)
    assert {"compiler"} == Column.read("openvino").differs_from(Column.read("tvm")).keys()
    assert {} == second.differs_from(second)
