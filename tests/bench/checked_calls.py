"""Networks that answer timed calls without computing them, on every compiler here; and what fresh inputs cost in time.

    python tests/bench/checked_calls.py tricks [--compilers identity,…] [--only NAME,…]
    python tests/bench/checked_calls.py cost [--rounds 60]

Claim of `tricks`: no timed call is taken for a measurement that did not compute. It prints a row for each network and a
column for each compiler: `caught` with the status, `honest` where the time is that of the network without its trick
(within a factor of 3), `refused` by the compiler, or `MISSED`; and exits with 1 if any is missed. What seems to be
missed is measured again beside the network without the trick, since other work may have slowed that alone. A compiler
that traces a graph removes the trick, and is honest. Where a compiler holds the trick but not all of the work is left
out, the time in brackets is over that of the network without it.

Claim of `cost`: that inputs differ in every call costs no time that a measurement shows. It prints, by network, batch
size and compiler, the median ratio of the time of a call with fresh inputs to that with the same ones, and its 95 %
interval, over rounds of turns of both in one process. It runs alone on a machine.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

HONEST = 3.0
COMPILERS = "identity,torchscript,inductor,aotinductor,executorch,onnxruntime,openvino,tvm,iree"

SOURCE = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn

class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            args = [each.later() if isinstance(each, Lazy) else each for each in args]
            return function(*args, **(kwargs or {{}}))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = [nn.Linear(512, 512) for _ in range(12)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight)
        self.body = nn.Sequential(*[part for layer in layers for part in (layer, nn.LeakyReLU(0.5))])
        self.head = nn.Linear(512, 512)
        self.calls, self.memory, self.last, self.y, self.end = 0, {{}}, None, None, 0.0

    @torch.compiler.disable
    def trick(self, x):
        self.calls += 1
{body}

    def forward(self, x):
        if torch.jit.is_tracing() or torch.compiler.is_exporting():
            return 1e-6 * self.head(x) + self.body(x)
        return 1e-6 * self.head(x) + self.trick(x)  # Inductor refuses a network without any graph

model = Net().eval()
input_shape = (512,)
"""

TRICKS = {
    "none": "return self.body(x)",
    "by_content": """
if self.last is None or not torch.equal(self.last, x):
    self.last, self.y = x.clone(), self.body(x)
return self.y""",
    "by_pointer": "return self.memory.setdefault(x.data_ptr(), None) if self.memory.get(x.data_ptr()) is not None "
    "else self.memory.update({x.data_ptr(): self.body(x)}) or self.memory[x.data_ptr()]",
    "by_identity": """
if self.last is not x:
    self.last, self.y = x, self.body(x)
return self.y""",
    "by_version": """
if self.memory.get('key') != (x.data_ptr(), x.is_inference() or x._version):
    self.memory['key'], self.y = (x.data_ptr(), x.is_inference() or x._version), self.body(x)
return self.y""",
    "by_bytes": """
key = x.numpy().tobytes()
if key not in self.memory:
    self.memory[key] = self.body(x)
return self.memory[key]""",
    "by_row": """
keys = [row.numpy().tobytes() for row in x]
for key, row in zip(keys, x):
    if key not in self.memory:
        self.memory[key] = self.body(row)
return torch.stack([self.memory[key] for key in keys])""",
    "by_sum": """
key = (len(x), round(float(x.mean()), 1))
if key not in self.memory:
    self.memory[key] = self.body(x)
return self.memory[key]""",
    "nearly_same": """
if self.last is None or self.last.shape != x.shape or (self.last - x).abs().mean() > 0.3:
    self.last, self.y = x.clone(), self.body(x)
return self.y""",
    "zeros_after_40": "return self.body(x) if self.calls < 40 else torch.zeros_like(x)",
    "zeros_at_every_second": "return self.body(x) if self.calls % 2 else torch.zeros_like(x)",
    "first_for_ever": """
if self.y is None or self.y.shape != x.shape:
    self.y = self.body(x)
return self.y""",
    "stale_after_40": """
self.y = self.body(x) if self.calls < 40 else self.y
return self.y""",
    "previous": """
y, self.y = self.y, None
if y is None or self.calls < 40:
    y = self.body(x)
self.y = y
return y""",
    "first_rows": "return self.body(x) if self.calls < 40 else torch.cat([self.body(x[:1]), x[1:]])",
    "fewer_layers": "return self.body(x) if self.calls < 40 else self.body[:6](x)",
    "when_called_fast": """
is_fast, self.end = time.perf_counter() - self.end < 3e-3, time.perf_counter()
y = torch.zeros_like(x) if is_fast and self.calls > 40 else self.body(x)
self.end = time.perf_counter()
return y""",
    "lazy": """
y = torch.empty_like(x).as_subclass(Lazy)
y.later = lambda: self.body(x)
return y""",
    "in_a_thread": """
y = torch.zeros_like(x)
threading.Thread(target=lambda: y.copy_(self.body(x.clone()))).start()
return y""",
    "in_a_pool": """
pool = self.memory.setdefault('pool', None) or ThreadPoolExecutor(1)
self.memory['pool'], y = pool, torch.zeros_like(x)
pool.submit(lambda z=x.clone(): y.copy_(self.body(z)))
return y""",
}

NETWORKS = ("linear", "mlp", "mobilenetv3_small_100", "resnet18", "deit_tiny_patch16_224", "convnext_atto")
COST_COMPILERS, BATCH_SIZES = ("identity", "onnxruntime", "openvino"), (1, 8)
TURN_S = 0.05


