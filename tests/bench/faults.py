"""Injects faults into sweeps of quick trials at random moments, and tabulates the damage.

    python tests/bench/faults.py [--faults 200] [--seed 0] [--only KIND,…] [--state FILE.json]

A campaign is one run in a state folder of its own. Its client is a separate process; whenever it ends before the run,
another client resumes the run. In the end no record may be lost, no finished record changed (its trial ran twice), no
process or file left behind, and no client may hang or end with an unclear error. The exit status is 1 if any of these
failed. With ``--state``, progress is saved, and a second call resumes. Some kinds need an sshd. Full disks, truncated
journals and second clients have tests, since their moment matters little.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx.parser
import pandas as pd
import psutil
from fault_site import PYTHON_PATH, Client, Records, Site, kill, read_records, suspend

from ngbkit.device import peaks

if TYPE_CHECKING:
    from hosts import Host

MOST_AT_ONCE, MOST_EMPTY = 8, 3
NETWORK = """<ir_version: 9, opset_import: ["": 17]>
mlp (float[batch, 16] x) => (float[batch, 16] y) { h = Relu(x) y = Softmax(h) }"""

LINK_DOWN_S, ENGINE_STOPPED_S = 20.0, 60.0
COMPILERS = ("identity", "onnxruntime", 'slow{"seconds":0.01}')
BATCH_SIZES = tuple(range(1, 11))
REPEATS = 5
# The pause after the previous fault or after the start of measuring, and the number of further records: one fault in
# four is injected at any moment, also while lost processes restart.
WAIT_S = (0.1, 3.5)
MORE_DONE = (0, 3, 3, 3)
# A client without a message for this long hangs.
HANGS_S = 240.0


COUNTS = ("faults", "runs", "resumes", "lost", "changed", "processes", "files", "wrong", "seconds")
"""The columns of the table, a row for each kind."""


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


@dataclass
class Campaign:
    """One run and its faults."""

    kind: Kind
    site: Site
    row: Counter[str]
    target: int
    rng: random.Random
    host: Host | None
    injected: int = 0
    run: str = ""
    trials: Sequence[str] = ()
    _records: dict[str, Records] = field(default_factory=lambda: {"client": {}, "device": {}})
    _changed: set[str] = field(default_factory=set)
    _next_done: int = 0

    def carry_out(self) -> None:
        self._next_done = self.rng.choice(MORE_DONE)
        client = Client(self.site, "start", str(self.site.network), json.dumps(self._sweep()))
        for _ in range(5 + 3 * self.target):
            self._inject(client)
            self.run, self.trials = client.run or self.run, client.trials or self.trials
            self.check_journals()
            self._check_end(client)
            if client.outcome.get("state") == "finished" or not self.run:
                break
            log(f"    resumes ({client.outcome.get('error', 'the client was killed')[:150]})")
            self.row["resumes"] += 1
            client = Client(self.site, "resume", self.run)
        else:
            self.report_wrong(f"the run {self.run} did not finish with the allowed number of clients")
        self._judge()
        self._clean_up()

    def _sweep(self) -> dict[str, object]:
        """The arguments of the sweep: one trial per batch size if memory runs out."""
        sweep: dict[str, object] = {"compilers": COMPILERS, "batch_sizes": BATCH_SIZES}
        if self.kind.inject is None:
            sweep |= {"compilers": (*COMPILERS, "hungry"), "batch_sizes": BATCH_SIZES[: self.target]}
        return {**sweep, "repeats": REPEATS, "devices": [self.site.label]}

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
                    log(f"    {self.kind.name} {self.row['faults'] + self.injected}: {client.done} done, {moment}")

    def check_journals(self) -> None:
        """Compare the records of the journals with the earlier ones."""
        for owner, path in self.site.find_journals(self.run).items() if self.run else ():
            try:
                current = read_records(path)
            except sqlite3.DatabaseError as error:
                self.report_wrong(f"the {owner}'s journal cannot be read: {error}")
                continue
            earlier = self._records[owner]
            self._note_changed(owner, [key for key, record in earlier.items() if current.get(key) != record])
            self._records[owner] = {**earlier, **current}

    def report_wrong(self, text: str) -> None:
        self._count("wrong", text)

    def _count(self, name: str, *texts: str) -> None:
        """Count damage, and print a line of each."""
        self.row[name] += len(texts)
        for text in texts:
            log(f"    !! {name} in run {self.run}: {text}")

    def _note_changed(self, owner: str, keys: Sequence[str]) -> None:
        fresh = {f"{owner} {key}" for key in keys} - self._changed
        self._changed |= fresh
        self._count("changed", *fresh)

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
        different = [key for key, (_, crc) in device.items() if client.get(key, ("", -1))[1] != crc]
        self._note_changed("client and device differ:", different)
        failed = {key: status for key, (status, _) in client.items() if key in self.trials and status != "ok"}
        if self.kind.inject is None:
            self.injected = sum(status == "out-of-memory" for status in failed.values())
            missing += ["hungry"] * (self.target - self.injected)
        elif not self.kind.fails:
            # A trial whose engine was killed twice or more during it is recorded as crashed.
            failed = {key: status for key, status in failed.items() if status != "crashed"}
        unexplained = len(failed) - self.kind.fails * self.injected
        self._count("lost", *missing, *[str(failed)] * max(0, unexplained))

    def _clean_up(self) -> None:
        # A far engine notices the end of a client within minutes, or at the next start.
        remaining = [] if self.kind.far else self.site.kill_remaining()
        for _ in range(2):
            touch = Client(self.site, "touch", self.site.label)
            touch.wait(HANGS_S)
            if touch.outcome.get("state") != "finished":
                self.report_wrong(f"the next start failed: {touch.outcome}")
            self._check_end(touch)
            remaining += self.site.kill_remaining()
            files = self.site.list_remaining_files()
            if not any(path.parent.name == "engines" and not (path / "about.json").exists() for path in files):
                break
            time.sleep(61)  # a new folder is kept for a minute, since another process may be creating it
        self._count("processes", *(text[:200] for text in remaining))
        self._count("files", *map(str, files))


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def harm_child(campaign: Campaign, client: Client) -> bool:
    """Kill the process of a trial."""
    children = campaign.site.list_children() if client.loaded else []
    return bool(children) and kill(campaign.rng.choice(children))


def build_killer(*words: str) -> Callable[[Campaign, Client], bool]:
    """Build a fault that kills a process with these words in its command line."""

    def harm(campaign: Campaign, client: Client) -> bool:
        processes = campaign.site.list_processes(*words)
        # A controller's helpers have its command line too.
        processes = [process for process in processes if not any(other.pid == process.ppid() for other in processes)]
        return bool(processes) and kill(campaign.rng.choice(processes))

    return harm


def harm_client(campaign: Campaign, client: Client) -> bool:
    """Kill the process of the client."""
    return kill(client.process) and client.wait(10)


def _list_tunnels(campaign: Campaign) -> list[psutil.Process]:
    keepers = campaign.site.list_processes("ngbkit.cluster.tunnel")
    return [child for keeper in keepers for child in keeper.children() if child.name() == "ssh"]


def harm_tunnel(campaign: Campaign, client: Client) -> bool:
    """Kill the ssh that forwards the ports."""
    return any(kill(ssh) for ssh in _list_tunnels(campaign))


def harm_link(campaign: Campaign, client: Client) -> bool:
    """Block the connection in both directions without any notice."""
    assert campaign.host is not None
    processes = [*_list_tunnels(campaign), *campaign.host.find_sessions()]
    with suspend(processes):
        client.wait(LINK_DOWN_S)
    return len(processes) > 1


def harm_pace(campaign: Campaign, client: Client) -> bool:
    """Suspend the engine for a while."""
    engines = campaign.site.list_processes("ngbkit.device.engine")
    with suspend(engines):
        client.wait(ENGINE_STOPPED_S)
    return bool(engines)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("child", 45, harm_child, fails=1),
        Kind("engine", 40, build_killer("ngbkit.device.engine")),
        Kind("server", 10, build_killer("ngbkit.device.isolation.forkserver"), fails=len(COMPILERS) + 1),
        Kind("nanny", 5, build_killer("ipyparallel.engine.nanny")),
        Kind("controller", 25, build_killer("ngbkit.cluster.controller")),
        Kind("client", 35, harm_client),
        Kind("tunnel-ssh", 10, harm_tunnel, far=True),
        Kind("tunnel-keeper", 10, build_killer("ngbkit.cluster.tunnel"), far=True),
        Kind("link-down", 1, harm_link, far=True),
        Kind("engine-stopped", 1, harm_pace),
        Kind("out-of-memory", 5, None, fails=1),
    )
}


def run_campaign(kind: Kind, row: Counter[str], target: int, seed: int, host: Host | None, shared: Path) -> None:
    """Create a site, harm it, and add the results to the row."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-", dir=shared) as folder:
        site = Site.create(Path(folder), shared / "mlp.onnx", shared / "peaks.json", is_far=kind.far)
        rng = random.Random(f"{seed} {kind.name} {row['faults']}")
        campaign = Campaign(kind, site, row, target, rng, host)
        try:
            campaign.carry_out()
        finally:
            for process in site.list_processes():
                kill(process)
    row.update(runs=1, faults=campaign.injected, empty=1, seconds=round(time.monotonic() - began))
    if campaign.injected:
        row["empty"] = 0


