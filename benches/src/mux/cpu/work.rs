//! Real arithmetic, in units.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Rows and columns of the matrices: small enough to stay in a core's caches.
const SIDE: usize = 48;

/// How often the unit is timed; the shortest counts, since whatever disturbs it makes it longer.
const TRIALS: usize = 200;

/// Two matrices that are multiplied over and over.
pub(super) struct Matrices {
    left: Vec<f32>,
    right: Vec<f32>,
    product: Vec<f32>,
}

impl Matrices {
    pub(super) fn new() -> Self {
        let values = |factor: usize| (0..SIDE * SIDE).map(|at| ((at * factor) % 17) as f32 / 17.0).collect();
        Self { left: values(5), right: values(11), product: vec![0.0; SIDE * SIDE] }
    }

    /// So many units of work that depend on `input`, one product each; what comes out is from 0 to 1.
    pub(super) fn work(&mut self, units: usize, input: f32) -> f32 {
        self.left[0] = input;
        for _ in 0..units {
            self.multiply();
        }
        black_box(&self.product)[0].fract()
    }

    fn multiply(&mut self) {
        let rows = self.product.chunks_exact_mut(SIDE).zip(self.left.chunks_exact(SIDE));
        for (product, left) in rows {
            product.fill(0.0);
            for (&factor, right) in left.iter().zip(self.right.chunks_exact(SIDE)) {
                for (sum, value) in product.iter_mut().zip(right) {
                    *sum += factor * value;
                }
            }
        }
        black_box(&mut self.product);
    }
}

/// How long a unit takes on an undisturbed core.
pub(super) fn unit() -> Duration {
    let mut matrices = Matrices::new();
    let time = |_| {
        let began = Instant::now();
        matrices.work(1, 0.5);
        began.elapsed()
    };
    (0..TRIALS).map(time).min().unwrap_or_default().max(Duration::from_nanos(1))
}
