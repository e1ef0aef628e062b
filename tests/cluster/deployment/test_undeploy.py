"""What is taken away from a device, and what is never taken away."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import psutil
import pytest

from ngbkit.cluster.deployment.onsite.folder import MARK, OURS
from ngbkit.cluster.deployment.undeploy import Undeployed, undeploy
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError, UsageError
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure

RUN = "20260102-030405-abcd"


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """The folder of a device that a deploy and runs have used."""
    folder = tmp_path / "far"
    for pattern in OURS:
        (folder / pattern.replace("*", "json")).mkdir(parents=True)
    (folder / MARK).touch()
    return folder


@pytest.fixture
def device(far: Path) -> Device:
    return Device(label="far", launch="local", state_dir=str(far))


def record(path: Path, *trial_ids: str) -> None:
    with Journal(path) as journal:
        journal.finish([Failure(trial_id=one, status="failed", stage="compile", error="x") for one in trial_ids])


def note_engine(far: Path, started: float, **more: object) -> None:
    folder = far / "engines" / "one"
    folder.mkdir(parents=True)
    about = {"label": "far", "pid": os.getpid(), "started": started, **more}
    (folder / "about.json").write_text(json.dumps(about))


def test_nothing_of_ours_is_left(device: Device, far: Path) -> None:
    """Nor the folder itself, and a second time there is nothing to do."""
    gone = undeploy(device)
    again = undeploy(device)

    assert sorted(pattern.replace("*", "json") for pattern in OURS) == sorted(gone.removed)
    assert ([], False) == (gone.left, far.exists())
    assert Undeployed(device="far", state_dir=str(far), removed=(), left=()) == again
    assert f"far: nothing of ngbkit's was there (in {far})." == again.to_text()


def test_a_link_is_removed_and_not_what_it_leads_to(device: Device, far: Path, tmp_path: Path) -> None:
    """A big disk may be where somebody has put the environment."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "kept").touch()
    (far / "env").rmdir()
    (far / "env").symlink_to(tmp_path / "disk")
    undeploy(device)

    assert (False, True) == (far.exists(), (tmp_path / "disk" / "kept").exists())


def test_records_that_are_not_here_are_not_lost(device: Device, far: Path, state_dir: Path) -> None:
    """The refusal names each run and the way to them; once they are here, or by --discard, the device is cleared."""
    here = state_dir / "runs" / RUN / "journal.sqlite"
    record(far / "devices" / "far" / f"{RUN}.sqlite", "a", "b", "c")
    record(far / "devices" / "gpu" / "another.sqlite", "z")
    record(here, "a")
    with pytest.raises(UsageError) as refused:
        undeploy(device)
    kept = far.exists()
    record(here, "b", "c")
    (far / "devices" / "gpu" / "another.sqlite").unlink()
    undeploy(device)

    assert kept
    assert f"2 of the 3 records of run {RUN}: `ngbkit resume {RUN}` collects them" in str(refused.value)
    assert "1 of the 1 records of run another: a run that is not known here" in str(refused.value)
    assert str(refused.value).endswith("To lose that, say so: --discard.")
    assert not far.exists()


def test_records_are_lost_where_that_is_said(device: Device, far: Path) -> None:
    """Also a journal that cannot be read at all."""
    record(far / "devices" / "far" / f"{RUN}.sqlite", "a")
    (far / "devices" / "far" / "bad.sqlite").write_text("no database, but as long as a header of one would be" * 9)
    (far / "devices" / "far" / "empty.sqlite").touch()
    with pytest.raises(UsageError, match=r"bad.sqlite \(file is not a database\) cannot be read"):
        undeploy(device)
    undeploy(device, discard=True)

    assert not far.exists()


def test_a_run_under_way_is_not_disturbed(device: Device, far: Path) -> None:
    """Whoever holds its journal is measuring: also an engine that ngbkit has not started."""
    with (
        Journal(far / "devices" / "far" / f"{RUN}.sqlite"),
        pytest.raises(DeviceError, match=f"device far measures run {RUN} now: wait for it"),
    ):
        undeploy(device, discard=True)

    assert (far / "env").exists()


def test_a_live_engine_is_not_cut_off(device: Device, far: Path) -> None:
    """Not even by --discard."""
    note_engine(far, psutil.Process().create_time())
    with pytest.raises(DeviceError, match=r"an engine lives on device far \(far\)"):
        undeploy(device, discard=True)

    assert (far / "env").exists()


