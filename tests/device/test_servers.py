"""Fork servers: fast children that end with their purpose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ngbkit import files
from ngbkit.device import process_lifetime
from ngbkit.device.servers import Child, ChildEndedError, Servers
from ngbkit.errors import DeviceError


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    pool = Servers({**os.environ, "MARK": "set"}, tmp_path / "scratch")
    pool.folder.mkdir()
    yield pool
    pool.close()


def is_alive(child: Child) -> bool:
    try:
        return psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_answers_and_ends_on_request(servers: Servers) -> None:
    """It has the server's imports and answers one message at a time."""
    child = servers.get(["json"]).fork()
    reply = child.ask({"op": "usage"}, 30)
    running = is_alive(child)
    child.end()

    assert reply["peak_memory_bytes"] > 1_000_000
    assert running
    assert not is_alive(child)


def test_a_server_is_started_once_for_the_same_imports(servers: Servers) -> None:
    """And again after its end."""
    first = servers.get(["json"])
    again = servers.get(["json"])
    other = servers.get(["csv"])
    first.close()
    renewed = servers.get(["json"])

    assert first is again
    assert first is not other
    assert renewed is not first
    assert renewed.alive


def test_an_error_within_a_child_is_its_answer(servers: Servers) -> None:
    """The child survives and answers further messages."""
    child = servers.get([]).fork()
    reply = child.ask({"op": "turn", "calls": 1, "settle": 0}, 30)["failure"]

    assert ("failed", "RuntimeError: nothing is loaded in this child") == (reply["status"], reply["error"])
    assert "Traceback" in reply["detail"]
    assert "peak_memory_bytes" in child.ask({"op": "usage"}, 30)
    child.end()


def test_the_error_says_how_a_child_ended(servers: Servers) -> None:
    """By the name of the signal."""
    child = servers.get([]).fork()
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(ChildEndedError, match="SIGSEGV") as caught:
        child.ask({"op": "usage"}, 30)

    assert -signal.SIGSEGV == caught.value.code
    assert not caught.value.out_of_memory


def test_a_kill_for_lack_of_memory_is_recognised(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts those kills, and the count has risen."""
    counts = iter([3, 4])
    monkeypatch.setattr("ngbkit.device.servers.count_out_of_memory_kills", lambda: next(counts))
    child = servers.get([]).fork()
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildEndedError, match="SIGKILL") as caught:
        child.ask({"op": "usage"}, 30)

    assert caught.value.out_of_memory


def test_the_kernel_kills_a_child_first(servers: Servers) -> None:
    """When memory runs out, the trial ends, and neither the engine nor the notebook."""
    child = servers.get([]).fork()
    child.ask({"op": "usage"}, 30)
    score = Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip()
    child.end()

    assert "1000" == score


def test_children_end_with_their_server(servers: Servers) -> None:
    """Also when it is killed."""
    server = servers.get([])
    child = server.fork()
    process = psutil.Process(child.pid)
    server._process.kill()
    ended, alive_processes = psutil.wait_procs([process])
    child.end()

    assert [process] == ended + [zombie for zombie in alive_processes if zombie.status() == psutil.STATUS_ZOMBIE]


def test_the_error_of_a_server_that_does_not_start_has_its_log(servers: Servers) -> None:
    """It also names the server."""
    servers.environment = {**os.environ, "PYTHONPATH": "", "PYTHONHOME": "/nowhere"}
    with pytest.raises(DeviceError, match=r"fork server of plain Python ended.*(encodings|Python path)"):
        servers.get([]).fork()


def test_waiting_for_a_process_ends_when_it_does() -> None:
    """For a child or not; the wait for an ended process returns at once."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    process_lifetime.wait_for_end(process.pid)
    process.wait()
    process_lifetime.wait_for_end(process.pid)

    assert 0 == process.returncode


def test_folders_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    """By the next process that creates a folder there."""
    code = "import sys; from pathlib import Path; from ngbkit import files; files.make_scratch(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    leftovers = list(tmp_path.iterdir())
    folder = files.make_scratch(tmp_path)

    assert 1 == len(leftovers)
    assert [folder] == list(tmp_path.iterdir())
    assert 0o700 == folder.stat().st_mode & 0o777
