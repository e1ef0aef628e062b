"""Machines that are far away, on this one: real ssh servers, and networks of their own."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from patience import wait_until
from requirements import PROGRAMS, ROOT, SYSTEM_PATH, require_program, run, skip

# Found once: later on, the one that is first on PATH may be a host's.
_SSH = shutil.which("ssh", path=SYSTEM_PATH)
# A home folder of its own, which a login is not in by itself.
_SERVER = """\
ListenAddress {address}
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
LogLevel VERBOSE
UsePAM no
UseDNS no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding yes
MaxStartups 100
SetEnv {variables}
ForceCommand cd && eval "$SSH_ORIGINAL_COMMAND"
"""
_CLIENT = """\
{include}
Host {alias}
    HostName {address}
    Port {port}
    User {user}
    IdentityFile {folder}/client_key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    UpdateHostKeys no
"""
# Each wire has two ends and no others, so that all wires may share these.
_HERE, _THERE, _NOBODY = (f"02:00:00:00:00:0{number}" for number in (1, 2, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A network that one wire leads to.

    Parameters
    ----------
    here, there
        The addresses of its ends.
    wire, holder
        What the end here is called (the other is ``wire``), and the process that the network lives by.
    """

    here: str
    there: str
    wire: str
    holder: int

    @property
    def enter(self) -> list[str]:
        """The words before a program that is to run over there."""
        return [require_program(PROGRAMS["nsenter"]), f"--net=/proc/{self.holder}/ns/net", "--"]

    def down(self) -> None:
        """Lose all that is sent, in silence, as a link does that fails somewhere on the way."""
        # A wire that is pulled out tells either end at once, and netem is not in every kernel: so all goes to nobody.
        self._address(_NOBODY, _NOBODY)

    def up(self) -> None:
        """Lose nothing any more."""
        self._address(_HERE, _THERE)

    def _address(self, here: str, there: str) -> None:
        _ip("neighbour", "replace", self.there, "lladdr", there, "dev", self.wire, "nud", "permanent")
        _ip("neighbour", "replace", self.here, "lladdr", here, "dev", "wire", "nud", "permanent", within=self)


