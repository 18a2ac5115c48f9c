//! Durations of iterations that share GPUs. The *owner* is the job to which the GPUs were assigned,
//! the *guest* the job that runs in its *idle periods*: the time of an iteration in which a GPU of
//! the owner does not compute. Durations are in nanoseconds. `overlap` is the relative slow-down of
//! shared iterations: 0.02 is 2%.

use crate::Execution;
use crate::nanos::stretched;

/// Minimum relative speed at which a job is placed beside another, and minimum length of a usable
/// idle period as a fraction of the iteration.
const MIN_SPEED: f64 = 0.05;

/// Returns the duration of a cycle in which two jobs on the same GPUs execute one iteration each:
/// on each GPU a long part of one runs beside a short part of the other, and communication of one
/// beside computing of the other. `None` if the cycle is not shorter than the two iterations in
/// sequence.
pub(crate) fn cycle(one: &Execution, other: &Execution, overlap: f64) -> Option<u64> {
    let together = one.busy.iter().zip(other.busy.iter().rev()).map(|(long, short)| long + short);
    let longest = together.max()?.max(one.iteration).max(other.iteration);
    let cycle = stretched(longest, overlap);
    (cycle < one.iteration + other.iteration).then_some(cycle)
}

/// Returns the mean duration of an iteration of a one-GPU guest that runs whole iterations in the
/// idle periods of one GPU of the owner. `place` is the position of the GPU in `owner.busy`,
/// `guest` the duration of an iteration alone. `None` if no iteration fits, or if the guest would
/// run at less than 5% of its speed alone.
///
/// If the busy times rotate among the owner's GPUs, the mean is over all of them.
pub(crate) fn in_whole_iterations(owner: &Execution, place: usize, guest: u64, overlap: f64) -> Option<u64> {
    let iteration = u128::from(owner_iteration(owner, overlap));
    let fitting = |idle: u64| u128::from(idle / stretched(guest, overlap));
    let (iterations, fit) = if owner.rotates {
        (owner.busy.len() as u128, owner.idle_nanos().map(fitting).sum())
    } else {
        (1, fitting(owner.idle_nanos().nth(place)?))
    };
    if_worthwhile((iterations * iteration).checked_div(fit)? as u64 + 1, guest)
}

/// Returns the mean duration of an iteration of a one-GPU guest that runs in pieces in the idle
/// period of one GPU of the owner. `place` is the position of the GPU in `owner.busy`, `guest` the
/// duration of an iteration alone, `efficiency` the fraction of the idle period that it can use.
/// `None` if there is no idle period, or if the guest would run at less than 5% of its speed alone.
pub(crate) fn in_pieces(
    owner: &Execution,
    place: usize,
    guest: u64,
    efficiency: f64,
    overlap: f64,
) -> Option<u64> {
    let idle = owner.idle_nanos().nth(place)? as f64 * efficiency;
    let iterations = idle / guest as f64;
    if iterations <= 0.0 {
        return None;
    }
    if_worthwhile((owner_iteration(owner, overlap) as f64 / iterations).ceil() as u64, guest)
}

/// Returns the duration of an iteration at the relative speed `part`, above 0 and at most 1,
/// rounded up. `iteration` is the duration alone.
pub(crate) fn slowed(iteration: u64, part: f64) -> u64 {
    (iteration as f64 / part).ceil() as u64
}

/// Returns the duration of an owner's iteration if its idle periods are used.
pub(crate) fn owner_iteration(owner: &Execution, overlap: f64) -> u64 {
    stretched(owner.iteration, overlap)
}

/// Whether an idle period is long enough to be used: at least 5% of the iteration. Both are in the
/// same unit.
pub(crate) fn is_usable_idle_period(idle: u64, iteration: u64) -> bool {
    idle as f64 >= iteration as f64 * MIN_SPEED
}

fn if_worthwhile(iteration: u64, alone: u64) -> Option<u64> {
    (iteration as f64 * MIN_SPEED <= alone as f64).then_some(iteration)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: u64 = 1_000_000;

    fn spb(parts: usize) -> Execution {
        let layer = (Duration::from_millis(1), Duration::from_millis(2));
        Execution::spb(4, &[layer; 4], Duration::ZERO, parts).unwrap()
    }

    #[test]
    fn long_parts_run_beside_short_ones() {
        // 12, 10, 8, 6 beside 6, 8, 10, 12: 18 instead of 24, the saving of 4 parts.
        assert_eq!(cycle(&spb(4), &spb(4), 0.0), Some(18 * MS));
        assert_eq!(cycle(&spb(1), &spb(1), 0.0), None, "nothing is saved without SPB");
        assert_eq!(cycle(&spb(4), &spb(4), 1.0 / 3.0), None, "nor where sharing costs as much");
    }

    #[test]
    fn whole_iterations_fit_in_idle_periods_that_are_long_enough() {
        // Idle periods of 0, 2, 4 and 6 ms in rotation: an iteration of 4 ms fits in the two
        // longest of four, one of 7 ms in none.
        assert_eq!(in_whole_iterations(&spb(4), 0, 4 * MS, 0.0), Some(48 * MS / 2 + 1));
        assert_eq!(in_whole_iterations(&spb(4), 0, 7 * MS, 0.0), None);
    }

    #[test]
    fn anything_fits_in_idle_periods_in_pieces() {
        let ms = Duration::from_millis;
        let owner = Execution::parts(ms(10), &[ms(10), ms(5)]).unwrap();
        assert_eq!(in_pieces(&owner, 1, 40 * MS, 1.0, 0.0), Some(80 * MS));
        assert_eq!(in_pieces(&owner, 0, 40 * MS, 1.0, 0.0), None, "no idle period");
    }
}
