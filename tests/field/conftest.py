"""The engine of the networks that somebody brought, which all of these files share."""

import pytest
from state import share_state_dir

state_dir = pytest.fixture(scope="module", autouse=True)(share_state_dir)
