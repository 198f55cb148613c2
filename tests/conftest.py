"""What several test packages share."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a test that reached for the hub would not be a test of this project

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def wheel_cache() -> Path:
    """Where data wheels are kept between test runs: TOKENCODES_TEST_CACHE, else the config's default cache."""
    return Path(os.environ.get("TOKENCODES_TEST_CACHE", "~/.cache/tokencodes")).expanduser()
