//! Plans GNMT on V100 GPUs from measured runs of MLPerf v0.7, and compares hybrid with data
//! parallelism.
//!
//!     cargo run -p time-to-accuracy --example gnmt_on_v100

use std::time::Duration;

use time_to_accuracy::{
    AccuracyError, Batches, Candidates, Comparison, Configuration, EpochCurve, EpochTime, MeasuredEpochs,
    estimate, scaling_efficiency,
};

/// GPUs, global batch and seconds per epoch of NVIDIA's runs on DGX-2H, including evaluation.
const RUNS: [(usize, usize, f64); 3] = [(16, 3072, 123.34), (256, 8192, 16.71), (1024, 16384, 7.41)];

fn main() -> Result<(), AccuracyError> {
    let curve = EpochCurve::named("gnmt")?;
    let rows = RUNS.map(|(gpus, batch, s)| EpochTime { gpus, batch, epoch: Duration::from_secs_f64(s) });
    let steps = MeasuredEpochs::new(curve.document().samples_per_epoch, rows)?;
    let (gpus, batches) = (RUNS.map(|run| run.0), RUNS.map(|run| run.1).to_vec());
    let estimates = estimate(&curve, &steps, &Candidates::new(gpus, Batches::Global(batches)))?;
    println!("Measured runs to {}, as a frontier:", curve.document().target);
    for point in estimates.frontier() {
        println!("  {point}");
    }

    // 1,024 GPUs as 256 workers of four GPUs, or as 1,024 workers.
    let efficiency = |(gpus, batch, _): (usize, usize, f64)| {
        let on = Configuration::data_parallel;
        scaling_efficiency(&steps, &on(16, 3072), &on(gpus, batch))
            .ok_or(AccuracyError::NoEfficiency { workers: gpus })
    };
    let comparison = Comparison {
        workers: 256,
        gpus_per_worker: 4,
        worker_speedup: 1.64,
        hybrid_efficiency: efficiency(RUNS[1])?,
        data_parallel_efficiency: efficiency(RUNS[2])?,
        hybrid_epochs: curve.epochs(8192)?.mean,
        data_parallel_epochs: curve.epochs(16384)?.mean,
    };
    println!("Workers of 4 GPUs that are 1.64 times as fast as one GPU, an assumption:\n  {comparison}");
    Ok(())
}
