//! Lowering of plans to programs: the steps of each rank in one iteration.

use deeppool::layer_graph::LayerGraph;
use deeppool::plan::ExecutionPlan;
use deeppool::program::{LowerOptions, lower_training};
use pyo3::prelude::*;

use crate::error::input_error;

/// Lowers a plan of a network to a document of the format `deeppool/program/v5`: the steps of all
/// ranks, or, if `rank` is given, of that rank with the collectives of all.
///
/// Arguments: `network` and `plan` are documents of the formats `deeppool/graph/v1` and
/// `deeppool/plan/v3`.
///
/// Raises `InputError` if a document is invalid, the plan does not fit the network or has partial
/// backpropagation, or there is no such rank.
#[pyfunction]
#[pyo3(signature = (network, plan, rank=None))]
pub(crate) fn lower(py: Python<'_>, network: &str, plan: &str, rank: Option<usize>) -> PyResult<String> {
    py.detach(|| {
        let network = LayerGraph::from_json(network).map_err(input_error)?;
        let plan = ExecutionPlan::from_json(plan).map_err(input_error)?;
        if plan.lowering.partial.is_some() {
            return Err(input_error(
                "plans with partial backpropagation have several programs and are not supported here: \
                 plan without --spb",
            ));
        }
        let placement = plan.placement(&network).map_err(input_error)?;
        let options = plan.lowering.options(LowerOptions::default().optimizer);
        let program = lower_training(&network, &placement, plan.batch, &options).map_err(input_error)?;
        program.to_json(&network, rank).map_err(input_error)
    })
}
