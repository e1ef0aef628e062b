"""ExecuTorch passes the conformance suite, and delegates to XNNPACK."""

import re
from types import SimpleNamespace

import pytest
from attempts import find_attempt

from ngbkit.compilers import executorch
from ngbkit.testing import CompilerConformance

REFERENCE = "ngbkit.compilers.executorch:COMPILER"


class TestExecutorch(CompilerConformance):
    compiler = REFERENCE


def test_xnnpack_takes_parts_or_single_operators() -> None:
    """XNNPACK gets the largest subgraphs by default, which are fewer than single operators."""
    parts, single = find_attempt(REFERENCE), find_attempt(REFERENCE, partition="operators")

    assert 1 <= parts.facts["delegates"] < single.facts["delegates"]


def test_what_xnnpack_leaves_is_a_fallback() -> None:
    """XNNPACK has no layer norm: it runs in ExecuTorch's own kernel and counts as a fallback."""
    explained = find_attempt(REFERENCE, "small_attention").explained

    assert 1 == explained["kernels"]["native_layer_norm.out"]
    assert explained["fallbacks"] == sum(explained["kernels"].values())
    assert explained["nodes_after"] == explained["fallbacks"] + sum(explained["operators"].values())


def test_what_xnnpack_executes_is_counted_by_kind() -> None:
    """The operators that XNNPACK executes in a call are counted by kind, without their numbers."""
    operators = find_attempt(REFERENCE).explained["operators"]

    assert 2 == sum(count for name, count in operators.items() if name.startswith("Convolution"))
    assert not [name for name in operators if "#" in name]


def test_what_is_not_traced_is_not_counted() -> None:
    """If XNNPACK leaves no trace, the number of executed nodes is omitted."""
    names = ["Method::execute", "DELEGATE_CALL", "OPERATOR_CALL", "native_call_add.out"]
    counts = executorch._count([SimpleNamespace(name=name, delegate_debug_id_str=None) for name in names])

    assert {"delegate_calls": 1, "fallbacks": 1, "kernels": {"add.out": 1}} == counts


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("RuntimeError: Failed to load method forward, error: 0x:14", True),
        ("RuntimeError: Failed to load method forward, error: 0x:21", False),
        ("GuardOnDataDependentSymNode: Could not guard on data-dependent expression Eq(u0, 1)", True),
        ("RuntimeError: Missing out variants: {'aten::_linalg_det'}", True),
        ("Unsupported: Attempted to call function marked as skipped", True),
        ("RuntimeError: method->execute() failed with error 0x12", False),
    ],
)
def test_refusals_are_told_from_failures(error: str, refused: bool) -> None:
    """Networks that cannot be exported and missing kernels are refusals; other errors are failures."""
    assert any(re.search(pattern, error) for pattern in executorch.COMPILER.refusals) is refused
