"""The ranks of one training job: a single process, or processes that torchrun started. One process per GPU; on CPUs
the ranks communicate through Gloo."""

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

TIMEOUT = timedelta(hours=1)  # ranks wait while the main rank hashes the whole store or writes a checkpoint


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, and the number of ranks."""

    rank: int
    world_size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this is rank 0, the only one that writes files."""
        return self.rank == 0

    def all_sum(self, values: list[float]) -> list[float]:
        """The sum of each value over ranks, in float64."""
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
        """Make `module` data parallel. `ddp` keeps a full copy on each rank. `fsdp` shards each of `blocks` and the
        rest of `module` in place.

        Gradients are means over ranks. Build the optimizer after this call, since fsdp replaces the parameters.
        """
        if self.world_size == 1:
            return module
        if parallel == "fsdp":
            mesh = init_device_mesh(self.device.type, (self.world_size,))
            for block in blocks:
                fully_shard(block, mesh=mesh)
            return fully_shard(module, mesh=mesh)
        ids = [self.device.index] if self.device.type == "cuda" else None
        # Buffers are constants that each rank has built: there is nothing to broadcast. Gradients are views of buckets.
        return nn.parallel.DistributedDataParallel(
            module, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True
        )

    @contextlib.contextmanager
    def accumulating(self, module: nn.Module, last: bool) -> Iterator[None]:
        """Context of one micro-batch's forward and backward pass: only the last one reduces gradients over ranks."""
        if isinstance(module, FSDPModule):
            module.set_requires_gradient_sync(last)
        is_ddp = isinstance(module, nn.parallel.DistributedDataParallel)
        with module.no_sync() if is_ddp and not last else contextlib.nullcontext():
            yield

    def gathered(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Unsharded tensors on the CPU of the main rank; an empty dict on the others. All ranks must call this."""
        gathered = {}
        for name in sorted(tensors):
            tensor = tensors[name].detach()
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.main:
                gathered[name] = whole.cpu()
        return gathered


def choose_device(name: str, local_rank: int) -> torch.device:
    """The device of a rank. `auto` means CUDA if there is a GPU, otherwise the CPU.

    Raises UserError if `cuda` is requested without a GPU, or if the machine has too few GPUs for this rank.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError("train.device: cuda, but torch sees no GPU here; use cpu or auto, or request a GPU")
    if local_rank >= torch.cuda.device_count():
        raise UserError(
            f"train.n_gpus: rank {local_rank} has no GPU of its own; {torch.cuda.device_count()} are visible"
        )
    return torch.device("cuda", local_rank)


@contextlib.contextmanager
def job(train: Train):
    """Join the job; yields Ranks. Raises UserError, before it uses a GPU, if the number of processes is not `n_gpus`.

    Modules that `wrap` returned use the process group. They must be out of scope when this context ends.
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
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield Ranks(rank, world_size, device)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)
        raise
    finally:
        if world_size > 1:
            # Free the users of the process group before the group. If DDP's reducer held the last reference to it, the
            # reducer would wait for Gloo's thread while it keeps the interpreter lock. Gloo's thread may need that lock
            # to free the objects of its last operation: a deadlock.
            gc.collect()
            dist.destroy_process_group()


def make_deterministic(cpu_threads: int, seed: int) -> None:
    """Make equal inputs give equal bits: one seed, deterministic kernels, a fixed number of threads.

    The order of sums on a CPU depends on the number of threads.
    """
    torch.manual_seed(seed)
    # cuBLAS is deterministic only with one of two workspace sizes; this is one of them
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(cpu_threads)
    torch.use_deterministic_algorithms(True)
    # All memory is written before it is read, so filling it first would cost time and change no bit
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False


def like(target: Tensor, whole: Tensor) -> Tensor:
    """`whole` on the device of `target`, and sharded as `target` is."""
    if isinstance(target, DTensor):
        return distribute_tensor(whole.to(target.device), target.device_mesh, target.placements)
    return whole.to(target.device)


def number(value: Tensor) -> float:
    """A scalar tensor's value, summed over ranks if it is sharded."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)


def peak_memory_mib(device: torch.device) -> float:
    """Peak memory of this process so far, in MiB: allocated on its GPU, or resident memory on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10  # Linux counts in KiB


def rng_state(device: torch.device) -> dict[str, Tensor]:
    """The states of this process' random generators. Training does not draw from them yet; later code may."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state: dict[str, Tensor], device: torch.device) -> None:
    """The reverse of `rng_state`."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
