"""The recipe of notebooks/devices.md: engines of ipyparallel's own batch launchers, attached as devices."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from patience import wait_until

from ngbkit.cluster import engines
from ngbkit.errors import DeviceError, UsageError

PAGE = Path(__file__).parents[2] / "notebooks" / "devices.md"
# Runs a submission as two jobs: PBS gets a script, LSF the command itself after -J and its name, HTCondor its parts.
_QSUB = """\
#!/bin/sh
for index in 1 2; do
    sh "$1" >/dev/null 2>&1 </dev/null &
    echo $! >>{folder}/pids
done
echo 77.server
"""
_BSUB = """\
#!/bin/sh
shift 2
for index in 1 2; do
    "$@" >/dev/null 2>&1 </dev/null &
    echo $! >>{folder}/pids
done
echo "Job <77> is submitted"
"""
_CONDOR_SUBMIT = """\
#!/bin/sh
for word in "$@"; do
    case $word in
        executable=*) executable=${{word#*=}} ;;
        arguments=*) arguments=${{word#*=}} ;;
        getenv=true) visible=yes ;;
    esac
done
test "$visible" && test "$(printf '%s ' "$@" | grep -c -e '-queue 4 $')" = 1 || exit 1
for index in 1 2; do
    $executable $arguments >/dev/null 2>&1 </dev/null &
    echo $! >>{folder}/pids
done
echo "2 job(s) submitted to cluster 77."
"""
_QDEL = "#!/bin/sh\nxargs kill <{folder}/pids\n"


_PROGRAMS = {"qsub": _QSUB, "bsub": _BSUB, "condor_submit": _CONDOR_SUBMIT, "qdel": _QDEL}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of its own, on which jobs can be submitted; none of them is left."""
    for name, script in _PROGRAMS.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script.format(folder=tmp_path))
        path.chmod(0o700)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent)]), prepend=":")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    engines.close()
    run("ipcluster stop --cluster-id=lab")
    with suppress(FileNotFoundError):
        for pid in (tmp_path / "pids").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)


def run(line: str) -> str:
    return subprocess.run(shlex.split(line), capture_output=True, text=True, check=False, timeout=60).stdout


def find_line(program: str) -> str:
    """Find the command line of a program on the page."""
    (line,) = re.findall(rf"^    ({program} .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return str(line)


def check_devices(cluster: str) -> None:
    """Wait until two engines of a cluster can be attached, and shake hands with both."""
    file = Path("devices.toml")
    file.touch(mode=0o600)
    tables = [f'[n{index}]\nlaunch = "attach"\ncluster = "{cluster}"\ntarget = {index}\n' for index in range(2)]
    file.write_text("".join(tables))

    def are_ready() -> bool:
        try:
            return all(engines.acquire(label).is_alive() for label in ("n0", "n1"))
        except (DeviceError, UsageError, ValueError):
            return False

    wait_until(are_ready)

    assert all(engines.acquire(label).hello()["cores_usable"] > 0 for label in ("n0", "n1"))


@pytest.mark.usefixtures("folder")
def test_engines_that_ipyparallel_submits_are_attached() -> None:
    """Engines that ipyparallel submits are attached by the id of their cluster."""
    run(find_line("ipcluster start").replace("-n 4", "-n 2"))
    check_devices("lab")

    assert "lab" in run("ipcluster list")


@pytest.mark.parametrize("program", ["bsub", "condor_submit"])
def test_engines_that_the_user_submits_are_attached(program: str, folder: Path) -> None:
    """Engines that the user submits are attached by the connection file of their controller."""
    connection = folder / "ipython" / "profile_default" / "security" / "ipcontroller-lab-client.json"
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with subprocess.Popen(shlex.split(find_line("ipcontroller")), **quiet) as controller:
        try:
            wait_until(connection.exists)
            run(find_line(program))
            check_devices(str(connection))
        finally:
            engines.close()
            controller.terminate()
