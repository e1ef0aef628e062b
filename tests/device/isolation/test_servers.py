"""Fork servers: fast children that end with their purpose."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import limit_s, wait_until

from ngbkit import files
from ngbkit.device.isolation.servers import ChildEndedError, ForkServer, ServerEndedError, Servers
from ngbkit.device.world import World
from ngbkit.errors import DeviceError

WORLD = World(folder="/")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    pool = Servers({**os.environ, "MARK": "set"}, tmp_path / "scratch", WORLD)
    pool.folder.mkdir()
    yield pool
    pool.close()


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def find_process(server: ForkServer) -> psutil.Process:
    """Find the process of a server that was started."""
    assert server._process is not None
    return server._process


def add_module(servers: Servers, file: Path, source: str) -> None:
    """Write a module that servers may import."""
    file.write_text(source)
    servers.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(file.parent), *sys.path])}


def test_a_child_answers_and_ends_on_request(servers: Servers) -> None:
    """A child has its server's imports, answers one message at a time, and ends on request."""
    child = servers.get(["json"]).fork(WORLD)
    reply = child.ask({"op": "usage"}, 30)
    was_gone = is_gone(child.pid)
    child.end()

    assert reply["peak_memory_bytes"] > 1_000_000
    assert not was_gone
    assert is_gone(child.pid)


def test_a_server_is_started_once_for_the_same_imports(servers: Servers) -> None:
    """A server is reused for the same imports, and replaced after its end."""
    first = servers.get(["json"])
    again = servers.get(["json"])
    other = servers.get(["csv"])
    first.close()
    renewed = servers.get(["json"])

    assert first is again
    assert first is not other
    assert renewed is not first
    assert renewed.alive


def test_a_server_is_forked_from_one_that_imported_the_first_of_its_modules(servers: Servers, tmp_path: Path) -> None:
    """Each module is imported once; a child has the modules of its server, and ends with it and with its trunk."""
    for name in ("first", "second"):
        note = f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')"
        add_module(servers, tmp_path / f"{name}_module.py", f"{note}\n")
    trunk = servers.get(["first_module"])
    branch = servers.get(["first_module", "second_module"])
    peak = branch.fork(WORLD).end()["peak_memory_bytes"]
    survivor = branch.fork(WORLD)
    reply = survivor.ask({"op": "usage"}, 30)
    trunk.close()
    was_gone = is_gone(survivor.pid)
    survivor.end()
    renewed = servers.get(["first_module", "second_module"])

    assert "first second " == (tmp_path / "imported").read_text()
    assert peak > 1_000_000
    assert "peak_memory_bytes" in reply
    assert not branch.alive
    assert was_gone
    assert renewed is not branch
    assert renewed.alive


def test_the_error_of_a_forked_server_that_does_not_start_has_its_log(servers: Servers, tmp_path: Path) -> None:
    """Both attempts at it fail by its imports, and its trunk goes on."""
    add_module(servers, tmp_path / "fatal.py", "import os\nos.write(2, b'no such chip')\nos._exit(3)\n")
    trunk = servers.get(["json"])
    with pytest.raises(ServerEndedError, match="the fork server of json, fatal ended: no such chip"):
        servers.fork(["json", "fatal"])
    child = trunk.fork(WORLD)
    reply = child.ask({"op": "usage"}, 30)
    child.end()

    assert "peak_memory_bytes" in reply


def test_each_child_has_another_layout_of_memory(servers: Servers) -> None:
    """Children of one server have its addresses: what a layout does to a program would be in all of them alike."""
    children = [servers.get(["json"]).fork(WORLD) for _ in range(3)]
    for child in children:
        child.ask({"op": "usage"}, 30)
    layouts = {re.sub(r".*/.*\n", "", Path(f"/proc/{child.pid}/maps").read_text()) for child in children}
    for child in children:
        child.end()

    assert len(children) == len(layouts)


