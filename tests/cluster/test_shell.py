"""Programs on this machine or over ssh; errors tell a broken link from a failed program."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hosts import Host, create_network, start_host
from patience import wait_until
from watching import Processes

from ngbkit.cluster.shell import Shell, join_words
from ngbkit.errors import DeviceError

ODD = [
    "",
    "two words",
    "it's",
    '"',
    "$HOME `id` $(id)",
    "a\nb",
    "back\\slash\\\\",
    "*",
    "-n",
    "~/x",
    "!!",
    "#",
    "ñ×",
    "a=b;&|",
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A machine behind ssh."""
    with start_host(tmp_path_factory.mktemp("host")) as started:
        yield started


@pytest.fixture(params=["local", "remote"])
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The shell of this machine, with another home folder, and of one behind ssh."""
    if request.param == "remote":
        return Shell(host=request.getfixturevalue("host").alias)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Shell()


@pytest.fixture
def home(shell: Shell, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The home folder of the shell."""
    return request.getfixturevalue("host").home if shell.host else tmp_path


@pytest.fixture
def still_running(shell: Shell, request: pytest.FixtureRequest, processes: Processes) -> Processes:
    """Finds the processes of the test, on both machines."""
    remote: Processes = request.getfixturevalue("host").find_processes if shell.host else lambda *words: []
    return lambda *words: [*processes(*words), *remote(*words)]


@contextmanager
def replace_text(path: Path, text: str) -> Iterator[None]:
    """Replace the text of a file for the block."""
    previous = path.read_text() if path.exists() else ""
    path.write_text(text)
    yield
    path.write_text(previous)


def test_the_output_of_a_program(shell: Shell) -> None:
    """The shell returns the output of a program without its errors."""
    assert "one\ntwo\n" == shell.run("echo one; echo beside >&2; echo two")


def test_bytes_that_are_not_utf8(shell: Shell) -> None:
    """The shell replaces bytes that are not UTF-8 and reads the rest."""
    assert "a\ufffdb" == shell.run(r"printf 'a\377b'")


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_input_of_any_size(shell: Shell, size: int) -> None:
    """The input of a program arrives complete and unchanged."""
    content = os.urandom(size)

    assert f"{hashlib.sha256(content).hexdigest()}  -\n" == shell.run("sha256sum", stdin=content)


def test_empty_and_unread_input(shell: Shell) -> None:
    """Neither a reader of an empty input nor a program without a reader blocks."""
    assert "end\n" == shell.run("cat; echo end")
    assert "end\n" == shell.run("echo end", stdin=b"x" * 1_000_000)


def test_words_arrive_unchanged(shell: Shell) -> None:
    """Quotes, line breaks and special characters reach a program unchanged."""
    assert [*ODD, ""] == shell.run(join_words(["printf", r"%s\0", *ODD])).split("\0")


def test_a_program_in_the_home_folder(shell: Shell, home: Path) -> None:
    """The shell executes a program in a folder of any name below the home folder."""
    program = home / "it's $odd" / "program"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$1"\n')
    program.chmod(0o755)

    assert "~/x\n" == shell.run(join_words(["~/it's $odd/program", "~/x"]))


def test_setup_precedes_the_program(shell: Shell) -> None:
    """The shell executes several lines of setup before the program."""
    prepared = Shell(host=shell.host, setup="A=\"it's\"  # a remark\nexport B='two words'")

    assert "it's two words\n" == prepared.run('sh -c \'echo "$1 $B"\' - "$A"')


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("echo much; echo why >&2; exit 3", "ended with 3: why"),
        ("echo why; exit 3", "ended with 3: why"),
        ("exit 3", "ended with 3: no output"),
        ("no-such-program", "ended with 127: .*no-such-program.*not found"),
        ("exit 255", "ended with 25[45]: no output"),
        ("echo 'Connection refused' >&2; exit 255", "ended with 25[45]: Connection refused"),
        ("kill -KILL $$", "ended with (-9|137)"),
        ("exec sh -c 'kill -SEGV $$'", "ended with (-11|139)"),
    ],
)
def test_a_failed_program(shell: Shell, program: str, message: str) -> None:
    """The error has its code and its last lines, and does not blame the link."""
    with pytest.raises(DeviceError, match=f"^a program on {shell.machine} {message}"):
        shell.run(program)


def test_the_last_lines_of_a_long_output(shell: Shell) -> None:
    """The error of a failed program has the last lines of its output."""
    with pytest.raises(DeviceError) as caught:
        shell.run("seq 1000 >&2; exit 1")

    assert [str(number) for number in range(982, 1001)] == str(caught.value).splitlines()[1:]


def test_a_program_without_an_end(shell: Shell, still_running: Processes) -> None:
    """A program is killed on both machines after the timeout."""
    with pytest.raises(DeviceError, match=f"^{shell.machine} did not answer within 1 s"):
        shell.run("sleep 3600; true", timeout_s=1)

    wait_until(lambda: not still_running())


