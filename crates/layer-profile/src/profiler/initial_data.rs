//! Initial contents of the buffers whose kernels the profiler times.

use layer_engine::random::{Purpose, RandomStream};
use layer_engine::{Role, Storage, initial_parameters, initial_statistics};
use layer_graph::{Layer, LayerKind};

/// Number of random values before they repeat. Large enough that no kernel is affected.
const PERIOD: usize = 4096;

/// Initial data of a buffer: values repeated until it is full.
pub(super) struct InitialData {
    elements: usize,
    period: Vec<f64>,
}

impl InitialData {
    /// Writes the scalars that hold all elements to a vector, replacing its contents.
    pub(super) fn write_to<T: Copy + From<f32>>(&self, storage: Storage, to: &mut Vec<T>) {
        let mut period: Vec<f32> = self.period.iter().map(|&value| value as f32).collect();
        if period.len() < self.elements {
            // Pairs of elements begin anew with each period.
            period.extend_from_within(..);
        }
        period.truncate(self.elements);
        let period: Vec<T> = storage.pack(&period).iter().map(|&scalar| scalar.into()).collect();
        let scalars = storage.scalars(self.elements);
        to.clear();
        to.reserve(scalars);
        while to.len() < scalars {
            to.extend_from_slice(&period[..period.len().min(scalars - to.len())]);
        }
    }
}

/// Returns the initial contents of the buffer in the given role for a layer, such as its parameters
/// or an input, over the given number of samples, as in training. `None` for a buffer that kernels
/// write before they read it.
pub(super) fn initial_data(layer: &Layer, role: Role, samples: usize) -> Option<InitialData> {
    let elements = role.elements(layer, samples);
    let whole = |values: Vec<f64>| InitialData { elements: values.len(), period: values };
    match role {
        Role::Parameters => Some(whole(initial_parameters(layer, 0))),
        Role::Statistics => Some(whole(initial_statistics(layer))),
        Role::Labels => {
            let classes = match layer.kind() {
                LayerKind::ElementwiseLoss(_) => 2,
                _ => layer.input_shapes().first().map_or(1, layer_graph::Shape::innermost),
            };
            if layer.ignored_label().is_some() {
                // The labels of a sample, then its weight.
                let labels = (0..layer.label_count()).map(|position| (position % classes) as f64);
                return Some(InitialData { elements, period: labels.chain([1.0]).collect() });
            }
            Some(cycle(elements, |stream| stream.below(classes) as f64))
        }
        // The loss of training is the mean over the batch.
        Role::OutputGradient if layer.kind().is_loss() => {
            Some(InitialData { elements, period: vec![1.0 / samples as f64] })
        }
        Role::Input(_) => match layer.kind() {
            LayerKind::Embedding(embedding) => {
                Some(cycle(elements, |stream| stream.below(embedding.vocabulary) as f64))
            }
            _ => Some(cycle(elements, |stream| 2.0 * stream.uniform() - 1.0)),
        },
        Role::Output | Role::OutputGradient => Some(cycle(elements, |stream| 2.0 * stream.uniform() - 1.0)),
        _ => None,
    }
}

fn cycle(elements: usize, mut draw: impl FnMut(&mut RandomStream) -> f64) -> InitialData {
    let mut stream = RandomStream::new(0, Purpose::Synthetic, 0, "profile", 0);
    let period = (0..elements.min(PERIOD)).map(|_| draw(&mut stream)).collect();
    InitialData { elements, period }
}
