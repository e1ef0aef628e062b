"""Live modules: exported at the client, rebuilt on a device without their class and without a pickle."""

from __future__ import annotations

import copy
import json
import os
import pickletools
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from ngbkit import options
from ngbkit.errors import UnsupportedError, WorkloadError
from ngbkit.workloads import export, feeds, module
from ngbkit.workloads.base import Network, Workload


class Net(nn.Module):
    """A network with a buffer, a constant and arithmetic on shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5))
        self.register_buffer("shift", torch.arange(4.0))
        self.factor = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, images: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.first(images).reshape(images.shape[0], 4, -1).float()
        return {"z": features.mean(-1) * self.factor + self.shift, "a": features.amax(-1) * ids}


class PerRow(nn.Module):
    """Fixes its batch size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[row] * 2 for row in range(int(x.shape[0]))])


class Branching(nn.Module):
    """Branches on a value, which no program can express."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


EXAMPLES = {"ids": torch.tensor([[2], [3], [5]]), "images": torch.linspace(-1, 1, 3 * 3 * 36).reshape(3, 3, 6, 6)}


def receive(workload: Workload) -> Network:
    """Build a workload from its JSON, as a device does."""
    return module.build(Workload.from_json(workload.to_json(), dict(workload.artifacts).__getitem__), {})


def outputs(network: Network, batch_size: int) -> list[torch.Tensor]:
    arrays = feeds.draw(network.inputs, network.examples, batch_size, 0)
    with torch.no_grad():
        return export.flatten(network.module(*map(torch.from_numpy, arrays)))


@pytest.fixture
def trained() -> Net:
    """A module with varying values, as after training, still in training mode."""
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.first[1].buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return net


@pytest.mark.guard
def test_a_device_builds_the_same_function(trained: Net) -> None:
    """A device builds the same function at any batch size, in eval mode."""
    network = receive(module.from_module("net", trained, EXAMPLES))
    trained.eval()

    for batch_size in (1, 2, 5):
        rows = torch.arange(batch_size) % 3
        expected = trained(EXAMPLES["images"][rows], EXAMPLES["ids"][rows]).values()
        for output, reference in zip(outputs(network, batch_size), expected, strict=True):
            torch.testing.assert_close(output, reference)
    assert ["ids", "images"] == [spec.name for spec in network.inputs]
    assert [[2], [3], [5]] == network.examples["ids"].tolist()
    assert "torch eager (exported program)" == network.baseline
    assert not any(part.training for part in network.module.modules())


def test_the_users_module_is_not_changed(trained: Net) -> None:
    """The export changes neither the mode nor the values of the user's module."""
    state = copy.deepcopy(trained.state_dict())

    module.from_module("net", trained, EXAMPLES)

    assert all(part.training for part in trained.modules())
    assert all(torch.equal(value, state[name]) for name, value in trained.state_dict().items())


def test_an_untrained_module_is_randomised() -> None:
    """The BatchNorm statistics of the copy are re-drawn before its export."""
    network = receive(module.from_module("net", Net(), EXAMPLES))

    values = {name: value for name, value in network.module.state_dict().items() if "running_var" in name}
    assert 1 == len(values)
    assert all(len(value.unique()) == 4 for value in values.values())


def test_equal_modules_are_equal_workloads(trained: Net) -> None:
    """The same module has the same artifacts, named by their content hashes."""
    first, second = (module.from_module("net", trained, EXAMPLES) for _ in range(2))

    assert first.id == second.id
    assert set(first.artifacts) == set(second.artifacts)
    assert all(digest == path.name for digest, path in first.artifacts.items())


def is_pickle(content: bytes) -> bool:
    try:
        return bool(list(pickletools.genops(content)))
    except Exception:  # noqa: BLE001  other bytes may raise any error
        return False


