//! Arithmetic in units. A unit is one product of two square matrices.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Number of rows and columns of the matrices, small enough for a core's caches.
const SIDE: usize = 48;

/// Number of timings of a unit. The minimum counts, because disturbances only increase it.
const TRIALS: usize = 200;

/// Two matrices that are multiplied repeatedly, and their product.
pub(super) struct Matrices {
    left: Vec<f32>,
    right: Vec<f32>,
    product: Vec<f32>,
}

impl Matrices {
    /// Creates matrices with fixed values from 0 to 1.
    pub(super) fn new() -> Self {
        let values = |factor: usize| (0..SIDE * SIDE).map(|at| ((at * factor) % 17) as f32 / 17.0).collect();
        Self { left: values(5), right: values(11), product: vec![0.0; SIDE * SIDE] }
    }

    /// Executes `units` products that depend on `input`. Returns a value from 0 to 1 that
    /// depends on the product, for the input of the next call.
    pub(super) fn multiply_units(&mut self, units: usize, input: f32) -> f32 {
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

/// Measures the duration of a unit on an undisturbed core: the minimum of many timings, at least 1
/// ns.
pub(super) fn unit() -> Duration {
    let mut matrices = Matrices::new();
    let time = |_| {
        let began = Instant::now();
        matrices.multiply_units(1, 0.5);
        began.elapsed()
    };
    (0..TRIALS).map(time).min().unwrap_or_default().max(Duration::from_nanos(1))
}
