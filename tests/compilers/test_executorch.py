"""ExecuTorch, held to the protocol."""

import re
from types import SimpleNamespace

import pytest

from ngbkit.compilers import executorch
from ngbkit.testing import Attempt, CompilerConformance, observe

REFERENCE = "ngbkit.compilers.executorch:COMPILER"


class TestExecutorch(CompilerConformance):
    compiler = REFERENCE


def _attempt(network: str = "small_conv", **options: object) -> Attempt:
    return next(one for one in observe(REFERENCE) if one.network == network and one.options == options)


def test_a_program_is_exported_once() -> None:
    """The first compile of a network finds nothing of it in the cache, and one with other options nothing of that."""
    assert "miss" == _attempt().facts["cache"] == _attempt(partition="operators").facts["cache"]


def test_xnnpack_takes_parts_or_single_operators() -> None:
    """By default XNNPACK is given the largest parts that it can do, and fewer of them than operators, if so asked."""
    parts, single = _attempt(), _attempt(partition="operators")

    assert 1 <= parts.facts["delegates"] < single.facts["delegates"]


def test_what_xnnpack_leaves_is_a_fallback() -> None:
    """XNNPACK has no layer norm: that runs in ExecuTorch's own kernel, and is counted."""
    explained = _attempt("small_attention").explained

    assert 1 == explained["kernels"]["native_layer_norm.out"]
    assert explained["fallbacks"] == sum(explained["kernels"].values())
    assert explained["nodes_after"] == explained["fallbacks"] + sum(explained["operators"].values())


def test_what_xnnpack_executes_is_counted_by_kind() -> None:
    """The operators that XNNPACK executes in a call are counted under names without their numbers."""
    operators = _attempt().explained["operators"]

    assert 2 == sum(count for name, count in operators.items() if name.startswith("Convolution"))
    assert not [name for name in operators if "#" in name]


def test_what_is_not_traced_is_not_counted() -> None:
    """Where XNNPACK was called and left no trace, the number of nodes that were executed is left out."""
    names = ["Method::execute", "DELEGATE_CALL", "OPERATOR_CALL", "native_call_add.out"]
    told = executorch._count([SimpleNamespace(name=name, delegate_debug_id_str=None) for name in names])

    assert {"delegate_calls": 1, "fallbacks": 1, "kernels": {"add.out": 1}} == told


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
    """What cannot be exported, and what there is no kernel for, is a refusal; what breaks is a failure."""
    assert any(re.search(pattern, error) for pattern in executorch.COMPILER.refusals) is refused