def test_no_pickle_is_sent(trained: Net) -> None:
    """No member of the archive is a pickle, a zip that may contain one, or reveals a path of this machine."""
    workload = module.from_module("net", trained, EXAMPLES)

    with zipfile.ZipFile(workload.artifacts[workload.spec["programs"]["any"]]) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    assert any("weights/weight_" in name for name in members)
    assert [] == [name for name, content in members.items() if is_pickle(content) or content.startswith(b"PK")]
    assert [] == [name for name, content in members.items() if __file__.encode() in content]


def test_an_archive_with_a_pickle_is_rejected_before_torch_loads_it(tmp_path: Path) -> None:
    """An archive with a pickle in any of three places is rejected."""
    path = tmp_path / "net.pt2"
    program = torch.export.export(nn.Linear(4, 2), (torch.ones(2, 4),))
    torch.export.save(program, path)
    with pytest.raises(WorkloadError, match="would need pickle, for example inputs, and ngbkit loads none"):
        module._load_program(path)

    program.example_inputs = None
    torch.export.save(program, path)
    for name, content in {"data/constants/custom_obj_0": b"x", "data/weights/net.pt": b"x", "extra/x": b"x"}.items():
        spoilt = tmp_path / "spoilt.pt2"
        spoilt.write_bytes(path.read_bytes())
        with zipfile.ZipFile(spoilt, "a") as archive:
            archive.writestr(f"net/{name}", content)
        with pytest.raises(WorkloadError, match=f"would need pickle, for {name}"):
            module._load_program(spoilt)


def test_a_tensor_that_torch_would_pickle_is_rejected(tmp_path: Path) -> None:
    """A config that refers to a pickle is rejected too."""
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        payload = '{"config": {"w": {"path_name": "weight_0", "use_pickle": true}}}'
        archive.writestr("net/data/weights/model_weights_config.json", payload)

    with pytest.raises(WorkloadError, match="would need pickle, for w,"):
        module._reject_code(path)


@pytest.mark.parametrize("change", [("expr_str", "__import__('os').getpid()"), ("forward_arg_names", ["a=exit()"])])
def test_a_program_whose_texts_are_code_is_rejected(tmp_path: Path, change: tuple[str, Any]) -> None:
    """sympy evaluates a size as Python, and torch writes names of arguments into code: neither may be code."""
    path, spoilt, (key, value) = tmp_path / "net.pt2", tmp_path / "spoilt.pt2", change
    program = torch.export.export(nn.Linear(4, 2), (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim("b")},))
    program.example_inputs = None
    torch.export.save(program, path)
    module._load_program(path)
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(spoilt, "w") as changed:
        for name in archive.namelist():
            text = archive.read(name)
            if "/models/" in name:
                text = json.dumps(
                    json.loads(text, object_hook=lambda part: {**part, key: value} if key in part else part)
                )
            changed.writestr(name, text)

    with pytest.raises(WorkloadError, match="contains code where a size or a name is expected"):
        module._load_program(spoilt)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text"])
def test_a_damaged_archive_is_rejected(tmp_path: Path, content: bytes) -> None:
    """The error names the file."""
    path = tmp_path / "net.pt2"
    path.write_bytes(content)

    with pytest.raises(WorkloadError, match=r"net.pt2 is not an exported program, or damaged"):
        module._load_program(path)


def test_the_program_can_be_traced_and_run_in_float64(trained: Net) -> None:
    """TorchScript traces an exported program, which also runs in float64."""
    network = receive(module.from_module("net", trained.float(), EXAMPLES))
    arrays = [torch.from_numpy(array) for array in feeds.draw(network.inputs, network.examples, 3, 0)]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
        warnings.filterwarnings("ignore", ".*torch.jit", FutureWarning)
        traced = torch.jit.trace(network.module, tuple(arrays))
    double = copy.deepcopy(network.module).double()
    widened = [array.double() if array.is_floating_point() else array for array in arrays]

    for output, reference in zip(traced(*arrays), outputs(network, 3), strict=True):
        torch.testing.assert_close(output, reference)
    for output, reference in zip(double(*widened), outputs(network, 3), strict=True):
        torch.testing.assert_close(output, reference, check_dtype=False)


