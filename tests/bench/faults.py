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
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import onnx.parser
import pandas as pd
import psutil
from fault_campaign import COMPILERS, COUNTS, Campaign, Kind, log
from fault_site import PYTHON_PATH, Client, Site, kill, suspend

from ngbkit.device import peaks

if TYPE_CHECKING:
    from hosts import Host

MOST_AT_ONCE, MOST_EMPTY = 8, 3
NETWORK = """<ir_version: 9, opset_import: ["": 17]>
mlp (float[batch, 16] x) => (float[batch, 16] y) { h = Relu(x) y = Softmax(h) }"""

LINK_DOWN_S, ENGINE_STOPPED_S = 20.0, 60.0


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
