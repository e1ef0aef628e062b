"""A user's own ipyparallel cluster beside ngbkit's, in a real IPython shell: whose ``%px`` it is, and ``--cluster``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipyparallel
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from patience import wait_until

import ngbkit
from ngbkit.cluster import engines
from ngbkit.errors import DeviceError, UsageError

LOCATE = "%px import os; print('engine of', os.environ.get('NGBKIT_ENGINE', 'the user'))"


@pytest.fixture(scope="module")
def rc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ipyparallel.Client]:
    """The client of a running cluster of two engines, connected outside of any shell."""
    folder = tmp_path_factory.mktemp("cluster") / "profile"
    with ipyparallel.Cluster(n=2, profile_dir=str(folder), delay=0, log_level=40) as client:
        yield client


@pytest.fixture
def shell(shell: InteractiveShell) -> Iterator[InteractiveShell]:
    """The shell, in which no client has bound ``%px``."""
    magics = shell.magics_manager.magics
    saved = {kind: magics[kind].pop("px", None) for kind in magics}
    yield shell
    for kind, magic in saved.items():
        magics[kind].pop("px", None)
        if magic is not None:
            magics[kind]["px"] = magic


def run_cell(shell: InteractiveShell, cell: str) -> str:
    """Run a cell, and return what it prints."""
    with capture_output() as captured:
        result = shell.run_cell(cell)
    result.raise_error()
    return str(captured.stdout)


def locate_engines(shell: InteractiveShell, count: int) -> str:
    """Run `LOCATE`, and return what so many engines print.

    ipyparallel waits a second for what engines print, which a busy machine may exceed: the cell then runs again.
    """
    outputs = [""]

    def locate() -> bool:
        outputs.append(run_cell(shell, LOCATE))
        return outputs[-1].count("engine of") >= count

    wait_until(locate)
    return outputs[-1]


def is_bound(shell: InteractiveShell) -> bool:
    return "px" in shell.magics_manager.magics["line"]


def test_ngbkit_binds_no_px(shell: InteractiveShell, rc: ipyparallel.Client) -> None:
    """The engines that ngbkit starts or attaches bind no `%px`, and the user's next client does."""
    engines.stop("cpu")
    engines.acquire()
    (file,) = Path(rc.cluster.profile_dir, "security").glob("*-client.json")
    for cluster in (rc, rc[0], rc.cluster, file):
        ngbkit.attach(cluster)
    assert not is_bound(shell)
    with rc.cluster.connect_client_sync():
        assert is_bound(shell)
        assert 2 == locate_engines(shell, 2).count("engine of the user")


def test_a_plain_client_runs_cells_on_a_device(shell: InteractiveShell, rc: ipyparallel.Client) -> None:
    """A plain client binds ``%px`` to the engine of its device."""
    with rc.cluster.connect_client_sync(), ngbkit.client("cpu") as client:
        printed = locate_engines(shell, 1)
        assert type(client) is ipyparallel.Client
    assert 1 == printed.count("engine of /")
    assert "the user" not in printed


def test_a_view_is_the_engines_that_it_names(rc: ipyparallel.Client) -> None:
    """All of them for several devices, its engine for one device; it is never silently the first of several."""
    assert 1 == ngbkit.attach(rc[1]).view.targets
    assert 1 == ngbkit.attach(rc[1:]).view.targets
    assert 0 == ngbkit.attach(rc).view.targets
    for view in (rc[:], rc.direct_view(), rc.load_balanced_view()):
        with pytest.raises(UsageError, match=r"got a view of 2 engines; expected one engine.* such as rc\[0\]"):
            ngbkit.attach(view)
    with pytest.raises(UsageError, match="no engine 0 in the cluster; expected one of 1"):
        ngbkit.attach(rc[1], target=0)
    view = rc[1]
    view.targets = 7
    with pytest.raises(DeviceError, match="no engine 7 any more; it has 0, 1"):
        ngbkit.attach(view)


@pytest.mark.parametrize("word", ["$mine", "{mine}"])
def test_the_cluster_of_a_magic_is_a_variable(
    shell: InteractiveShell, rc: ipyparallel.Client, mlp_file: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster of a magic is a client, a cluster or a view, with an engine for each device."""
    clusters: list[Any] = []

    def attach_each(cluster: Any, devices: Any) -> Any:
        clusters.append(cluster)
        raise UsageError("enough")

    monkeypatch.setattr("ngbkit.cluster.attach.attach_each", attach_each)
    for cluster in (rc, rc[:], rc.cluster):
        shell.user_ns["mine"] = cluster
        for option in (f"--cluster {word}", f"--cluster={word}"):
            with capture_output():
                result = shell.run_cell(f"%ngbench {mlp_file} -d a,b {option}")
            assert isinstance(result.error_in_exec, UsageError)
            assert clusters.pop() is cluster


def test_engines_of_a_view_are_used_by_a_magic(shell: InteractiveShell, rc: ipyparallel.Client, mlp_file: Path) -> None:
    """A sweep on two devices runs on both engines of the view."""
    shell.user_ns["rc"] = rc
    run_cell(shell, f"%ngbench {mlp_file} -c identity -b 1 -r 3 --threads 1 -d a,b --cluster $rc -o ds")

    assert ["a", "b"] == shell.user_ns["ds"]["device"].values.tolist()
    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())


def test_a_cluster_that_was_stopped_is_an_error(rc: ipyparallel.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose controller is gone says so."""

    def connect(*_: Any) -> None:
        raise TimeoutError("Hub connection request timed out")

    monkeypatch.setattr("ngbkit.cluster.attach.clone", connect)
    with pytest.raises(DeviceError, match=r"the cluster \(Client\) does not answer: Hub connection .* Is it running"):
        ngbkit.attach(rc)