def test_an_engine_that_is_gone_is_not_taken_for_the_process_that_has_its_number(device: Device, far: Path) -> None:
    """It started at another time."""
    note_engine(far, psutil.Process().create_time() - 100)
    undeploy(device)

    assert not far.exists()


def test_an_engine_of_another_machine_may_live(device: Device, far: Path) -> None:
    """A compute node with the same home folder cannot be looked into from here."""
    note_engine(far, 0.0, host="node7")
    with pytest.raises(DeviceError, match=r"was started on node7 and may live.*--discard"):
        undeploy(device)
    undeploy(device, discard=True)

    assert not far.exists()


def test_an_engine_that_is_being_started_is_waited_for(device: Device, far: Path) -> None:
    """It has not said yet whose it is."""
    (far / "engines" / "new").mkdir()
    with pytest.raises(DeviceError, match=r"an engine lives on device far \(one that is being started\)"):
        undeploy(device)
    os.utime(far / "engines" / "new", (0, 0))
    undeploy(device)

    assert not far.exists()


def test_the_folder_of_somebody_else_stays_as_it_is(tmp_path: Path) -> None:
    """Names that are ours by chance do not make it ours."""
    folder = tmp_path / "project"
    (folder / "env").mkdir(parents=True)
    (folder / "cache").mkdir()
    gone = undeploy(Device(label="far", launch="local", state_dir=str(folder)))

    assert ((), ["cache", "env"]) == (gone.removed, sorted(path.name for path in folder.iterdir()))


def test_with_something_of_somebody_elses_in_it_nothing_is_removed(device: Device, far: Path) -> None:
    """Where no deploy has made sure that the folder is its own."""
    (far / MARK).unlink()
    (far / "thesis").mkdir()
    with pytest.raises(UsageError, match=r"holds what ngbkit has not put there \(thesis\), so nothing was removed"):
        undeploy(device, discard=True)

    assert (far / "cache").exists()


def test_an_environment_that_deploy_did_not_make_stays(device: Device, far: Path) -> None:
    """On a device that has only been measured on."""
    (far / MARK).unlink()
    gone = undeploy(device)

    assert ("env" in gone.removed, ["env"]) == (False, gone.left)
    assert "env stays, which is not this device's" in gone.to_text()


@pytest.mark.parametrize("sign", ["runs", "wheelhouses"])
def test_the_folder_of_a_client_loses_the_environment_alone(sign: str, device: Device, far: Path) -> None:
    """Its journals are that client's, whether or not their records are here."""
    (far / sign).mkdir()
    record(far / "devices" / "cpu" / f"{RUN}.sqlite", "a")
    gone = undeploy(device)

    assert ["downloads", "env", "wheels"] == sorted(gone.removed)
    assert (far / "devices" / "cpu" / f"{RUN}.sqlite").exists()


def test_this_machines_own_device_loses_the_environment_alone(state_dir: Path) -> None:
    """An engine of this client's does not run in it, and is left alone."""
    (state_dir / "env").mkdir()
    (state_dir / MARK).touch()
    note_engine(state_dir, psutil.Process().create_time())
    gone = undeploy(Device(label="cpu", launch="local"))

    assert (["env"], ["engines", "peaks.json"]) == (gone.removed, gone.left)


def test_the_home_folder_is_nobodys_state_folder(tmp_path: Path) -> None:
    """Nor is one that holds it."""
    for folder in (Path.home(), Path("/")):
        with pytest.raises(DeviceError, match=r"cannot be ngbkit's own folder: name another as `state_dir`"):
            undeploy(Device(label="far", launch="local", state_dir=str(folder)))


def test_a_cluster_of_the_users_own_is_theirs() -> None:
    """Nothing was ever deployed there."""
    with pytest.raises(UsageError, match="is an engine of a cluster of your own"):
        undeploy(Device(label="own", launch="attach", cluster="mine"))


def test_a_journal_of_a_newer_ngbkit_is_read_all_the_same(device: Device, far: Path, state_dir: Path) -> None:
    """Its trials are where they have always been."""
    journal = far / "devices" / "far" / f"{RUN}.sqlite"
    record(journal, "a")
    connection = sqlite3.connect(journal)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(UsageError, match=f"1 of the 1 records of run {RUN}"):
        undeploy(device)
