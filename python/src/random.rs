//! Random numbers that do not depend on the rank that draws them.

use deeppool::layer_engine::random::{Purpose, RandomStream};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

/// Returns the mask of the elements that a dropout layer keeps, one byte per element.
///
/// Arguments: `seed` is that of the run; `iteration` is counted from 0; `name` is the layer;
/// `first` is the index of the first sample in the global batch; `samples` is the number of
/// samples; `elements` is the number of elements of a sample; `probability` is that of dropping an
/// element. The mask has the shape `samples x elements`: 1 for an element that is kept, 0 for the
/// others.
///
/// Raises `ValueError` if the mask has more elements than fit in memory.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "it is called by name from one place")]
pub(crate) fn dropout_keeps<'py>(
    py: Python<'py>,
    seed: u64,
    iteration: u64,
    name: &str,
    first: u64,
    samples: u64,
    elements: usize,
    probability: f64,
) -> PyResult<Bound<'py, PyByteArray>> {
    let count = usize::try_from(samples).ok().and_then(|samples| samples.checked_mul(elements));
    let count = count
        .ok_or_else(|| PyValueError::new_err("the dropout mask has more elements than fit in memory"))?;
    PyByteArray::new_with(py, count, |kept| {
        py.detach(|| {
            for (sample, kept) in (first..).zip(kept.chunks_exact_mut(elements.max(1))) {
                let mut stream = RandomStream::new(seed, Purpose::Dropout, iteration, name, sample);
                for keep in kept {
                    *keep = u8::from(stream.uniform() >= probability);
                }
            }
        });
        Ok(())
    })
}

/// Returns the `ChaCha` key of the dropout layer `name` in an iteration (from 0) of a run with the
/// given seed: eight words of 32 bits, for an implementation on a device.
#[pyfunction]
pub(crate) fn dropout_key(seed: u64, iteration: u64, name: &str) -> Vec<i32> {
    let key = RandomStream::key(seed, Purpose::Dropout, iteration, name);
    let words = key.chunks_exact(4).map(|word| i32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.collect()
}