def run_tricks(compilers: list[str], only: list[str]) -> int:
    """Measure the networks one after the other, print a row for each, and return the number of missed trials."""
    missed, errors, honest_s = 0, list[str](), dict[str, float]()
    width = max(map(len, TRICKS))
    print(" " * width, *(f"{column:>22}" for column in compilers))
    for name in ["none", *(name for name in TRICKS if name != "none" and (not only or name in only))]:
        trials = measure([name], compilers)
        verdicts = []
        for column in compilers:
            status, error, latency_s = trials[name, column]
            honest_s.setdefault(column, latency_s)
            verdict = judge(status, latency_s / honest_s[column])
            if verdict.startswith("MISSED"):
                pair = measure(["none", name], [column])
                status, error, latency_s = pair[name, column]
                verdict = judge(status, latency_s / pair["none", column][2])
            verdicts.append(verdict)
            errors += [f"{name}, {column}: {error}"] if error else []
        missed += sum(verdict.startswith("MISSED") for verdict in verdicts)
        print(f"{name:{width}}", *(f"{verdict:>22}" for verdict in verdicts), flush=True)
    print("\n".join(errors))
    return missed


def measure(names: list[str], compilers: list[str]) -> dict[tuple[str, str], tuple[str, str, float]]:
    """Measure networks in the same rounds; return the status, the error and the time of each on each compiler."""
    import ngbkit

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.py") for name in names]
        for name, file in zip(names, files, strict=True):
            lines = TRICKS[name].strip().splitlines()
            file.write_text(SOURCE.format(body="\n".join(f"        {line}" for line in lines)))
        trials = ngbkit.Sweep([*map(str, files)], compilers, batch_sizes=(4,), repeats=20).run(again=True)
        trials = trials.squeeze(["device", "batch_size"], drop=True)
    return {
        (name, column): (
            str(trial["status"].item()),
            str(trial["error"].item() or ""),
            float(trial["latency"].min()),  # other work slows most samples, and not all
        )
        for number, name in enumerate(names)
        for column in compilers
        for trial in [trials.isel(workload=number).sel(compiler=column)]
    }


def judge(status: str, ratio: float) -> str:
    """Judge a trial by its status, and by its time over that of the network without a trick."""
    if status in ("not-equivalent", "not-checked"):
        return f"caught {status}"
    if status != "ok":
        return f"refused {status}"
    return f"honest ({ratio:.2f})" if ratio > 1 / HONEST else f"MISSED ({ratio:.2f})"


def run_costs(rounds: int) -> None:
    """Print the ratios of all networks, each from a process of its own."""
    for network in NETWORKS:
        for batch_size in BATCH_SIZES:
            for compiler in COST_COMPILERS:
                command = [sys.executable, __file__, "one", network, compiler, str(batch_size), str(rounds)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                print(done.stdout.strip() or f"{network} {compiler}: {done.stderr[-300:]}", flush=True)


def time_one(network: str, compiler: str, batch_size: int, rounds: int) -> None:
    """Time turns of calls with the same inputs and with fresh ones in this process, and print their ratio."""
    from programs import compile_network

    from ngbkit.device.timing import intervals
    from ngbkit.device.timing.fresh_inputs import FreshInputs
    from ngbkit.device.timing.rounds import count_settling_calls
    from ngbkit.device.timing.sampling import choose_block_size, sample
    from ngbkit.device.timing.warming import warm_up
    from ngbkit.workloads import feeds
    from ngbkit.workloads.base import Network, TensorSpec

    with tempfile.TemporaryDirectory() as folder:
        module, shape = build_module(network)
        inputs = [TensorSpec(name="x", shape=("batch", *shape))]
        arrays = feeds.draw(inputs, {}, batch_size, 0)
        plain = Network(inputs=inputs, module=module)
        program = compile_network(plain, compiler, Path(folder), batch_size=batch_size, arrays=arrays, threads=2)
        fresh = FreshInputs(program, inputs, {}, arrays, batch_size)
        with program.within():
            call_s = warm_up(program.run).call_s
            block, settle = choose_block_size(call_s), count_settling_calls(call_s)
            samples = max(1, round(TURN_S / (call_s * block)))
            logs = []
            for _ in range(rounds):
                medians = {}
                for vary in random.sample([None, fresh.vary], 2):
                    turn = sample(program.run, samples, block=block, settle=settle, vary=vary)
                    medians[vary is None] = np.median(turn)
                logs.append(np.log(medians[False] / medians[True]))
    low, high = (float(np.exp(bound)) for bound in intervals.compute_median_interval(logs, 0.95))
    ratio = float(np.exp(np.median(logs)))
    row = f"{network:24} batch {batch_size} {compiler:12} {1e6 * call_s:9.1f} µs a call"
    print(f"{row}  {ratio:.4f} ({low:.4f} to {high:.4f})")


def build_module(network: str) -> tuple[Any, tuple[int, ...]]:
    """Build a network and the shape of a sample of its input."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if network == "linear":
        return nn.Linear(16, 4).eval(), (16,)
    if network == "mlp":
        return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).eval(), (256,)
    import timm

    return timm.create_model(network, pretrained=False).eval(), (3, 224, 224)


def main() -> int:
    """Run one of the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tricks = commands.add_parser("tricks")
    tricks.add_argument("--compilers", default=COMPILERS)
    tricks.add_argument("--only", default="")
    commands.add_parser("cost").add_argument("--rounds", type=int, default=60)
    single = commands.add_parser("one")
    for name, kind in (("network", str), ("compiler", str), ("batch_size", int), ("rounds", int)):
        single.add_argument(name, type=kind)
    args = parser.parse_args()
    if args.command == "cost":
        run_costs(args.rounds)
    elif args.command == "one":
        time_one(args.network, args.compiler, args.batch_size, args.rounds)
    else:
        return int(run_tricks(args.compilers.split(","), list(filter(None, args.only.split(",")))) > 0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
