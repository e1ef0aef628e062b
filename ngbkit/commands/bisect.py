"""``ngbkit bisect`` and ``%ngbisect``: the release of a compiler since which a network is slower."""

from __future__ import annotations

from ngbkit.api import Sweep
from ngbkit.commands import arguments
from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command, Magic
from ngbkit.commands.shell import print_progress
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import argument
from ngbkit.sweep.option import parse_options

# The gates of a bisection have these.
_FIXED = {"together": False, "sequential": False, "race": False}


def bisect_releases(call: Call) -> Answer:
    """Bisect the releases that a call asks for."""
    from ngbkit.runs.bisection.bisecting import bisect

    args = call.args
    vars(args).update(_FIXED)
    networks = call.list_networks(args.workloads)
    sweep = parse_options(Sweep, args)
    labels = list(sweep.pop("compilers", ()))
    if len(networks) != 1 or len(labels) != 1:
        raise UsageError(
            f"invalid bisection: got {len(networks)} networks and the compilers {', '.join(labels) or 'none'}; "
            "expected one of each, such as `ngbkit bisect resnet18 -c onnxruntime --good 1.19 --bad 1.23`."
        )
    bisection = bisect(
        networks[0],
        labels[0],
        good=args.good,
        bad=args.bad,
        releases=[] if args.releases is None else [text.strip() for text in args.releases.split(",")],
        margin=args.margin,
        error=args.error,
        again=args.again,
        wait=call.wait,
        report=(_report if call.report is print_progress else call.report) or str,
        engines=arguments.to_engines(args.cluster, sweep.get("devices", ())),
        **{name: value for name, value in sweep.items() if name != "workloads"},
    )
    code = FAILED if bisection.is_slower else OK
    return Answer(json=bisection.to_json(), report=bisection.to_report(), code=code)


def _report(line: str) -> None:
    print_progress(f"ngbkit: {line}")


DETAILS = """
The first gate compares both; each later one measures a release between them beside both, in the same rounds, until the
release is as probable as --error demands. A stopped bisection continues with the same line.

::

    %ngbisect resnet18 -c onnxruntime --good 1.19 --bad 1.23
    %ngbisect net.onnx -c openvino --releases 2024.3.0,2024.6.0,2025.2.0,2025.4.0 -b 8
"""
COMMAND = Command(
    name="bisect",
    help="Find the release of a compiler since which a network is slower, and exit with 1 if there is one.",
    arguments=(
        arguments.WORKLOADS,
        argument("--good RELEASE", "an earlier release, which is fast: 1.19 is 1.19.0, or else the newest 1.19.x"),
        argument("--bad RELEASE", "a later release, which is slow"),
        argument(
            "--releases RELEASES",
            "instead of both: the releases to choose from, with commas, the good one first (default: all of the index "
            "between --good and --bad, without previews)",
        ),
        argument("--error SHARE", "the probability of a wrong release, at most (default: 5%%)"),
        argument("--margin SHARE", "the slowdown that is accepted (default: 1%%)"),
        argument("--again", "measure every gate; by default a stopped bisection continues"),
        *(declared for declared in arguments.SWEEP if declared.dest not in _FIXED),
    ),
    run=bisect_releases,
    shell=(JSON, QUIET),
    magic=Magic(name="ngbisect", arguments=arguments.MODULE, details=DETAILS, takes_cell=True),
    needs=CLIENT_SIDE,
    in_python="ngbkit.bisect(…)",
)
