"""Scripts with files beside them: modules and checkpoints, found from the folder of the line that asks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from field.test_field_states import NET

from ngbkit.api import Sweep

CHECKPOINT = """
from pathlib import Path
import torch
from torch import nn
model = nn.Linear(8, 4)
model.load_state_dict(torch.load(FILE))
input_shape = (8,)
"""
TEXTS = {
    "sibling_net.py": "from torch import nn\n" + NET,
    "79-sibling-module.py": "from sibling_net import Net\nmodel = Net()\ninput_shape = (8,)\n",
    "79b-checkpoint-beside.py": CHECKPOINT.replace("FILE", 'Path(__file__).parent / "weights.pt"'),
    "79c-checkpoint-relative.py": CHECKPOINT.replace("FILE", '"weights.pt"'),
}


def test_a_script_finds_the_files_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sibling module, a checkpoint beside the script, and one in the current folder."""
    monkeypatch.chdir(tmp_path)
    torch.save(torch.nn.Linear(8, 4).state_dict(), "weights.pt")
    for name, text in TEXTS.items():
        Path(name).write_text(text)
    scripts = [name for name in TEXTS if name.startswith("79")]
    data = Sweep(scripts, ["identity"], [2], repeats=1, threads=1).run()

    assert ["ok"] * 3 == data["status"].values.ravel().tolist(), data["error"].values
