"""Fork servers: children in no time, and none that outlives what it was forked for."""

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
    made = Servers({**os.environ, "MARK": "set"}, tmp_path / "scratch")
    made.folder.mkdir()
    yield made
    made.close()


def alive(child: Child) -> bool:
    try:
        return psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_answers_and_ends_when_told(servers: Servers) -> None:
    """It knows the server's imports and answers one message at a time."""
    child = servers.get(["json"]).fork()
    reply = child.ask({"op": "usage"}, 30)
    running = alive(child)
    child.end()

    assert reply["peak_memory_bytes"] > 1_000_000
    assert running
    assert not alive(child)


def test_a_server_is_started_once_for_the_same_imports(servers: Servers) -> None:
    """And again when it has died."""
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
    """The child lives on and can be asked again."""
    child = servers.get([]).fork()
    reply = child.ask({"op": "turn", "calls": 1, "settle": 0}, 30)["failure"]

    assert ("failed", "RuntimeError: nothing is loaded in this child") == (reply["status"], reply["error"])
    assert "Traceback" in reply["detail"]
    assert "peak_memory_bytes" in child.ask({"op": "usage"}, 30)
    child.end()


def test_how_a_child_ended_is_told(servers: Servers) -> None:
    """By the name of the signal, and with what it had printed."""
    child = servers.get([]).fork()
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(ChildEndedError, match="SIGSEGV") as caught:
        child.ask({"op": "usage"}, 30)

    assert -signal.SIGSEGV == caught.value.code
    assert not caught.value.out_of_memory


def test_a_kill_for_want_of_memory_is_told_from_any_other(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts those, and the count has gone up."""
    counts = iter([3, 4])
    monkeypatch.setattr("ngbkit.device.servers.out_of_memory_kills", lambda: next(counts))
    child = servers.get([]).fork()
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildEndedError, match="SIGKILL") as caught:
        child.ask({"op": "usage"}, 30)

    assert caught.value.out_of_memory


def test_the_kernel_takes_a_child_before_anyone_else(servers: Servers) -> None:
    """When memory runs out, the trial goes, and neither the engine nor the notebook."""
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
    gone, left = psutil.wait_procs([process])
    child.end()

    assert [process] == gone + [one for one in left if one.status() == psutil.STATUS_ZOMBIE]


def test_a_server_that_does_not_come_up_says_what_it_printed(servers: Servers) -> None:
    """The log is in the message."""
    servers.environment = {**os.environ, "PYTHONPATH": "", "PYTHONHOME": "/nowhere"}
    with pytest.raises(DeviceError, match=r"fork server of plain Python ended.*(encodings|Python path)"):
        servers.get([]).fork()


def test_waiting_for_a_process_ends_when_it_does() -> None:
    """Whether it is a child or not; one that is gone already is not waited for."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.2)"])
    process_lifetime.wait(process.pid)
    process.wait()
    process_lifetime.wait(process.pid)

    assert 0 == process.returncode


def test_folders_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    """By the next one that makes a folder there."""
    code = "import sys; from pathlib import Path; from ngbkit import files; files.make_scratch(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    left = list(tmp_path.iterdir())
    mine = files.make_scratch(tmp_path)

    assert 1 == len(left)
    assert [mine] == list(tmp_path.iterdir())
    assert 0o700 == mine.stat().st_mode & 0o777
