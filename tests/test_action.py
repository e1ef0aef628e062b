"""The GitHub Action: its fields are those of a composite action, and its steps run as a runner would run them."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ngbkit import cli
from ngbkit.commands import gate
from ngbkit.commands.command import load_commands

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
INSTALL, MEASURE = "install ngbkit", "measure both sides in turns"


def write_program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run_step(name: str, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step's script with bash's options on a runner, its inputs as the environment that the step declares."""
    values = {key: str(declared.get("default", "")) for key, declared in ACTION["inputs"].items()}
    values |= {key.replace("_", "-"): value for key, value in inputs.items()}
    step = STEPS[name]
    variables = {
        key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
        for key, text in step["env"].items()
    }
    (folder / "temp").mkdir(exist_ok=True)
    runner = {
        "RUNNER_TEMP": str(folder / "temp"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    script = folder / "script.sh"
    script.write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        env={**runner, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def write_ngbkit(folder: Path, code: int) -> None:
    """Write an ngbkit that records its arguments, reports, and exits with a code."""
    body = f'printf "%s\\n" "$@" >"{folder}/words"; echo "the report"; echo progress >&2; exit {code}'
    write_program(folder / "temp" / "ngbkit" / "bin" / "ngbkit", body)


def test_the_fields_are_those_of_a_composite_action() -> None:
    """The action has only the fields that GitHub documents, and each script names its shell."""
    assert {"name", "description", "branding", "inputs", "outputs", "runs"} == set(ACTION)
    assert {"using", "steps"} == set(ACTION["runs"])
    assert "composite" == ACTION["runs"]["using"]
    for declared in ACTION["inputs"].values():
        assert {"description"} <= set(declared) <= {"description", "required", "default"}
        assert declared.get("required") or isinstance(declared["default"], str)
    for declared in ACTION["outputs"].values():
        assert {"description", "value"} == set(declared)
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        fields = {"shell", "run"} if "run" in step else {"uses", "with"}
        assert {"name"} | fields <= set(step) <= {"name", "id", "if", "env", *fields}


def test_inputs_reach_scripts_as_variables_alone() -> None:
    """An expression in a script would run what a pull request writes into an input; all inputs are used."""
    text = (ROOT / "action.yml").read_text()
    references = set(re.findall(r"inputs\.([\w-]+)", text))

    assert set(ACTION["inputs"]) == references
    assert not any("${{" in step.get("run", "") for step in ACTION["runs"]["steps"])
    assert not re.search(r"https?://", text)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_gate_reports_and_exits_with_its_code(tmp_path: Path, code: int) -> None:
    """The summary has the report whatever the verdict; the outputs name the files."""
    write_ngbkit(tmp_path, code)
    done = run_step(MEASURE, tmp_path, before="base/net.onnx", after="net.onnx")

    assert code == done.returncode
    assert "```\nthe report\n```\n" == (tmp_path / "summary").read_text()
    assert "the report\n" == done.stdout
    assert "progress" in done.stderr
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert {"report", "dataset"} == set(outputs)
    assert "the report\n" == Path(outputs["report"]).read_text()


def test_the_gate_is_called_with_the_inputs(tmp_path: Path) -> None:
    """Each as one word, whatever is in it, and all known to the command."""
    write_ngbkit(tmp_path, 0)
    run_step(
        MEASURE,
        tmp_path,
        before="a b.onnx",
        after='$(touch "hacked")',
        compilers='onnxruntime{"optimization":"all"}',
        arguments="--factor=seq=32,128\n--threads=1\n",
        after_python="/head/bin/python",
    )
    words = (tmp_path / "words").read_text().splitlines()
    parsed = cli.build_parser(load_commands()).parse_args(words)

    assert ["gate", "a b.onnx", '$(touch "hacked")'] == words[:3]
    assert (["a b.onnx", '$(touch "hacked")'], "slower", "1%") == (
        parsed.networks,
        parsed.fail_on,
        parsed.margin,
    )
    assert (['onnxruntime{"optimization":"all"}'], ["1"], 120) == (
        parsed.compilers,
        parsed.batch_sizes,
        parsed.repeats,
    )
    assert (["seq=32,128"], 1, "/head/bin/python") == (parsed.factor, parsed.threads, parsed.after_python)
    assert parsed.before_python is None
    assert parsed.overwrite
    assert {argument.dest for argument in gate.COMMAND.arguments} >= {"networks", "margin"}


def test_the_installation_is_of_this_checkout(tmp_path: Path) -> None:
    """The action installs this checkout in an environment of its own, and in those of both sides."""
    record = f'printf "%s " "$@" >>"{tmp_path}/words"; echo >>"{tmp_path}/words"'
    write_program(tmp_path / "python", record)
    create = f'mkdir -p "$3/bin"; cp "{tmp_path}/python" "$3/bin/python"'
    write_program(tmp_path / "bin" / "python3", f"{record}\n{create}")
    done = run_step(INSTALL, tmp_path, extras="onnxruntime,openvino", before_python=str(tmp_path / "python"))
    lines = (tmp_path / "words").read_text().splitlines()

    assert 0 == done.returncode, done.stderr
    assert f"-m venv {tmp_path}/temp/ngbkit" == lines[0].strip()
    assert lines[1].strip().endswith(f"--constraint {ROOT}/constraints.txt {ROOT}[notebook,onnxruntime,openvino]")
    assert [f"-m pip install --quiet {ROOT}"] == [line.strip() for line in lines[2:]]
