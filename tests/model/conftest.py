"""Saved models."""

import pytest

from adapted import make
from tokencodes.model import adapter


@pytest.fixture
def saved(tmp_path):
    def save(kind):
        net, settings = make(kind)
        adapter.from_transformer(net, settings).save_pretrained(tmp_path / kind)
        return net, tmp_path / kind

    return save