def test_an_interrupt_kills_the_program(shell: Shell, still_running: Processes) -> None:
    """An interrupt kills the program on both machines."""

    def interrupt() -> None:
        wait_until(lambda: [process for process in still_running("sleep 3600") if process.name() == "sleep"])
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        shell.run("sleep 3600; true")
    thread.join()

    wait_until(lambda: not still_running())


def test_a_conversation(shell: Shell) -> None:
    """A started program has pipes; a Ctrl-C at the terminal does not reach it."""
    with shell.start("exec cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        is_leader = os.getsid(process.pid) == process.pid

    assert (b"one\n", True, 0) == (answer, is_leader, process.returncode)


def test_a_remote_program_has_no_local_environment(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A remote program has neither the local environment nor the local home folder."""
    monkeypatch.setenv("LC_SECRET", "x")
    monkeypatch.setenv("NGBKIT_SECRET", "x")
    output = Shell(host=host.alias).run("pwd; env")

    assert f"{host.home}\n" == output.splitlines(keepends=True)[0]
    assert "SECRET" not in output
    assert "NGBKIT_STATE_DIR" not in output


def test_a_shell_with_a_greeting(host: Host) -> None:
    """The greeting precedes the answer, and the errors."""
    with replace_text(host.home / ".bashrc", "echo Welcome; echo Mind the gap >&2"):
        printed = Shell(host=host.alias).run("echo answer")
        with pytest.raises(DeviceError, match=r"ended with 3: Mind the gap\nwhy$"):
            Shell(host=host.alias).run("echo why >&2; exit 3")

    assert "Welcome\nanswer\n" == printed


def test_an_unknown_host(host: Host) -> None:
    """The error names the file of host names."""
    with pytest.raises(DeviceError, match=r"^cannot reach nowhere\.invalid \(.*resolve.*\): give it a Host entry in"):
        Shell(host="nowhere.invalid").run("true")


def test_a_host_like_an_option(host: Host, tmp_path: Path) -> None:
    """ssh does not parse it as one."""
    with pytest.raises(DeviceError, match=r"^cannot reach -oProxyCommand"):
        Shell(host=f"-oProxyCommand=touch${{IFS}}{tmp_path}/mark").run(host.alias)

    assert [] == list(tmp_path.iterdir())


def test_a_stopped_server(host: Host) -> None:
    """The error suggests to start one."""
    host.stop()
    try:
        with pytest.raises(DeviceError, match=r"^cannot reach far \(.*refused\): no ssh server listens there"):
            Shell(host=host.alias).run("true")
    finally:
        host.restart()

    assert "back\n" == Shell(host=host.alias).run("echo back")


def test_a_server_with_an_unknown_key(host: Host) -> None:
    """A server with an unknown key is not trusted, and no prompt asks the user."""
    known_hosts = host.folder / "known_hosts"
    with (
        replace_text(known_hosts, ""),
        pytest.raises(DeviceError, match=r"(?s)^cannot reach far .*verification failed.*\(`ssh far`\)"),
    ):
        Shell(host=host.alias).run("true")


def test_a_server_with_another_key(host: Host) -> None:
    """A server with another key than the known one is not trusted."""
    known_hosts = host.folder / "known_hosts"
    address, *_ = known_hosts.read_text().split()
    with (
        replace_text(known_hosts, f"{address} {(host.folder / 'client_key.pub').read_text()}"),
        pytest.raises(DeviceError, match=r"(?s)^cannot reach far .*HAS CHANGED.*\(`ssh far`\)"),
    ):
        Shell(host=host.alias).run("true")


def test_a_refused_key(host: Host) -> None:
    """No prompt asks for a password, and the error has a command to try."""
    with (
        replace_text(host.folder / "authorized_keys", ""),
        pytest.raises(
            DeviceError, match=r"^cannot reach far \(.*Permission denied.*\): .*`ssh -o BatchMode=yes far true`"
        ),
    ):
        Shell(host=host.alias).run("true")


def test_a_machine_without_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error has a remedy."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DeviceError, match="no ssh on this machine: install OpenSSH's client"):
        Shell(host="far").run("true")


def test_a_broken_link(host: Host) -> None:
    """The error blames the link."""

    def cut() -> None:
        wait_until(lambda: host.find_processes("sleep 20"))
        host.kill_sessions()

    thread = threading.Thread(target=cut)
    thread.start()
    with pytest.raises(DeviceError, match=r"^cannot reach far: .*closed"):
        Shell(host=host.alias).run("exec sleep 20")
    thread.join()
    for process in host.find_processes("sleep"):
        process.kill()


def test_a_silent_link(tmp_path: Path) -> None:
    """The timeout applies, and later programs run."""
    with create_network() as link, start_host(tmp_path / "host", namespace=link) as host:
        shell = Shell(host=host.alias)
        link.down()
        with pytest.raises(DeviceError, match=r"^far did not answer within 1 s"):
            shell.run("true", timeout_s=1)
        link.up()

        assert f"{link.local} {link.remote}\n" == shell.run("set -- $SSH_CONNECTION; echo $1 $3")
