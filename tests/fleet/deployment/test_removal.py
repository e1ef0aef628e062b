"""Removal of ngbkit from a device, and the refusals that protect other files and records."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from dataclasses import astuple
from pathlib import Path

import psutil
import pytest

from ngbkit import options
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError, UsageError
from ngbkit.fleet.deployment.deploy import deploy
from ngbkit.fleet.deployment.onsite.folder import CLIENTS, DEPLOYED, MARK, OURS
from ngbkit.fleet.deployment.removal import Removal, remove
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure

RUN = "20260102-030405-abcd"


@pytest.fixture
def far(tmp_path: Path) -> Path:
    """The state folder of a device with a deploy and runs."""
    folder = tmp_path / "far"
    for pattern in OURS:
        (folder / pattern.replace("*", "json")).mkdir(parents=True)
    (folder / MARK).write_bytes(DEPLOYED)
    return folder


@pytest.fixture
def device(far: Path) -> Device:
    return Device(label="far", launch="local", state_dir=str(far))


def record(path: Path, *trial_ids: str) -> None:
    with Journal(path) as journal:
        journal.finish(
            [Failure(trial_id=trial_id, status="failed", stage="compile", error="x") for trial_id in trial_ids]
        )


def write_engine(far: Path, started: float, **more: object) -> None:
    folder = far / "engines" / "one"
    folder.mkdir(parents=True)
    metadata = {"label": "far", "pid": os.getpid(), "started": started, **more}
    (folder / "about.json").write_text(json.dumps(metadata))


def test_all_of_ngbkits_entries_are_removed(device: Device, far: Path) -> None:
    """The first call removes all of ngbkit's entries and the folder; a second finds nothing."""
    first = remove(device)
    second = remove(device)

    assert sorted(pattern.replace("*", "json") for pattern in OURS) == sorted(first.removed)
    assert ([], False) == (first.remaining, far.exists())
    assert Removal(device="far", state_dir=str(far), removed=[], remaining=[]) == second
    assert f"far: found nothing of ngbkit's (in {far})." == second.to_text()


def test_a_link_is_removed_but_not_its_target(device: Device, far: Path, tmp_path: Path) -> None:
    """The environment may be on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "kept").touch()
    (far / "env").rmdir()
    (far / "env").symlink_to(tmp_path / "disk")
    remove(device)

    assert (False, True) == (far.exists(), (tmp_path / "disk" / "kept").exists())


def test_records_of_the_device_alone_are_kept(device: Device, far: Path, state_dir: Path) -> None:
    """The refusal names each run and the remedy; once the client has them, the device is cleared."""
    journal = state_dir / "runs" / RUN / "journal.sqlite"
    record(far / "devices" / "far" / f"{RUN}.sqlite", "a", "b", "c")
    record(far / "devices" / "gpu" / "another.sqlite", "z")
    record(journal, "a")
    with pytest.raises(UsageError) as refused:
        remove(device)
    is_kept = far.exists()
    record(journal, "b", "c")
    (far / "devices" / "gpu" / "another.sqlite").unlink()
    remove(device)

    assert is_kept
    assert f"2 of the 3 records of run {RUN}: `ngbkit runs --resume {RUN}` collects them" in str(refused.value)
    assert "1 of the 1 records of run another: of a run unknown here" in str(refused.value)
    assert f"delete the folder {far / 'devices'} on this machine" in str(refused.value)
    assert not far.exists()


def test_records_are_lost_only_by_hand(device: Device, far: Path) -> None:
    """An unreadable journal may hold records; once its folder is deleted as the error says, all is removed."""
    record(far / "devices" / "far" / f"{RUN}.sqlite", "a")
    (far / "devices" / "far" / "bad.sqlite").write_text("no database, but as long as a header of one would be" * 9)
    (far / "devices" / "far" / "empty.sqlite").touch()
    with pytest.raises(UsageError, match=r"cannot read the journal .*bad.sqlite \(file is not a database\)"):
        remove(device)
    shutil.rmtree(far / "devices")
    remove(device)

    assert not far.exists()


def test_a_journal_with_damaged_names_is_unreadable_too(device: Device, far: Path) -> None:
    """SQLite's message quotes what is no text."""
    journal = far / "devices" / "far" / f"{RUN}.sqlite"
    record(journal, "a")
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b"CREATE TABLE results", b"CREATE T\xceBLE r\xcesults"))
    with pytest.raises(UsageError, match=r"cannot read the journal .*\.sqlite"):
        remove(device)

    assert content != journal.read_bytes()


def test_a_run_under_way_is_not_contended(device: Device, far: Path) -> None:
    """The holder of its journal measures, even an engine that ngbkit has not started."""
    with (
        Journal(far / "devices" / "far" / f"{RUN}.sqlite"),
        pytest.raises(DeviceError, match=f"device far measures run {RUN} now: wait for it"),
    ):
        remove(device)

    assert (far / "env").exists()


def test_a_live_engine_is_not_cut_off(device: Device, far: Path) -> None:
    """The removal refuses a device with a live engine."""
    write_engine(far, psutil.Process().create_time())
    with pytest.raises(DeviceError, match=r"an engine lives on device far \(far\)"):
        remove(device)

    assert (far / "env").exists()


