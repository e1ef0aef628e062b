"""Tab completion on the line of a magic, through the completer of a real shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

from ngbkit import registry
from ngbkit.api import Sweep
from ngbkit.commands.command import load_magics
from ngbkit.notebook import completion
from ngbkit.runs.folders import build_metadata
from ngbkit.sweep.conversion import parse_workload
from ngbkit.sweep.journal import Journal


def press_tab(shell: InteractiveShell, text: str) -> list[str]:
    """List the texts that Tab would leave, for a cursor at the ``|``."""
    cursor = text.index("|")
    with provisionalcompleter():
        offered = list(shell.Completer.completions(text.replace("|", ""), cursor))
    return [text[: completion.start] + completion.text for completion in offered]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("%ngbench --de|", "%ngbench --devices"),
        ("r = %ngbench --de|", "r = %ngbench --devices"),
        ("a, b = %ngbench --ba|", "a, b = %ngbench --batch-sizes"),
        ("%%ngbench --de|\nmodel = 1", "%%ngbench --devices"),
        ("x = 1\n%ngbench --de|", "x = 1\n%ngbench --devices"),
        ("%ngbench resnet18 -c ident|", "%ngbench resnet18 -c identity"),
        ("%ngbench resnet18 -c identity,onnxr|", "%ngbench resnet18 -c identity,onnxruntime"),
        ("%ngbench --compilers=identity,onnxr|", "%ngbench --compilers=identity,onnxruntime"),
        ("%%ngbench -c ident|\nmodel = 1", "%%ngbench -c identity"),
        ("%ngbench -d c|", "%ngbench -d cpu"),
        ("%ngbench deit3_sm|", "%ngbench deit3_small_patch16_224"),
        ("%ngbench resnet18 blocks.c|", "%ngbench resnet18 blocks.conv"),
        ("%ngbench --background resnet5|", "%ngbench --background resnet50"),
        ("%ngbench blocks.conv --factor wi|", "%ngbench blocks.conv --factor width="),
        ("%ngruns --retry timeout,cra|", "%ngruns --retry timeout,crashed"),
        ("%ngruns --res|", "%ngruns --resume"),
        ("%ngruns --fail|", "%ngruns --failures"),
        ("%ngbench resnet18 --gpu-timer ev|", "%ngbench resnet18 --gpu-timer events"),
        ("%ngdevices ch|", "%ngdevices check"),
        ("%ngdevices check c|", "%ngdevices check cpu"),
        ("%ngcompilers openv|", "%ngcompilers openvino"),
        ("%ngcompilers identity openv|", "%ngcompilers identity openvino"),
        ("%ngbench --devices=c|", "%ngbench --devices=cpu"),
        ("%ngbench net -c openvino{|", '%ngbench net -c openvino{"precision":'),
        ('%ngbench net -c openvino{"|', '%ngbench net -c openvino{"precision":'),
        ('%ngbench net -c identity,openvino{"pre|', '%ngbench net -c identity,openvino{"precision":'),
        ('%ngbench net --compilers=openvino{"pre|', '%ngbench net --compilers=openvino{"precision":'),
        ("%ngbench net -c 'openvino{\"pre|", '%ngbench net -c \'openvino{"precision":'),
        ('%ngbench net -c openvino{"precision":|', '%ngbench net -c openvino{"precision":"bf16"'),
        ('%ngbench net -c openvino{"precision": "b|', '%ngbench net -c openvino{"precision": "bf16"'),
        (
            '%ngbench net -c openvino{"hint": "latency", "pre|',
            '%ngbench net -c openvino{"hint": "latency", "precision":',
        ),
        ('%ngbench net -c tvm{"trials": 9},openvino{"pre|', '%ngbench net -c tvm{"trials": 9},openvino{"precision":'),
        ('%ngbench net -c openvino{"streams": 2} -b 1 -d c|', '%ngbench net -c openvino{"streams": 2} -b 1 -d cpu'),
        ('%ngbench net -c openvino{"pre|"} -b 1', '%ngbench net -c openvino{"precision'),
        ('%ngbench net -c openvino{"precision":"b|"}', '%ngbench net -c openvino{"precision":"bf16'),
        ("%ngbench net -c onnxruntime{spinning:t|", "%ngbench net -c onnxruntime{spinning:true"),
        ('%ngbench resnet18{"|', '%ngbench resnet18{"img_size":'),
        ("%ngbench resnet18{img|", '%ngbench resnet18{"img_size":'),
        ('%ngbench resnet18{"img_size":|', '%ngbench resnet18{"img_size":224'),
        ('%ngbench net blocks.mha{"heads": 4, "se|', '%ngbench net blocks.mha{"heads": 4, "sequence":'),
        ('%ngbench blocks.conv{"size":|', '%ngbench blocks.conv{"size":[244,244]'),
        ('%ngbench blocks.conv{"size": [99,99], "wi|', '%ngbench blocks.conv{"size": [99,99], "width":'),
    ],
)
def test_every_kind_of_value_completes(shell: InteractiveShell, typed: str, offered: str) -> None:
    """Options and their values complete on a line, in an assignment and on the first line of a cell."""
    assert offered in press_tab(shell, typed)


def test_only_fitting_values_are_offered(shell: InteractiveShell) -> None:
    """No Python name, file or keyword is among the compilers."""
    offered = press_tab(shell, "%ngbench resnet18 -c |")

    assert registry.list_names(registry.COMPILERS) == [text.rpartition(" ")[2] for text in offered]


def test_only_options_are_offered_in_braces(shell: InteractiveShell) -> None:
    """Tab offers each option of the compiler once in braces, and no file or Python name."""
    line = '%ngbench net -c openvino{"precision":"f32",'
    options = registry.load(registry.COMPILERS, "openvino").list_options()

    assert [f'{line}"{name}":' for name in options if name != "precision"] == press_tab(shell, f"{line}|")
    assert ("", []) == completion.complete("ngbench", 'net -c no_compiler{"', {})
    assert ('"', []) == completion.complete("ngbench", 'resnet18 -d cpu{"', {})
    assert ('"', []) == completion.complete("ngbench", 'resnet81{"', {})


def test_the_offered_arguments_of_a_network_are_valid() -> None:
    """Each with the value that is offered for it."""
    for name in ("resnet18", "blocks.conv", "blocks.mha"):
        _, names = completion.complete("ngbench", f"{name}{{", {})
        pairs = []
        for key in names:
            _, values = completion.complete("ngbench", f"{name}{{{key}", {})
            pairs += [f"{key}{value}" for value in values]

        assert len(names) == len(pairs) > 2
        assert parse_workload(f"{name}{{{','.join(pairs)}}}").source in ("timm", "blocks")


def test_choices_are_offered_as_json(shell: InteractiveShell) -> None:
    """Tab offers all choices of an option, or its default if it has none."""
    options = registry.load(registry.COMPILERS, "openvino").list_options()
    line = '%ngbench net -c openvino{"'

    assert [f'{line}precision":"{choice}"' for choice in options["precision"].choices] == press_tab(
        shell, f'{line}precision":|'
    )
    assert [f'{line}streams":{json.dumps(options["streams"].default)}'] == press_tab(shell, f'{line}streams":|')


WITH_OPTIONS = [
    name
    for name, command in load_magics().items()
    if any(entry.flags[0].startswith("-") for entry in command.magic_arguments)
]


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_every_option_completes(shell: InteractiveShell, name: str) -> None:
    """Tab lists all options of a magic."""
    table = load_magics()[name].magic_arguments
    flags = {flag for argument in table for flag in argument.flags if flag.startswith("-")}

    assert {f"%{name} {flag}" for flag in flags} == set(press_tab(shell, f"%{name} -|"))


def test_files_and_variables_complete(shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tab offers networks in files, modules of the notebook, and names for -o."""
    import torch

    for name in ("net.onnx", "net.py", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "nested").mkdir()
    monkeypatch.chdir(tmp_path)
    shell.user_ns.update(network=torch.nn.Linear(2, 2), nearly=3)
    names = [text.rpartition(" ")[2] for text in press_tab(shell, "%ngbench ne|")]

    assert ["network", "nested/", "net.onnx", "net.py"] == sorted(
        {"network", "nested/", "net.onnx", "net.py", "notes.txt", "nearly"} & set(names),
        key=["network", "nested/", "net.onnx", "net.py"].index,
    )
    assert {"%ngbench x -o network", "%ngbench x -o nearly"} <= set(press_tab(shell, "%ngbench x -o ne|"))


def test_runs_complete(shell: InteractiveShell, state_dir: Path) -> None:
    """Tab offers the ids of runs to resume."""
    sweep = Sweep(["resnet18"])
    folder = state_dir / "runs" / "20300101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(build_metadata(folder.name, sweep)))
    Journal(folder / "journal.sqlite").close()

    assert [f"%ngruns --resume {folder.name}"] == press_tab(shell, "%ngruns --resume 2030|")


def test_factors_of_a_workload_on_the_line_complete() -> None:
    """Unknown workloads on the line do no harm."""
    assert ("wi", ["width="]) == completion.complete("ngbench", "resnet81 blocks.mha --factor wi", {})


@pytest.mark.parametrize("typed", ["x = 5; resn|", "%timeit -|", "print('%ngbench -|"])
def test_other_lines_are_left_alone(shell: InteractiveShell, typed: str) -> None:
    """ngbkit completes nothing outside its own magics."""
    offered = " ".join(press_tab(shell, typed))

    assert "resnet18" not in offered
    assert "--batch-sizes" not in offered
