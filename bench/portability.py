"""Measures the choices of cost models for networks that no rule was tuned on, on every runtime of this machine.

Run it on a quiet machine, after `labels.py`; it resumes after any interruption, and measures a network again that lacks
a cost model or a tool. Other tools (the extra `simplifiers`) are rows of the same table; one that is not installed is a
row without a number. It writes notebooks/data/portability.nc, and prints its summary.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import operator_sum  # a kind of model
import xarray as xr
from portability_study import study
from studies.portability import MEASURED, summarise

from ngbkit import predictor
from ngbkit.dataset import storage
from ngbkit.errors import NgbkitError
from ngbkit.optimizer import Beam, costs
from ngbkit.optimizer.search import Cost
from ngbkit.optimizer.simplifiers import resolve

DATA = Path(__file__).parents[1] / "notebooks" / "data"
#: None is among the labels: these are other families, or larger siblings.
#: How much of a gain the guard keeps is only seen where there is one: the last line has more networks whose authors sum
#: parallel branches into one convolution.
NETWORKS = (
    *("repvgg_a1", "mobileone_s1", 'resnext50_32x4d{"img_size":160}', 'res2net50_26w_4s{"img_size":128}'),
    *("mobilenetv4_conv_small", "ghostnetv2_100", 'densenet121{"img_size":128}', "convnextv2_atto", "visformer_tiny"),
    *("fastvit_t8", "regnety_008", "mobilenetv3_large_100", 'inception_v3{"img_size":160}', "tiny_vit_5m_224"),
    *("mobileone_s2", "repvgg_b0", "repghostnet_100", "repvit_m1"),
)
RUNTIMES = ("onnxruntime", "openvino")
KINDS = {"sum of operators": operator_sum.OperatorSum.kind, "graph network": "gnn"}
#: The number of tries ends a search: a limit of time would be shorter for the cost model that finds its caches cold.
BEAM = Beam(width=6, seconds=120.0, tries=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/portability"), help="folder of its progress")
    parser.add_argument("--repeats", type=int, default=40, help="samples per candidate (default: 40)")
    parser.add_argument("--minutes", type=float, default=120.0, help="time budget for new networks (default: 120)")
    parser.add_argument("--networks", nargs="+", help="measure these only (default: all)")
    parser.add_argument("--out", type=Path, default=DATA / "portability.nc", help="file of the combined results")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    costs_by_name = load_costs(args.folder)
    tools = [tool.name for tool in resolve(["all"])]
    labels = {*costs_by_name, *map(MEASURED.format, RUNTIMES), *tools}
    for network in args.networks or NETWORKS:
        file = build_path(args.folder, network)
        if not is_complete(file, labels):
            settings = {"repeats": args.repeats, "min_rounds": args.repeats, "max_seconds": 60.0}
            try:
                data = study([network], costs_by_name, RUNTIMES, beam=BEAM, simplifiers=tools, **settings)
            except NgbkitError as error:
                print(f"{network}: left out, {error}", flush=True)
                continue
            storage.save(data, file, overwrite=True)
        print(f"{network}: {file}", flush=True)
        if time.monotonic() > deadline:
            break
    files = [build_path(args.folder, network) for network in dict.fromkeys((*NETWORKS, *(args.networks or ())))]
    parts = [storage.load(file) for file in files if is_complete(file, labels)]
    if not parts:
        print("no network has a result")
        return
    combined = xr.concat(parts, dim="network", combine_attrs="override", join="exact")
    storage.save(combined, args.out, overwrite=True)
    print(summarise(combined).round(3).to_string())


def is_complete(file: Path, labels: set[str]) -> bool:
    """Return whether a file has a result of every cost model and every tool; older files lack tools added later."""
    return file.exists() and labels == set(storage.load(file)["cost"].values.tolist())


def build_path(folder: Path, network: str) -> Path:
    """Return the file of the measurements of a network."""
    return folder / f"{network.partition('{')[0]}.nc"


def load_costs(folder: Path) -> dict[str, Cost]:
    """Load the cost models, each fitted once to the labels."""
    costs_by_name: dict[str, Cost] = {"operations": costs.operations}
    for title, kind in KINDS.items():
        file = folder / f"{kind}.safetensors"
        if not file.exists():
            predictor.fit(predictor.load_examples(DATA / "labels.nc"), kind).save(file)
        fitted = predictor.load(file)
        costs_by_name |= {f"{title}, {runtime}": costs.predicted(fitted, runtime) for runtime in RUNTIMES}
    return costs_by_name


if __name__ == "__main__":
    main()
