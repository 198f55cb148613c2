"""Energy that the GPUs of a run have used, from the counters that NVIDIA's driver keeps.

A processor's counter is mostly readable by root alone and counts the whole machine, so CPUs are left out.
"""

import torch


class Meter:
    """Counts from its creation on. On a CPU, without a counter, or without the driver's library, it knows nothing."""

    def __init__(self, device: torch.device, n_devices: int):
        """`n_devices`: the GPUs of the job, all on this machine, from the first visible one on."""
        here = device.type == "cuda" and torch.cuda.device_count() >= n_devices
        self.handles = _handles(n_devices) if here else []
        self.last = self._total()

    def joules(self) -> float | None:
        """Energy since the last call (J), of all GPUs together; None if it is not known."""
        before, self.last = self.last, self._total()
        return None if before is None or self.last is None else (self.last - before) / 1000

    def _total(self) -> int | None:
        """All counters together, millijoules."""
        if not self.handles:
            return None
        import pynvml

        try:
            return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) for handle in self.handles)
        except pynvml.NVMLError:  # older than Volta: no such counter
            return None


def _handles(n_devices: int) -> list:
    """The driver's handles of the GPUs, by their UUID: CUDA numbers those that it may see, the driver all."""
    import pynvml

    try:
        pynvml.nvmlInit()
        uuids = [torch.cuda.get_device_properties(number).uuid for number in range(n_devices)]
        return [pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}") for uuid in uuids]
    except pynvml.NVMLError:
        return []
