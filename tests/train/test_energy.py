"""Energy by the driver's counters: a driver is played here, as these tests have no GPU."""

import sys
import types

import pytest
import torch

from tokencodes.train import energy


class DriverError(Exception):
    """What the library raises."""


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs that count millijoules, numbered by the driver in another order than by CUDA."""
    counters = {"GPU-b": 5_000_000, "GPU-a": 1_000_000}
    library = types.ModuleType("pynvml")
    library.NVMLError = DriverError
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    library.nvmlDeviceGetTotalEnergyConsumption = lambda handle: counters[handle]
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda n: types.SimpleNamespace(uuid="ab"[n]))
    return library, counters


def test_the_jobs_gpus_are_counted_from_one_call_to_the_next(driver):
    _, counters = driver
    meter = energy.Meter(torch.device("cuda"), 2)
    counters["GPU-a"] += 1500
    counters["GPU-b"] += 500
    assert meter.joules() == 2.0
    assert meter.joules() == 0.0
    one = energy.Meter(torch.device("cuda"), 1)
    counters["GPU-b"] += 500  # of another job
    assert one.joules() == 0.0


def test_what_is_not_counted_is_not_known(driver):
    library, _ = driver
    assert energy.Meter(torch.device("cpu"), 1).joules() is None
    assert energy.Meter(torch.device("cuda"), 3).joules() is None, "not all of them are on this machine"

    def fails(*_):
        raise DriverError

    library.nvmlDeviceGetTotalEnergyConsumption = fails
    assert energy.Meter(torch.device("cuda"), 2).joules() is None
    library.nvmlInit = fails
    assert energy.Meter(torch.device("cuda"), 2).joules() is None
