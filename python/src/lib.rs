//! The native module of the Python package `deeppool`.
//!
//! Its arguments and results are JSON documents, which the package wraps in classes.

mod costs;
mod error;
mod gradients;
mod inputs;
mod interrupt;
mod mux;
mod network;
mod plan;
mod problem;
mod program;
mod random;

use pyo3::prelude::*;

#[pymodule]
mod _deeppool {
    #[pymodule_export]
    use super::costs::{device_models, link_models, modelled_profile};
    #[pymodule_export]
    use super::gradients::gradients;
    #[pymodule_export]
    use super::mux::CpuDriver;
    #[pymodule_export]
    use super::network::{
        describe_network, network_names, network_of_config, network_of_onnx, network_of_pt2, network_of_zoo,
    };
    #[pymodule_export]
    use super::plan::{check_plan, compare, frontier, plan, simulate};
    #[pymodule_export]
    use super::problem::plan_problem;
    #[pymodule_export]
    use super::program::lower;
    #[pymodule_export]
    use super::random::{dropout_keeps, dropout_key};
}
