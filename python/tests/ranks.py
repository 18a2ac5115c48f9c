"""Execution of a function on several processes connected by gloo."""

import multiprocessing
import pickle
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing


def on_ranks(world, function, *arguments):
    """Returns the results of `function(*arguments)` on each rank. The function must be picklable."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.set_forkserver_preload(["torch", "torch.distributed", "deeppool.torch"])
        torch.multiprocessing.start_processes(
            _rank, (world, folder, function, arguments), world, start_method="forkserver"
        )
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(world)]


def _rank(rank, world, folder, function, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    try:
        result = function(*arguments)
        Path(folder, str(rank)).write_bytes(pickle.dumps(result))
        dist.barrier()
    finally:
        dist.destroy_process_group()
