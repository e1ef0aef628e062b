"""A real Slurm of one node on this machine, to try ``launch = "slurm"``; not part of CI.

    apt-get install slurmctld slurmd slurm-client munge
    python tests/slurm.py                # as root: measures in a job, cancels one, cleans up
    python tests/slurm.py --array 50     # a job array of so many indices, one of which is killed; resumes it

It prints its observations, and exits with 1 after a fault.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

_CONFIGURATION = """\
ClusterName=ngbkit
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
ReturnToService=2
MpiDefault=none
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_START_S = 30.0


@contextmanager
def start_slurm(folder: Path) -> Iterator[Path]:
    """Start a Slurm of one node, this machine; set `SLURM_CONF` for the block."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        sys.exit(f"needs root, and {', '.join(missing) or 'nothing else'}: see the top of this file")
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    settings = folder / "slurm.conf"
    ports = {"controller": _find_free_port(), "node": _find_free_port()}
    host = socket.gethostname().partition(".")[0]
    settings.write_text(_CONFIGURATION.format(folder=folder, host=host, cores=os.cpu_count(), **ports))
    os.environ["SLURM_CONF"] = str(settings)
    files = ("key-file", "socket", "pid-file", "log-file", "seed-file")
    munge = [f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in files]
    with ExitStack() as ending:
        for words in (["munged", "--foreground", "--force", *munge], ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-c"]):
            with open(folder / f"{words[0]}.out", "wb") as out:
                process = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
            ending.callback(_end, process)
            time.sleep(0.5)
        _wait_for_node()
        yield settings


def _wait_for_node() -> None:
    deadline = time.monotonic() + _START_S
    while True:
        output = subprocess.run(["sinfo", "-h"], capture_output=True, text=True, check=False).stdout
        if "idle" in output:
            return
        if time.monotonic() > deadline:
            sys.exit(f"the node did not start: {output}")
        time.sleep(0.5)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _read_queue() -> str:
    command = ["squeue", "-h", "-r", "-o", "%i %P %j %u %t %M"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def try_out(folder: Path) -> bool:
    """Measure in a job, start one that fails, stop one that waits; return whether all went well."""
    from ngbkit.api import Sweep
    from ngbkit.cluster.devices import Device
    from ngbkit.cluster.launchers.base import Starter
    from ngbkit.errors import DeviceError
    from ngbkit.fleet import slurm as launcher

    device = Device(
        label="node",
        launch="slurm",
        address="127.0.0.1",
        python=sys.executable,
        state_dir=str(folder / "shared"),
        sbatch=("--time=5", "--chdir=/tmp"),
    )
    began = time.monotonic()
    engine = launcher.start(device)
    print(f"an engine in a job, ready after {time.monotonic() - began:.1f} s; the queue: {_read_queue()}")
    sweep = Sweep("blocks.conv", ["identity"], [1, 2], {"width": [8], "depth": [1]}, repeats=10, devices=["node"])
    data = sweep.run(engines={"node": engine})
    statuses = sorted(set(data["status"].values.ravel()))
    print("measured in it:", statuses)
    began = time.monotonic()
    engine.close()
    print(f"closed after {time.monotonic() - began:.1f} s; the queue: {_read_queue() or '(empty)'}")
    remains = [str(path) for name in ("engines", "scratch") for path in (folder / "shared" / name).iterdir()]
    print("remains:", remains or "none")
    is_good = statuses == ["ok"] and not _read_queue() and not remains

    faulty = {"a broken Python": replace(device, python="/usr/bin/false")}
    faulty["an unknown partition"] = replace(device, sbatch=("-p", "none"))
    for name, fault in faulty.items():
        try:
            launcher.start(fault).close()
            is_good = False
        except DeviceError as error:
            print(f"{name}: {error}")

    words = ["sbatch", "--parsable", "--exclusive", "--chdir=/tmp", "--output=/dev/null", "--wrap", "sleep 60"]
    blocker = subprocess.run(words, capture_output=True, text=True, check=True)
    progress: list[str] = []
    deadline = time.monotonic() + 8
    try:
        launcher.start(device, Starter(report=progress.append, stopped=lambda: time.monotonic() > deadline))
        is_good = False
    except InterruptedError as error:
        print(f"behind another job: {progress[0] if progress else '(no progress)'}; {error}")
    subprocess.run(["scancel", blocker.stdout.strip()], check=True)
    time.sleep(2)
    print("the queue:", _read_queue() or "(empty)")
    return is_good and bool(progress)


def try_array(folder: Path, indices: int) -> bool:
    """Divide a sweep of synthetic trials among the indices of an array, kill one, resume; return if all went well."""
    tests = Path(__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path, str(tests / "bench")])
    sys.path += [str(tests / "bench")]
    from fakeslurm import FakeSlurm

    from ngbkit import runs
    from ngbkit.api import Sweep
    from ngbkit.device.array import divide
    from ngbkit.sweep.journal import Journal
    from ngbkit.workloads.base import Workload

    nodes = FakeSlurm(folder / "nodes")  # for its Python, whose plans measure nothing
    keys = f'launch = "array"\nindices = {indices}\npython = "{nodes.python}"\nstate_dir = "{folder}/shared"\n'
    (folder / "devices.toml").touch(mode=0o600)
    (folder / "devices.toml").write_text(f'[nodes]\n{keys}sbatch = ["--time=5"]\n')
    os.chdir(folder)
    network = Workload(name="net", source="timm", spec={"model": "net"})
    compilers = ["identity", "torchscript", "onnxruntime", "openvino"]
    sweep = Sweep([network], compilers, range(2, 4 * indices + 2), devices=["nodes"], repeats=30)
    share, expected = divide(sweep, "nodes", indices)[indices // 2], sorted(trial.id for trial in sweep.trials())
    nodes.hold(*share)
    began, texts = time.monotonic(), [""]
    run = sweep.start()
    while not run.wait(0.5):
        if run.progress.text != texts[-1]:
            texts.append(run.progress.text)
            done = f"{run.progress.done} of {len(sweep)} trials"
            print(f"{time.monotonic() - began:6.1f} s, {done}: {texts[-1]}", flush=True)
        states = {line.split()[0].partition("_")[2]: line.split() for line in _read_queue().splitlines()}
        job, *_, state, _ = states.get(str(indices // 2), ("", "", ""))
        if state == "R" and run.progress.done >= len(share) * (indices // 2):
            print(f"killing {job}")
            subprocess.run(["scancel", "--full", "--signal=KILL", job], check=True)
            while f"{job} " in _read_queue():
                time.sleep(0.5)
            nodes.hold()
    print(f"{time.monotonic() - began:6.1f} s: the run has {run.state}: {run.error}")
    number = len(run.records())
    began, again = time.monotonic(), runs.resume(run.id)
    again.wait()
    with Journal(again.folder / "journal.sqlite", writable=False) as journal:
        recorded = sorted(record.trial_id for record in journal.records())
    print(f"resumed, and {again.state} after {time.monotonic() - began:.1f} s: {again.error or 'no error'}")
    journals = list((folder / "shared" / "devices" / "nodes").glob("*/*.sqlite"))
    print(f"{number} records, then {len(recorded)} of {len(expected)}; twice: {len(recorded) - len(set(recorded))}")
    print(f"{len(journals)} journals; the queue: {_read_queue() or '(empty)'}")
    return (run.state, again.state) == ("failed", "finished") and recorded == expected and not _read_queue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ngbkit-slurm-") as temporary:
        os.environ["NGBKIT_STATE_DIR"] = f"{temporary}/client"
        with start_slurm(Path(temporary) / "slurm"):
            is_array = sys.argv[1:2] == ["--array"]
            is_good = try_array(Path(temporary), int(sys.argv[2])) if is_array else try_out(Path(temporary))
    print("all is well" if is_good else "FAULTY")
    sys.exit(not is_good)
