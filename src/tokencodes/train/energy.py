"""Energy that the GPUs of a run have used, from the counters of NVIDIA's driver.

CPUs are not measured: usually only root may read a processor's counter, and it covers the whole machine.
"""

import torch

MILLIJOULES_PER_JOULE = 1000


class Meter:
    """Measures energy from its creation on. The energy is unknown on a CPU and on GPUs without such a counter."""

    def __init__(self, device: torch.device, n_devices: int):
        """`n_devices`: number of GPUs of the job. They must all be on this machine, from the first visible one on."""
        measurable = device.type == "cuda" and torch.cuda.device_count() >= n_devices
        self.handles = _handles(n_devices) if measurable else []
        self.last = self._total()

    def joules(self) -> float | None:
        """Energy of all GPUs since the last call, in joules; None if it is unknown."""
        before, self.last = self.last, self._total()
        return None if before is None or self.last is None else (self.last - before) / MILLIJOULES_PER_JOULE

    def _total(self) -> int | None:
        """The sum of all counters, in millijoules."""
        if not self.handles:
            return None
        import pynvml

        try:
            return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in self.handles)
        except pynvml.NVMLError:  # GPUs older than Volta have no such counter
            return None


def _handles(n_devices: int) -> list:
    """The driver's handles of the GPUs, found by UUID: CUDA numbers the visible GPUs only, the driver all of them."""
    import pynvml

    try:
        pynvml.nvmlInit()
        uuids = [torch.cuda.get_device_properties(number).uuid for number in range(n_devices)]
        return [pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}") for uuid in uuids]
    except pynvml.NVMLError:
        return []
