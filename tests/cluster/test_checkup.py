"""The check of each device, and the commands that list and check them: with fake ssh and Slurm programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import ipyparallel
import pytest
from answers import list_rows
from devicefiles import make_project, write
from hosts import start_host
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import ngbkit
from ngbkit import cli, registry
from ngbkit.cluster import checkup
from ngbkit.cluster.checkup import DeviceFinding
from ngbkit.cluster.devices import Device
from ngbkit.device.spec import FORMAT
from ngbkit.errors import UnknownNameError
from ngbkit.notebook import magics
from ngbkit.sweep import records

# A connected ssh: a shell of the other machine, in the home folder, runs its last word.
SSH = 'for word in "$@"; do program=$word; done; cd "$HOME"; exec sh -c "$program"'
OWN = f'exec {sys.executable} "$@"'
FAR = Device(label="far", launch="ssh", host="far")
HERE = Device(label="cpu", launch="local")
VERSIONS = {"python": sys.version.split()[0], "ngbkit": ngbkit.__version__}
MACHINE = f"{os.uname().sysname} {os.uname().machine}"
Program = Callable[[str, str], Path]

project = pytest.fixture(autouse=True)(make_project)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Creates a program, first on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.delenv("NGBKIT_STATE_DIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)

    def make(name: str, script: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        return path

    return make


def check(device: Device) -> DeviceFinding:
    (finding,) = checkup.check([device])
    return finding


def build_script(**fields: Any) -> str:
    """Build the script of a fake Python that prints this report."""
    report = {"python": "3.12.1", "ngbkit": "0.1.0", "formats": [FORMAT, records.FORMAT], "cores": [0], **fields}
    return f"cat <<'END'\nngbkit-checkup:{json.dumps({name: value for name, value in report.items() if value})}\nEND"


def test_a_device_with_ngbkit_is_fit(program: Program) -> None:
    """A device with ngbkit is fit; one without it is reachable, and its problem has a remedy."""
    program("ssh", SSH)
    before = check(FAR)
    program("../.local/state/ngbkit/env/bin/python", OWN)
    after = check(FAR)

    assert ("far", True, MACHINE, "", "") == (
        before.device,
        before.reachable,
        before.machine,
        before.python,
        before.ngbkit,
    )
    assert "its Python does not run (it ended with 127: " in before.problem
    assert before.problem.endswith("not found): run `ngbkit deploy far`")
    assert DeviceFinding(device="far", reachable=True, machine=MACHINE, **VERSIONS) == after


def test_a_check_over_a_real_ssh(tmp_path: Path) -> None:
    """A check over ssh uses the home folder and the settings of the remote machine."""
    with start_host(tmp_path / "far"):
        findings = [check(FAR), check(Device(label="far", launch="ssh", host="far", python=sys.executable))]
    stopped = check(FAR)

    assert [True, True, False] == [finding.reachable for finding in (*findings, stopped)]
    assert "/far/" in findings[0].problem
    assert DeviceFinding(device="far", reachable=True, machine=MACHINE, **VERSIONS) == findings[1]


@pytest.mark.parametrize("launch", ["ssh", "slurm"])
def test_a_configured_python_and_folder_are_checked(program: Program, launch: str, tmp_path: Path) -> None:
    """A check finds a configured Python and folder in the device's home folder."""
    program("ssh", SSH)
    program("sbatch", "exit 0")
    program("../it's here/python", OWN)
    program("../my state/env/bin/python", OWN)
    far = {"label": "far", "launch": launch, "host": "far"}
    findings = [check(Device(**far, python="~/it's here/python")), check(Device(**far, state_dir="~/my state"))]

    assert [DeviceFinding(device="far", reachable=True, machine=MACHINE, **VERSIONS)] * 2 == findings


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (build_script(), ""),
        (build_script(python="3.9.2"), "Python 3.9.2 is too old, ngbkit needs 3.10: name another as `python`"),
        (build_script(python="x"), "Python x is too old"),
        (
            build_script(ngbkit=None, why="ImportError: no"),
            "no working ngbkit (ImportError: no): run `ngbkit deploy far`",
        ),
        (
            build_script(formats=[FORMAT + 1, 1]),
            "ngbkit 0.1.0 there is incompatible with the one here: run `ngbkit deploy far`",
        ),
        (build_script(formats="x"), "is incompatible with the one here"),
        (build_script(cores=[0, 1]), ""),
        ("echo 'ngbkit-checkup:[1]'", "its Python, bin/python, does not run (no output)"),
        ("echo ngbkit-checkup:{; exit 4", "does not run (it ended with 4)"),
        ("echo oh >&2; exit 1", "does not run (it ended with 1: oh)"),
        ("kill -9 $$", "does not run (it ended with 137"),
        (build_script(ngbkit="\x1b[31mred", formats=[0]), "ngbkit red there is incompatible"),
    ],
)
def test_the_report_of_a_python_is_judged(program: Program, script: str, problem: str) -> None:
    """The check judges the report of a Python, and sanitises a hostile one."""
    program("ssh", SSH)
    program("python", script)
    finding = check(Device(label="far", launch="ssh", host="far", python="bin/python"))

    assert (True, bool(problem)) == (finding.reachable, bool(finding.problem))
    assert problem in finding.problem
    assert finding.ngbkit.isprintable()


