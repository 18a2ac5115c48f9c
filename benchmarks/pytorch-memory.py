#!/usr/bin/env python3
"""Measures the memory of training in PyTorch: bytes saved for the backward pass, and peak memory.

    pytorch-memory.py [--networks resnet-50 gpt2] [--batches 8 32] [--executed resnet-18] [--out OUT.json]

Iterations are forward pass, loss, backward pass and SGD with momentum, in single precision. They run on
fake tensors, which have shapes and storages but no data: results do not depend on the machine. For each
network it prints

- the bytes a sample saved for the backward pass by the network and by the loss: the distinct storages that
  autograd saves, without parameters and buffers but with the network's input, as the slope between batches
  of 4 and 36;
- for each batch the peak of the second iteration by `torch.distributed._tools.mem_tracker.MemTracker`, with
  each storage rounded up to blocks of 512 bytes, and its parts;
- the peak predicted from sums: parameters, buffers, momentum, saved bytes, and the larger of all gradients
  and twice the scores;
- the peak predicted by a walk over the autograd graph, from the sizes of saved tensors and gradients alone;
- with a GPU, the peak of the third iteration on it by PyTorch's caching allocator: allocated, requested
  and reserved bytes. cuDNN does not choose algorithms by timing.

GPT-2 trains on an eighth of the batch, of 1024 tokens a sample. Fake tensors are on the CPU, where a mask of
dropout has 4 bytes an element, instead of 1 on a GPU. Needs PyTorch 2.11, and torchvision 0.26 for networks
other than GPT-2; without torchvision they are left out.
"""

import argparse
import contextlib
import gc
import heapq
import itertools
import json
import platform
import shlex
import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools import mem_tracker
from torch.nn import functional

try:
    import torchvision
except ImportError:
    torchvision = None

#: Size of a block of PyTorch's caching allocator, bytes.
BLOCK_BYTES = 512
#: Batches between which saved bytes a sample are the slope.
SLOPE = 4, 36
TOKENS, VOCABULARY = 1024, 50257
#: Parts of the names of autograd nodes whose result shares the memory of the given gradient.
ALIASES = "View", "Squeeze", "Unsqueeze", "Transpose", "Permute", "TBackward", "Expand", "Alias"
#: Names of MemTracker's parts of a peak.
PARTS = {
    "parameters": "Parameter",
    "buffers": "Buffer",
    "gradients": "Gradient",
    "optimizer": "Optstate",
    "activations": "Activation",
    "temporaries": "Temp",
    "inputs": "Other",
}


