"""Settings for every test."""

import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits

settings.register_profile("untimed", deadline=None)  # machines are shared: no test fails for being slow
settings.load_profile("untimed")
torch.set_num_threads(1)  # the tests' arrays are small; more threads only wait for each other
threadpool_limits(1)

LONGEST = (
    "test_browser.py", "test_transformers_bridge.py", "test_config_values.py", "test_foreign.py", "test_verify.py",
    "test_pages_all.py", "test_selfcheck.py", "test_verify_command.py", "test_published_measured.py",
)  # fmt: skip
"""Files that take longest; begun first, so that no worker is left alone with one of them at the end."""


def pytest_collection_modifyitems(items):
    """The longest files first, all others in their order."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
