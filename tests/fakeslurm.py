"""A Slurm of this machine, small enough for a test: `sbatch`, `squeue` and `scancel` on files, one index at a time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

# Measures nothing: each trial of a plan has a record at once, or when a file allows it.
_PYTHON = """\
#!/bin/sh
exec {python} {file} python {folder} "$@"
"""
_PROGRAM = """\
#!/bin/sh
exec {python} {file} {name} {folder} "$@"
"""


class FakeSlurm:
    """A queue in a folder. A job's file has its state and the id of its process; `held` keeps the queue waiting."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin, self.jobs = folder / "bin", folder / "jobs"
        self.bin.mkdir(parents=True)
        self.jobs.mkdir()
        for name in ("sbatch", "squeue", "scancel"):
            self._write(name, _PROGRAM.format(python=sys.executable, file=__file__, name=name, folder=folder))
        self.python = self._write("python", _PYTHON.format(python=sys.executable, file=__file__, folder=folder))

    def _write(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o700)
        return path

    def hold(self, *trial_ids: str) -> None:
        """Keep these trials from having a record, and the queue from going on after the first of them."""
        (self.folder / "held").write_text("\n".join(trial_ids))

    def read_calls(self, name: str) -> list[str]:
        """Read the arguments of each call of a program."""
        file = self.folder / f"{name}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def list_jobs(self) -> dict[str, str]:
        """List the state of each job."""
        return {path.name: path.read_text().split()[0] for path in sorted(self.jobs.iterdir())}

    def kill(self, job: str) -> None:
        """Kill a running job, as a node does that runs out of memory."""
        state, pid = (self.jobs / job).read_text().split()
        assert state == "RUNNING"
        os.kill(int(pid), signal.SIGKILL)


def _write_state(job: Path, text: str) -> None:
    """Write the state of a job in one step: others read it meanwhile."""
    draft = job.parent.parent / f"{job.name}.{os.getpid()}"
    draft.write_text(text)
    draft.replace(job)


def sbatch(folder: Path, arguments: list[str]) -> None:
    """Submit the script of the standard input; a process of its own runs its indices."""
    script = sys.stdin.read()
    number = str(1 + max((int(path.name.partition("_")[0]) for path in (folder / "jobs").iterdir()), default=6))
    options = dict(argument.partition("=")[::2] for argument in arguments)
    ranges = [part.partition("-")[::2] for part in options["--array"].split(",")]
    indices = [index for first, last in ranges for index in range(int(first), int(last or first) + 1)]
    for index in indices:
        _write_state(folder / "jobs" / f"{number}_{index}", "PENDING 0")
    run = [sys.executable, __file__, "run", str(folder), number, options["--output"], script, *map(str, indices)]
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen(run, start_new_session=True, **quiet)
    sys.stdout.write(f"{number}\n")


def run(folder: Path, arguments: list[str]) -> None:
    """Run the indices of an array one after the other."""
    number, output, script, *indices = arguments
    for index in indices:
        job = folder / "jobs" / f"{number}_{index}"
        if not job.read_text().startswith("PENDING"):
            continue
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": index}
        with open(output.replace("%a", index), "wb") as log:
            process = subprocess.Popen(["sh", "-c", script], stdout=log, stderr=log, env=environment)
        _write_state(job, f"RUNNING {process.pid}")
        code = process.wait()
        if job.read_text().startswith("RUNNING"):
            _write_state(job, f"{'COMPLETED' if code == 0 else 'FAILED' if code > 0 else 'OUT_OF_MEMORY'} 0")


def squeue(folder: Path, arguments: list[str]) -> None:
    """List every job, also those that have ended."""
    del arguments
    for path in sorted((folder / "jobs").iterdir()):
        state = path.read_text().split()[0]
        sys.stdout.write(f"{path.name} {state} {'Resources' if state == 'PENDING' else 'None'}\n")


def scancel(folder: Path, arguments: list[str]) -> None:
    """End the jobs of an array in one state, or signal its running ones."""
    number = arguments[-1]
    for path in (folder / "jobs").glob(f"{number}_*"):
        state, pid = path.read_text().split()
        if state == "RUNNING" and "--state=PENDING" not in arguments:
            if "--signal=INT" not in arguments:
                _write_state(path, f"CANCELLED {pid}")
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGINT if "--signal=INT" in arguments else signal.SIGTERM)
        elif state == "PENDING" and "--signal=INT" not in arguments:
            _write_state(path, "CANCELLED 0")


def python(folder: Path, arguments: list[str]) -> None:
    """Be the Python of a node, with plans that measure nothing."""
    import scripted

    from ngbkit.device import plan
    from ngbkit.workloads.subprocesses import build_arguments

    def measure(spec: plan.Spec, bench: plan.Bench) -> None:
        bench.note("environment", spec.device, plan.environment.describe())
        for bundle in spec.sweep.bundles(spec.device):
            ids = [trial.id for trial in bundle.trials if trial.id not in bench._finished]
            if not ids:
                continue
            bench.journal.start(ids, "measure")
            while set(ids) & set((folder / "held").read_text().split() if (folder / "held").exists() else ()):
                if select.select([bench.interrupt], [], [], 0.05)[0]:
                    bench.journal.passed(ids, "measure")
                    raise InterruptedError
            bench.journal.finish([scripted._build_record(trial_id) for trial_id in ids])

    plan._measure = measure
    assert build_arguments("ngbkit.device.plan") == arguments[:3]
    plan.main(arguments[3:])


if __name__ == "__main__":
    name, folder, arguments = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if name in ("sbatch", "squeue", "scancel"):
        with open(folder / f"{name}.calls", "a") as calls:
            calls.write(" ".join(arguments) + f" at {time.time():.0f}\n")
    globals()[name](folder, arguments)