@contextmanager
def network_namespace(name: str = "far") -> Iterator[Link]:
    """A network of its own, with an address and a loopback of its own; it needs root, and the ``ip`` of iproute2.

    The wire's name begins with `name`, for whoever looks at ``ip link``.
    """
    # Not a named one, which would outlive a pytest that is killed.
    program = [require_program(PROGRAMS["unshare"]), "--net", "--", "sh", "-c", "echo made; exec sleep infinity"]
    with ExitStack() as undo:
        holder = undo.enter_context(_start(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        undo.callback(holder.kill)
        assert holder.stdout is not None
        said = holder.stdout.readline().decode()
        if said != "made\n":
            skip(ROOT)
        here, there = _free_addresses()
        link = Link(here=here, there=there, wire=f"{name[:6]}-{secrets.token_hex(4)}", holder=holder.pid)
        ends = ["address", _HERE, "type", "veth", "peer", "name", "wire", "address", _THERE]
        _ip("link", "add", link.wire, *ends, "netns", str(holder.pid))
        undo.callback(_ip, "link", "delete", link.wire)
        for address, wire, side in ((here, link.wire, None), (there, "wire", link)):
            _ip("address", "add", f"{address}/30", "dev", wire, within=side)
            _ip("link", "set", wire, "up", within=side)
        _ip("link", "set", "lo", "up", within=link)
        link.up()
        yield link


@dataclass(slots=True, kw_only=True)
class Host:
    """A machine that ssh reaches.

    Parameters
    ----------
    alias
        What ssh calls it.
    folder
        Where its files are: the keys, ``authorized_keys``, ``known_hosts``, and those below.
    address, port, link
        Where its server listens, and on which network; None is this machine's.
    """

    alias: str
    folder: Path
    address: str
    port: int
    link: Link | None = None
    _server: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def config(self) -> Path:
        """What the client's ssh knows about it; may be added to."""
        return self.folder / "ssh_config"

    @property
    def log(self) -> Path:
        """What its server says."""
        return self.folder / "sshd.log"

    @property
    def home(self) -> Path:
        """The home folder over there, empty at first; its ``tmp`` is where temporary files go."""
        return self.folder / "home"

    def files(self) -> list[str]:
        """What lies in the home folder, without the folders."""
        found = (path for path in self.home.rglob("*") if path.is_symlink() or not path.is_dir())
        return sorted(str(path.relative_to(self.home)) for path in found)

    def processes(self, *words: str) -> list[psutil.Process]:
        """What runs over there, of that what has all words in its command line; not the server and its sessions."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                there = process.environ().get("HOME") == str(self.home) and _lives(process)
                if there and all(word in " ".join(process.cmdline()) for word in words):
                    found.append(process)
        return found

    def sessions(self) -> list[psutil.Process]:
        """The server's own processes, one or two a connection."""
        if self._server is None or self._server.poll() is not None:
            return []
        # Since OpenSSH 9.8 they are called sshd-session.
        below = psutil.Process(self._server.pid).children(recursive=True)
        return [process for process in below if process.name().startswith("sshd")]

    def kill_sessions(self) -> None:
        """Cut every connection; programs that run over there are left, as they are when a link breaks."""
        _kill(self.sessions())

    def stop(self) -> None:
        """End the server and every connection."""
        sessions = self.sessions()
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
            self._server = None
        _kill(sessions)

    def restart(self) -> None:
        """End the server and every connection, and start it anew: the same port, the same keys."""
        self.stop()
        self._start()

    def _start(self) -> None:
        program = [require_program(PROGRAMS["sshd"]), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with open(self.log, "ab") as log:
            self._server = _start([*(self.link.enter if self.link else []), *program], stdout=log, stderr=log)
        wait_until(lambda: self._server is None or self._server.poll() is not None or self._listens())
        if self._server.poll() is not None:
            raise RuntimeError(f"sshd does not listen; it says:\n{self.log.read_text()}")

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection((self.address, self.port), timeout=1):
            return True
        return False


@contextmanager
def sshd(
    folder: Path,
    *,
    alias: str = "far",
    address: str = "127.0.0.1",
    namespace: Link | None = None,
    python: Path | None = None,
    environment: Mapping[str, str] | None = None,
    beside: Host | None = None,
) -> Iterator[Host]:
    """A machine that ``ssh ALIAS`` reaches, in this process and in those that it starts, with a home folder of its own.

    Nothing of this process's environment shows over there. At the end all that runs over there is ended.

    Parameters
    ----------
    folder, alias
        Where it keeps its files, and what ssh is to call it.
    address, namespace
        Where the server listens: at an address of this machine, or on a network of its own.
    python
        What ``python3`` is over there. None: what the system has.
    environment
        More variables of the programs over there, such as those that pip needs.
    beside
        Another host that ssh is to know too.
    """
    for tool in ("ssh", "sshd"):
        require_program(PROGRAMS[tool])
    for name in ("home/tmp", "bin", "bin-there"):
        (folder / name).mkdir(parents=True)
    if os.geteuid() == 0:
        # The system's own server has it made at boot, and may never have been started.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    where, port = (address, _free_port(address)) if namespace is None else (namespace.there, 22)
    host = Host(alias=alias, folder=folder, address=where, port=port, link=namespace)
    _write_keys(host)
    variables = {"HOME": str(host.home), "TMPDIR": str(host.home / "tmp"), **(environment or {})}
    if python is not None:
        # A link would hide the virtual environment that a Python belongs to.
        _write_program(folder / "bin-there" / "python3", str(python))
        variables["PATH"] = f"{folder}/bin-there:/usr/local/bin:/usr/bin:/bin"
    about = {"alias": alias, "folder": folder, "address": where, "port": port}
    settings = " ".join(f'"{name}={value}"' for name, value in variables.items())
    (folder / "sshd_config").write_text(_SERVER.format(**about, variables=settings))
    about |= {"user": pwd.getpwuid(os.getuid()).pw_name, "include": f"Include {beside.config}" if beside else ""}
    host.config.write_text(_CLIENT.format(**about))
    _write_program(folder / "bin" / "ssh", f"{_SSH} -F {host.config}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        try:
            host._start()
            _log_in(host)
            yield host
        finally:
            host.stop()
            _kill(host.processes())


def _start(program: Sequence[str], **pipes: object) -> subprocess.Popen[bytes]:
    """Start a program that the kernel ends with this process, however that ends; Ctrl-C at the terminal does not."""
    words = [require_program(PROGRAMS["setpriv"]), "--pdeathsig", "KILL", "--", *program]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    while any(map(_lives, processes)):  # which dead ones wait to be taken note of is their new parent's affair
        time.sleep(0.01)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _ip(*words: str, within: Link | None = None) -> str:
    return run([*(within.enter if within else []), require_program(PROGRAMS["ip"]), *words])


def _free_addresses() -> tuple[str, str]:
    """Two neighbours that no network is known for, whatever else is tested on this machine at the same time."""
    while True:
        net = f"10.{100 + secrets.randbelow(150)}.{secrets.randbelow(256)}"
        routes = json.loads(_ip("-json", "route", "show", "match", f"{net}.2"))
        if all(route["dst"] == "default" for route in routes):
            return f"{net}.1", f"{net}.2"


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as probe:
        return int(probe.getsockname()[1])


def _write_keys(host: Host) -> None:
    for name in ("host_key", "client_key"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(host.folder / name)])
    shutil.copy(host.folder / "client_key.pub", host.folder / "authorized_keys")
    key = (host.folder / "host_key.pub").read_text()
    name = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
    (host.folder / "known_hosts").write_text(f"{name} {key}")


def _write_program(path: Path, words: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    path.chmod(0o755)


def _log_in(host: Host) -> None:
    """What is wrong with the host is not to look like a fault of what is tested."""
    try:
        run(["ssh", "-n", "-o", "BatchMode=yes", host.alias, "true"])
    except RuntimeError as error:
        raise RuntimeError(f"{error}\nThe server says:\n{host.log.read_text()}") from None
