"""Modules as people write them: nested, keyword and shared arguments, numbers, states and other places of the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from field.case import Case, Outcome, expect_failure, expect_unchecked
from field.measuring import Results, find_faults, measure
from field.modules import describe_module

TAGGER = """
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(500, 32)
        self.rnn = nn.LSTM(32, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 7)
    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])

model = Tagger()
inputs = torch.randint(0, 500, (3, 20))
"""
TIME_FIRST = """
class Frames(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(12, 16)
    def forward(self, x, h0):
        return self.rnn(x, h0)

model = Frames()
inputs = (torch.randn(10, 3, 12), torch.randn(1, 3, 16))
"""
NESTED = """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(16, 16)
    def forward(self, x, past):
        keys, values = past
        k = torch.cat([keys, self.q(x)], 1)
        v = torch.cat([values, x], 1)
        return torch.softmax(self.q(x) @ k.mT, -1) @ v, (k, v)

model = Decoder()
inputs = (torch.randn(2, 1, 16), (torch.randn(2, 5, 16), torch.randn(2, 5, 16)))
"""
DICT = """
class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(6, 8)
    def forward(self, batch):
        return self.a(batch["user"]) * self.b(batch["item"])

model = Tower()
inputs = {"user": torch.randn(3, 4), "item": torch.randn(3, 6)}
"""
KEYWORDS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, *, features, mask=None, **kwargs):
        y = self.fc(features)
        return y if mask is None else y * mask

model = Net()
inputs = {"features": torch.randn(2, 8), "mask": torch.ones(2, 1)}
"""
MASKED = """
class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
    def forward(self, x, keep):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, :] & keep[:, :, None])

model = Attend()
keep = torch.ones(2, 6, dtype=torch.bool)
keep[1, 3:] = False
inputs = (torch.randn(2, 6, 16), keep)
"""
TIED = """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(300, 16)
        self.head = nn.Linear(16, 300, bias=False)
        self.head.weight = self.emb.weight
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    def forward(self, ids):
        return self.head(self.block(self.emb(ids)))

model = Tied()
inputs = {"ids": torch.randint(0, 300, (2, 12))}
"""
BAG = """
class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(1000, 16, mode="sum")
        self.fc = nn.Linear(16 + 4, 1)
    def forward(self, dense, ids):
        return torch.sigmoid(self.fc(torch.cat([dense, self.bag(ids)], 1)))

model = Recommender()
inputs = (torch.randn(4, 4), torch.randint(0, 1000, (4, 10)))
"""
EMBEDDING = """
model = nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 4))
input_shape = (12,)
"""
BATCH_OF_ONE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(256, 5)
    def forward(self, x):
        return self.fc(self.conv(x).view(1, 256))

model = Net()
inputs = torch.randn(1, 3, 8, 8)
"""
BAKED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.tensor(2))
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        return self.fc(x.reshape(2, 8))

model = Net()
inputs = torch.randn(2, 8)
"""
IN_PLACE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, x):
        x -= x.mean(1, keepdim=True)
        x.mul_(1.01)
        return self.fc(x)

model = Net()
input_shape = (8,)
"""
IN_PLACE_ROWS = IN_PLACE.replace("x.mean(1, keepdim=True)", "x.mean()")
FUNCTION = """
weight = torch.randn(4, 8)

def model(x):
    return F.linear(x, weight).relu()

input_shape = (8,)
"""
SCALAR = """
class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.t = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(1, 3)
    def forward(self, x, timestep):
        return self.conv(x) + self.t(timestep.reshape(1, 1).float())[:, :, None, None]

model = Denoiser()
inputs = (torch.randn(2, 3, 16, 16), torch.tensor(10))
"""
NUMBER = """
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x, scale):
        return self.fc(x) * scale

model = Scale()
inputs = (torch.randn(2, 8), 0.5)
"""
SHARED = """
class Match(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(8, 8)
    def forward(self, reference, candidates):
        return self.enc(candidates) @ self.enc(reference).T

model = Match()
inputs = {"reference": torch.randn(1, 8), "candidates": torch.randn(5, 8)}
"""
MISSING = """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
    def forward(self, image, mask):
        return self.fc(image * mask)

model = Masked()
input_shape = (8,)
"""
EXPORTED = Outcome(status="ok|unsupported")
ONNX = ("onnxruntime",)
REASON_4D = Outcome(status="ok|unsupported", reason="^$|4D")
CHANGED = expect_unchecked("changes its input x in place")
NO_TWO = expect_failure("(?i)batch|shape|size")
CASES = (
    describe_module("54-lstm", TAGGER),
    describe_module(
        "54b-gru-time-first",
        TIME_FIRST,
        batch_sizes=(1, 2),
        batch_axis={"x": 1, "h0": 1},
    ),
    describe_module("60-nested-past", NESTED),
    describe_module(
        "60b-dict-argument",
        DICT,
        outcome=Outcome(status="ok|failed|refused", reason="^$|user.*item|wrap|batch"),
    ),
    describe_module("61-keyword-only", KEYWORDS),
    describe_module(
        "64-masked-rows",
        MASKED,
        outcomes=dict.fromkeys(ONNX, REASON_4D),
    ),
    describe_module("67-tied", TIED),
    describe_module("70-embedding-bag", BAG),
    describe_module(
        "71-embedding-shape-only",
        EMBEDDING,
        outcome=expect_failure("inputs"),
    ),
    describe_module("78-batch-of-one", BATCH_OF_ONE, batch_sizes=(1, 2), outcomes={2: NO_TWO}),
    describe_module("78d-batch-of-two", BAKED, batch_sizes=(1, 2), outcomes={1: NO_TWO}),
    describe_module("78b-inplace-input", IN_PLACE_ROWS, outcome=CHANGED),
    describe_module("78c-inplace-rows", IN_PLACE, outcome=CHANGED),
    describe_module(
        "80-plain-function",
        FUNCTION,
        outcome=expect_failure("nn.Module"),
    ),
    describe_module("84-scalar-argument", SCALAR, batch_sizes=(1, 2)),
    describe_module(
        "84b-python-number",
        NUMBER,
        outcome=Outcome(status="ok|refused|failed", reason="^$|tensor|wrap"),
    ),
    describe_module("85-shared-image", SHARED, batch_sizes=(1, 2)),
    describe_module(
        "85b-missing-mask",
        MISSING,
        outcome=expect_failure("mask.*input_shape = |inputs = "),
    ),
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("arguments"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_arguments_are_those_of_the_module(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked, or the reason names the remedy."""
    assert [] == find_faults(case, results[case.name])