@pytest.mark.parametrize("name", ["trunk", "branch"])
def test_a_killed_server_of_two_is_replaced(servers: Servers, name: str) -> None:
    """A child is forked whichever of both ended, and the other server goes on where it can."""
    trunk, branch = servers.get(["json"]), servers.get(["json", "csv"])
    branch.wait_until_ready()
    find_process(trunk if name == "trunk" else branch).kill()
    wait_until(lambda: not branch.alive)
    child = servers.fork(["json", "csv"])
    reply = child.ask({"op": "usage"}, 30)
    child.end()

    assert "peak_memory_bytes" in reply
    assert servers.get(["json", "csv"]) is not branch
    assert (servers.get(["json"]) is trunk) == (name == "branch")


def test_a_server_imports_nothing_that_calls_cuda(
    tmp_path: Path, driver_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Children forked after the first call of CUDA cannot use the GPU, so they import that module themselves."""
    (tmp_path / "calls_cuda.py").write_text("import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n")
    paths = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "LD_LIBRARY_PATH": str(driver_folder)}
    pool = Servers({**os.environ, **paths}, tmp_path / "scratch", WORLD)
    pool.folder.mkdir()
    try:
        child = pool.get(["json", "calls_cuda", "csv"]).fork(WORLD)
        libraries = Path(f"/proc/{child.pid}/maps").read_text()
        child.end()
    finally:
        pool.close()

    assert "libcuda.so.1" not in libraries


def test_an_error_within_a_child_is_its_answer(servers: Servers) -> None:
    """The child survives and answers further messages."""
    child = servers.get([]).fork(WORLD)
    reply = child.ask({"op": "turn", "calls": 1, "settle": 0}, 30)["failure"]

    assert ("failed", "RuntimeError: nothing is loaded in this child") == (reply["status"], reply["error"])
    assert "Traceback" in reply["detail"]
    assert "peak_memory_bytes" in child.ask({"op": "usage"}, 30)
    child.end()


def test_the_error_says_how_a_child_ended(servers: Servers) -> None:
    """The error of a killed child has the name of the signal."""
    child = servers.get([]).fork(WORLD)
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(ChildEndedError, match="SIGSEGV") as caught:
        child.ask({"op": "usage"}, 30)

    assert -signal.SIGSEGV == caught.value.code
    assert not caught.value.out_of_memory


def test_a_kill_for_lack_of_memory_is_recognised(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel counts those kills, and the count has risen."""
    counts = iter([3, 4])
    monkeypatch.setattr("ngbkit.device.isolation.servers.count_out_of_memory_kills", lambda: next(counts))
    child = servers.get([]).fork(WORLD)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildEndedError, match="SIGKILL") as caught:
        child.ask({"op": "usage"}, 30)

    assert caught.value.out_of_memory


def test_the_kernel_kills_a_child_first(servers: Servers) -> None:
    """The kernel ends the trial, not the engine or the notebook, when memory runs out."""
    child = servers.get([]).fork(WORLD)
    child.ask({"op": "usage"}, 30)
    score = Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip()
    child.end()

    assert "1000" == score


def test_children_end_with_their_server(servers: Servers) -> None:
    """The children of a server end when it is killed."""
    server = servers.get([])
    child = server.fork(WORLD)
    process = psutil.Process(child.pid)
    find_process(server).kill()
    ended, alive_processes = psutil.wait_procs([process])
    child.end()

    assert [process] == ended + [zombie for zombie in alive_processes if zombie.status() == psutil.STATUS_ZOMBIE]


def test_the_error_of_a_server_that_does_not_start_has_its_log(servers: Servers) -> None:
    """The error of a server that does not start has its name and its log."""
    servers.environment = {**os.environ, "PYTHONPATH": "", "PYTHONHOME": "/nowhere"}
    with pytest.raises(DeviceError, match=r"fork server of plain Python ended.*(encodings|Python path)"):
        servers.get([]).fork(WORLD)


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
def test_a_killed_server_is_replaced(servers: Servers, ready: bool) -> None:
    """The caller gets its child all the same."""
    server = servers.get(["json"])
    if ready:
        server.wait_until_ready()
    find_process(server).kill()
    child = servers.fork(["json"])
    reply = child.ask({"op": "usage"}, 30)
    child.end()

    assert "peak_memory_bytes" in reply
    assert servers.get(["json"]) is not server


