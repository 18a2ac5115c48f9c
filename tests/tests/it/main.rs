//! Tests across crates.

mod consumers;
mod hybrid;
mod module_cycles;
mod one_program;
mod partial;
mod partial_compute;
mod plan_independent;
mod plan_order;
mod planned_and_simulated;
mod planned_is_simulated;
mod simulated_classes;
mod simulated_sharing;
mod simulator_oracle;
