"""What faults cost: sweeps of quick trials that are harmed at random moments, and what became of them, as a table.

    python tests/benchmarks/faults.py [--faults 200] [--seed 0] [--only KIND,…] [--state FILE.json]

A campaign is one run in a state folder of its own. Its client is a process of its own; another one resumes the run
whenever it has ended before the run has. At the end nothing may be lost, no finished record may have changed (it was
run twice then), no process and no file may be left, and nothing may have gone otherwise than it should (a client that
hangs, an error that does not say what it is). The exit status is 1 where one of these is so. With ``--state``, what has
been done is kept, and a second call goes on. It needs root, for a disk that can be filled, and an sshd.

A device whose journal was cut measures again what it has lost; what the client had by then must not change.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import faulty_harms as harms
import psutil
from faulty_site import Client, Records, Site, kill, make_network, make_peaks, read, small_disk, sshd

COMPILERS = ("identity", "onnxruntime", 'slow{"seconds":0.01}')
BATCH_SIZES = tuple(range(1, 11))
REPEATS = 5
MOST_AT_ONCE = 8
# A fault comes so long after the one before it, or after the client was seen to measure, and after so many more
# records: one in four comes at any moment, also while what was lost is started again.
WAIT_S = (0.1, 3.5)
MORE_DONE = (0, 3, 3, 3)
# A client that has told nothing for this long hangs.
HANGS_S = 240.0
MOST_EMPTY = 3


@dataclass
class Row:
    """What has come of one kind of fault."""

    faults: int = 0
    runs: int = 0
    resumes: int = 0
    lost: int = 0
    changed: int = 0
    processes: int = 0
    files: int = 0
    wrong: int = 0
    seconds: float = 0.0
    empty: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def bad(self) -> int:
        return self.lost + self.changed + self.processes + self.files + self.wrong


@dataclass
class Campaign:
    """One run and the faults that it meets."""

    kind: Kind
    site: Site
    row: Row
    target: int
    rng: random.Random
    far: psutil.Process | None
    injected: int = 0
    run: str = ""
    trials: Sequence[str] = ()
    _seen: dict[str, Records] = field(default_factory=lambda: {"client": {}, "device": {}})
    _changed: set[str] = field(default_factory=set)
    # What the device need not have any more as the client has it.
    excused: set[str] = field(default_factory=set)
    # Whether its journal is damaged, and nobody has had the occasion to repair it.
    torn: bool = False
    others: list[Client] = field(default_factory=list)
    _next_done: int = 0

    def carry_out(self) -> None:
        self._next_done = self.rng.choice(MORE_DONE)
        client = self.site.client("start", str(self.site.network), json.dumps(self._sweep()))
        for _ in range(5 + 3 * self.target):
            self._harm(client)
            self.run, self.trials = client.run or self.run, client.trials or self.trials
            self.look()
            self._check_end(client)
            if client.outcome.get("state") == "finished" or not self.run:
                break
            say(f"    resumes ({client.outcome.get('error', 'the client was killed')[:150]})")
            self.row.resumes += 1
            self.torn = False
            client = self.site.client("resume", self.run)
        else:
            self.wrong(f"the run {self.run} was not finished after as many clients as it was given")
        self._judge()
        self._clean_up()

    def _sweep(self) -> dict[str, object]:
        """What is measured: where memory runs out, once a batch size."""
        hungry = self.kind.inject is None
        return {
            "compilers": [*COMPILERS, *(["hungry"] if hungry else [])],
            "batch_sizes": BATCH_SIZES[: self.target] if hungry else BATCH_SIZES,
            "repeats": REPEATS,
            "devices": [self.site.label],
        }

    def _harm(self, client: Client) -> None:
        """Inject faults as long as that client lives and there are any left."""
        while not client.ended:
            wait_s = self.rng.uniform(*WAIT_S) if client.measuring else 0.05
            client.wait(wait_s)
            if time.monotonic() - client.told_at > HANGS_S:
                self.wrong(f"the client hung at {client.text!r}")
                kill(client.process)
                client.wait(10)
            due = client.measuring and client.done >= self._next_done and self.injected < self.target
            if due and not client.ended and self.kind.inject is not None:
                self.run, self.trials = client.run, client.trials
                self.look()
                moment = client.text
                if self.kind.inject(self, client):
                    self.injected += 1
                    self._next_done = client.done + self.rng.choice(MORE_DONE)
                    client.told_at = time.monotonic()
                    say(f"    {self.kind.name} {self.row.faults + self.injected}: {client.done} done, {moment}")

    def look(self) -> None:
        """Compare what the journals hold with what they held before."""
        for where, path in self.site.journals(self.run).items() if self.run else ():
            try:
                now = read(path)
            except sqlite3.DatabaseError as error:
                if not (self.torn and where == "device"):
                    self.wrong(f"the {where}'s journal cannot be read: {error}")
                continue
            before = self._seen[where]
            self._note_changed(where, [key for key, record in before.items() if now.get(key) != record])
            self._seen[where] = {**before, **now}

    def forget_device(self) -> None:
        """The device's journal is cut: it may have lost any record of its own."""
        self.torn = True
        self.excused |= set(self._seen["device"])
        self._seen["device"] = {}

    def wrong(self, text: str) -> None:
        self.row.wrong += 1
        self.note(text)

    def note(self, text: str) -> None:
        self.row.notes.append(f"{self.run}: {text}")
        say(f"    !! {text}")

    def _note_changed(self, where: str, keys: Sequence[str]) -> None:
        fresh = {f"{where} {key}" for key in keys} - self._changed
        self._changed |= fresh
        self.row.changed += len(fresh)
        for text in fresh:
            self.note(f"a record has changed: {text}")

    def _check_end(self, client: Client) -> None:
        """A client that was not killed says why it has ended, as one of ngbkit's errors, and ends in order."""
        code = client.process.returncode
        if code != -signal.SIGKILL and (code or not client.outcome):
            log = (self.site.folder / "client.log").read_text(errors="replace")
            self.wrong(f"the client ended with {code} and {client.outcome or 'no reason'}: {log[-1500:]}")

    def _judge(self) -> None:
        """Every trial has a record, the same with the client as with the device, and failures have a reason."""
        client, device = self._seen["client"], self._seen["device"]
        missing = [trial for trial in self.trials if trial not in client] if self.trials else ["all"]
        odd = [
            key for key, (_, crc) in device.items() if key not in self.excused and client.get(key, ("", -1))[1] != crc
        ]
        self._note_changed("client and device differ:", odd)
        failed = {key: status for key, (status, _) in client.items() if key in self.trials and status != "ok"}
        if self.kind.inject is None:
            self.injected = sum(status == "out-of-memory" for status in failed.values())
            missing += ["hungry"] * (self.target - self.injected)
        elif not self.kind.fails:
            # A trial whose engine was ended twice or more in the midst of it is given up, and recorded so.
            failed = {key: status for key, status in failed.items() if status != "crashed"}
        unexplained = len(failed) - (self.injected if self.kind.fails else 0)
        self.row.lost += len(missing) + max(0, unexplained)
        if missing or unexplained > 0:
            self.note(f"without a record: {missing}; failed: {failed}")

    def _clean_up(self) -> None:
        for other in self.others:
            if not other.wait(HANGS_S) or other.outcome.get("state") != "finished":
                self.wrong(f"the second client did not finish: {other.outcome}, {other.text}")
                kill(other.process)
        # What a far engine does not hear of a client that is gone it finds out in minutes, or at the next start.
        left = [] if self.kind.far else self.site.left_processes()
        for _ in range(2):
            touch = self.site.client("touch", self.site.label)
            touch.wait(HANGS_S)
            if touch.outcome.get("state") != "finished":
                self.wrong(f"the next start failed: {touch.outcome}")
            self._check_end(touch)
            left += self.site.left_processes()
            files = self.site.left_files()
            if not any(path.parent.name == "engines" and not (path / "about.json").exists() for path in files):
                break
            time.sleep(61)  # it may be another's that is just being made, so it is left alone for a minute
        self.row.processes += len(left)
        self.row.files += len(files)
        for text in left:
            self.note(f"left: {text[:200]}")
        for path in files:
            self.note(f"left: {path} with {sorted(inner.name for inner in path.rglob('*'))[:20]}")


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Parameters
    ----------
    name
        Its row in the table.
    share
        How many there are among 200 faults.
    inject
        Does the harm; whether there was something to be harmed. None: compilers in the sweep do it.
    far
        On a device behind ssh.
    fails
        Whether a trial may fail by it.
    """

    name: str
    share: int
    inject: Callable[[Campaign, Client], bool] | None
    far: bool = False
    fails: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind("child", 45, harms.harm_child, fails=True),
        Kind("engine", 40, harms.killer("ngbkit.device.engine")),
        Kind("nanny", 5, harms.killer("ipyparallel.engine.nanny")),
        Kind("controller", 25, harms.killer("ngbkit.cluster.controller")),
        Kind("client", 35, harms.harm_client),
        Kind("tunnel-ssh", 10, harms.harm_tunnel, far=True),
        Kind("tunnel-keeper", 10, harms.killer("ngbkit.cluster.tunnel"), far=True),
        Kind("link-down", 1, harms.harm_link, far=True),
        Kind("engine-stopped", 1, harms.harm_pace),
        Kind("out-of-memory", 5, None, fails=True),
        Kind("full-disk", 3, harms.harm_disk),
        Kind("torn-journal", 10, harms.harm_journal),
        Kind("two-clients", 10, harms.harm_by_another),
    )
}


def split(total: int, kinds: Sequence[Kind]) -> dict[str, int]:
    """So many faults, shared out among kinds; what is left over goes to the largest remainders."""
    whole = sum(kind.share for kind in kinds)
    exact = {kind.name: total * kind.share / whole for kind in kinds}
    found = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: found[name] - exact[name])[: total - sum(found.values())]:
        found[name] += 1
    return found


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def table(rows: dict[str, Row]) -> str:
    """The rows, and what they add up to."""
    names = ("faults", "runs", "resumes", "lost", "changed", "processes", "files", "wrong", "seconds")
    lines = [f"{'kind':<16s}" + "".join(f"{name:>10s}" for name in names)]
    numbers = {kind: [getattr(row, name) for name in names] for kind, row in rows.items()}
    numbers["total"] = [sum(column) for column in zip(*numbers.values(), strict=True)]
    lines += [f"{kind:<16s}" + "".join(f"{number:>10.0f}" for number in row) for kind, row in numbers.items()]
    return "\n".join(lines)


def campaign(kind: Kind, row: Row, target: int, seed: int, far: ExitStack, shared: Path) -> None:
    """Make a site, harm it, and add to the row what has come of it."""
    began = time.monotonic()
    ssh = shared / "ssh"
    with tempfile.TemporaryDirectory(prefix="campaign-", dir=shared) as folder, ExitStack() as stack:
        if kind.far and not ssh.exists():
            far.server = far.enter_context(sshd(ssh))  # type: ignore[attr-defined]
        if kind.name == "full-disk":
            stack.enter_context(small_disk(Path(folder, "state")))
        site = Site.make(Path(folder), shared / "mlp.onnx", shared / "peaks.json", ssh if kind.far else None)
        rng = random.Random(f"{seed} {kind.name} {row.faults}")
        one = Campaign(kind, site, row, target, rng, getattr(far, "server", None))
        try:
            one.carry_out()
        finally:
            for process in site.processes():
                kill(process)
    row.runs += 1
    row.faults += one.injected
    row.empty = 0 if one.injected else row.empty + 1
    row.seconds += time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS), metavar="KIND,…", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--state", type=Path, metavar="FILE.json", help="keep what has been done there, and go on")
    given = parser.parse_args()
    unknown = [name for name in given.only.split(",") if name not in KINDS]
    if unknown:
        parser.error(f"there is no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    wanted = split(given.faults, [KINDS[name] for name in given.only.split(",")])
    kept = json.loads(given.state.read_text()) if given.state and given.state.exists() else {}
    rows = {name: Row(**kept.get(name, {})) for name in wanted}
    with tempfile.TemporaryDirectory(prefix="ngbkit-faults-") as folder, ExitStack() as far:
        shared = Path(folder)
        make_network(shared / "mlp.onnx")
        make_peaks(shared)
        for name, number in wanted.items():
            row = rows[name]
            while row.faults < number and row.empty < MOST_EMPTY:
                say(f"{name}: {row.faults} of {number} faults")
                campaign(KINDS[name], row, min(MOST_AT_ONCE, number - row.faults), given.seed, far, shared)
                if given.state:
                    kept[name] = asdict(row)
                    given.state.write_text(json.dumps(kept, indent=1))
    print(table(rows))
    short = [name for name, number in wanted.items() if rows[name].faults < number]
    if short:
        print(f"fewer faults than wanted: {', '.join(short)}")
    sys.exit(1 if short or any(row.bad for row in rows.values()) else 0)


if __name__ == "__main__":
    main()
