"""Injects faults into sweeps of quick trials at random moments, and tabulates the damage.

    python bench/faults.py [--faults 200] [--seed 0] [--only KIND,…] [--state FILE.json]

A campaign is one run in a state folder of its own. Its client is a separate process; whenever it ends before the run,
another client resumes the run. In the end no record may be lost, no finished record changed (its trial ran twice), no
process or file left behind, and no client may hang or end with an unclear error. The exit status is 1 if any of these
failed. With ``--state``, progress is saved, and a second call resumes. It needs root, to fill a disk, and an sshd.

A device with a truncated journal measures the lost records again; records that the client had must not change.
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
from faulty_site import (
    Client,
    Records,
    Site,
    kill,
    make_network,
    make_peaks,
    mount_small_disk,
    read_records,
    start_sshd,
)

COMPILERS = ("identity", "onnxruntime", 'slow{"seconds":0.01}')
BATCH_SIZES = tuple(range(1, 11))
REPEATS = 5
MOST_AT_ONCE = 8
# The pause after the previous fault or after the start of measuring, and the number of further records: one fault in
# four is injected at any moment, also while lost processes restart.
WAIT_S = (0.1, 3.5)
MORE_DONE = (0, 3, 3, 3)
# A client without a message for this long hangs.
HANGS_S = 240.0
MOST_EMPTY = 3


@dataclass
class Row:
    """The results of one kind of fault."""

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
    """One run and its faults."""

    kind: Kind
    site: Site
    row: Row
    target: int
    rng: random.Random
    far: psutil.Process | None
    injected: int = 0
    run: str = ""
    trials: Sequence[str] = ()
    _records: dict[str, Records] = field(default_factory=lambda: {"client": {}, "device": {}})
    _changed: set[str] = field(default_factory=set)
    # Records that the device may lack or have changed.
    excused: set[str] = field(default_factory=set)
    # Whether its journal is damaged and not yet repaired.
    torn: bool = False
    others: list[Client] = field(default_factory=list)
    _next_done: int = 0

    def carry_out(self) -> None:
        self._next_done = self.rng.choice(MORE_DONE)
        client = self.site.start_client("start", str(self.site.network), json.dumps(self._sweep()))
        for _ in range(5 + 3 * self.target):
            self._inject(client)
            self.run, self.trials = client.run or self.run, client.trials or self.trials
            self.check_journals()
            self._check_end(client)
            if client.outcome.get("state") == "finished" or not self.run:
                break
            log(f"    resumes ({client.outcome.get('error', 'the client was killed')[:150]})")
            self.row.resumes += 1
            self.torn = False
            client = self.site.start_client("resume", self.run)
        else:
            self.report_wrong(f"the run {self.run} did not finish with the allowed number of clients")
        self._judge()
        self._clean_up()

    def _sweep(self) -> dict[str, object]:
        """The arguments of the sweep: one trial per batch size if memory runs out."""
        hungry = self.kind.inject is None
        return {
            "compilers": [*COMPILERS, *(["hungry"] if hungry else [])],
            "batch_sizes": BATCH_SIZES[: self.target] if hungry else BATCH_SIZES,
            "repeats": REPEATS,
            "devices": [self.site.label],
        }

    def _inject(self, client: Client) -> None:
        """Inject the remaining faults while that client lives."""
        while not client.ended:
            wait_s = self.rng.uniform(*WAIT_S) if client.measuring else 0.05
            client.wait(wait_s)
            if time.monotonic() - client.reported_at > HANGS_S:
                self.report_wrong(f"the client hung at {client.text!r}")
                kill(client.process)
                client.wait(10)
            due = client.measuring and client.done >= self._next_done and self.injected < self.target
            if due and not client.ended and self.kind.inject is not None:
                self.run, self.trials = client.run, client.trials
                self.check_journals()
                moment = client.text
                if self.kind.inject(self, client):
                    self.injected += 1
                    self._next_done = client.done + self.rng.choice(MORE_DONE)
                    client.reported_at = time.monotonic()
                    log(f"    {self.kind.name} {self.row.faults + self.injected}: {client.done} done, {moment}")

    def check_journals(self) -> None:
        """Compare the records of the journals with the earlier ones."""
        for owner, path in self.site.find_journals(self.run).items() if self.run else ():
            try:
                current = read_records(path)
            except sqlite3.DatabaseError as error:
                if not (self.torn and owner == "device"):
                    self.report_wrong(f"the {owner}'s journal cannot be read: {error}")
                continue
            earlier = self._records[owner]
            self._note_changed(owner, [key for key, record in earlier.items() if current.get(key) != record])
            self._records[owner] = {**earlier, **current}

    def forget_device(self) -> None:
        """Forget the records of the device, whose truncated journal may have lost any of them."""
        self.torn = True
        self.excused |= set(self._records["device"])
        self._records["device"] = {}

    def report_wrong(self, text: str) -> None:
        self.row.wrong += 1
        self.add_note(text)

    def add_note(self, text: str) -> None:
        self.row.notes.append(f"{self.run}: {text}")
        log(f"    !! {text}")

    def _note_changed(self, owner: str, keys: Sequence[str]) -> None:
        fresh = {f"{owner} {key}" for key in keys} - self._changed
        self._changed |= fresh
        self.row.changed += len(fresh)
        for text in fresh:
            self.add_note(f"a record has changed: {text}")

    def _check_end(self, client: Client) -> None:
        """Check that a client that was not killed ended in order, with one of ngbkit's errors as its reason."""
        code = client.process.returncode
        if code != -signal.SIGKILL and (code or not client.outcome):
            client_log = (self.site.folder / "client.log").read_text(errors="replace")
            self.report_wrong(f"the client ended with {code} and {client.outcome or 'no reason'}: {client_log[-1500:]}")

    def _judge(self) -> None:
        """Check that every trial has a record, equal on client and device, and that failures have a reason."""
        client, device = self._records["client"], self._records["device"]
        missing = [trial for trial in self.trials if trial not in client] if self.trials else ["all"]
        different = [
            key for key, (_, crc) in device.items() if key not in self.excused and client.get(key, ("", -1))[1] != crc
        ]
        self._note_changed("client and device differ:", different)
        failed = {key: status for key, (status, _) in client.items() if key in self.trials and status != "ok"}
        if self.kind.inject is None:
            self.injected = sum(status == "out-of-memory" for status in failed.values())
            missing += ["hungry"] * (self.target - self.injected)
        elif not self.kind.fails:
            # A trial whose engine was killed twice or more during it is recorded as crashed.
            failed = {key: status for key, status in failed.items() if status != "crashed"}
        unexplained = len(failed) - self.kind.fails * self.injected
        self.row.lost += len(missing) + max(0, unexplained)
        if missing or unexplained > 0:
            self.add_note(f"without a record: {missing}; failed: {failed}")

    def _clean_up(self) -> None:
        for other in self.others:
            if not other.wait(HANGS_S) or other.outcome.get("state") != "finished":
                self.report_wrong(f"the second client did not finish: {other.outcome}, {other.text}")
                kill(other.process)
        # A far engine notices the end of a client within minutes, or at the next start.
        remaining = [] if self.kind.far else self.site.kill_remaining()
        for _ in range(2):
            touch = self.site.start_client("touch", self.site.label)
            touch.wait(HANGS_S)
            if touch.outcome.get("state") != "finished":
                self.report_wrong(f"the next start failed: {touch.outcome}")
            self._check_end(touch)
            remaining += self.site.kill_remaining()
            files = self.site.list_remaining_files()
            if not any(path.parent.name == "engines" and not (path / "about.json").exists() for path in files):
                break
            time.sleep(61)  # a new folder is kept for a minute, since another process may be creating it
        self.row.processes += len(remaining)
        self.row.files += len(files)
        for text in remaining:
            self.add_note(f"left: {text[:200]}")
        for path in files:
            self.add_note(f"left: {path} with {sorted(inner.name for inner in path.rglob('*'))[:20]}")


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    `share` is its number among 200 faults; `inject` does the harm and returns whether it harmed anything, and is None
    if compilers of the sweep do it; `far` needs a device behind ssh; `fails` is the number of trials that one of
    its faults may fail: a fork server has the children of a group, with its anchor.
    """

    name: str
    share: int
    inject: Callable[[Campaign, Client], bool] | None
    far: bool = False
    fails: int = 0


KINDS = {
    kind.name: kind
    for kind in (
        Kind("child", 45, harms.harm_child, fails=1),
        Kind("engine", 40, harms.build_killer("ngbkit.device.engine")),
        Kind("server", 10, harms.build_killer("ngbkit.device.isolation.forkserver"), fails=len(COMPILERS) + 1),
        Kind("nanny", 5, harms.build_killer("ipyparallel.engine.nanny")),
        Kind("controller", 25, harms.build_killer("ngbkit.cluster.controller")),
        Kind("client", 35, harms.harm_client),
        Kind("tunnel-ssh", 10, harms.harm_tunnel, far=True),
        Kind("tunnel-keeper", 10, harms.build_killer("ngbkit.cluster.tunnel"), far=True),
        Kind("link-down", 1, harms.harm_link, far=True),
        Kind("engine-stopped", 1, harms.harm_pace),
        Kind("out-of-memory", 5, None, fails=1),
        Kind("full-disk", 3, harms.harm_disk),
        Kind("torn-journal", 10, harms.harm_journal),
        Kind("two-clients", 10, harms.harm_by_another),
    )
}


def share_out(total: int, kinds: Sequence[Kind]) -> dict[str, int]:
    """Share out faults among kinds; the rest goes to the largest remainders."""
    total_share = sum(kind.share for kind in kinds)
    exact = {kind.name: total * kind.share / total_share for kind in kinds}
    counts = {name: int(share) for name, share in exact.items()}
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def format_table(rows: dict[str, Row]) -> str:
    """Format the rows and their sum."""
    names = ("faults", "runs", "resumes", "lost", "changed", "processes", "files", "wrong", "seconds")
    lines = [f"{'kind':<16s}" + "".join(f"{name:>10s}" for name in names)]
    numbers = {kind: [getattr(row, name) for name in names] for kind, row in rows.items()}
    numbers["total"] = [sum(column) for column in zip(*numbers.values(), strict=True)]
    lines += [f"{kind:<16s}" + "".join(f"{number:>10.0f}" for number in row) for kind, row in numbers.items()]
    return "\n".join(lines)


def run_campaign(kind: Kind, row: Row, target: int, seed: int, far: ExitStack, shared: Path) -> None:
    """Create a site, harm it, and add the results to the row."""
    began = time.monotonic()
    ssh = shared / "ssh"
    with tempfile.TemporaryDirectory(prefix="campaign-", dir=shared) as folder, ExitStack() as stack:
        if kind.far and not ssh.exists():
            far.server = far.enter_context(start_sshd(ssh))  # type: ignore[attr-defined]
        if kind.name == "full-disk":
            stack.enter_context(mount_small_disk(Path(folder, "state")))
        site = Site.create(Path(folder), shared / "mlp.onnx", shared / "peaks.json", ssh if kind.far else None)
        rng = random.Random(f"{seed} {kind.name} {row.faults}")
        campaign = Campaign(kind, site, row, target, rng, getattr(far, "server", None))
        try:
            campaign.carry_out()
        finally:
            for process in site.list_processes():
                kill(process)
    row.runs += 1
    row.faults += campaign.injected
    row.empty = 0 if campaign.injected else row.empty + 1
    row.seconds += time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS), metavar="KIND,…", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--state", type=Path, metavar="FILE.json", help="save progress there, and resume")
    args = parser.parse_args()
    unknown = [name for name in args.only.split(",") if name not in KINDS]
    if unknown:
        parser.error(f"invalid --only: got {', '.join(unknown)}; expected some of {', '.join(KINDS)}")
    counts = share_out(args.faults, [KINDS[name] for name in args.only.split(",")])
    saved = json.loads(args.state.read_text()) if args.state and args.state.exists() else {}
    rows = {name: Row(**saved.get(name, {})) for name in counts}
    with tempfile.TemporaryDirectory(prefix="ngbkit-faults-") as folder, ExitStack() as far:
        shared = Path(folder)
        make_network(shared / "mlp.onnx")
        make_peaks(shared)
        for name, number in counts.items():
            row = rows[name]
            while row.faults < number and row.empty < MOST_EMPTY:
                log(f"{name}: {row.faults} of {number} faults")
                run_campaign(KINDS[name], row, min(MOST_AT_ONCE, number - row.faults), args.seed, far, shared)
                if args.state:
                    saved[name] = asdict(row)
                    args.state.write_text(json.dumps(saved, indent=1))
    print(format_table(rows))
    short = [name for name, number in counts.items() if rows[name].faults < number]
    if short:
        print(f"fewer faults than wanted: {', '.join(short)}")
    sys.exit(1 if short or any(row.bad for row in rows.values()) else 0)


if __name__ == "__main__":
    main()
