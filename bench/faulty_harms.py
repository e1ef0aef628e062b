"""The faults that `faults` injects, one function per kind; each returns whether it harmed anything."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
from faulty_site import Client, kill, suspend, wait_until

if TYPE_CHECKING:
    from faults import Campaign

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
    assert campaign.far is not None
    sessions = [process for process in campaign.far.children(recursive=True) if process.name().startswith("sshd")]
    processes = [*_list_tunnels(campaign), *sessions]
    with suspend(processes):
        client.wait(LINK_DOWN_S)
    return len(processes) > 1


def harm_pace(campaign: Campaign, client: Client) -> bool:
    """Suspend the engine for a while."""
    engines = campaign.site.list_processes("ngbkit.device.engine")
    with suspend(engines):
        client.wait(ENGINE_STOPPED_S)
    return bool(engines)


def harm_disk(campaign: Campaign, client: Client) -> bool:
    """Fill the disk until the client has ended."""
    filler = campaign.site.state / "filler"
    try:
        with open(filler, "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                continue
    except OSError:
        pass
    client.wait(60)
    filler.unlink()
    message = client.outcome.get("error", "")
    if not client.ended:
        campaign.report_wrong(f"the client continued with a full disk, at {client.text!r}")
    elif client.outcome.get("state") != "finished" and not any(word in message for word in ("disk", "space")):
        campaign.report_wrong(f"a full disk ended the run with {client.outcome}")
    return True


def harm_journal(campaign: Campaign, client: Client) -> bool:
    """Kill client and engine, and truncate the journal of the device at any byte."""
    kill(client.process)
    for engine in campaign.site.list_processes("ngbkit.device.engine"):
        kill(engine)
    if not wait_until(lambda: client.ended and not campaign.site.list_processes(), 15):
        campaign.report_wrong("client and engine were killed, and other processes survived")
    journal = campaign.site.find_journals(client.run)["device"]
    files = [path for path in (journal, journal.with_name(f"{journal.name}-wal")) if path.exists()]
    truncated = campaign.rng.choice([path for path in files if path.stat().st_size] or files)
    campaign.check_journals()
    campaign.forget_device()
    os.truncate(truncated, campaign.rng.randrange(truncated.stat().st_size + 1))
    return True


def harm_by_another(campaign: Campaign, client: Client) -> bool:
    """Start another client of the same run, or another run on the same device."""
    site = campaign.site
    if campaign.rng.random() < 0.5:
        second = site.start_client("resume", client.run)
        second.wait(60)
        if second.outcome.get("kind") != "FencedError" and not client.ended:
            campaign.report_wrong(f"a second client of the same run ended with {second.outcome}, {second.text!r}")
        return True
    sweep = {"compilers": ["identity"], "batch_sizes": [1, 2], "repeats": 5, "devices": [site.label]}
    second = site.start_client("start", str(site.network), json.dumps(sweep))
    campaign.others.append(second)
    wait_until(lambda: second.ended or second.done or "is in use by" in second.text or client.ended, 60)
    if second.done and not client.outcome and not client.ended:
        campaign.report_wrong("a second client measured beside the first")
    return True
