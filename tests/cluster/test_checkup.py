"""A look at each device, and the verbs that list and check them: with programs in the place of ssh and Slurm."""

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
from devicefiles import make_project, write
from hosts import sshd

import ngbkit
from ngbkit import cli, registry
from ngbkit.cluster import checkup
from ngbkit.cluster.checkup import Finding
from ngbkit.cluster.devices import Device
from ngbkit.device.spec import FORMAT
from ngbkit.errors import UnknownNameError
from ngbkit.notebook.magics import Benchmarks
from ngbkit.sweep import records

# What ssh does once it has got through: a shell of the other machine, in the home folder, reads its last word.
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
    """Makes a program, which is found by its name before those of this machine."""
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


def look(device: Device) -> Finding:
    (found,) = checkup.look([device])
    return found


def say(**told: Any) -> str:
    """The script of a Python that says this about itself."""
    about = {"python": "3.12.1", "ngbkit": "0.1.0", "formats": [FORMAT, records.FORMAT], "cores": [0], **told}
    return f"cat <<'END'\nngbkit-checkup:{json.dumps({name: value for name, value in about.items() if value})}\nEND"


def test_a_device_is_fit_when_ngbkit_was_brought_there(program: Program) -> None:
    """Before that it is reached, and it is told what to do."""
    program("ssh", SSH)
    before = look(FAR)
    program("../.local/state/ngbkit/env/bin/python", OWN)
    after = look(FAR)

    assert ("far", True, MACHINE, "", "") == (
        before.device,
        before.reachable,
        before.machine,
        before.python,
        before.ngbkit,
    )
    assert "its Python does not run (it ended with 127: " in before.problem
    assert before.problem.endswith("not found): run `ngbkit deploy far`")
    assert Finding(device="far", reachable=True, machine=MACHINE, **VERSIONS) == after


def test_a_real_ssh_is_gone_through(tmp_path: Path) -> None:
    """To a machine that has another home folder and no setting of this one's."""
    with sshd(tmp_path / "far"):
        found = [look(FAR), look(Device(label="far", launch="ssh", host="far", python=sys.executable))]
    gone = look(FAR)

    assert [True, True, False] == [finding.reachable for finding in (*found, gone)]
    assert "/far/" in found[0].problem
    assert Finding(device="far", reachable=True, machine=MACHINE, **VERSIONS) == found[1]


@pytest.mark.parametrize("launch", ["ssh", "slurm"])
def test_a_named_python_and_folder_are_looked_at(program: Program, launch: str, tmp_path: Path) -> None:
    """In the home folder over there, with odd names too."""
    program("ssh", SSH)
    program("sbatch", "exit 0")
    program("../it's here/python", OWN)
    program("../my state/env/bin/python", OWN)
    far = {"label": "far", "launch": launch, "host": "far"}
    found = [look(Device(**far, python="~/it's here/python")), look(Device(**far, state_dir="~/my state"))]

    assert [Finding(device="far", reachable=True, machine=MACHINE, **VERSIONS)] * 2 == found


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (say(), ""),
        (say(python="3.9.2"), "Python 3.9.2 is too old, ngbkit needs 3.10: name another as `python`"),
        (say(python="x"), "Python x is too old"),
        (say(ngbkit=None, why="ImportError: no"), "no ngbkit that works (ImportError: no): run `ngbkit deploy far`"),
        (say(formats=[FORMAT + 1, 1]), "ngbkit 0.1.0 there does not speak as the one here: run `ngbkit deploy far`"),
        (say(formats="x"), "does not speak as the one here"),
        (say(cores=[0, 1]), ""),
        ("echo 'ngbkit-checkup:[1]'", "its Python, bin/python, does not run (it said nothing)"),
        ("echo ngbkit-checkup:{; exit 4", "does not run (it ended with 4)"),
        ("echo oh >&2; exit 1", "does not run (it ended with 1: oh)"),
        ("kill -9 $$", "does not run (it ended with 137"),
        (say(ngbkit="\x1b[31mred", formats=[0]), "ngbkit [31mred there does not speak"),
    ],
)
def test_what_a_python_says_is_judged(program: Program, script: str, problem: str) -> None:
    """Also what no honest one would say: a terminal obeys nothing of it."""
    program("ssh", SSH)
    program("python", script)
    found = look(Device(label="far", launch="ssh", host="far", python="bin/python"))

    assert (True, bool(problem)) == (found.reachable, bool(found.problem))
    assert problem in found.problem
    assert found.ngbkit.isprintable()