def test_a_process_with_the_id_of_an_ended_engine_is_ignored(device: Device, far: Path) -> None:
    """The removal ignores a process with the id of an ended engine."""
    write_engine(far, psutil.Process().create_time() - 100)
    remove(device)

    assert not far.exists()


def test_an_engine_of_another_machine_may_live(device: Device, far: Path) -> None:
    """A compute node with the same home folder cannot be checked from here."""
    write_engine(far, 0.0, host="node7")
    with pytest.raises(DeviceError, match=r"was started on node7 and may still live.*, delete .*/engines/one there"):
        remove(device)
    shutil.rmtree(far / "engines" / "one")
    remove(device)

    assert not far.exists()


def test_a_starting_engine_is_not_cut_off(device: Device, far: Path) -> None:
    """The removal refuses a device with a starting engine, whose folder has no metadata."""
    (far / "engines" / "new").mkdir()
    with pytest.raises(DeviceError, match=r"an engine lives on device far \(one that is starting\)"):
        remove(device)
    os.utime(far / "engines" / "new", (0, 0))
    remove(device)

    assert not far.exists()


@pytest.mark.parametrize("names", [["scratch", "cache"], ["env"], ["devices", "engines", "artifacts", "runs"]])
def test_a_folder_without_the_mark_is_unchanged(names: list[str], tmp_path: Path) -> None:
    """Entries with ngbkit's names do not make it ngbkit's, nor do they let a deploy claim it."""
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.csv").touch()
    device = Device(label="far", launch="local", state_dir=str(tmp_path))
    with pytest.raises(UsageError, match=r"but not the file \.ngbkit by which ngbkit marks its folders"):
        remove(device)
    with pytest.raises(DeviceError, match="has files that are not ngbkit's"):
        deploy(device, extras=())

    assert sorted(names) == sorted(path.parent.name for path in tmp_path.glob("*/data.csv"))


def test_a_folder_that_has_lost_its_mark_is_unchanged(device: Device, far: Path) -> None:
    """The removal changes nothing in a folder without its mark."""
    (far / MARK).unlink()
    with pytest.raises(UsageError, match="so nothing was removed"):
        remove(device)

    assert len(OURS) == len(list(far.iterdir()))


def test_a_foreign_environment_stays(device: Device, far: Path) -> None:
    """The removal keeps an environment that no deploy created."""
    (far / MARK).write_bytes(b"")
    removal = remove(device)

    assert ("env" in removal.removed, ["env"]) == (False, removal.remaining)
    assert "kept env, which is not this device's" in removal.to_text()


@pytest.mark.parametrize("sign", ["runs", "wheelhouses"])
def test_the_folder_of_a_client_loses_the_environment_alone(sign: str, device: Device, far: Path) -> None:
    """The removal of a client's own folder removes the environment and keeps the journals."""
    (far / sign).mkdir()
    record(far / "devices" / "cpu" / f"{RUN}.sqlite", "a")
    removal = remove(device)

    assert ["downloads", "env", "wheels"] == sorted(removal.removed)
    assert (far / "devices" / "cpu" / f"{RUN}.sqlite").exists()


def test_this_machines_own_device_loses_the_environment_alone(state_dir: Path) -> None:
    """An engine of this client does not run in it, and is left alone."""
    (state_dir / "env").mkdir()
    (state_dir / MARK).write_bytes(DEPLOYED)
    write_engine(state_dir, psutil.Process().create_time())
    removal = remove(Device(label="cpu", launch="local"))

    assert (["env"], ["engines", "peaks.json"]) == (removal.removed, removal.remaining)


def test_the_home_folder_cannot_be_a_state_folder(tmp_path: Path) -> None:
    """The home folder and its parents are refused as state folders."""
    for folder in (Path.home(), Path("/")):
        with pytest.raises(DeviceError, match=r"cannot be ngbkit's state folder: name another as `state_dir`"):
            remove(Device(label="far", launch="local", state_dir=str(folder)))


def test_a_cluster_of_the_users_own_is_refused() -> None:
    """The removal refuses an engine of the user's own cluster."""
    with pytest.raises(UsageError, match="is an engine of a cluster of your own"):
        remove(Device(label="own", launch="attach", cluster="mine"))


def test_a_journal_of_a_newer_ngbkit_is_read(device: Device, far: Path, state_dir: Path) -> None:
    """The table of its trials is the same."""
    journal = far / "devices" / "far" / f"{RUN}.sqlite"
    record(journal, "a")
    connection = sqlite3.connect(journal)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(UsageError, match=f"1 of the 1 records of run {RUN}"):
        remove(device)


def test_a_device_lists_the_names_of_the_layout() -> None:
    """The code that runs on a device before ngbkit is installed there has a list of its own."""
    layout = {name if "." not in name else f"{Path(name).stem}.*" for name in astuple(options.LAYOUT)}
    layout -= {f"{options.LAYOUT.mark}.*"}

    assert layout == {*OURS, *CLIENTS}
    assert options.LAYOUT.mark == MARK
