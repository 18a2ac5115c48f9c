//! Parallel tempering for the minimum iteration time, whatever the GPU time. A *move* is a random
//! change of an arrangement; a *temperature* determines how much longer an iteration may become by
//! a move that is accepted.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::move_mix::SMALL;
use super::random_restart::random_arrangement;
use super::stage::SearchStage;
use crate::Result;
use crate::evaluator::NumberedArrangement;

/// Number of moves with few blocks on [`GPUS`].
const MOVES: f64 = 50_000.0;
/// Number of blocks for which 1/e of these moves are drawn; with half as many again, nearly none
/// are.
const BLOCK_SCALE: f64 = 25.0;
/// Number of GPUs that [`MOVES`] is for. Fewer GPUs need fewer moves.
const GPUS: f64 = 4.0;
/// A move that lengthens an iteration by this, relatively, is accepted with probability 1/e.
const TEMPERATURES: [f64; 6] = [0.002, 0.0032, 0.005, 0.008, 0.0126, 0.02];
/// Number of moves at a temperature between exchanges.
const SWEEP: usize = 100;
/// Number of moves at all temperatures between exchanges.
const ROUND: usize = SWEEP * TEMPERATURES.len();
/// Number of moves without a faster arrangement, per triple of nodes and GPU, after which it ends.
/// The coldest arrangement rarely improves.
const PATIENCE: f64 = 25.0;

/// An arrangement with its iteration time.
struct Walker {
    /// The arrangement.
    at: NumberedArrangement,
    /// Its iteration time with the memory penalty, microseconds.
    iteration_us: f64,
}

impl SearchStage<'_> {
    /// Searches by parallel tempering (K. Hukushima, K. Nemoto, Journal of the Physical Society of
    /// Japan 65, 1996) from several random arrangements on the first `gpus` ranks, each at its
    /// temperature. Arrangements at neighbouring temperatures are exchanged if the one at the
    /// higher temperature is faster, or at random if it is hardly slower. `effort` multiplies the
    /// number of moves. It ends early if nothing faster is found for long. It does nothing with
    /// many nodes or GPUs.
    pub(super) fn parallel_tempering(&mut self, gpus: usize, effort: f64) -> Result<()> {
        let few = (-(self.node_count() as f64 / BLOCK_SCALE).powi(8)).exp();
        let times = gpus as f64 / GPUS;
        let moves = (effort * times.powi(2).min(times.powi(-3)) * few * MOVES) as usize;
        if moves < ROUND {
            return Ok(());
        }
        let patience = (effort * PATIENCE * self.node_count().pow(3) as f64 * gpus as f64) as usize;
        let random = &mut ChaCha8Rng::seed_from_u64(gpus as u64);
        let mut walkers = Vec::new();
        for _ in TEMPERATURES {
            let Some(at) = random_arrangement(&mut self.evaluator, &self.graph_parts, gpus, random) else {
                return Ok(());
            };
            let iteration_us = self.evaluate(&at)?.iteration_us();
            walkers.push(Walker { at, iteration_us });
        }
        let minimum = |walkers: &[Walker]| {
            walkers.iter().map(|walker| walker.iteration_us).fold(f64::INFINITY, f64::min)
        };
        let (mut fastest_us, mut failures) = (minimum(&walkers), 0);
        for _ in 0..moves / ROUND {
            for (walker, temperature) in walkers.iter_mut().zip(TEMPERATURES) {
                self.walk(walker, gpus, temperature, random)?;
            }
            exchange(&mut walkers, random);
            let now_us = minimum(&walkers);
            failures = if now_us < fastest_us { 0 } else { failures + ROUND };
            fastest_us = fastest_us.min(now_us);
            if failures >= patience {
                return Ok(());
            }
        }
        self.is_budget_spent = true;
        Ok(())
    }

    /// Draws moves, and accepts those that make the iteration faster, or slower with the Metropolis
    /// probability (N. Metropolis et al., The Journal of Chemical Physics 21, 1953).
    fn walk(
        &mut self,
        walker: &mut Walker,
        gpus: usize,
        temperature: f64,
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        for _ in 0..SWEEP {
            let Some(at) = self.draw(&walker.at, gpus, SMALL, random) else { continue };
            let slowest_us = walker.iteration_us * (1.0 + temperature * exponential(random));
            let Some(trial) = self.evaluate_if_within(&at, slowest_us)? else { continue };
            if trial.iteration_us() <= slowest_us {
                *walker = Walker { at, iteration_us: trial.iteration_us() };
            }
        }
        Ok(())
    }
}

/// Exchanges arrangements at neighbouring temperatures at random.
fn exchange(walkers: &mut [Walker], random: &mut ChaCha8Rng) {
    for colder in (0..TEMPERATURES.len() - 1).rev() {
        let warmer = colder + 1;
        let slower = (walkers[warmer].iteration_us / walkers[colder].iteration_us).ln();
        let difference = 1.0 / TEMPERATURES[colder] - 1.0 / TEMPERATURES[warmer];
        if slower * difference <= exponential(random) {
            walkers.swap(colder, warmer);
        }
    }
}

/// Draws an exponentially distributed number with mean 1.
fn exponential(random: &mut ChaCha8Rng) -> f64 {
    -((f64::from(random.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0)).ln()
}
