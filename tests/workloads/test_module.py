"""Live modules: exported where they live, rebuilt elsewhere without their class, and without a pickle."""

from __future__ import annotations

import copy
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

from ngbkit.errors import UnsupportedError, WorkloadError
from ngbkit.workloads import export, feeds, module
from ngbkit.workloads.base import Network, Workload


class Net(nn.Module):
    """A network whose buffers, constants and arithmetic on shapes all have to travel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.5))
        self.register_buffer("shift", torch.arange(4.0))
        self.factor = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, images: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.first(images).reshape(images.shape[0], 4, -1).float()
        return {"z": features.mean(-1) * self.factor + self.shift, "a": features.amax(-1) * ids}


class PerRow(nn.Module):
    """Bakes its batch size in."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[row] * (row + 1) for row in range(int(x.shape[0]))])


class Branching(nn.Module):
    """Decides by a value, which no program can hold."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


EXAMPLES = {"ids": torch.tensor([[2], [3], [5]]), "images": torch.linspace(-1, 1, 3 * 3 * 36).reshape(3, 3, 6, 6)}


def arrive(workload: Workload) -> Network:
    """What a device builds of what was sent."""
    return module.build(Workload.from_json(workload.to_json(), dict(workload.artifacts).__getitem__), {})


def outputs(network: Network, batch_size: int) -> list[torch.Tensor]:
    arrays = feeds.draw(network.inputs, network.examples, batch_size, 0)
    with torch.no_grad():
        return export.flatten(network.module(*map(torch.from_numpy, arrays)))


@pytest.fixture
def trained() -> Net:
    """Every value of it varies, as after training, and it is still in training mode."""
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.first[1].buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape) + 0.5)
    return net


def test_a_module_arrives_as_the_same_function(trained: Net) -> None:
    """At any batch size, in eval mode, its inputs by name and its outputs in order."""
    network = arrive(module.from_module("net", trained, EXAMPLES))
    trained.eval()

    for batch_size in (1, 2, 5):
        rows = torch.arange(batch_size) % 3
        expected = trained(EXAMPLES["images"][rows], EXAMPLES["ids"][rows]).values()
        for one, other in zip(expected, outputs(network, batch_size), strict=True):
            torch.testing.assert_close(one, other)
    assert ["ids", "images"] == [spec.name for spec in network.inputs]
    assert [[2], [3], [5]] == network.examples["ids"].tolist()
    assert "torch eager (exported program)" == network.baseline
    assert not any(part.training for part in network.module.modules())


def test_the_users_module_is_left_as_it_is(trained: Net) -> None:
    """Its mode, its values, its hooks."""
    before = copy.deepcopy(trained.state_dict())

    module.from_module("net", trained, EXAMPLES)

    assert all(part.training for part in trained.modules())
    assert all(torch.equal(value, before[name]) for name, value in trained.state_dict().items())


def test_an_untrained_module_is_randomised() -> None:
    """Blank BatchNorm statistics of the copy are drawn before it is exported."""
    network = arrive(module.from_module("net", Net(), EXAMPLES))

    values = {name: value for name, value in network.module.state_dict().items() if "running_var" in name}
    assert 1 == len(values)
    assert all(len(value.unique()) == 4 for value in values.values())


def test_equal_modules_are_equal_workloads(trained: Net) -> None:
    """Artifacts lie under their content hashes, and the same module has the same ones."""
    one, two = (module.from_module("net", trained, EXAMPLES) for _ in range(2))

    assert one.id == two.id
    assert set(one.artifacts) == set(two.artifacts)
    assert all(digest == path.name for digest, path in one.artifacts.items())


def is_pickle(content: bytes) -> bool:
    try:
        return bool(list(pickletools.genops(content)))
    except Exception:  # noqa: BLE001  bytes that are no pickle fail in every way there is
        return False


def test_nothing_that_travels_is_a_pickle(trained: Net) -> None:
    """No member of the archive is a pickle or a zip that could hold one, and no path of this machine is told."""
    workload = module.from_module("net", trained, EXAMPLES)

    with zipfile.ZipFile(workload.artifacts[workload.spec["programs"]["any"]]) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    assert any("weights/weight_" in name for name in members)
    assert [] == [name for name, content in members.items() if is_pickle(content) or content.startswith(b"PK")]
    assert [] == [name for name, content in members.items() if __file__.encode() in content]


def test_an_archive_with_a_pickle_is_refused_before_torch_sees_it(tmp_path: Path) -> None:
    """The three places where torch.export.load would unpickle are each found."""
    path = tmp_path / "net.pt2"
    program = torch.export.export(nn.Linear(4, 2), (torch.ones(2, 4),))
    torch.export.save(program, path)
    with pytest.raises(WorkloadError, match="would need pickle, for example inputs, and ngbkit loads none"):
        module._read(path)

    program.example_inputs = None
    torch.export.save(program, path)
    for name, content in {"data/constants/custom_obj_0": b"x", "data/weights/net.pt": b"x", "extra/x": b"x"}.items():
        spoilt = tmp_path / "spoilt.pt2"
        spoilt.write_bytes(path.read_bytes())
        with zipfile.ZipFile(spoilt, "a") as archive:
            archive.writestr(f"net/{name}", content)
        with pytest.raises(WorkloadError, match=f"would need pickle, for {name}"):
            module._read(spoilt)


def test_a_tensor_that_torch_would_pickle_is_refused_when_it_is_written(tmp_path: Path) -> None:
    """A config that points at a pickle is as bad as the pickle."""
    path = tmp_path / "net.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        payload = '{"config": {"w": {"path_name": "weight_0", "use_pickle": true}}}'
        archive.writestr("net/data/weights/model_weights_config.json", payload)

    with pytest.raises(WorkloadError, match="would need pickle, for w,"):
        module._refuse_pickles(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text"])
def test_a_damaged_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    """What is no archive gets a clear error."""
    path = tmp_path / "net.pt2"
    path.write_bytes(content)

    with pytest.raises(WorkloadError, match="is no exported program, or a damaged one"):
        module._read(path)


def test_the_program_can_be_traced_and_run_in_float64(trained: Net) -> None:
    """Export's own assertions and hooks are gone: TorchScript takes it, and a float64 reference can be made of it."""
    network = arrive(module.from_module("net", trained.float(), EXAMPLES))
    arrays = [torch.from_numpy(array) for array in feeds.draw(network.inputs, network.examples, 3, 0)]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*torch.jit", DeprecationWarning)
        warnings.filterwarnings("ignore", ".*torch.jit", FutureWarning)
        traced = torch.jit.trace(network.module, tuple(arrays))
    double = copy.deepcopy(network.module).double()
    fed = [array.double() if array.is_floating_point() else array for array in arrays]

    for one, other in zip(traced(*arrays), outputs(network, 3), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(double(*fed), outputs(network, 3), strict=True):
        torch.testing.assert_close(one, other, check_dtype=False)


def test_onnx_travels_beside_the_program(trained: Net, tmp_path: Path) -> None:
    """Devices bind the same file, with the module's outputs in the same order."""
    network = arrive(module.from_module("net", trained, EXAMPLES))

    (path,) = export.export_for(network, tmp_path, [3], 0).values()

    graph = onnx.load(path).graph
    assert ["ids", "images"] == [value.name for value in graph.input]
    found = onnx.reference.ReferenceEvaluator(str(path)).run(
        None, {spec.name: network.examples[spec.name] for spec in network.inputs}
    )
    for one, other in zip(outputs(network, 3), found, strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-4, atol=1e-5)


def test_a_module_of_fixed_batches_has_a_program_for_each(tmp_path: Path) -> None:
    """Where the batch cannot be dynamic, the error says to name the sizes; named, each works, and another does not."""
    values = torch.arange(6.0).reshape(3, 2)
    with pytest.raises(WorkloadError, match=r"torch cannot export rows.*batch_sizes=\(1, 8\)"):
        module.from_module("rows", PerRow(), values)

    network = arrive(module.from_module("rows", PerRow(), values, batch_sizes=(1, 3)))

    assert network.batch_size is None
    assert [[0, 1]] == outputs(network, 1)[0].tolist()
    assert [[0, 1], [4, 6], [12, 15]] == outputs(network, 3)[0].tolist()
    with pytest.raises(UnsupportedError, match=r"exported for batch size 1, 3; 2 was asked"):
        outputs(network, 2)
    assert [1, 3] == list(export.export_for(network, tmp_path, [1, 3], 0))


def test_a_module_of_one_batch_takes_that_batch_only(tmp_path: Path) -> None:
    """The network says so, and so does its export."""
    network = arrive(module.from_module("rows", PerRow(), torch.ones(1, 2), batch_sizes=[2]))

    assert 2 == network.batch_size
    with pytest.raises(UnsupportedError, match="takes batch size 2 only"):
        export.export_for(network, tmp_path, [4], 0)


@pytest.mark.parametrize(
    ("made", "examples", "sizes", "message"),
    [
        (5, torch.ones(1, 4), None, "net is a int; valid is a torch.nn.Module"),
        (nn.Linear(4, 2), torch.ones(1, 3), None, r"do not fit net. It was fed input float32 \(1, 3\)"),
        (nn.Linear(4, 2), torch.ones(()), None, "leading batch dimension"),
        (nn.Linear(4, 2), torch.ones(1, 4), [0], "batch size 0 does not fit"),
        (Branching(), torch.ones(1, 4), [2], "torch cannot export net: "),
    ],
)
def test_a_module_that_cannot_travel_says_why(made: Any, examples: Any, sizes: list[int] | None, message: str) -> None:
    """No module, inputs that do not fit, code that no program can hold."""
    with pytest.raises(WorkloadError, match=message):
        module.from_module("net", made, examples, batch_sizes=sizes)


def test_no_word_of_a_command_line_is_a_live_module() -> None:
    """It is the notebook that knows its modules' names."""
    assert module.parse("net") is None
    assert [] == list(module.complete(""))
