"""Remote machines, simulated on this one: real ssh servers, and separate networks."""

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

# Found once: later the first one on PATH may be a host's.
_SSH = shutil.which("ssh", path=SYSTEM_PATH)
# It has its own home folder, which a login does not enter by itself.
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
# Each wire has only two ends, so all wires share these.
_LOCAL_MAC, _REMOTE_MAC, _UNUSED_MAC = (f"02:00:00:00:00:0{number}" for number in (1, 2, 3))


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A separate network at the end of one wire."""

    # The addresses of its ends.
    local: str
    remote: str
    # The name of the local end; the other is ``wire``.
    wire: str
    # The process that keeps the network alive.
    holder: int

    @property
    def enter(self) -> list[str]:
        """The prefix of a command that runs in the network."""
        return [require_program(PROGRAMS["nsenter"]), f"--net=/proc/{self.holder}/ns/net", "--"]

    def down(self) -> None:
        """Drop all packets in silence, like a fault in the middle of a link."""
        # A disconnected wire alerts both ends at once, and not every kernel has netem: so packets go to no machine.
        self._set_macs(_UNUSED_MAC, _UNUSED_MAC)

    def up(self) -> None:
        """Deliver packets again."""
        self._set_macs(_LOCAL_MAC, _REMOTE_MAC)

    def _set_macs(self, local: str, remote: str) -> None:
        _run_ip("neighbour", "replace", self.remote, "lladdr", remote, "dev", self.wire, "nud", "permanent")
        _run_ip("neighbour", "replace", self.local, "lladdr", local, "dev", "wire", "nud", "permanent", within=self)


@contextmanager
def create_network(name: str = "far") -> Iterator[Link]:
    """Create a network with its own address and loopback; it needs root, and the ``ip`` of iproute2.

    The name of the wire in ``ip link`` begins with `name`.
    """
    # Not a named one, which would outlive a killed pytest.
    program = [require_program(PROGRAMS["unshare"]), "--net", "--", "sh", "-c", "echo made; exec sleep infinity"]
    with ExitStack() as undo:
        holder = undo.enter_context(_start(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        undo.callback(holder.kill)
        assert holder.stdout is not None
        if holder.stdout.readline() != b"made\n":
            skip(ROOT)
        local, remote = _find_free_addresses()
        link = Link(local=local, remote=remote, wire=f"{name[:6]}-{secrets.token_hex(4)}", holder=holder.pid)
        ends = ["address", _LOCAL_MAC, "type", "veth", "peer", "name", "wire", "address", _REMOTE_MAC]
        _run_ip("link", "add", link.wire, *ends, "netns", str(holder.pid))
        undo.callback(_run_ip, "link", "delete", link.wire)
        for address, wire, side in ((local, link.wire, None), (remote, "wire", link)):
            _run_ip("address", "add", f"{address}/30", "dev", wire, within=side)
            _run_ip("link", "set", wire, "up", within=side)
        _run_ip("link", "set", "lo", "up", within=link)
        link.up()
        yield link


@dataclass(slots=True, kw_only=True)
class Host:
    """A machine behind ssh."""

    # Its name for ssh.
    alias: str
    # The folder of its files: the keys, ``authorized_keys``, ``known_hosts``, and those below.
    folder: Path
    # The address, the port and the network of its server; None is this machine's network.
    address: str
    port: int
    link: Link | None = None
    _server: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def config(self) -> Path:
        """Its configuration for the client's ssh; tests may extend it."""
        return self.folder / "ssh_config"

    @property
    def log(self) -> Path:
        """The log of its server."""
        return self.folder / "sshd.log"

    @property
    def home(self) -> Path:
        """Its home folder, empty at first, with ``tmp`` for temporary files."""
        return self.folder / "home"

    def list_files(self) -> list[str]:
        """List the files in the home folder."""
        paths = (path for path in self.home.rglob("*") if path.is_symlink() or not path.is_dir())
        return sorted(str(path.relative_to(self.home)) for path in paths)

    def find_processes(self, *words: str) -> list[psutil.Process]:
        """Find its processes with all words in their command line, except the server and its sessions."""
        processes = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                is_remote = process.environ().get("HOME") == str(self.home) and _is_running(process)
                if is_remote and all(word in " ".join(process.cmdline()) for word in words):
                    processes.append(process)
        return processes

    def find_sessions(self) -> list[psutil.Process]:
        """Find the server's processes, one or two per connection."""
        if self._server is None or self._server.poll() is not None:
            return []
        # Since OpenSSH 9.8 they are called sshd-session.
        children = psutil.Process(self._server.pid).children(recursive=True)
        return [process for process in children if process.name().startswith("sshd")]

    def kill_sessions(self) -> None:
        """Cut every connection; remote programs survive, as they do when a link breaks."""
        _kill(self.find_sessions())

    def stop(self) -> None:
        """End the server and every connection."""
        sessions = self.find_sessions()
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
            self._server = None
        _kill(sessions)

    def restart(self) -> None:
        """Restart the server on the same port with the same keys; cut every connection."""
        self.stop()
        self._start()

    def _start(self) -> None:
        program = [require_program(PROGRAMS["sshd"]), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with open(self.log, "ab") as log:
            self._server = _start([*(self.link.enter if self.link else []), *program], stdout=log, stderr=log)
        wait_until(lambda: self._server is None or self._server.poll() is not None or self._is_listening())
        if self._server.poll() is not None:
            raise RuntimeError(f"sshd does not listen; its log:\n{self.log.read_text()}")

    def _is_listening(self) -> bool:
        with suppress(OSError), socket.create_connection((self.address, self.port), timeout=1):
            return True
        return False


@contextmanager
def start_host(
    folder: Path,
    *,
    alias: str = "far",
    address: str = "127.0.0.1",
    namespace: Link | None = None,
    python: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Host]:
    """Start a machine for ``ssh ALIAS`` in this process and its children, with its own home folder.

    Its server listens at an address of this machine, or on a network (`namespace`). Its programs have none of this
    process's environment, but `python` as ``python3`` and the variables of `environment`; they end with the block.
    """
    for tool in ("ssh", "sshd"):
        require_program(PROGRAMS[tool])
    for name in ("home/tmp", "bin", "bin-there"):
        (folder / name).mkdir(parents=True)
    if os.geteuid() == 0:
        # Normally the system creates it at boot.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    if namespace is None:
        port = _find_free_port(address)
    else:
        address, port = namespace.remote, 22
    host = Host(alias=alias, folder=folder, address=address, port=port, link=namespace)
    _write_keys(host)
    variables = {"HOME": str(host.home), "TMPDIR": str(host.home / "tmp"), **(environment or {})}
    if python is not None:
        # A link would hide the virtual environment of the Python.
        _write_program(folder / "bin-there" / "python3", str(python))
        variables["PATH"] = f"{folder}/bin-there:/usr/local/bin:/usr/bin:/bin"
    fields = {"alias": alias, "folder": folder, "address": address, "port": port}
    settings = " ".join(f'"{name}={value}"' for name, value in variables.items())
    (folder / "sshd_config").write_text(_SERVER.format(**fields, variables=settings))
    host.config.write_text(_CLIENT.format(**fields, user=pwd.getpwuid(os.getuid()).pw_name))
    _write_program(folder / "bin" / "ssh", f"{_SSH} -F {host.config}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        try:
            host._start()
            _log_in(host)
            yield host
        finally:
            host.stop()
            _kill(host.find_processes())


def _start(program: Sequence[str], **pipes: object) -> subprocess.Popen[bytes]:
    """Start a program that ends with this process, however that ends, but not by Ctrl-C at the terminal."""
    words = [require_program(PROGRAMS["setpriv"]), "--pdeathsig", "KILL", "--", *program]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    while any(map(_is_running, processes)):  # their new parent collects the zombies
        time.sleep(0.01)


def _is_running(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _run_ip(*words: str, within: Link | None = None) -> str:
    return run([*(within.enter if within else []), require_program(PROGRAMS["ip"]), *words])


def _find_free_addresses() -> tuple[str, str]:
    """Find two neighbouring addresses without a route, while other tests use this machine too."""
    while True:
        net = f"10.{100 + secrets.randbelow(150)}.{secrets.randbelow(256)}"
        routes = json.loads(_run_ip("-json", "route", "show", "match", f"{net}.2"))
        if all(route["dst"] == "default" for route in routes):
            return f"{net}.1", f"{net}.2"


def _find_free_port(address: str) -> int:
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
    """Log in once, so that a fault of the host does not look like one of the tested code."""
    try:
        run(["ssh", "-n", "-o", "BatchMode=yes", host.alias, "true"])
    except RuntimeError as error:
        raise RuntimeError(f"{error}\nThe server's log:\n{host.log.read_text()}") from None
