//! Finish-time fairness on GPUs of one type, without a solver.
//!
//! With one type there is one share for each job, and for a maximum ratio z each job needs a share
//! of at least n(z), in closed form. The optimal z is therefore the root of one convex function. If
//! a job that runs all the time determines the ratio, other jobs may have more than they need, and
//! there are many optima. The result is then the analytic centre, the limit of the central path of
//! interior-point methods (solvers stop slightly before it). The barriers of the jobs are coupled
//! by one multiplier only.

use super::{Demand, Progress};

/// Minimum fraction of GPUs left over for the optimum to count as not unique.
const SLACK: f64 = 1e-9;
/// Maximum number of Newton steps; about ten suffice for either root.
const STEPS: usize = 100;

/// A group of identical jobs.
struct Job {
    /// Total number of GPUs.
    gpus: f64,
    /// Number of GPUs of each job.
    each: f64,
    elapsed: f64,
    /// Remaining seconds if it runs all the time.
    alone: f64,
    isolated: f64,
}

impl Job {
    /// Returns the ratio with a share of 1.
    fn least_ratio(&self) -> f64 {
        (self.elapsed + self.alone) / self.isolated
    }

    /// Returns the share needed for a ratio, and the negative derivative of the share with respect
    /// to the ratio.
    fn need(&self, ratio: f64) -> (f64, f64) {
        let left = ratio * self.isolated - self.elapsed;
        (self.alone / left, self.alone * self.isolated / (left * left))
    }
}

/// Returns the share of each demand on `gpus` GPUs of one type, or `None` if a value is not finite
/// or a job has nothing left.
pub(super) fn shares(demands: &[Demand], progress: &[Progress], gpus: usize) -> Option<Vec<f64>> {
    let gpus = gpus as f64;
    let of_job = |(demand, progress): (&Demand, &Progress)| Job {
        gpus: (demand.jobs * demand.gpus) as f64,
        each: demand.gpus as f64,
        elapsed: progress.elapsed,
        alone: progress.remaining / demand.speeds[0],
        isolated: progress.isolated,
    };
    let jobs: Vec<Job> = demands.iter().zip(progress).map(of_job).collect();
    let mut ratio = jobs.iter().map(Job::least_ratio).fold(0.0, f64::max);
    if !jobs.iter().all(|job| job.least_ratio().is_finite() && job.alone > 0.0) {
        return None;
    }
    let wanted = |ratio: f64| {
        jobs.iter().fold((0.0, 0.0), |(sum, slope), job| {
            let (need, less) = job.need(ratio);
            (sum + job.gpus * need, slope + job.gpus * less)
        })
    };
    // The function is convex and decreasing, so Newton's method stays on one side of the root.
    for _ in 0..STEPS {
        let (sum, slope) = wanted(ratio);
        let step = (sum - gpus) / slope;
        if step <= ratio * f64::EPSILON {
            break;
        }
        ratio += step;
    }
    let needs: Vec<f64> = jobs.iter().map(|job| job.need(ratio).0.min(1.0)).collect();
    let taken: f64 = jobs.iter().zip(&needs).map(|(job, need)| job.gpus * need).sum();
    if gpus - taken <= gpus * SLACK {
        return Some(needs);
    }
    let price = price(&jobs, &needs, gpus);
    Some(jobs.iter().zip(&needs).map(|(job, &need)| need + above(need, job.each * price).0).collect())
}

/// Returns the part of a job's share above its need at the analytic centre for a given cost of a
/// share, and the negative derivative with respect to the cost.
///
/// The barriers of a job's constraints (its share from 0 to 1, its inverse by a cone, its ratio)
/// sum to `ln(1 - x) + 2 ln(x - need)` with the optimal inverse. The derivative of the sum equals
/// the cost.
fn above(need: f64, cost: f64) -> (f64, f64) {
    let room = 1.0 - need;
    if room <= SLACK {
        return (0.0, 0.0);
    }
    let linear = 3.0 + cost * room;
    let above = 4.0 * room / (linear + (linear * linear - 8.0 * cost * room).sqrt());
    let curvature = (room - above).powi(-2) + 2.0 * above.powi(-2);
    (above, 1.0 / curvature)
}

/// Returns the price of GPU time at the analytic centre: the inverse of the GPUs left over.
fn price(jobs: &[Job], needs: &[f64], gpus: f64) -> f64 {
    let excess = |price: f64| {
        let start = (gpus - 1.0 / price, price.powi(-2));
        jobs.iter().zip(needs).fold(start, |(left, slope), (job, &need)| {
            let (above, less) = above(need, job.each * price);
            (left - job.gpus * (need + above), slope + job.gpus * job.each * less)
        })
    };
    // Below the inverse of all GPUs, more GPUs would be left over than there are.
    let (mut low, mut high) = (1.0 / gpus, 1.0 / gpus);
    while excess(high).0 < 0.0 && high < 1.0 / (gpus * SLACK * SLACK) {
        low = high;
        high *= 16.0;
    }
    let mut price = high;
    for _ in 0..STEPS {
        let (value, slope) = excess(price);
        if value < 0.0 {
            low = price;
        } else {
            high = price;
        }
        let next = price - value / slope;
        let next = if next > low && next < high { next } else { (low * high).sqrt() };
        if (next - price).abs() <= 1e-12 * price {
            break;
        }
        price = next;
    }
    price
}
