//! The planner's memory model, compared with the memory of lowered programs.

use std::time::Instant;

use burst_planner::{Arrangement, CostModel, Evaluator};
use collectives::LinkModel;
use deeppool::costs::Costs;
use deeppool::job::{Job, JobCosts, PlannerNodes, plan_problem};
use deeppool::program::{LowerOptions, lower_for_simulation, possible_checkpoints};
use layer_graph::{LayerGraph, zoo};
use layer_profile::DeviceModel;
