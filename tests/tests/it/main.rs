//! What crosses crates, as a user would put them together.

mod consumers;
mod one_program;
mod plan_independent;
mod planned_and_simulated;
mod simulated_sharing;
mod simulator_oracle;
