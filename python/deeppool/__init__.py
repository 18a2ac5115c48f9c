"""Burst-parallel training: plan, simulate and train networks with a number of GPUs per layer.

Planning and simulation need only this package. :mod:`deeppool.tracing`, :mod:`deeppool.profiling`
and :mod:`deeppool.torch` also need PyTorch.

>>> import deeppool
>>> plan = deeppool.plan("vgg16", gpus=8, batch=32, device="a100", amplification=1.5)
>>> plan.amplification <= 1.5
True
"""

from deeppool.costs import Costs, Device, Profile, devices, links
from deeppool.errors import DeepPoolError, InputError, NoPlanError, TorchMissingError
from deeppool.network import Layer, Network, Tensor
from deeppool.plans import DataParallel, Plan, PlannedLayer, frontier, plan
from deeppool.problem import AllReduce, Node, Option, PlanProblem, ProblemPlan, Transfer
from deeppool.simulation import Background, Comparison, Point, Simulation, compare, simulate

__all__ = [
    "AllReduce",
    "Background",
    "Comparison",
    "Costs",
    "DataParallel",
    "DeepPoolError",
    "Device",
    "InputError",
    "Layer",
    "Network",
    "NoPlanError",
    "Node",
    "Option",
    "Plan",
    "PlanProblem",
    "PlannedLayer",
    "Point",
    "ProblemPlan",
    "Profile",
    "Simulation",
    "Tensor",
    "TorchMissingError",
    "Transfer",
    "compare",
    "devices",
    "frontier",
    "links",
    "plan",
    "simulate",
]
