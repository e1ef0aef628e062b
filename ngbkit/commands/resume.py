"""``ngbkit resume``: measure the missing trials of a run. In a notebook, ``%ngruns`` does that."""

from __future__ import annotations

from ngbkit.commands import arguments
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.report import Report
from ngbkit.sweep.argument import argument


def resume(call: Call, run_id: str) -> Answer | None:
    """Resume a run as a call says; where nothing would settle it, answer with that."""
    settling = arguments.to_settling(call.args, run_id)
    if settling is not None and not settling.trial_ids:
        return Answer(json=[], report=Report(sentences=[settling.description]))
    notices = [] if settling is None else [settling.description]
    return call.measure(lambda: arguments.to_resumed_run(run_id, call.args, settling), notices)


COMMAND = Command(
    name="resume",
    help="Go on with a run: only what is missing is measured.",
    arguments=(
        argument("run RUN", "its id, or the beginning of it", completes="run"),
        *arguments.RESUME,
        arguments.SETTLE,
    ),
    run=lambda call: resume(call, call.args.run),
    shell=arguments.OUTCOME,
    needs=CLIENT_SIDE,
    in_magic="%ngruns --resume",
    in_python="ngbkit.resume('{}')",
)
