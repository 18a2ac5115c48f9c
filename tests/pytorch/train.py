#!/usr/bin/env python3
"""Trains a network of the comparison with PyTorch, and prints losses and iteration times as JSON.

It trains on the CPU. Under torchrun it trains by DistributedDataParallel with gloo, where each process has a
shard of each batch. With --cuda-graph it trains on the first NVIDIA GPU in single precision, where each
iteration is one launch of a CUDA graph. See compare.py.
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
    parser.add_argument(
        "--cuda-graph", action="store_true", help="train on the first GPU, with one CUDA graph per iteration"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    network = NETWORKS[options.network]
    model = network.make()
    model.load_state_dict(load_file(options.initial))
    perturb(model, options.perturb)
    model.train()
    if options.cuda_graph:
        losses, times = with_cuda_graph(model, network, read_data(options.data), options.iterations)
        json.dump({"losses": losses, "iteration_us": times}, sys.stdout)
        return
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


def with_cuda_graph(model, network, data, iterations):
    """Returns losses and times. A time is from the copy of the samples to the end of the iteration."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    model = model.cuda()
    first_state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    inputs, labels = (tensor.pin_memory() for tensor in data)
    batch = network.batch
    optimizer = torch.optim.SGD(model.parameters(), lr=network.lr, momentum=network.momentum)
    static_inputs, static_labels = inputs[:batch].cuda(), labels[:batch].cuda()

    def iterate():
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(static_inputs), static_labels)
        loss.backward()
        optimizer.step()
        return loss

    # Warm up before the capture: libraries select kernels and allocate. State is restored later.
    warm_up = torch.cuda.Stream()
    warm_up.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm_up):
        for _ in range(3):
            iterate()
    torch.cuda.current_stream().wait_stream(warm_up)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = iterate()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(first_state[name])
        for state in optimizer.state.values():
            state["momentum_buffer"].zero_()

    losses, times = [], []
    for iteration in range(iterations):
        first = iteration * batch
        torch.cuda.synchronize()
        began = time.perf_counter()
        static_inputs.copy_(inputs[first : first + batch], non_blocking=True)
        static_labels.copy_(labels[first : first + batch], non_blocking=True)
        graph.replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e6)
        losses.append(static_loss.item())
    return losses, times


@torch.no_grad()
def perturb(model, by):
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.mul_(1 + by * torch.randn(parameter.shape, generator=generator))


if __name__ == "__main__":
    main()
