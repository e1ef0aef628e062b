"""The recipe of notebooks/devices.md: engines of ipyparallel's own batch launchers, attached as devices."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import wait_until

from ngbkit.cluster import engines
from ngbkit.errors import DeviceError

PAGE = Path(__file__).parents[2] / "notebooks" / "devices.md"
# Runs the script of a submission as an array of two jobs: of a file for PBS, of the standard input for LSF.
_SUBMIT = """\
#!/bin/sh
script={folder}/script.$$
cat "${{1:-/dev/stdin}}" >$script
echo "$0" >>{folder}/submitted
for index in 1 2; do
    sh $script >/dev/null 2>&1 </dev/null &
    echo $! >>{folder}/pids
done
echo "Job <77> is submitted"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of its own, on which jobs can be submitted; none of them is left."""
    for name in ("qsub", "bsub"):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(_SUBMIT.format(folder=tmp_path))
        path.chmod(0o700)
    for name in ("qdel", "bkill"):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nxargs kill <{tmp_path}/pids\n")
        (tmp_path / "bin" / name).chmod(0o700)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), str(Path(sys.executable).parent)]), prepend=":")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    engines.close()
    run("ipcluster stop --cluster-id=lab")


def run(line: str) -> str:
    return subprocess.run(shlex.split(line), capture_output=True, text=True, check=False, timeout=60).stdout


@pytest.mark.parametrize(("launcher", "program"), [("pbs", "qsub"), ("lsf", "bsub")])
def test_engines_of_a_batch_system_are_attached(folder: Path, launcher: str, program: str) -> None:
    """By the command line of the page, with two engines; each is a device."""
    (line,) = re.findall(r"^    (ipcluster start .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    run(line.replace("--engines=pbs -n 4", f"--engines={launcher} -n 2"))
    tables = "".join(f'[n{index}]\nlaunch = "attach"\ncluster = "lab"\ntarget = {index}\n' for index in range(2))
    file = folder / "devices.toml"
    file.touch(mode=0o600)
    file.write_text(tables)

    def are_ready() -> bool:
        try:
            return all(engines.acquire(label).is_alive() for label in ("n0", "n1"))
        except (DeviceError, ValueError):
            return False

    wait_until(are_ready)

    assert [program] == [Path(name).name for name in (folder / "submitted").read_text().split()]
    assert all(engines.acquire(label).hello()["cores_usable"] > 0 for label in ("n0", "n1"))
    assert "lab" in run("ipcluster list")
