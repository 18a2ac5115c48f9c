#!/usr/bin/env python3
"""Trains a network of the comparison with PyTorch, and prints losses and iteration times as JSON.

It trains on the CPU. Under torchrun it trains by DistributedDataParallel with gloo, where each process has a
shard of each batch. See compare.py, and fastest.py for training on a GPU.
"""

import argparse
import json
import os
import sys
import time

import torch
from networks import NETWORKS, read_data
from safetensors.torch import load_file
from torch import distributed
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--initial", required=True, help="file of the initial weights")
    parser.add_argument("--data", required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument(
        "--perturb", type=float, default=0.0, help="relative random change of the initial weights"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    network = NETWORKS[options.network]
    model = network.make()
    model.load_state_dict(load_file(options.initial))
    perturb(model, options.perturb)
    model.train()
    rank, world = 0, 1
    if "WORLD_SIZE" in os.environ:
        distributed.init_process_group("gloo")
        rank, world = distributed.get_rank(), distributed.get_world_size()
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=network.lr, momentum=network.momentum)
    inputs, labels = read_data(options.data)
    part = network.batch // world

    losses, times = [], []
    for iteration in range(options.iterations):
        first = iteration * network.batch + rank * part
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[first : first + part]), labels[first : first + part])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append((time.perf_counter() - began) * 1e6)
    if rank == 0:
        json.dump({"losses": losses, "iteration_us": times}, sys.stdout)


@torch.no_grad()
def perturb(model, by):
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.mul_(1 + by * torch.randn(parameter.shape, generator=generator))


if __name__ == "__main__":
    main()