@pytest.mark.parametrize(
    ("setup", "problem"),
    [
        ("echo Welcome; echo ngbkit-checkup:; module() { :; }; module load x", ""),
        ("echo before; exit 3", "its Python or its `setup` does not run (it ended with 3: before): name another"),
        ("if then (", "does not run (it ended with 2: "),
        ("cd /nowhere", ""),
    ],
)
def test_lines_of_setup_come_first(setup: str, problem: str) -> None:
    """What they print is passed over, and one that ends the shell is not a machine that is not there."""
    found = look(Device(label="x", launch="local", setup=setup))

    assert (True, MACHINE, bool(problem)) == (found.reachable, found.machine, bool(found.problem))
    assert problem in found.problem


def test_a_machine_that_is_not_reached_is_told_with_the_reason(program: Program) -> None:
    """On one line, whatever ssh printed."""
    program("ssh", "echo 'a\nb: Connection refused' >&2; exit 255")
    found = look(FAR)

    assert (False, "") == (found.reachable, found.machine)
    assert found.problem.startswith("far cannot be reached (a b: Connection refused): no ssh server listens there")


def test_this_machine_is_looked_at_with_the_python_that_is_named() -> None:
    """By default the one that ngbkit runs in."""
    found = [look(HERE), look(Device(label="x", launch="local", python="/nowhere/python"))]

    assert Finding(device="cpu", reachable=True, machine=MACHINE, **VERSIONS) == found[0]
    assert "its Python, /nowhere/python, does not run (it ended with 127" in found[1].problem


def test_cores_are_tried() -> None:
    """One that is there does; those that are not are named."""
    mine = min(os.sched_getaffinity(0))
    found = [look(Device(label="x", launch="local", cores=cores)).problem for cores in [(mine,), (mine, 4001, 4002)]]

    assert ["", "it has no core 4001-4002 to give: correct `cores`"] == found


def test_a_login_node_needs_sbatch(program: Program) -> None:
    """Its own cores are not those of a job."""
    program("ssh", SSH)
    program("../.local/state/ngbkit/env/bin/python", OWN)
    setup = 'PATH="$HOME/bin"'  # without this machine's own, which may have Slurm
    login = Device(label="x", launch="slurm", host="login", address="10.0.0.5", cores=(4001,), setup=setup)
    without = look(login)
    program("sbatch", "exit 0")

    assert (True, "") == (without.reachable, look(login).problem)
    assert without.problem.startswith("there is no sbatch there: name a login node as `host`")


def test_an_engine_of_the_users_own_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is there, and what it has."""
    profile = tmp_path / "profile"
    with ipyparallel.Cluster(n=1, profile_dir=str(profile), delay=0, log_level=40):
        (file,) = profile.glob("security/*client.json")
        fit, absent = (
            look(Device(label="x", launch="attach", cluster=str(file), target=target)) for target in (None, 7)
        )
    none = look(Device(label="x", launch="attach", cluster="none"))

    assert Finding(device="x", reachable=True, machine=MACHINE, **VERSIONS) == fit
    assert (False, False) == (absent.reachable, none.reachable)
    assert "the cluster has no engine 7" in absent.problem
    assert "the cluster none does not answer" in none.problem


def test_a_launcher_of_another_package_is_loaded_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does is known when it starts an engine."""
    known = {
        name: metadata.EntryPoint(name, value, registry.LAUNCHERS)
        for name, value in (("mine", "json"), ("broken", "no_such_module"))
    }
    monkeypatch.setattr(registry, "_entry_points", lambda group: known)
    found = [look(Device(label="x", launch=name)) for name in known]

    assert Finding(device="x", reachable=None) == found[0]
    assert "the launcher 'broken' does not load: ModuleNotFoundError" in found[1].problem


