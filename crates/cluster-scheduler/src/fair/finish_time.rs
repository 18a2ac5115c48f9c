//! Finish-time fairness. A *share* is the fraction of time in which a job runs on GPUs of a type. A
//! *demand* is a group of identical jobs.

use super::cone_program::ConeProgram;
use super::{Demand, Progress, one_type};
use crate::Error;

/// Returns the shares that minimize the maximum of `(elapsed + remaining / speed) / isolated` over
/// all jobs, where `speed` is the sum over the types of share times iterations per second.
/// `progress` has the other three numbers for each job of a demand.
///
/// The same objective as Gavel's `finish_time_fairness`. `gpus` is the number of GPUs of each type;
/// the result has a share for each demand and type.
///
/// With several types of GPUs it solves a second-order cone program with a cone for each demand.
/// With one type it needs no solver: it finds the root of one function. If GPUs remain, the optimum
/// is not unique, and it finds a second root for the analytic centre of all optima, near which the
/// solver of the cone program would end. This takes about twenty passes over the demands.
///
/// # Errors
///
/// [`Error::Unsolved`] if the solver fails or a job runs on no type.
pub fn finish_time(
    demands: &[Demand],
    progress: &[Progress],
    gpus: &[usize],
) -> Result<Vec<Vec<f64>>, Error> {
    match gpus {
        _ if demands.is_empty() => Ok(Vec::new()),
        &[of_one_type] => {
            let shares = one_type::shares(demands, progress, of_one_type);
            let unsolved = || {
                let jobs = demands.iter().map(|demand| demand.jobs).sum();
                Error::Unsolved { jobs, status: "a job has no speed, or nothing left".into() }
            };
            Ok(shares.ok_or_else(unsolved)?.into_iter().map(|share| vec![share]).collect())
        }
        _ => by_cone_program(demands, progress, gpus),
    }
}

/// Returns the same shares as [`finish_time`], computed by a second-order cone program for any
/// number of GPU types.
///
/// # Errors
/// [`Error::Unsolved`] if the solver fails.
pub(crate) fn by_cone_program(
    demands: &[Demand],
    progress: &[Progress],
    gpus: &[usize],
) -> Result<Vec<Vec<f64>>, Error> {
    if demands.is_empty() {
        return Ok(Vec::new());
    }
    let types = gpus.len();
    let shares = demands.len() * types;
    let mut program = ConeProgram::of_shares(demands, gpus, 1 + demands.len());
    let largest = shares;
    program.minimize(largest, 1.0);
    // Speeds relative to the fastest type make the coefficients similar in size.
    let fastest = |demand: &Demand| demand.speeds.iter().copied().fold(0.0, f64::max);
    for (job, (demand, progress)) in demands.iter().zip(progress).enumerate() {
        let Progress { elapsed, remaining, isolated } = progress;
        let time_alone = remaining / fastest(demand);
        program.at_most(&[(shares + 1 + job, time_alone / isolated), (largest, -1.0)], -elapsed / isolated);
    }
    for (job, demand) in demands.iter().enumerate() {
        let speed = |of_type: usize| (job * types + of_type, demand.speeds[of_type] / fastest(demand));
        let terms: Vec<_> = (0..types).map(speed).collect();
        program.product_at_least_one(shares + 1 + job, &terms);
    }
    program.solve(demands, types)
}

