"""``ngbkit explain`` and ``%ngexplain``: explain the gap between two columns, operator by operator."""

from __future__ import annotations

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import SOURCE
from ngbkit.commands.command import CLIENT_SIDE, Call, Command, Magic
from ngbkit.sweep.argument import argument
from ngbkit.sweep.parsing import parse_factors, restore_quotes

_ROWS = 12


def explain_gap(call: Call) -> Answer:
    """Explain the gap between the two columns of a call."""
    from ngbkit.why.explain import explain

    args = call.args
    columns = restore_quotes(args.first), restore_quotes(args.second)
    labels = {name: getattr(args, name) for name in ("workload", "compiler", "device", "batch_size")}
    labels = {name: label for name, label in labels.items() if label is not None}
    labels |= {name: values[0] for name, values in parse_factors(args.factor or ()).items()}
    result = explain(call.read(args.source), *columns, **labels)
    if args.figure:
        from ngbkit import figures

        figures.save(result.plot(), args.figure)
    return Answer(json=result.to_json(), report=result.to_report(_ROWS), value=result)


DETAILS = """
Both columns need profiles, which `--profile` measures beside the samples. Columns are compilers, or two networks, such
as a version before and a version after a change.

::

    %ngexplain ds openvino onnxruntime
    %ngexplain ds openvino onnxruntime --workload resnet18 --batch-size 8
"""
COMMAND = Command(
    name="explain",
    help="Explain the gap between two compilers, or two versions of a network, operator by operator.",
    arguments=(
        SOURCE,
        argument("first A", "a compiler, or a network", completes="compiler"),
        argument("second B", "another", completes="compiler"),
        argument("--workload NAME", "the network, where the run has several", completes="workload"),
        argument("-c, --compiler NAME", "the compiler, for two networks", completes="compiler"),
        argument("-b, --batch-size N", "the batch size, where the run has several", type=int),
        argument("-d, --device NAME", "the device, where the run has several", completes="device"),
        argument("--factor NAME=VALUE", "the value of a factor, where the run has several", action="append"),
        argument("--figure FILE", "write the figure: .html, .svg, .png, .pdf or .tex", completes="path"),
    ),
    run=explain_gap,
    magic=Magic(name="ngexplain", details=DETAILS),
    needs=CLIENT_SIDE,
)
