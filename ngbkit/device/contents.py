"""The contents of the networks of a plan: found by what their builds loaded, or by building them under observation."""

from __future__ import annotations

import ast
import copy
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngbkit import options
from ngbkit.device.environment_variables import digest_variables
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.sweep.trials import Group, facts_key
from ngbkit.workloads import cell
from ngbkit.workloads.base import Network, Workload, hash_json
from ngbkit.workloads.content import side_effects
from ngbkit.workloads.content.loading import Loading, list_imported
from ngbkit.workloads.content.manifests import Manifests
from ngbkit.workloads.content.network_hash import hash_network


def open_manifests(state_dir: Path, device: str) -> Manifests:
    """Open the manifests of a device."""
    return Manifests(state_dir / options.LAYOUT.manifests / device)


def has_code(workload: Workload) -> bool:
    """Return whether code builds the network; the content of a file is its description."""
    source = workload.load_source()
    return bool(source.preload)


def build_recipe(spec: Spec, group: Group) -> str:
    """Build the name of what is asked for: a hash of the description of a network and of the world that builds it."""
    workload, world = group.workload, spec.world or World.capture()
    description = {**workload.spec}
    if workload.source == cell.SOURCE.name:  # comments and layout are left out
        description = {"tree": ast.dump(ast.parse(workload.spec["source"])), "model": workload.spec["model"]}
    surroundings = [world.folder, world.list_additions(), world.files.get(workload.name, "")]
    choices = [workload.describe_choices(), dict(group.factors), spec.sweep.seed]
    variables = digest_variables(world.apply(os.environ))
    return hash_json([workload.source, description, *choices, *surroundings, variables])


def find_contents(spec: Spec) -> dict[str, tuple[str, str]]:
    """Find the contents of a sweep's networks by the key of their facts without building, or else what has changed."""
    manifests = open_manifests(spec.state_dir, spec.place)
    return {
        facts_key(group.workload.name, group.factors): manifests.find(build_recipe(spec, group))
        if has_code(group.workload)
        else (group.workload.id, "")
        for group in spec.sweep.groups(spec.device)
    }


def find_change(state_dir: Path, content: str) -> str | None:
    """Find what has changed since any device of this machine built a network; None if none has its manifest."""
    folders = (state_dir / options.LAYOUT.manifests).glob("*")
    changes = [change for folder in folders if (change := Manifests(folder).find_change(content)) is not None]
    return min(changes, default=None, key=len)


def build_observed(build: Callable[[], Network], message: Mapping[str, Any]) -> tuple[Network, str]:
    """Build the network of a preparation under observation, which lasts as long as this process; return its content.

    The content is that of the network itself; of a network that cannot be hashed, of the files that it was built from,
    and empty where these do not tell all.
    """
    manifests, recipe = Manifests(Path(message["manifests"])), message["recipe"]
    imported = frozenset(sys.modules)
    names, settings = side_effects.copy_names(imported), side_effects.list_settings()
    packages, packages_digest = manifests.add_packages(list_imported())
    loading = Loading.start([manifests.folder.parents[1], Path(tempfile.gettempdir())])
    network = build()
    replaced = [*side_effects.find_replaced(names, imported)]
    digest, is_called = _hash(network, message["seed"], imported, replaced)
    manifest = loading.stop()
    if not digest and not manifest.problems:
        digest = hash_json([recipe, manifest.files.digest, manifest.folders])
    acts = side_effects.list_acts(message["workload"]["spec"].get("source", ""))
    acts += [act for file in manifest.find_own_files() for act in side_effects.list_acts_of(file)]
    changed = sorted({*side_effects.list_settings()} - {*settings})
    parts = [digest, packages_digest, manifest.list_libraries(), changed, sorted(acts)]
    content = hash_json(parts) if digest else ""
    if content:
        manifests.add(recipe, content, manifest, packages)
    return build() if is_called else network, content


def _hash(
    network: Network, seed: int, imported: frozenset[str], replaced: Sequence[tuple[str, Any]]
) -> tuple[str, bool]:
    """Hash a network itself; empty if a part of it is in no form that can be read. Return whether it was called."""
    if network.module is None:
        return "", False
    try:
        called = copy.deepcopy(network.module)
    except Exception:  # noqa: BLE001  objects of a network may refuse to be copied or read in any way
        called = network.module
    try:
        return hash_network(network, called, seed, imported, replaced), called is network.module
    except Exception:  # noqa: BLE001
        return "", called is network.module
