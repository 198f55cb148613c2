"""The ranks of one training job: alone, or started by torchrun. One process a GPU (or CPU ranks with gloo)."""

import contextlib
import gc
import os
import resource
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from tokencodes.errors import UserError
from tokencodes.train.spec import Train

PATIENCE = timedelta(hours=1)  # ranks wait while the main one hashes the whole store, or writes a checkpoint


@dataclass(frozen=True)
class Ranks:
    """This process' place in the job."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is the one process that writes."""
        return self.rank == 0

    def all_sum(self, values: list[float]) -> list[float]:
        """Sums over ranks, in float64."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world_size > 1:
            dist.barrier()

    def wrap(self, module: nn.Module, blocks: Iterable[nn.Module], parallel: str) -> nn.Module:
        """Data parallel: `ddp` keeps whole copies, `fsdp` shards each of `blocks`, and the rest of `module`, in place.

        Gradients come out as the mean over ranks. An optimizer must be built after this: fsdp replaces parameters.
        """
        if self.world_size == 1:
            return module
        if parallel == "fsdp":
            mesh = init_device_mesh(self.device.type, (self.world_size,))
            for block in blocks:
                fully_shard(block, mesh=mesh)
            return fully_shard(module, mesh=mesh)
        ids = [self.device.index] if self.device.type == "cuda" else None
        # buffers are constants that every rank built by itself: nothing to broadcast; gradients live in the buckets
        return nn.parallel.DistributedDataParallel(
            module, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True
        )

    @contextlib.contextmanager
    def accumulating(self, module: nn.Module, last: bool) -> Iterator[None]:
        """Around forward and backward of a micro-batch: gradients meet only after the last one."""
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(last)
        waits = module.no_sync() if isinstance(module, nn.parallel.DistributedDataParallel) and not last else None
        with waits or contextlib.nullcontext():
            yield

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors on the CPU, on the main rank; nothing on the others, which must all call this."""
        found = {}
        for name in sorted(tensors):
            tensor = tensors[name].detach()
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.main:
                found[name] = whole.cpu()
        return found


def choose_device(name: str, local_rank: int) -> torch.device:
    """`auto` is CUDA where there is a GPU. Raises UserError if CUDA is asked for and there is none."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("train.device: cuda, but torch sees no GPU here; use cpu or auto, or ask for a GPU")
    if local_rank >= torch.cuda.device_count():
        raise UserError(
            f"train.n_gpus: rank {local_rank} has no GPU of its own; {torch.cuda.device_count()} are visible"
        )
    return torch.device("cuda", local_rank)


@contextlib.contextmanager
def job(train: Train):
    """Join the job; yields Ranks. Asserts the number of processes before any GPU is taken.

    What is made of the ranks (modules that `wrap` returned) must not outlive the functions that are called within.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size != train.n_gpus:
        raise UserError(
            f"train.n_gpus is {train.n_gpus} but {world_size} process(es) were started; use "
            f"`torchrun --standalone --nproc-per-node {train.n_gpus} -m -- tokencodes.cli train ...` or change it"
        )
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device = choose_device(train.device, local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Ranks(rank, world_size, device)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        if world_size > 1:
            # What uses the group must be gone before it. DDP's reducer, were it the last to hold the group, would wait
            # for Gloo's thread and keep the interpreter, which that thread may need to free what its last work held
            gc.collect()
            dist.destroy_process_group()


def make_deterministic(cpu_threads: int, seed: int) -> None:
    """Same input, same bits: one seed, deterministic kernels, a fixed number of threads (CPU sums depend on it)."""
    torch.manual_seed(seed)
    os.environ.setdefault(
        "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
    )  # cuBLAS is deterministic only with one of its own sizes
    torch.set_num_threads(cpu_threads)
    torch.use_deterministic_algorithms(True)
    # what is taken is always written before it is read; to write it twice costs time and changes no bit
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False


def like(target: Tensor, whole: Tensor) -> Tensor:
    """`whole` where and how `target` is: on its device, or sharded as it is."""
    if isinstance(target, DTensor):
        return distribute_tensor(whole.to(target.device), target.device_mesh, target.placements)
    return whole.to(target.device)


def number(value: Tensor) -> float:
    """A scalar tensor's value, summed over ranks if it is sharded."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)


def peak_memory_mib(device: torch.device) -> float:
    """The most that this process has held so far: allocated on its GPU, or resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # Linux counts in KiB


def rng_state(device: torch.device) -> dict[str, Tensor]:
    """The generators of this process. Nothing draws from them while training; kept so that what is added later may."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state: dict[str, Tensor], device: torch.device) -> None:
    """The reverse of `rng_state`."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
