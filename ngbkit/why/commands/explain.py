"""``ngbkit explain`` and ``%ngexplain``: explain the gap between two columns, operator by operator."""

from __future__ import annotations

import re
from typing import Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import SOURCE
from ngbkit.commands.command import CLIENT_SIDE, Call, Command, Magic
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import argument
from ngbkit.sweep.parsing import parse_factor_values, restore_quotes
from ngbkit.workloads.base import FactorValue

_ROWS = 12
_NUMBER = re.compile(r"[-+]?[\d.]+(?:e[-+]?\d+)?")


def explain_gap(call: Call) -> Answer:
    """Explain the gap between the two columns of a call."""
    from ngbkit.why.explain import explain

    args = call.args
    columns = restore_quotes(args.first), restore_quotes(args.second)
    labels: dict[str, Any] = dict(map(_parse_label, args.labels))
    result = explain(call.read(args.source), *columns, **labels)
    if args.figure:
        from ngbkit import figures

        figures.save(result.plot(), args.figure)
    return Answer(json=result.to_json(), report=result.to_report(_ROWS), value=result)


def _parse_label(text: str) -> tuple[str, FactorValue]:
    """Parse ``workload=resnet18``; a number, such as a batch size, is one."""
    name, equals, label = text.partition("=")
    if not equals or not name.isidentifier() or name in ("data", "first", "second"):
        raise UsageError(
            f"invalid label: got {text!r}; expected NAME=VALUE, such as workload=resnet18 or batch_size=8."
        )
    values = parse_factor_values(f"label {name}", label) if _NUMBER.fullmatch(label) else [restore_quotes(label)]
    return name, values[0]


DETAILS = """
Both columns need profiles, which `--profile` measures beside the samples. Columns are compilers, or two networks, such
as a version before and a version after a change.

::

    %ngexplain ds openvino onnxruntime
    %ngexplain ds openvino onnxruntime workload=resnet18 batch_size=8
"""
COMMAND = Command(
    name="explain",
    help="Explain the gap between two compilers, or two versions of a network, operator by operator.",
    arguments=(
        SOURCE,
        argument("first A", "a compiler, or a network", completes="compiler"),
        argument("second B", "another", completes="compiler"),
        argument(
            "labels NAME=VALUE",
            "the trial, where the run has several: workload=resnet18, batch_size=8, device=gpu, width=64; and, for two "
            "networks, compiler=openvino",
            nargs="*",
        ),
        argument("--figure FILE", "write the figure: .html, .svg, .png, .pdf or .tex", completes="path"),
    ),
    run=explain_gap,
    magic=Magic(name="ngexplain", details=DETAILS),
    needs=CLIENT_SIDE,
)
