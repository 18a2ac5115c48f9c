//! Optimal price of GPU time, in microseconds of iteration time per GPU-microsecond. An *option* is
//! a GPU count of a node with its costs.

use crate::proof::ProofEnd;

/// Number of bisection steps of the price.
const HALVINGS: usize = 6;

/// Minimum of a weighted sum of times and of GPU time at some price, and the options that attain
/// it.
pub(super) struct Solved {
    /// The minimum, including the price of the GPU time, microseconds.
    pub(super) value: f64,
    /// GPU time of these options, GPU-microseconds.
    pub(super) gpu_us: f64,
    /// By place of a node in topological order: the index of its option.
    pub(super) choice: Vec<usize>,
}

/// The best bound of given weights over all prices of GPU time.
pub(super) struct Priced {
    /// Maximum over the prices tried of the minimum at that price minus the price of the budget,
    /// microseconds.
    pub(super) bound: f64,
    /// Two choices of options, by place, the first above and the second within the budget of GPU
    /// time, each with its weight. The weights add up to 1. If one choice suffices, it has weight
    /// 1.
    pub(super) found: [(Vec<usize>, f64); 2],
}

impl Priced {
    /// Searches for the price by bisection. `gpus` is the number of GPUs, `budget_us` the budget of
    /// GPU time, GPU-microseconds. `price` is the initial value, 0 if there is none, and is set to
    /// the result. `solve` returns the minimum at a price. Fails as `solve` does.
    pub(super) fn new(
        gpus: f64,
        budget_us: f64,
        price: &mut f64,
        mut solve: impl FnMut(f64) -> Result<Solved, ProofEnd>,
    ) -> Result<Self, ProofEnd> {
        let only =
            |bound: f64, choice: Vec<usize>| Self { bound, found: [(choice.clone(), 1.0), (choice, 0.0)] };
        let free = solve(0.0)?;
        if free.gpu_us <= budget_us {
            *price = 0.0;
            return Ok(only(free.value, free.choice));
        }
        let (mut low, mut over) = (0.0, free);
        let mut high = if *price > 0.0 { *price * 2.0 } else { 1.0 / gpus };
        let mut within = solve(high)?;
        for _ in 0..40 {
            if within.gpu_us <= budget_us {
                break;
            }
            (low, over) = (high, within);
            high *= 4.0;
            within = solve(high)?;
        }
        let bound = |solved: &Solved, price: f64| solved.value - price * budget_us;
        let mut best = bound(&over, low).max(bound(&within, high));
        if within.gpu_us > budget_us {
            // No counts are within the budget.
            return Ok(only(best, within.choice));
        }
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            let solved = solve(middle)?;
            best = best.max(bound(&solved, middle));
            if solved.gpu_us <= budget_us {
                (high, within) = (middle, solved);
            } else {
                (low, over) = (middle, solved);
            }
        }
        *price = high;
        let part = ((budget_us - within.gpu_us) / (over.gpu_us - within.gpu_us)).clamp(0.0, 1.0);
        Ok(Self { bound: best, found: [(over.choice, part), (within.choice, 1.0 - part)] })
    }
}
