"""Uninterrupted runs, made once."""

import pytest

from runs import LONG, SPLIT, bits, command, finish
from tokencodes.train import loop


@pytest.fixture(scope="session")
def straight(tiny, tmp_path_factory):
    """An uninterrupted run of each interface."""
    done = {}

    def get(name):
        if name not in done:
            done[name] = tmp_path_factory.mktemp(f"straight-{name}")
            loop.train(tiny.config().run(name, 0), tiny.store, done[name])
        return done[name]

    return get


@pytest.fixture(scope="session")
def long_straight(tiny, tmp_path_factory):
    """The bits of an uninterrupted run of LONG on one or two processes."""
    done = {}

    def get(ranks):
        if ranks not in done:
            folder = tmp_path_factory.mktemp(f"long-{ranks}")
            finish(command(tiny, folder, ranks=ranks, **LONG, **SPLIT[ranks]))
            done[ranks] = bits(folder / "out")
        return done[ranks]

    return get