def test_a_server_that_never_starts_is_given_up(servers: Servers, tmp_path: Path) -> None:
    """A server that fails to start twice is an error with its log, also one that mentions a limit."""
    source = "import os\nos.write(2, b'no such chip: Out of memory')\nos._exit(3)\n"
    add_module(servers, tmp_path / "fatal.py", source)
    with pytest.raises(ServerEndedError, match="the fork server of fatal ended: out of memory: ") as caught:
        servers.fork(["fatal"])

    assert str(caught.value).endswith(": no such chip: Out of memory")
    assert 2 == len(list(servers.folder.iterdir()))


def test_a_server_ends_with_its_engine_during_imports(servers: Servers, tmp_path: Path) -> None:
    """Imports of torch take a busy machine twenty seconds."""
    source = f"import time\nfrom pathlib import Path\nPath({str(tmp_path / 'began')!r}).touch()\ntime.sleep(600)\n"
    add_module(servers, tmp_path / "endless.py", source)
    server = servers.get(["endless"])
    wait_until((tmp_path / "began").exists)
    server._control.close()

    assert find_process(server).wait(limit_s()) != 0


def test_the_end_of_a_child_ends_what_it_started(servers: Servers, tmp_path: Path) -> None:
    """The end of a child ends all processes that it started, and no others."""
    add_module(servers, tmp_path / "starting.py", STARTING)
    children = [servers.fork(["starting"]) for _ in range(2)]
    started = [pid for child in children for pid in child.ask({"op": "start"}, limit_s())["pids"]]
    first, second = started[:3], started[3:]
    children[0].end()
    ended, living = [is_gone(pid) for pid in first], [is_gone(pid) for pid in second]
    servers.close()
    children[1].channel.close()

    assert [True] * 3 == ended
    assert [False] * 3 == living
    wait_until(lambda: all(map(is_gone, second)))


# A source of networks whose preparation starts three processes and writes their ids to a file.
STARTING = """
import os, subprocess, sys
from pathlib import Path
from ngbkit.device.isolation import child

def start(loaded, message):
    sleep = ["sleep", "600"]
    session = subprocess.Popen(sleep, start_new_session=True)
    bare = subprocess.Popen(sleep, start_new_session=True, env={"PATH": os.environ["PATH"]})
    code = "from subprocess import *; print(Popen(['sleep', '600'], start_new_session=True, stdout=DEVNULL).pid)"
    orphan = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    return {"pids": [session.pid, bare.pid, int(orphan.stdout)]}

child._OPERATIONS["start"] = start
"""


def test_folders_of_processes_that_ended_are_removed(tmp_path: Path) -> None:
    """A process that creates a folder removes those of ended processes."""
    code = "import sys; from pathlib import Path; from ngbkit import files; files.make_scratch(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    leftovers = list(tmp_path.iterdir())
    folder = files.make_scratch(tmp_path)

    assert 1 == len(leftovers)
    assert [folder] == list(tmp_path.iterdir())
    assert 0o700 == folder.stat().st_mode & 0o777


def test_each_interpreter_has_servers_of_its_own(servers: Servers, tmp_path: Path) -> None:
    """Each interpreter has its own servers, and the error of one that does not start has its path."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "path is ${PYTHONPATH-none}" >&2\nexit 3\n')
    program.chmod(0o755)
    servers.environment = {**servers.environment, "PYTHONPATH": "/of/this/process"}
    other = servers.get(["json"], str(program))

    assert other is not servers.get(["json"])
    with pytest.raises(ServerEndedError, match=r"the fork server of json of .*/python ended.*: path is none"):
        other.fork(WORLD)
    with pytest.raises(ServerEndedError, match=r"the interpreter /nowhere/python does not start: .*No such file"):
        servers.get(["json"], "/nowhere/python")