@pytest.mark.parametrize(
    ("setup", "problem"),
    [
        ("echo Welcome; echo ngbkit-checkup:; module() { :; }; module load x", ""),
        ("echo before; exit 3", "its Python or its `setup` does not run (it ended with 3: before): name another"),
        ("if then (", "does not run (it ended with 2: "),
        ("cd /nowhere", ""),
    ],
)
def test_setup_runs_first(setup: str, problem: str) -> None:
    """The check ignores the output of the setup, and a machine whose setup fails is reachable."""
    finding = check(Device(label="x", launch="local", setup=setup))

    assert (True, MACHINE, bool(problem)) == (finding.reachable, finding.machine, bool(finding.problem))
    assert problem in finding.problem


def test_an_unreachable_machine_is_reported(program: Program) -> None:
    """The problem of an unreachable machine has the reason on one line."""
    program("ssh", "echo 'a\nb: Connection refused' >&2; exit 255")
    finding = check(FAR)

    assert (False, "") == (finding.reachable, finding.machine)
    assert finding.problem.startswith("cannot reach far (a b: Connection refused): no ssh server listens there")


def test_this_machine_is_checked_with_the_configured_python() -> None:
    """A check of this machine uses the configured Python, or the one that runs ngbkit."""
    findings = [check(HERE), check(Device(label="x", launch="local", python="/nowhere/python"))]

    assert DeviceFinding(device="cpu", reachable=True, machine=MACHINE, **VERSIONS) == findings[0]
    assert "its Python, /nowhere/python, does not run (it ended with 127" in findings[1].problem


def test_cores_are_tried() -> None:
    """The problem names those that do not exist."""
    core = min(os.sched_getaffinity(0))
    problems = [
        check(Device(label="x", launch="local", cores=cores)).problem for cores in [(core,), (core, 4001, 4002)]
    ]

    assert ["", "it has no core 4001-4002: correct `cores`"] == problems


def test_a_login_node_needs_sbatch(program: Program) -> None:
    """The check of a login node requires sbatch and ignores its own number of cores."""
    program("ssh", SSH)
    program("../.local/state/ngbkit/env/bin/python", OWN)
    setup = 'PATH="$HOME/bin"'  # without this machine's own, which may have Slurm
    login = Device(label="x", launch="slurm", host="login", address="10.0.0.5", cores=(4001,), setup=setup)
    without = check(login)
    program("sbatch", "exit 0")

    assert (True, "") == (without.reachable, check(login).problem)
    assert without.problem.startswith("no sbatch there: name a login node as `host`")


def test_an_engine_of_the_users_own_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check finds a missing engine of the user's own, and reports the ngbkit of one that is there."""
    profile = tmp_path / "profile"
    with ipyparallel.Cluster(n=1, profile_dir=str(profile), delay=0, log_level=40):
        (file,) = profile.glob("security/*client.json")
        fit, absent = (
            check(Device(label="x", launch="attach", cluster=str(file), target=target)) for target in (None, 7)
        )
    none = check(Device(label="x", launch="attach", cluster="none"))

    assert DeviceFinding(device="x", reachable=True, machine=MACHINE, **VERSIONS) == fit
    assert (False, False) == (absent.reachable, none.reachable)
    assert "no engine 7 in the cluster" in absent.problem
    assert "the cluster none does not answer" in none.problem