def drive_client(command: str, *arguments: str) -> None:
    """Drive one run, or start and close the engine of a device; print a line of JSON for every event.

    The last line has `state`. An engine that is started and closed removes the remains of other clients there.
    """
    from ngbkit import runs
    from ngbkit.api import Sweep
    from ngbkit.cluster import engines
    from ngbkit.errors import NgbkitError
    from ngbkit.workloads import onnx as onnx_source

    lock = threading.Lock()  # the run reports on a thread of its own

    def report(**fields: Any) -> None:
        with lock:
            print(json.dumps(fields), flush=True)

    try:
        if command == "touch":
            engines.acquire(arguments[0]).hello()
            report(state="finished")
        else:
            if command == "resume":
                run = runs.resume(arguments[0])
            else:
                run = Sweep(onnx_source.file(arguments[0]), threads=1, **json.loads(arguments[1])).start()
            report(run=run.id, trials=[trial.id for trial in run.sweep.trials()])
            run.subscribe(lambda run: report(done=run.progress.done, text=run.progress.text))
            run.wait()
            if run.error is not None:
                raise run.error
            report(state=run.state)
    except NgbkitError as error:
        report(state="failed", kind=type(error).__name__, error=str(error))
    engines.close()


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
    kinds = [KINDS[name] for name in args.only.split(",")]
    total_share = sum(kind.share for kind in kinds)
    counts = {kind.name: max(1, round(args.faults * kind.share / total_share)) for kind in kinds}
    saved = json.loads(args.state.read_text()) if args.state and args.state.exists() else {}
    rows = {name: Counter[str](saved.get(name, {})) for name in counts}
    with tempfile.TemporaryDirectory(prefix="ngbkit-faults-") as folder, ExitStack() as stack:
        shared = Path(folder)
        host = None
        if any(KINDS[name].far for name in counts):
            from hosts import start_host  # in tests, which `fault_site` puts on the path

            host = stack.enter_context(start_host(shared / "ssh", environment={"PYTHONPATH": PYTHON_PATH}))
        onnx.save(onnx.parser.parse_model(NETWORK), shared / "mlp.onnx")
        peaks.load_or_measure(shared, 1)  # once, for all campaigns
        for name, number in counts.items():
            row = rows[name]
            while row["faults"] < number and row["empty"] < MOST_EMPTY:
                log(f"{name}: {row['faults']} of {number} faults")
                run_campaign(KINDS[name], row, min(MOST_AT_ONCE, number - row["faults"]), args.seed, host, shared)
                if args.state:
                    args.state.write_text(json.dumps(saved | rows, indent=1))
    table = pd.DataFrame(rows, COUNTS).T.fillna(0).astype(int)
    table.loc["total"] = table.sum()
    print(table.to_string())
    short = [name for name, number in counts.items() if rows[name]["faults"] < number]
    if short:
        print(f"fewer faults than wanted: {', '.join(short)}")
    sys.exit(bool(short or table[["lost", "changed", "processes", "files", "wrong"]].to_numpy().any()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        drive_client(*sys.argv[2:])
    else:
        main()
