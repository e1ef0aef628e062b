"""Programs run here or there over ssh, and what goes wrong on the way is told from what goes wrong there."""

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
from hosts import Host, network_namespace, sshd
from patience import wait_until
from watching import Processes

from ngbkit.cluster.shell import Shell, words
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
    """A machine that ssh reaches."""
    with sshd(tmp_path_factory.mktemp("host")) as started:
        yield started


@pytest.fixture(params=["here", "there"])
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The way to this machine, with another home folder, and to one that ssh reaches."""
    if request.param == "there":
        return Shell(host=request.getfixturevalue("host").alias)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Shell()


@pytest.fixture
def home(shell: Shell, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The home folder that the shell finds."""
    return request.getfixturevalue("host").home if shell.host else tmp_path


@pytest.fixture
def still_running(shell: Shell, request: pytest.FixtureRequest, processes: Processes) -> Processes:
    """Finds what the test has started, here and there."""
    there: Processes = request.getfixturevalue("host").processes if shell.host else lambda *words: []
    return lambda *words: [*processes(*words), *there(*words)]


@contextmanager
def written(path: Path, text: str) -> Iterator[None]:
    """Another text in a file, for a while."""
    before = path.read_text() if path.exists() else ""
    path.write_text(text)
    yield
    path.write_text(before)


def test_what_a_program_prints(shell: Shell) -> None:
    """All of it, and nothing of what it says beside."""
    assert "one\ntwo\n" == shell.run("echo one; echo beside >&2; echo two")


def test_bytes_that_are_no_text(shell: Shell) -> None:
    """They do not stop the rest from being read."""
    assert "a\ufffdb" == shell.run(r"printf 'a\377b'")


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_bytes_and_files_go_in(shell: Shell, tmp_path: Path, size: int) -> None:
    """Whole, as they are, whatever bytes there are."""
    content = os.urandom(size)
    file = tmp_path / "content"
    file.write_bytes(content)
    expected = f"{hashlib.sha256(content).hexdigest()}  -\n"

    assert expected == shell.run("sha256sum", given=content)
    assert expected == shell.run("sha256sum", given=file)


def test_nothing_goes_in_that_was_not_given(shell: Shell) -> None:
    """A program that reads on is not kept waiting, and one that does not read is not in the way."""
    assert "end\n" == shell.run("cat; echo end")
    assert "end\n" == shell.run("echo end", given=b"x" * 1_000_000)


def test_words_arrive_as_they_are(shell: Shell) -> None:
    """Quotes, line breaks, and what a shell would take for its own."""
    assert [*ODD, ""] == shell.run(words(["printf", r"%s\0", *ODD])).split("\0")


def test_a_program_in_the_home_folder(shell: Shell, home: Path) -> None:
    """It is found over there, whatever the folder is called."""
    program = home / "it's $odd" / "program"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$1"\n')
    program.chmod(0o755)

    assert "~/x\n" == shell.run(words(["~/it's $odd/program", "~/x"]))


def test_setup_comes_before_the_program(shell: Shell) -> None:
    """Lines of it, quotes and all."""
    prepared = Shell(host=shell.host, setup="A=\"it's\"  # a remark\nexport B='two words'")

    assert "it's two words\n" == prepared.run('sh -c \'echo "$1 $B"\' - "$A"')


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo much; echo why >&2; exit 3", "a program ended with 3: why"),
        ("echo why; exit 3", "a program ended with 3: why"),
        ("exit 3", "a program ended with 3: it said nothing"),
        ("no-such-program", "a program ended with 127: .*no-such-program.*not found"),
        ("exit 255", "a program ended with 25[45]: it said nothing"),
        ("echo 'Connection refused' >&2; exit 255", "a program ended with 25[45]: Connection refused"),
        ("kill -KILL $$", "a program ended with (-9|137)"),
        ("exec sh -c 'kill -SEGV $$'", "a program ended with (-11|139)"),
    ],
)
def test_how_a_program_failed(shell: Shell, program: str, said: str) -> None:
    """Its code and its last words; a link that works is not blamed."""
    with pytest.raises(DeviceError, match=f"^on {shell.where} {said}"):
        shell.run(program)


def test_the_last_of_many_words(shell: Shell) -> None:
    """Twenty lines."""
    with pytest.raises(DeviceError) as caught:
        shell.run("seq 1000 >&2; exit 1")

    assert [str(number) for number in range(982, 1001)] == str(caught.value).splitlines()[1:]


def test_a_program_that_does_not_end(shell: Shell, still_running: Processes) -> None:
    """It is waited for as long as was said, and nothing of it is left here or there."""
    with pytest.raises(DeviceError, match=f"^{shell.where} did not answer within 1 s"):
        shell.run("sleep 3600; true", timeout_s=1)

    wait_until(lambda: not still_running())


