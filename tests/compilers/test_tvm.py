"""TVM passes the conformance suite, and labels its programs."""

import re

import pytest
from attempts import find_attempt

from ngbkit.compilers.tvm import COMPILER
from ngbkit.testing import CompilerConformance
from ngbkit.testing.observation import observe


class TestTvm(CompilerConformance):
    compiler = "tvm"


class TestTvmOnCuda(CompilerConformance):
    compiler = "tvm"
    accelerator = "cuda"


def test_its_numbers_are_labelled_untuned() -> None:
    """Every program reports that it is untuned, and its target."""
    attempts = [attempt for attempt in observe("tvm") if attempt.contract]

    assert {attempt.contract.notes for attempt in attempts if attempt.contract} == {"untuned"}
    assert all('"mcpu"' in attempt.facts["target"] for attempt in attempts)


def test_fused_functions_are_counted() -> None:
    """The calls of the virtual machine are counted, with both convolutions fused with their activation."""
    explained = find_attempt("tvm").explained

    assert 2 <= explained["nodes_fused"] <= explained["nodes_after"] < explained["nodes_before"]


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("OpNotImplemented: The following operators are not supported for frontend ONNX: Foo", True),
        ("ValueError: Dynamic pads are not supported yet.", True),
        ("ValueError: Unsupported approximate mode for Gelu: fast", True),
        ("InternalError: Check failed: (false) is false", False),
        ("RuntimeError: could not load a library", False),
    ],
)
def test_refusals_are_told_from_failures(error: str, refused: bool) -> None:
    """Operators that the importer lacks are refusals; other errors are failures."""
    assert any(re.search(pattern, error) for pattern in COMPILER.refusals) is refused
