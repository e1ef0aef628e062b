"""The harm that `faults` does, a function a kind: takes the campaign and its client; tells whether it did any."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
from faulty_site import Client, await_, kill, stopped

if TYPE_CHECKING:
    from faults import Campaign

LINK_DOWN_S, ENGINE_STOPPED_S = 20.0, 60.0


def harm_child(campaign: Campaign, client: Client) -> bool:
    """A trial's own process."""
    children = campaign.site.children() if client.loaded else []
    return bool(children) and kill(campaign.rng.choice(children))


def killer(*words: str) -> Callable[[Campaign, Client], bool]:
    """The process with those words in its command line."""

    def harm(campaign: Campaign, client: Client) -> bool:
        found = campaign.site.processes(*words)
        # A controller's helpers have its command line too.
        found = [process for process in found if not any(other.pid == process.ppid() for other in found)]
        return bool(found) and kill(campaign.rng.choice(found))

    return harm


def harm_client(campaign: Campaign, client: Client) -> bool:
    """The process that a notebook runs in."""
    return kill(client.process) and client.wait(10)


def _tunnel(campaign: Campaign) -> list[psutil.Process]:
    keepers = campaign.site.processes("ngbkit.cluster.tunnel")
    return [child for keeper in keepers for child in keeper.children() if child.name() == "ssh"]


def harm_tunnel(campaign: Campaign, client: Client) -> bool:
    """The ssh that holds the ports."""
    return any(kill(ssh) for ssh in _tunnel(campaign))


def harm_link(campaign: Campaign, client: Client) -> bool:
    """Nothing comes through, in either direction, and nobody is told."""
    assert campaign.far is not None
    sessions = [one for one in campaign.far.children(recursive=True) if one.name().startswith("sshd")]
    ends = [*_tunnel(campaign), *sessions]
    with stopped(ends):
        client.wait(LINK_DOWN_S)
    return len(ends) > 1


def harm_pace(campaign: Campaign, client: Client) -> bool:
    """The engine stands still, and goes on."""
    engines = campaign.site.processes("ngbkit.device.engine")
    with stopped(engines):
        client.wait(ENGINE_STOPPED_S)
    return bool(engines)


def harm_disk(campaign: Campaign, client: Client) -> bool:
    """Not a byte is free, until the client has ended."""
    filler = campaign.site.state / "filler"
    try:
        with open(filler, "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                continue
    except OSError:
        pass
    client.wait(60)
    filler.unlink()
    said = client.outcome.get("error", "")
    if not client.ended:
        campaign.wrong(f"the client went on with a full disk, at {client.text!r}")
    elif client.outcome.get("state") != "finished" and not any(word in said for word in ("disk", "space")):
        campaign.wrong(f"a full disk ended the run with {client.outcome}")
    return True


def harm_journal(campaign: Campaign, client: Client) -> bool:
    """Client and engine are killed, and what the device has written ends anywhere."""
    kill(client.process)
    for engine in campaign.site.processes("ngbkit.device.engine"):
        kill(engine)
    if not await_(lambda: client.ended and not campaign.site.processes(), 15):
        campaign.wrong("client and engine were killed, and other processes live on")
    journal = campaign.site.journals(client.run)["device"]
    files = [path for path in (journal, journal.with_name(f"{journal.name}-wal")) if path.exists()]
    cut = campaign.rng.choice([path for path in files if path.stat().st_size] or files)
    campaign.look()
    campaign.forget_device()
    os.truncate(cut, campaign.rng.randrange(cut.stat().st_size + 1))
    return True


def harm_by_another(campaign: Campaign, client: Client) -> bool:
    """Another client wants the same run, or another run on the same device."""
    site = campaign.site
    if campaign.rng.random() < 0.5:
        second = site.client("resume", client.run)
        second.wait(60)
        if second.outcome.get("kind") != "FencedError" and not client.ended:
            campaign.wrong(f"a second client of the same run came to {second.outcome}, {second.text!r}")
        return True
    sweep = {"compilers": ["identity"], "batch_sizes": [1, 2], "repeats": 5, "devices": [site.label]}
    second = site.client("start", str(site.network), json.dumps(sweep))
    campaign.others.append(second)
    await_(lambda: second.ended or second.done or "is taken by" in second.text or client.ended, 60)
    if second.done and not client.outcome and not client.ended:
        campaign.wrong("a second client measured beside the first")
    return True
