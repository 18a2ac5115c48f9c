"""Trains torchvision's ResNet-18 on CIFAR-10 by a burst plan, with a background job in the idle time.

    torchrun --nproc-per-node 2 examples/cifar_resnet.py [--data FOLDER] [--device cpu-core] [--iterations 30]

`--data` is a folder for torchvision's CIFAR10. Without it, images are random with learnable classes.
"""

import argparse
from itertools import chain, repeat

import torch
import torch.distributed as dist
import torchvision
from torch import nn

import deeppool
from deeppool.torch import BurstParallel
from deeppool.tracing import trace

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--device", default="cpu-core", help="device model for planning")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--iterations", type=int, default=30)
options = parser.parse_args()
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = f"cuda:{dist.get_node_local_rank()}" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)  # the same order of samples on all ranks
if options.data:
    images = torchvision.datasets.CIFAR10(
        options.data, download=True, transform=torchvision.transforms.ToTensor()
    )
else:
    classes = torch.arange(2048) % 10
    images = torch.utils.data.TensorDataset(
        torch.randn(10, 3, 32, 32)[classes] + torch.randn(2048, 3, 32, 32), classes
    )
loader = torch.utils.data.DataLoader(
    images, options.batch, shuffle=True, drop_last=True
)  # global batches: no DistributedSampler
traced = trace(
    torchvision.models.resnet18(num_classes=10).to(device), torch.randn(2, 3, 32, 32, device=device)
)
plan = deeppool.plan(traced.network, device=options.device, gpus=dist.get_world_size(), batch=options.batch)
other = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
other_optimizer = torch.optim.Adam(other.parameters())


def background_step():
    other_optimizer.zero_grad()
    other(torch.randn(64, 256, device=device)).square().mean().backward()
    other_optimizer.step()


model = BurstParallel(traced, plan, background=background_step)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for iteration, (inputs, targets) in zip(range(options.iterations), chain.from_iterable(repeat(loader))):
    optimizer.zero_grad()
    loss = model(inputs, targets)
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0 and iteration % 10 == 0:
        print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
print(f"rank {dist.get_rank()}: {model.background_report()}", flush=True)
state = model.state_dict()  # a collective: call it on all ranks
if dist.get_rank() == 0:
    torch.save(state, "resnet18.pt")
dist.barrier()  # wait until all ranks have completed their communication
dist.destroy_process_group()
