//! Tests across crates.

mod bf16;
mod consumers;
mod evaluator_matches_simulator;
mod hybrid;
mod module_cycles;
mod one_program;
mod partial;
mod partial_compute;
mod plan_independent;
mod plan_order;
mod plan_predictions;
mod readers;
mod simulated_classes;
mod simulated_sharing;
mod simulator_oracle;
mod splits;
