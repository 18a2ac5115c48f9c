"""Burst-parallel training: plan, simulate and train networks whose layers each have their own number of GPUs.

Planning needs nothing but this package. PyTorch is needed for :mod:`deeppool.tracing` (networks and layer times of PyTorch
modules), and for :mod:`deeppool.torch` (training them by a plan).

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