def test_a_launcher_of_another_package_is_only_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check loads a launcher of another package and does not start it."""
    entry_points = {
        name: metadata.EntryPoint(name, value, registry.LAUNCHERS)
        for name, value in (("mine", "json"), ("broken", "no_such_module"))
    }
    monkeypatch.setattr(registry, "list_entry_points", lambda group: entry_points)
    findings = [check(Device(label="x", launch=name)) for name in entry_points]

    assert DeviceFinding(device="x", reachable=None) == findings[0]
    assert "cannot load the launcher 'broken': ModuleNotFoundError" in findings[1].problem


def test_devices_are_checked_side_by_side(program: Program, tmp_path: Path) -> None:
    """Each of these waits for the others; the findings are in order."""
    count = f"$(ls {tmp_path}/asked | wc -l)"
    program("../asked/.keep", "")
    program("ssh", f'touch {tmp_path}/asked/$$; until [ "{count}" = 3 ]; do sleep 0.02; done; exit 255')
    labels = ["c", "a", "b"]

    assert labels == [
        finding.device for finding in checkup.check(Device(label=x, launch="ssh", host=x) for x in labels)
    ]


FILE = '[far]\nlaunch = "ssh"\nhost = "far"\n[one]\nlaunch = "local"\ncores = [0]\n'


def test_a_check_is_a_table_with_a_row_per_device(
    project: Path, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check prints a row per device, or JSON, and its exit code shows whether all are fit."""
    write(project / "devices.toml", FILE)
    program("ssh", "exit 255")
    codes = [cli.main(["devices", "check"]), cli.main(["devices", "check", "one,cpu", "one", "--json"])]
    table, _, rows = capsys.readouterr().out.partition("\n[")
    first, cpu = json.loads(f"[{rows}")
    lines = [line for line in table.splitlines() if not line.startswith(" ")]  # a long path is folded

    assert [cli.FAILED, cli.OK] == codes
    assert ["device", "cpu", "far", "one"] == [line.split()[0] for line in lines]
    assert ["device", "fit", "reachable", "machine", "python", "ngbkit", "problem"] == list(cpu)
    assert ("one", True, True) == (first["device"], first["fit"], first["reachable"])


def test_init_writes_a_valid_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second init is refused."""
    codes = [cli.main(["devices", *words]) for words in (["init"], ["check", "--json"], ["init"])]
    printed = capsys.readouterr()

    assert [cli.OK, cli.OK, cli.INVALID] == codes
    assert printed.out.startswith("file")
    assert "devices.toml exists already" in printed.err
    assert (project / "devices.toml").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "fra"], "unknown device 'fra'. Did you mean far? The devices are in"),
        (["list", "far"], "unexpected argument 'far': only `devices check` takes devices."),
        (["init", "far"], "unexpected argument 'far': only `devices check`"),
        (["chek"], "invalid choice: 'chek'"),
    ],
)
def test_other_words_are_refused(
    project: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command refuses invalid arguments before it checks anything."""
    write(project / "devices.toml", FILE)

    assert cli.INVALID == cli.main(["devices", *words])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["devices"], ["devices", "check"], ["run", "resnet18", "-d", "far"]])
def test_every_command_reports_an_invalid_file(
    project: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command reports an invalid devices file without a traceback."""
    write(project / "devices.toml", f"{FILE}cors = 3")
    code = cli.main(words)
    printed = capsys.readouterr()

    assert (cli.INVALID, "") == (code, printed.out)
    assert f"unknown key 'cors'. Did you mean cores? It is in [one] of {project / 'devices.toml'}." in printed.err


def test_the_magic_lists_and_checks(project: Path) -> None:
    """The magic `%ngdevices` lists and checks devices, as the shell does."""
    write(project / "devices.toml", FILE)
    shell = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    magics.register(shell)
    table, checked = (shell.run_line_magic("ngdevices", line) for line in ("", "check one"))

    assert ["cpu", "far", "one"] == [row["device"] for row in list_rows(table)]
    assert [("one", "yes")] == [(row["device"], row["fit"]) for row in list_rows(checked)]
    assert checked._repr_html_().startswith("<table")


def test_an_unknown_device_is_refused_before_the_check(project: Path) -> None:
    """No device is checked then."""
    from ngbkit.commands.devices import check_devices

    with pytest.raises(UnknownNameError, match="unknown device 'orin'"):
        check_devices(["cpu", "orin"])
