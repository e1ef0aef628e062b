"""A dataset without profiles names a command that measures them, whatever its networks are."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from profiled import FUSED, SPLIT, make_explained

from ngbkit import Sweep
from ngbkit.commands.arguments import to_sweep
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.run import COMMAND
from ngbkit.errors import MetricError
from ngbkit.metrics.explanation.explain import explain
from ngbkit.sweep.conversion import parse_workload
from ngbkit.workloads import cell, module, timm
from ngbkit.workloads.base import Workload

CELL = """
import torch
model = torch.nn.Linear(4, 2)
input_shape = (4,)
"""


def explain_without_profiles(*workloads: Workload, **options: object) -> str:
    """Return the error of a dataset whose sweep had these networks and no profile that can be read."""
    sweep = Sweep(list(workloads), [FUSED, SPLIT], [1, 8], repeats=20, **options)
    data = make_explained().drop_vars("profile").assign_attrs(sweep=json.dumps(sweep.to_json()))
    with pytest.raises(MetricError, match="missing profile: this dataset has no profile of") as caught:
        explain(data, FUSED, SPLIT)
    return str(caught.value)


@pytest.mark.parametrize("is_profiled", [False, True])
def test_the_command_measures_the_same_networks(is_profiled: bool) -> None:
    """Its words name the networks, it asks for profiles once, and the shell parses it."""
    block = parse_workload('blocks.conv{"kernel":5,"width":8,"depth":2}')
    networks = timm.model("resnet18", img_size=64), block
    text = explain_without_profiles(*networks, profile=is_profiled)
    command = re.search("`ngbkit run (.*)` measures it", text)
    assert command is not None
    words = shlex.split(command[1])
    args = parse(build_parser("ngbkit run", COMMAND.arguments), words)

    assert list(networks) == list(to_sweep(args, [parse_workload(word) for word in args.workloads]).workloads)
    assert 1 == words.count("--profile")
    assert args.profile


def test_a_file_is_named_as_it_is_found(mlp_file: Path, tmp_path: Path) -> None:
    """An ONNX file or a .py file keeps its suffix, and the sentence says in which folder the command runs."""
    path = tmp_path / "net.py"
    path.write_text(CELL)
    text = explain_without_profiles(*Sweep([str(mlp_file), str(path)]).workloads)

    assert "`ngbkit run mlp.onnx net.py -c openvino,onnxruntime -b 1,8 " in text
    assert text.endswith("` measures it, in the folder of mlp.onnx and net.py.")


def test_a_cell_and_a_variable_are_measured_in_their_notebook() -> None:
    """The magic is that of the cell, or of the variable."""
    model = module.from_module("line", torch.nn.Linear(4, 2), torch.zeros(1, 4))
    texts = explain_without_profiles(*cell.from_source(CELL)), explain_without_profiles(model)

    assert "`%%ngbench -c openvino,onnxruntime -b 1,8 -r 20 --profile` above the cell of model" in texts[0]
    assert "`%ngbench line -c openvino,onnxruntime -b 1,8 -r 20 --profile` measures it, in the note" in texts[1]


def test_a_network_without_a_word_needs_the_option() -> None:
    """A label that no shell understands is in no command."""
    text = explain_without_profiles(timm.model("resnet18", name="mine"))

    assert text.endswith("Measure the sweep again with --profile, or profile=True.")
