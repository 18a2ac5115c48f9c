//! Properties of the scheduler, comparisons with slow oracles and with a peer's results, and
//! traces.

mod data;
mod elastic;
mod fairness;
mod laws;
mod oracle;
mod pairs;
mod peer;
mod queueing;
mod readers;
mod traces;
mod worlds;
