"""What cost models make of networks that no rule was tuned on, run on every runtime of this machine.

Run it on a quiet machine, after `labels.py`; ended in any way, it goes on where it was. It writes
notebooks/data/05-portability.nc, and prints its summary.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import xarray as xr

from ngbkit import optimizer, predictor
from ngbkit.dataset import storage
from ngbkit.errors import NgbkitError
from ngbkit.optimizer import Beam, costs
from ngbkit.optimizer.search import Cost
from ngbkit.predictor import examples

DATA = Path(__file__).parents[2] / "notebooks" / "data"
#: None of them is among the labels: other families, or larger siblings.
NETWORKS = (
    *("repvgg_a1", "mobileone_s1", 'resnext50_32x4d{"img_size":160}', 'res2net50_26w_4s{"img_size":128}'),
    *("mobilenetv4_conv_small", "ghostnetv2_100", 'densenet121{"img_size":128}', "convnextv2_atto", "visformer_tiny"),
    *("fastvit_t8", "regnety_008", "mobilenetv3_large_100", 'inception_v3{"img_size":160}', "tiny_vit_5m_224"),
)
RUNTIMES = ("onnxruntime", "openvino")
KINDS = {"sum of operators": "operators", "graph network": "gnn"}
BEAM = Beam(width=6, seconds=8.0, tries=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/portability"), help="where it keeps what it has")
    parser.add_argument("--repeats", type=int, default=40, help="samples a candidate (default: 40)")
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="how long it may begin anything new (default: 120)"
    )
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * asked.minutes
    known = learned(asked.folder)
    for network in NETWORKS:
        kept = place(asked.folder, network)
        if not kept.exists():
            how = {"repeats": asked.repeats, "min_rounds": asked.repeats, "max_seconds": 60.0}
            try:
                found = optimizer.study([network], known, RUNTIMES, beam=BEAM, **how)
            except NgbkitError as error:
                print(f"{network}: left out, {error}", flush=True)
                continue
            storage.save(found, kept)
        print(f"{network}: {kept}", flush=True)
        if time.monotonic() > until:
            break
    parts = [storage.load(kept) for network in NETWORKS if (kept := place(asked.folder, network)).exists()]
    whole = xr.concat(parts, dim="network", combine_attrs="override", join="exact")
    storage.save(whole, DATA / "05-portability.nc", overwrite=True)
    print(optimizer.summary(whole).round(3).to_string())


def place(folder: Path, network: str) -> Path:
    """Where what was measured of a network is kept."""
    return folder / f"{network.partition('{')[0]}.nc"


def learned(folder: Path) -> dict[str, Cost]:
    """The cost models, each learned once from the labels."""
    found: dict[str, Cost] = {"operations": costs.operations}
    for said, kind in KINDS.items():
        file = folder / f"{kind}.safetensors"
        if not file.exists():
            predictor.fit(examples.load(DATA / "05-labels.nc"), kind).save(file)
        known = predictor.load(file)
        found |= {f"{said}, {runtime}": costs.predicted(known, runtime) for runtime in RUNTIMES}
    return found


if __name__ == "__main__":
    main()
