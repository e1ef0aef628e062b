"""What a device says of its deployment is checked and cleaned."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ngbkit.cluster.devices import Device
from ngbkit.cluster.replies import ReplyError
from ngbkit.device import plan
from ngbkit.fleet.deployment import deploy as deploying


@pytest.fixture
def device() -> Device:
    return Device(label="far", launch="local", state_dir="~/far")


def build_answer(device: Device, **fields: Any) -> dict[str, Any]:
    """The answer of a device after a deploy."""
    hello = json.loads(plan.hello())
    compilers = [{"compiler": "identity", "missing": "", "version": "2"}]
    answer = {"python": "/p", "state_dir": device.state_dir, "version": "1", "hello": hello, "compilers": compilers}
    return {**answer, **fields}


def test_what_a_device_says_of_its_deployment_is_shown_without_control_characters(device: Device) -> None:
    """A terminal would follow them."""
    compilers = [
        {"compiler": "a\x1b[2J", "missing": "\x07", "version": None},
        {"compiler": "b", "missing": "", "version": "\x1b]0;"},
    ]
    answer = build_answer(device, version="1\x1b[2J", python="/p\x07", compilers=compilers)
    deployment = deploying._parse_deployment(device, answer)
    texts = [
        deployment.version,
        deployment.python,
        *map(str, (row[name] for row in deployment.compilers for name in row)),
    ]

    assert all(text.isprintable() for text in texts)
    assert [None, ""] == [row["version"] for row in deployment.compilers]


@pytest.mark.parametrize(
    "fields",
    [{"version": 1}, {"compilers": ["identity"]}, {"compilers": [{"compiler": "a", "missing": "", "version": 3}]}],
)
def test_a_deployment_with_other_fields_is_refused(device: Device, fields: dict[str, Any]) -> None:
    """The error names the field and the device."""
    with pytest.raises(ReplyError, match=r"invalid .* in a reply from device far"):
        deploying._parse_deployment(device, build_answer(device, **fields))