def test_an_interrupt_leaves_nothing(shell: Shell, still_running: Processes) -> None:
    """Here or there."""

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
    """A program that was started is spoken to through its pipes; a Ctrl-C at the terminal does not reach it."""
    with shell.start("exec cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        alone = os.getsid(process.pid) == process.pid

    assert (b"one\n", True, 0) == (answer, alone, process.returncode)


def test_nothing_of_this_machine_shows_there(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment nor the home folder."""
    monkeypatch.setenv("LC_SECRET", "x")
    monkeypatch.setenv("NGBKIT_SECRET", "x")
    there = Shell(host=host.alias).run("pwd; env")

    assert f"{host.home}\n" == there.splitlines(keepends=True)[0]
    assert "SECRET" not in there
    assert "NGBKIT_STATE_DIR" not in there


def test_a_shell_that_greets(host: Host) -> None:
    """What it prints comes first, and the answer last; so do the last words."""
    with written(host.home / ".bashrc", "echo Welcome; echo Mind the gap >&2"):
        printed = Shell(host=host.alias).run("echo answer")
        with pytest.raises(DeviceError, match=r"ended with 3: Mind the gap\nwhy$"):
            Shell(host=host.alias).run("echo why >&2; exit 3")

    assert "Welcome\nanswer\n" == printed


def test_a_name_that_means_nothing(host: Host) -> None:
    """The message says where names are given."""
    with pytest.raises(
        DeviceError, match=r"^nowhere\.invalid cannot be reached \(.*resolve.*\): give it a Host entry in"
    ):
        Shell(host="nowhere.invalid").run("true")


def test_a_name_that_is_an_option(host: Host, tmp_path: Path) -> None:
    """It is no option."""
    with pytest.raises(DeviceError, match=r"^-oProxyCommand"):
        Shell(host=f"-oProxyCommand=touch${{IFS}}{tmp_path}/mark").run(host.alias)

    assert [] == list(tmp_path.iterdir())


def test_a_server_that_is_not_there(host: Host) -> None:
    """The message says so."""
    host.stop()
    try:
        with pytest.raises(DeviceError, match=r"^far cannot be reached \(.*refused\): no ssh server listens there"):
            Shell(host=host.alias).run("true")
    finally:
        host.restart()

    assert "back\n" == Shell(host=host.alias).run("echo back")


def test_a_server_that_is_not_known(host: Host) -> None:
    """It is not trusted, nor is the user asked."""
    known = host.folder / "known_hosts"
    with (
        written(known, ""),
        pytest.raises(DeviceError, match=r"(?s)^far cannot be reached .*verification failed.*\(`ssh far`\)"),
    ):
        Shell(host=host.alias).run("true")


def test_a_server_with_another_key(host: Host) -> None:
    """It is not trusted either."""
    known = host.folder / "known_hosts"
    address, *_ = known.read_text().split()
    with (
        written(known, f"{address} {(host.folder / 'client_key.pub').read_text()}"),
        pytest.raises(DeviceError, match=r"(?s)^far cannot be reached .*HAS CHANGED.*\(`ssh far`\)"),
    ):
        Shell(host=host.alias).run("true")


def test_a_key_that_opens_nothing(host: Host) -> None:
    """No password is asked for, and the message says what must work."""
    with (
        written(host.folder / "authorized_keys", ""),
        pytest.raises(
            DeviceError, match=r"^far cannot be reached \(.*Permission denied.*\): .*`ssh -o BatchMode=yes far true`"
        ),
    ):
        Shell(host=host.alias).run("true")


def test_a_machine_without_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DeviceError, match="there is no ssh on this machine: install OpenSSH's client"):
        Shell(host="far").run("true")


def test_a_link_that_breaks(host: Host) -> None:
    """The message says that it is the link."""

    def cut() -> None:
        wait_until(lambda: host.processes("sleep 20"))
        host.kill_sessions()

    thread = threading.Thread(target=cut)
    thread.start()
    with pytest.raises(DeviceError, match=r"^far cannot be reached: .*closed"):
        Shell(host=host.alias).run("exec sleep 20")
    thread.join()
    for process in host.processes("sleep"):
        process.kill()


def test_a_link_that_fails_in_silence(tmp_path: Path) -> None:
    """Nobody waits for longer than was said, and it works again afterwards."""
    with network_namespace() as link, sshd(tmp_path / "host", namespace=link) as host:
        there = Shell(host=host.alias)
        link.down()
        with pytest.raises(DeviceError, match=r"^far did not answer within 1 s"):
            there.run("true", timeout_s=1)
        link.up()

        assert f"{link.here} {link.there}\n" == there.run("set -- $SSH_CONNECTION; echo $1 $3")
