"""IREE passes the conformance suite, and reports its commands."""

import re
from pathlib import Path

import pytest
from attempts import find_attempt

from ngbkit.compilers import iree
from ngbkit.testing import CompilerConformance
from ngbkit.testing.child import UNKNOWN_OPERATOR
from ngbkit.testing.observation import observe

REFERENCE = "ngbkit.compilers.iree:COMPILER"


class TestIree(CompilerConformance):
    compiler = REFERENCE


def test_convolutions_become_matrix_products() -> None:
    """IREE dispatches convolutions as matrix products by default, and calls a pooling a convolution too."""
    default, direct = (find_attempt(REFERENCE, **options).explained["commands"] for options in ({}, {"im2col": False}))

    assert 2 == direct["conv"] - default.get("conv", 0)
    assert 2 == default["matmul_like"] - direct.get("matmul_like", 0)


def test_all_that_is_executed_is_counted() -> None:
    """Every command of a call is counted by kind, and all run on the requested device."""
    for attempt in observe(REFERENCE):
        if attempt.contract:
            assert attempt.explained["nodes_after"] == sum(attempt.explained["commands"].values())
            assert 0 == attempt.explained["fallbacks"]


def test_an_error_begins_with_what_the_compiler_said() -> None:
    """The error for an operator that IREE lacks starts with IREE's own first error."""
    assert find_attempt(REFERENCE, UNKNOWN_OPERATOR).error.startswith(
        "RuntimeError: failed to legalize operation 'torch.operator'"
    )


def test_a_tool_that_says_nothing_is_named(tmp_path: Path) -> None:
    """The error of a tool that does not run at all names the tool and its exit code."""
    with pytest.raises(RuntimeError, match=r"\(iree\.compiler\.tools\.no_such_tool ended with 1\)"):
        iree._run_tool("no_such_tool", [], str(tmp_path))


def test_what_initialisers_execute_is_no_part_of_a_call(tmp_path: Path) -> None:
    """The calls are the command buffers of functions, in order, without those of initialisers."""
    statistics = tmp_path / "calls.csv"
    statistics.write_text(
        """;
; Aggregate Statistics (static, whole-program)
;

"Constants","Constant Size","Dispatches"
1,46737600,3

; builtin.module > util.initializer > stream.cmd.execute
"Depth","Command","Symbol","Length"
1,"dispatch","@_encoding_0::@_encoding_0_encode_64x147xf32_to_64x147xf32",

; builtin.module > util.func @main_graph$async > stream.cmd.execute
"Depth","Command","Symbol","Length"
1,"fill","%transient",64
1,"barrier",,
1,"dispatch","@main_graph$async_dispatch_3::@main_graph$async_dispatch_3_matmul_like_64x12544x147_f32",
0,"dispatch","@_encoding_7::@_encoding_7_encode_64x147xf32_to_64x147xf32",

; Executables
"dispatch","dispatch","@never::@never"
"""
    )
    commands = list(iree._read_commands(statistics))

    assert ["fill", "matmul_like", "encode"] == list(map(iree._find_family, commands))


@pytest.mark.parametrize(
    ("operators", "precision"),
    [
        ([("Conv", "f16"), ("Relu", "f32")], "f16"),
        ([("MatMul", "f32"), ("Gemm", "bf16")], "bf16+f32"),
        ([("Gather", "si64"), ("Add", "f64")], "f64"),
        ([("Gather", "si64")], ""),
    ],
)
def test_the_precision_is_that_of_the_heavy_operators(
    tmp_path: Path, operators: list[tuple[str, str]], precision: str
) -> None:
    """Convolutions and matrix products determine the precision; others only without them; integers have none."""
    lines = [
        f'    %{index} = torch.operator "onnx.{name}"(%a) {{torch.onnx.axis = 1 : si64}} : '
        f"(!torch.vtensor<[1,4],f64>) -> !torch.vtensor<[1,4],{kind}> "
        for index, (name, kind) in enumerate(operators)
    ]
    weights = ["{-#", '    %9 = torch.operator "onnx.Conv"(%a) : () -> !torch.vtensor<[1],bf16>']
    imported = tmp_path / "network.mlir"
    imported.write_text("\n".join([*lines, *weights]))

    assert precision == iree._read_precision(imported)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("RuntimeError: failed to legalize operation 'torch.aten.x' that was explicitly marked illegal", True),
        ("RuntimeError: onnx.ValidationError: No Op registered for Foo with domain_version of 20", True),
        ("RuntimeError: 'func.func' op exceeded stack allocation limit of 262144 bytes for function", False),
        ("RuntimeError: it reported nothing (iree.compiler.tools.scripts.iree_compile ended with -9)", False),
    ],
)
def test_refusals_are_told_from_failures(error: str, refused: bool) -> None:
    """Operators that IREE cannot import or lower are refusals; other errors are failures."""
    assert any(re.search(pattern, error) for pattern in iree.COMPILER.refusals) is refused