class Block(torch.nn.Module):
    """A block of GPT-2: attention by a fused kernel and two dense layers, each behind a normalisation."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    """GPT-2 of 124 million parameters, without dropout."""

    def __init__(self, width=768, heads=12, blocks=12):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, width)
        self.places = torch.nn.Embedding(TOKENS, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight
        return functional.linear(self.norm(self.blocks(x)), self.tokens.weight)


def image(name, **options):
    return lambda: getattr(torchvision.models, name)(**options)


NETWORKS = {
    "resnet-18": image("resnet18"),
    "resnet-34": image("resnet34"),
    "resnet-50": image("resnet50"),
    "wrn-101-2": image("wide_resnet101_2"),
    "vgg11": image("vgg11"),
    "vgg16": image("vgg16"),
    "inception-v3": image("inception_v3", aux_logits=False, init_weights=False),
    "vit-b-16": image("vit_b_16"),
    "mobilenet-v2": image("mobilenet_v2"),
    "gpt2": Gpt2,
}


class Job:
    """A network in training mode, with a batch of inputs and targets."""

    def __init__(self, name, batch, device="cpu"):
        torch.manual_seed(0)
        self.is_language = name == "gpt2"
        with torch.device(device):
            self.network = NETWORKS[name]().train()
            if self.is_language:
                self.inputs = self.targets = torch.randint(VOCABULARY, (batch, TOKENS))
            else:
                size = 299 if name == "inception-v3" else 224
                self.inputs = torch.randn(batch, 3, size, size)
                self.targets = torch.randint(1000, (batch,))
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=1e-4, momentum=0.9)

    def loss(self, scores):
        if self.is_language:
            # The next token.
            return functional.cross_entropy(scores[:, :-1].flatten(0, 1), self.targets[:, 1:].flatten())
        return functional.cross_entropy(scores, self.targets)

    def step(self):
        # The scores are referenced until the loss is computed, as in most training scripts.
        scores = self.network(self.inputs)
        loss = self.loss(scores)
        del scores
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def saved_bytes(name, batch):
    """Returns the bytes saved by the network, by the loss besides, and the bytes of the scores."""
    job = Job(name, batch)
    state = [*job.network.parameters(), *job.network.buffers()]
    others = {tensor.untyped_storage()._cdata for tensor in state}
    # Storages by address. They are kept, so that no address is used twice.
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in others:
            saved[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        scores = job.network(job.inputs)
        by_network = sum(storage.nbytes() for storage in saved.values())
        job.loss(scores)
    total = sum(storage.nbytes() for storage in saved.values())
    return by_network, total - by_network, scores.nbytes


def slope(name, is_fake=True):
    """Returns the saved bytes a sample of the network and of the loss."""
    with FakeTensorMode() if is_fake else contextlib.nullcontext():
        few, many = (saved_bytes(name, batch) for batch in SLOPE)
    return [(large - small) / (SLOPE[1] - SLOPE[0]) for small, large in zip(few[:2], many[:2])]


def tracked_peak(name, batch):
    """Returns MemTracker's peak in bytes and its parts."""
    with FakeTensorMode():
        job = Job(name, batch)
        tracker = mem_tracker.MemTracker()
        tracker.track_external(job.network, job.optimizer, job.inputs, job.targets)
        with tracker:
            # The first iteration allocates the momentum.
            for _ in range(2):
                job.step()
                tracker.reset_mod_stats()
        (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    snapshot = {getattr(key, "value", key): size for key, size in snapshot.items()}
    return {"bytes": snapshot["Total"]} | {part: snapshot[key] for part, key in PARTS.items()}


def summed_peak(name, batch):
    """Returns the peak predicted from sums over the network, and the sums, in bytes."""
    with FakeTensorMode():
        network = NETWORKS[name]()
        parameters = sum(tensor.nbytes for tensor in network.parameters())
        buffers = sum(tensor.nbytes for tensor in network.buffers())
        by_network, by_loss, scores = saved_bytes(name, batch)
    sums = {
        "parameters": parameters,
        "buffers": buffers,
        "momentum": parameters,
        "saved": by_network + by_loss,
        # At the start of the backward pass the loss's gradients exist, at its end all gradients.
        "gradients_or_loss": max(parameters, 2 * scores),
    }
    return {"bytes": sum(sums.values())} | sums


class Gradient:
    """A gradient in memory, with its number of references."""

    def __init__(self, size):
        self.size, self.references = size, 0


class Walk:
    """Memory during a backward pass, from the saved storages and the gradients of each node.

    Nodes run in the order of autograd's engine: of those that have all their gradients, the latest of the
    forward pass, and gradients of parameters first. A node allocates the gradients of its inputs, then frees
    storages that no later node needs and the gradients that it was given.
    """

    def __init__(self, loss, ignored):
        # By node: number of gradients that it is given, and its saved storages.
        self.missing, self.saved = {}, {}
        # By storage: its size, and the nodes that have yet to read it.
        self.sizes, self.users = {}, {}
        found = [loss.grad_fn]
        while found:
            node = found.pop()
            if node in self.saved:
                continue
            self.saved[node] = [one for one in self.storages(node) if one._cdata not in ignored]
            for storage in self.saved[node]:
                self.sizes[storage._cdata] = storage.nbytes()
                self.users.setdefault(storage._cdata, set()).add(node)
            for consumer, _ in node.next_functions:
                if consumer is not None:
                    self.missing[consumer] = self.missing.get(consumer, 0) + 1
                    found.append(consumer)
        self.bytes = sum(self.sizes.values())
        self.peak = self.bytes
        self.run(loss.grad_fn)

    @staticmethod
    def storages(node):
        for name in dir(node):
            if name.startswith("_saved_"):
                value = getattr(node, name)
                for tensor in value if isinstance(value, (tuple, list)) else [value]:
                    if isinstance(tensor, torch.Tensor):
                        yield tensor.untyped_storage()

    @staticmethod
    def is_parameter(node):
        return type(node).__name__ == "AccumulateGrad"

    def refer(self, gradient):
        self.bytes += 0 if gradient.references else gradient.size
        self.peak = max(self.peak, self.bytes)
        gradient.references += 1
        return gradient

    def release(self, gradient):
        gradient.references -= 1
        self.bytes -= 0 if gradient.references else gradient.size

    def run(self, last):
        given = {last: {0: self.refer(Gradient(4))}}
        order = itertools.count()
        ready = [(0, next(order), last)]
        while ready:
            *_, node = heapq.heappop(ready)
            gradients = given.pop(node)
            if self.is_parameter(node):
                continue  # Its gradient is kept.
            results = self.results(node, next(iter(gradients.values())))
            for storage in {storage._cdata for storage in self.saved[node]}:
                self.users[storage].discard(node)
                self.bytes -= 0 if self.users[storage] else self.sizes[storage]
            for gradient in gradients.values():
                self.release(gradient)
            for consumer, slot, gradient in results:
                slots = given.setdefault(consumer, {})
                slots[slot] = self.sum(slots[slot], gradient) if slot in slots else gradient
                self.missing[consumer] -= 1
                if self.missing[consumer] == 0:
                    number = 2**62 if self.is_parameter(consumer) else consumer._sequence_nr()
                    heapq.heappush(ready, (-number, next(order), consumer))

    def results(self, node, given):
        name, results = type(node).__name__, []
        is_alias = any(part in name for part in ALIASES)
        for consumer, slot in node.next_functions:
            if consumer is None:
                continue
            elements = 4 * torch.Size(consumer._input_metadata[slot].shape).numel()
            is_same = is_alias or (name.startswith("AddBackward") and elements == given.size)
            results.append((consumer, slot, self.refer(given if is_same else Gradient(elements))))
        return results

    def sum(self, held, gradient):
        """Adds up in place where nothing else refers to the first gradient."""
        if held.references > 1:
            total = self.refer(Gradient(held.size))
            self.release(held)
        else:
            total = held
        self.release(gradient)
        return total


def walked_peak(name, batch):
    """Returns the peak predicted by a walk over the autograd graph, in bytes."""
    with FakeTensorMode():
        job = Job(name, batch)
        parameters = [*job.network.parameters()]
        fixed = [*parameters, *job.network.buffers(), job.inputs, job.targets]
        loss = job.loss(scores := job.network(job.inputs))
        storages = {tensor.untyped_storage()._cdata: tensor.nbytes for tensor in fixed}
        momentum = sum(tensor.nbytes for tensor in parameters)
        walk = Walk(loss, storages)
        # The scores, and the copy of those that have a next token.
        forward = sum(walk.sizes.values()) + scores.nbytes * (2 if job.is_language else 1)
    return sum(storages.values()) + momentum + max(walk.peak, forward)


def measured_peak(name, batch):
    """Returns the peaks of the caching allocator on the GPU in bytes, or the error."""
    gc.collect()
    torch.cuda.empty_cache()
    try:
        job = Job(name, batch, "cuda")
        for _ in range(2):
            job.step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        job.step()
        torch.cuda.synchronize()
    except RuntimeError as error:  # Such as out of memory.
        return {"error": str(error)[:300]}
    statistics = torch.cuda.memory_stats()
    kinds = "allocated", "requested", "reserved"
    return {f"{kind}_bytes": statistics[f"{kind}_bytes.all.peak"] for kind in kinds}


def machine():
    facts = {"machine": f"{platform.system()} {platform.machine()}", "torch": torch.__version__}
    facts["torchvision"] = torchvision and torchvision.__version__
    if torch.cuda.is_available():
        facts |= {"gpu": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version()}
    return facts


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=[8, 16, 32, 64])
    parser.add_argument("--executed", nargs="+", choices=NETWORKS, default=[], help="also with real tensors")
    parser.add_argument("--out", help="file for the results in JSON")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = False
    # MemTracker rounds on GPUs only.
    mem_tracker._WeakRefInfo._calculate_mem_consumed = lambda storage: (
        -(-storage.size * storage.element_size // BLOCK_BYTES) * BLOCK_BYTES
    )
    names = arguments.networks
    if torchvision is None:
        names = [name for name in names if NETWORKS[name] is Gpt2]
        print("no torchvision: networks other than gpt2 are left out", file=sys.stderr)
    document = {"command": shlex.join(["benchmarks/pytorch-memory.py", *sys.argv[1:]])} | machine()
    document["networks"] = rows = []
    print("sizes in MB (1e6 bytes); saved: a sample by the network + by the loss")
    columns = ["batch", "peak", *PARTS, "by sums", "error", "by walk", "error"]
    for name in names:
        by_network, by_loss = slope(name)
        row = {"network": name, "saved_bytes_per_sample": by_network, "loss_saved_bytes_per_sample": by_loss}
        print(f"\n{name}: saved {by_network / 1e6:.3f} + {by_loss / 1e6:.3f}")
        if name in arguments.executed:
            row["executed_saved_bytes_per_sample"] = executed = sum(slope(name, is_fake=False))
            print(f"with real tensors: saved {executed / 1e6:.3f} together")
        print("".join(f"{column:>12}" for column in columns))
        rows.append(row | {"peaks": []})
        for batch in arguments.batches:
            batch = max(1, batch // 8) if name == "gpt2" else batch
            peak, sums = tracked_peak(name, batch), summed_peak(name, batch)
            result = {"batch": batch, "tracked": peak, "summed": sums, "walked": walked_peak(name, batch)}
            line = f"{batch:12}" + "".join(f"{size / 1e6:12.1f}" for size in peak.values())
            for size in sums["bytes"], result["walked"]:
                line += f"{size / 1e6:12.1f}{size / peak['bytes'] - 1:12.2%}"
            print(line, flush=True)
            if torch.cuda.is_available():
                result["measured"] = measured = measured_peak(name, batch)
                print(f"{'on the GPU':>12} " + json.dumps(measured), flush=True)
            rows[-1]["peaks"].append(result)
    if arguments.out:
        with open(arguments.out, "w") as out:
            json.dump(document, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