def test_onnx_is_sent_with_the_program(trained: Net, tmp_path: Path) -> None:
    """Devices bind the same file, whose outputs have the module's order."""
    network = receive(module.from_module("net", trained, EXAMPLES))

    (path,) = export.export_for(network, tmp_path, [3], 0).values()

    graph = onnx.load(path).graph
    assert ["ids", "images"] == [value.name for value in graph.input]
    inputs = {spec.name: network.examples[spec.name] for spec in network.inputs}
    evaluated = onnx.reference.ReferenceEvaluator(str(path)).run(None, inputs)
    for output, reference in zip(evaluated, outputs(network, 3), strict=True):
        np.testing.assert_allclose(reference.numpy(), output, rtol=1e-4, atol=1e-5)


def test_a_module_of_fixed_batches_has_a_program_for_each(tmp_path: Path) -> None:
    """If the batch cannot be dynamic, the error says to name the sizes; then each of them works, and no other."""
    values = torch.arange(6.0).reshape(3, 2)
    with pytest.raises(WorkloadError, match=r"torch cannot export rows.*batch_sizes=\(1, 8\)"):
        module.from_module("rows", PerRow(), values)

    network = receive(module.from_module("rows", PerRow(), values, batch_sizes=(1, 3)))

    assert network.batch_size is None
    assert [[0, 2]] == outputs(network, 1)[0].tolist()
    assert [[0, 2], [4, 6], [8, 10]] == outputs(network, 3)[0].tolist()
    with pytest.raises(UnsupportedError, match="invalid batch size of this module: got 2; expected 1 or 3"):
        outputs(network, 2)
    assert [1, 3] == list(export.export_for(network, tmp_path, [1, 3], 0))


def test_a_module_of_one_batch_size_supports_no_other(tmp_path: Path) -> None:
    """The network has that batch size, and its export rejects another."""
    network = receive(module.from_module("rows", PerRow(), torch.ones(1, 2), batch_sizes=[2]))

    assert 2 == network.batch_size
    with pytest.raises(UnsupportedError, match="invalid batch size: got 4; expected 2"):
        export.export_for(network, tmp_path, [4], 0)


@pytest.mark.parametrize(
    ("value", "examples", "sizes", "message"),
    [
        (5, torch.ones(1, 4), None, "invalid module net: got a int; expected a torch.nn.Module"),
        (nn.Linear(4, 2), torch.ones(1, 3), None, r"invalid inputs of net: fed input float32 \(1, 3\)"),
        (nn.Linear(4, 2), torch.ones(()), None, r"invalid inputs of net: fed input float32 \(\), it raised"),
        (nn.Linear(4, 2), torch.ones(1, 4), [0], "invalid batch size: got 0"),
        (Branching(), torch.ones(1, 4), [2], "torch cannot export net: "),
    ],
)
def test_an_invalid_module_is_rejected(value: Any, examples: Any, sizes: list[int] | None, message: str) -> None:
    """The export rejects another type, invalid inputs, and code that no program can express."""
    with pytest.raises(WorkloadError, match=message):
        module.from_module("net", value, examples, batch_sizes=sizes)


def test_no_label_names_a_live_module() -> None:
    """No label refers to a module of the notebook."""
    assert module.SOURCE.parse("net") is None
    assert [] == list(module.SOURCE.complete(""))


def test_the_weights_of_a_module_are_the_users_alone(
    trained: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh state folder and all that is in its store cannot be read by others, whatever the umask."""
    umask = os.umask(0o022)
    try:
        with options.set_options(state_dir=tmp_path / "state"):
            workload = module.from_module("net", trained, EXAMPLES)
    finally:
        os.umask(umask)

    assert workload.artifacts
    assert 0o700 == (tmp_path / "state").stat().st_mode & 0o777
    assert {0o600} == {path.stat().st_mode & 0o777 for path in workload.artifacts.values()}