/// Returns the iterations per second that a job of each demand has on 1/n of the cluster, where n
/// is the number of jobs. `gpus` is the number of GPUs of each type. The same as Gavel's
/// `isolated`.
#[must_use]
pub fn proportional(demands: &[Demand], gpus: &[usize]) -> Vec<f64> {
    let jobs: usize = demands.iter().map(|demand| demand.jobs).sum();
    let speed = |demand: &Demand| {
        let shares = gpus.iter().map(|&gpus| gpus as f64 / jobs as f64 / demand.gpus as f64);
        let sum: f64 = shares.clone().sum();
        shares.zip(&demand.speeds).map(|(share, speed)| share / sum.max(1.0) * speed).sum()
    };
    demands.iter().map(speed).collect()
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{RngCore, SeedableRng};

    use super::*;

    fn worst(demands: &[Demand], progress: &[Progress], shares: &[Vec<f64>]) -> f64 {
        let ratio = |((demand, progress), share): ((&Demand, &Progress), &Vec<f64>)| {
            (progress.elapsed + progress.remaining / (demand.speeds[0] * share[0])) / progress.isolated
        };
        demands.iter().zip(progress).zip(shares).map(ratio).fold(0.0, f64::max)
    }

    /// The sum of the barriers of all constraints if many shares are optimal, with each inverse of
    /// a share at its optimum; see the module `one_type`.
    fn barrier(demands: &[Demand], needs: &[f64], shares: &[f64], gpus: usize) -> f64 {
        let taken: f64 = demands.iter().zip(shares).map(|(demand, share)| demand.gpus as f64 * share).sum();
        let of_job = |(need, share): (&f64, &f64)| (1.0 - share).ln() + 2.0 * (share - need).ln();
        let jobs: f64 = needs.iter().zip(shares).filter(|(need, _)| **need < 1.0 - 1e-9).map(of_job).sum();
        jobs + (gpus as f64 - taken).ln()
    }

    /// On one type, the cone-program solver finds the same ratio, and the same shares if the
    /// optimum is unique. Otherwise no neighbour has a larger barrier.
    #[test]
    fn one_type_matches_the_cone_program() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut part = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut unique = 0;
        for _ in 0..200 {
            let count = 2 + (part() * 30.0) as usize;
            let gpus = 8 + (part() * 24.0) as usize;
            let of_size = |size: f64, speed: f64| Demand {
                jobs: 1,
                gpus: 1 << (size * 4.0) as usize,
                speeds: vec![10f64.powf(speed * 2.0 - 1.0)],
                weight: 1.0,
            };
            let demands: Vec<Demand> = (0..count).map(|_| of_size(part(), part())).collect();
            let waited = if part() < 0.3 { 1e4 } else { 0.0 };
            let progress: Vec<Progress> = proportional(&demands, &[gpus])
                .iter()
                .map(|speed| {
                    let remaining = 10f64.powf(part() * 4.0);
                    Progress {
                        elapsed: part() * waited,
                        remaining,
                        isolated: remaining * (1.0 + part()) / speed,
                    }
                })
                .collect();
            let found = finish_time(&demands, &progress, &[gpus]).unwrap();
            let solved = by_cone_program(&demands, &progress, &[gpus]).unwrap();
            let (ours, theirs) = (worst(&demands, &progress, &found), worst(&demands, &progress, &solved));
            assert!((ours / theirs - 1.0).abs() < 1e-5, "{ours} and {theirs}");
            let shares: Vec<f64> = found.iter().map(|share| share[0]).collect();
            let gpus_taken = demands.iter().zip(&shares).map(|(demand, share)| demand.gpus as f64 * share);
            let taken: f64 = gpus_taken.sum();
            assert!(
                taken <= gpus as f64 * (1.0 + 1e-9) && shares.iter().all(|share| (0.0..=1.0).contains(share))
            );
            if taken > gpus as f64 * (1.0 - 1e-6) {
                unique += 1;
                let apart = shares.iter().zip(&solved).map(|(one, other)| (one - other[0]).abs());
                assert!(apart.fold(0.0, f64::max) < 1e-4, "{shares:?} and {solved:?}");
                continue;
            }
            let need = |(demand, progress): (&Demand, &Progress)| {
                let Progress { elapsed, remaining, isolated } = progress;
                remaining / demand.speeds[0] / (ours * isolated - elapsed)
            };
            let needs: Vec<f64> = demands.iter().zip(&progress).map(need).map(|need| need.min(1.0)).collect();
            let best = barrier(&demands, &needs, &shares, gpus);
            for _ in 0..20 {
                let moved = |(&share, &need): (&f64, &f64)| {
                    if need < 1.0 - 1e-9 {
                        share + (part() - 0.5) * 0.1 * (share - need).min(1.0 - share)
                    } else {
                        share
                    }
                };
                let near: Vec<f64> = shares.iter().zip(&needs).map(moved).collect();
                let other = barrier(&demands, &needs, &near, gpus);
                assert!(other.is_nan() || other <= best + 1e-9 * best.abs(), "{other} is above {best}");
            }
        }
        assert!((20..180).contains(&unique), "{unique} of 200 have one optimum");
    }
}
