//! Estimates the number of GPUs that train ResNet-50 soonest, for a constant iteration time.

use std::time::Duration;

use time_to_accuracy::{AccuracyError, Batches, Candidates, Configuration, EpochCurve, StepTime, estimate};

fn main() -> Result<(), AccuracyError> {
    let steps = |_: &Configuration| Some(StepTime::new(Duration::from_millis(200)));
    let candidates = Candidates::new([16, 64, 256, 512], Batches::PerWorker(vec![128]));
    let estimates = estimate(&EpochCurve::named("resnet-50")?, &steps, &candidates)?;
    println!("{}", estimates.soonest());
    assert_eq!(estimates.soonest().configuration.workers, 512);
    let cheap = estimates.cheapest_by(Duration::from_secs(24 * 3600))?;
    assert_eq!(cheap.configuration.workers, 16);
    Ok(())
}