def test_devices_are_looked_at_side_by_side_and_told_in_order(program: Program, tmp_path: Path) -> None:
    """Each of these waits until the others have been asked."""
    count = f"$(ls {tmp_path}/asked | wc -l)"
    program("../asked/.keep", "")
    program("ssh", f'touch {tmp_path}/asked/$$; until [ "{count}" = 3 ]; do sleep 0.02; done; exit 255')
    labels = ["c", "a", "b"]

    assert labels == [found.device for found in checkup.look(Device(label=x, launch="ssh", host=x) for x in labels)]


FILE = '[far]\nlaunch = "ssh"\nhost = "far"\n[one]\nlaunch = "local"\ncores = [0]\n'


def test_a_check_is_a_row_a_device_and_fails_when_one_is_not_fit(
    project: Path, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people and for programs; of all devices, or of those that are named."""
    write(project / "devices.toml", FILE)
    program("ssh", "exit 255")
    codes = [cli.main(["devices", "check"]), cli.main(["devices", "check", "one,cpu", "one", "--json"])]
    table, _, rows = capsys.readouterr().out.partition("\n[")
    one, cpu = json.loads(f"[{rows}")
    whole = [line for line in table.splitlines() if not line.startswith(" ")]  # a long path is folded

    assert [cli.FAILED, cli.OK] == codes
    assert ["device", "cpu", "far", "one"] == [line.split()[0] for line in whole]
    assert ["device", "fit", "reachable", "machine", "python", "ngbkit", "problem"] == list(cpu)
    assert ("one", True, True) == (one["device"], one["fit"], one["reachable"])


def test_a_file_to_begin_with_is_written_and_can_be_checked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second time it is refused."""
    codes = [cli.main(["devices", *words]) for words in (["init"], ["check", "--json"], ["init"])]
    printed = capsys.readouterr()

    assert [cli.OK, cli.OK, cli.INVALID] == codes
    assert printed.out.startswith("file")
    assert "devices.toml exists, and is left as it is" in printed.err
    assert (project / "devices.toml").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check", "fra"], "unknown device 'fra'. Did you mean far? They are those of"),
        (["list", "far"], "'far' is too much: list takes no devices, and check does."),
        (["init", "far"], "'far' is too much: init takes no devices"),
        (["chek"], "invalid choice: 'chek'"),
    ],
)
def test_other_words_are_refused(
    project: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is looked at or written."""
    write(project / "devices.toml", FILE)

    assert cli.INVALID == cli.main(["devices", *words])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("words", [["devices"], ["devices", "check"], ["run", "resnet18", "-d", "far"]])
def test_a_file_that_is_not_valid_is_told_by_every_verb(
    project: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In a paragraph, without a traceback."""
    write(project / "devices.toml", f"{FILE}cors = 3")
    code = cli.main(words)
    printed = capsys.readouterr()

    assert (cli.INVALID, "") == (code, printed.out)
    assert f"unknown key 'cors'. Did you mean cores? It stands in [one] of {project / 'devices.toml'}." in printed.err


def test_the_magic_lists_and_checks(project: Path) -> None:
    """As the shell does."""
    write(project / "devices.toml", FILE)
    magics = Benchmarks(None)
    listed, checked = magics.ngdevices(""), magics.ngdevices("check one")

    assert ["cpu", "far", "one"] == [row["device"] for row in listed.rows]
    assert [("one", True)] == [(row["device"], row["fit"]) for row in checked.rows]
    assert checked._repr_html_().startswith("<table")


def test_devices_that_are_not_known_are_not_looked_at(project: Path) -> None:
    """None of them, where one is not known."""
    from ngbkit.commands import listing

    with pytest.raises(UnknownNameError, match="unknown device 'orin'"):
        listing.check_devices(["cpu", "orin"])
