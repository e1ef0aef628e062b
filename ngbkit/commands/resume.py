"""``ngbkit resume``: measure the missing trials of a run. In a notebook, ``%ngruns`` does that."""

from __future__ import annotations

from ngbkit.commands import arguments
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.commands.shell import print_progress
from ngbkit.sweep.argument import argument


def resume(call: Call) -> Answer | None:
    """Resume the run of a call."""
    settling = arguments.to_settling(call.args, call.args.run)
    if settling is not None:
        print_progress(f"ngbkit: {settling.description}")
        if not settling.trial_ids:
            return Answer(json=[])
    return call.measure(lambda: arguments.to_resumed_run(call.args.run, call.args, settling))


COMMAND = Command(
    name="resume",
    help="Go on with a run: only what is missing is measured.",
    arguments=(
        argument("run RUN", "its id, or the beginning of it", completes="run"),
        *arguments.RESUME,
        arguments.SETTLE,
    ),
    run=resume,
    shell=arguments.OUTCOME,
    needs=CLIENT_SIDE,
    in_magic="%ngruns --resume",
    in_python="ngbkit.resume('{}')",
)
