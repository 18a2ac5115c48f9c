//! The kernels of a layer's steps: their durations, and how much of a GPU they occupy, modelled
//! from the layer's shapes and the device's data sheet. A step is the forward pass, the backward
//! pass or the parameter update of a layer.

use std::num::NonZeroU32;
use std::time::Duration;

use layer_graph::{Layer, LayerKind};
use layer_profile::DataSheet;

/// Duration and occupation of a kernel of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KernelCost {
    /// Duration on a device without other work.
    pub(crate) duration: Duration,
    /// Fraction of the device's multiprocessors that its thread blocks occupy: above 0, at most 1.
    pub(crate) share: f64,
    /// Fraction of the device's memory bandwidth that it uses on a device without other work, from
    /// 0 to 1.
    pub(crate) memory: f64,
    /// Number of waves of thread blocks, as in the CUDA guide: the number of blocks divided by the
    /// number that is resident on the device at a time, rounded up.
    pub(crate) waves: NonZeroU32,
}

/// The kernels of a layer's steps for one number of samples. A step that takes no time has none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerKernels {
    /// Kernels of the forward step.
    pub(crate) forward: Vec<KernelCost>,
    /// Kernels of the backward step.
    pub(crate) backward: Vec<KernelCost>,
    /// Kernels of the optimiser step, which updates the parameters.
    pub(crate) update: Vec<KernelCost>,
}

/// Edge of the tile of values that a block of a matrix product or a convolution computes, as in the
/// widest kernels of NVIDIA's libraries ("Matrix Multiplication Background", NVIDIA Deep Learning
/// Performance documentation). One block occupies the tensor cores of a multiprocessor.
const TILE_EDGE: usize = 128;
/// Maximum number of terms that one block sums. Longer sums are split over several blocks (split-K,
/// as in the same document). They occur in gradients of parameters, which are sums over all samples
/// and positions.
const TERMS_PER_BLOCK: usize = 1_024;
/// Number of elements per block of all other kernels: 256 threads with four elements each.
const ELEMENTS_PER_BLOCK: usize = 1_024;
/// Number of blocks of 256 threads that are resident on a multiprocessor, which holds 2,048 threads
/// (CUDA C++ Programming Guide, compute capabilities 7.0, 8.0 and 9.0).
const RESIDENT_BLOCKS: usize = 8;

/// The occupation of a device by a kernel: the multiprocessors that its thread blocks fill, and the
/// bytes that it moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Footprint {
    multiprocessors: f64,
    bytes: f64,
}

impl Footprint {
    /// Returns the footprint of the forward step for `samples` samples: one kernel, which moves
    /// each tensor once.
    pub(super) fn of_forward(layer: &Layer, samples: usize) -> Vec<Self> {
        let bytes = (layer.input_bytes() + layer.output_bytes()) * samples as u64 + layer.parameter_bytes();
        let kernel = match Product::of(layer, samples) {
            Some(product) => product.output(bytes),
            None => Self::element_wise(widest(layer) * samples, bytes),
        };
        vec![kernel]
    }

    /// Returns the footprints of the backward step for `samples` samples. `input_gradient` is
    /// whether the gradient of the input is needed. A matrix product has one kernel for the
    /// gradient of the input, if needed, and one for the gradient of the parameters. Any other
    /// layer has one kernel for both. Each kernel moves its tensors once.
    pub(super) fn of_backward(layer: &Layer, samples: usize, input_gradient: bool) -> Vec<Self> {
        let input = layer.input_bytes() * samples as u64;
        let output = layer.output_bytes() * samples as u64;
        let bytes = input + output + layer.parameter_bytes();
        match Product::of(layer, samples) {
            Some(product) if layer.parameter_count() > 0 => {
                let of_input = input_gradient.then(|| product.input_gradient(bytes));
                of_input.into_iter().chain([product.parameter_gradient(bytes)]).collect()
            }
            // Each factor and its gradient.
            Some(product) => vec![product.output(bytes + input)],
            // The saved values besides the two gradients.
            None => vec![Self::element_wise(widest(layer) * samples, bytes + input)],
        }
    }

    /// Returns the footprint of the optimiser step for the given number of parameters: it reads
    /// gradients, parameters and velocities, and writes the latter two.
    pub(super) fn of_update(parameters: usize) -> Vec<Self> {
        vec![Self::element_wise(parameters, parameters as u64 * 5 * super::ELEMENT_BYTES)]
    }

    fn element_wise(elements: usize, bytes: u64) -> Self {
        let blocks = elements.div_ceil(ELEMENTS_PER_BLOCK);
        Self { multiprocessors: blocks as f64 / RESIDENT_BLOCKS as f64, bytes: bytes as f64 }
    }

    /// Returns the footprint with elements of two bytes instead of four.
    pub(super) fn in_16_bits(self) -> Self {
        Self { bytes: self.bytes / 2.0, ..self }
    }

    /// Returns the kernels with these footprints. Each has an equal part of `duration`, which is
    /// that of the step. Without a data sheet each fills the device. Empty if `duration` is zero.
    pub(super) fn kernels(
        footprints: &[Self],
        duration: Duration,
        sheet: Option<&DataSheet>,
    ) -> Vec<KernelCost> {
        if duration.is_zero() {
            return Vec::new();
        }
        let count = footprints.len() as u32;
        let mut left = duration;
        let kernel = |(index, footprint): (usize, &Self)| {
            let duration = if index + 1 == footprints.len() { left } else { duration / count };
            left -= duration;
            footprint.kernel(duration, sheet)
        };
        footprints.iter().enumerate().map(kernel).collect()
    }

    fn kernel(&self, duration: Duration, sheet: Option<&DataSheet>) -> KernelCost {
        let Some(sheet) = sheet else {
            // Kernels that fill the device never run together, so their memory bandwidth does not
            // matter.
            return KernelCost { duration, share: 1.0, memory: 0.0, waves: NonZeroU32::MIN };
        };
        let share = self.multiprocessors / f64::from(sheet.multiprocessors);
        let fastest = self.bytes / sheet.bandwidth_bytes_per_s;
        let memory = if duration.is_zero() { 0.0 } else { fastest / duration.as_secs_f64() };
        let waves = NonZeroU32::new(share.ceil() as u32).unwrap_or(NonZeroU32::MIN);
        KernelCost { duration, share: share.min(1.0), memory: memory.min(1.0), waves }
    }
}

/// Returns the number of elements per sample of the larger of input and output.
fn widest(layer: &Layer) -> usize {
    let input: usize = layer.input_shapes().iter().map(layer_graph::Shape::elements).sum();
    input.max(layer.output_shape().elements()).max(1)
}

/// A layer as `count` independent matrix products of `rows x depth` by `depth x columns`.
struct Product {
    count: usize,
    rows: usize,
    columns: usize,
    /// Rows and columns of the gradient of the input.
    input: [usize; 2],
    depth: usize,
}

impl Product {
    fn of(layer: &Layer, samples: usize) -> Option<Self> {
        let input = layer.input_shapes().first()?;
        let output = layer.output_shape();
        match layer.kind() {
            LayerKind::Conv2d(conv) => {
                let (channels, height, width) = input.as_image()?;
                let channels = channels / conv.groups;
                Some(Self {
                    count: conv.groups,
                    rows: samples * output.elements() / conv.out_channels,
                    columns: conv.out_channels / conv.groups,
                    input: [samples * height * width, channels],
                    depth: channels * conv.kernel[0] * conv.kernel[1],
                })
            }
            // A row for each pixel of the output, to which `positions` taps of a kernel contribute.
            LayerKind::ConvTranspose2d(conv) => {
                let (channels, height, width) = input.as_image()?;
                let (filters, taps) = (conv.out_channels / conv.groups, conv.kernel[0] * conv.kernel[1]);
                let pixels = samples * output.elements() / conv.out_channels;
                let positions = taps.div_ceil(conv.stride[0] * conv.stride[1]);
                Some(Self {
                    count: conv.groups,
                    rows: pixels,
                    columns: filters,
                    input: [samples * height * width, channels / conv.groups],
                    depth: channels / conv.groups * positions,
                })
            }
            LayerKind::Linear(linear) => {
                let rows = samples * output.elements() / linear.out_features;
                let depth = input.innermost();
                Some(Self { count: 1, rows, columns: linear.out_features, input: [rows, depth], depth })
            }
            // The product of a position.
            LayerKind::Recurrence(_) => {
                let (columns, width) = (input.innermost(), output.innermost());
                Some(Self { count: 1, rows: samples, columns, input: [samples, width], depth: width })
            }
            // The first product of each expert, for its share of the positions.
            LayerKind::MixtureOfExperts(rule) => {
                let sizes = rule.sizes(layer.input_shapes())?;
                let rows = (samples * sizes.pairs).div_ceil(rule.experts);
                Some(Self {
                    count: rule.experts,
                    rows,
                    columns: rule.inner_rows(),
                    input: [rows, sizes.features],
                    depth: sizes.features,
                })
            }
            // A block has the scores of a tile of queries, for any number of keys.
            LayerKind::MultiHeadAttention(attention) => {
                let sizes = attention.sizes(layer.input_shapes())?;
                Some(Self {
                    count: samples * sizes.heads,
                    rows: sizes.positions,
                    columns: sizes.width,
                    input: [sizes.positions, sizes.width],
                    depth: sizes.key_positions,
                })
            }
            _ => None,
        }
    }

    fn output(&self, bytes: u64) -> Footprint {
        self.tiles([self.rows, self.columns], 1, bytes)
    }

    fn input_gradient(&self, bytes: u64) -> Footprint {
        self.tiles(self.input, 1, bytes)
    }

    fn parameter_gradient(&self, bytes: u64) -> Footprint {
        self.tiles([self.depth, self.columns], self.rows.div_ceil(TERMS_PER_BLOCK), bytes)
    }

    fn tiles(&self, [rows, columns]: [usize; 2], splits: usize, bytes: u64) -> Footprint {
        let blocks = self.count * rows.div_ceil(TILE_EDGE) * columns.div_ceil(TILE_EDGE) * splits;
        Footprint { multiprocessors: blocks as f64, bytes: bytes as f64 }
    }
}

#[cfg(test)]
mod tests {
    use layer_graph::{Conv2d, LayerGraph, LayerKind, Linear, Shape};

    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn layer(kind: impl Into<LayerKind>, input: Shape) -> Layer {
        let mut network = LayerGraph::new("one", input).unwrap();
        let input = network.input();
        let id = network.add("layer", kind, [input]).unwrap();
        network.layer(id).clone()
    }

    fn shares(footprints: &[Footprint], duration: Duration) -> Vec<f64> {
        let kernels = Footprint::kernels(footprints, duration, Some(&DataSheet::A100));
        kernels.iter().map(|kernel| kernel.share).collect()
    }

    #[test]
    fn convolution_blocks_match_its_tiles() {
        // 14 x 14 positions of 4 samples: 784 rows, 7 tiles; 512 channels: 4 tiles; a depth of
        // 4,608.
        let conv = layer(Conv2d::new(512, 3).padding(1), Shape::image(512, 14, 14));
        assert_eq!(shares(&Footprint::of_forward(&conv, 4), US), [28.0 / 108.0]);
        assert_eq!(shares(&Footprint::of_backward(&conv, 4, true), US), [28.0 / 108.0, 1.0]);
        assert_eq!(shares(&Footprint::of_backward(&conv, 4, false), US), [1.0]);
        let linear = layer(Linear::new(1_000), Shape::features(4_096));
        assert_eq!(shares(&Footprint::of_forward(&linear, 4), US), [8.0 / 108.0]);
    }

    #[test]
    fn blocks_beyond_capacity_run_in_waves() {
        let waves = |footprints: &[Footprint]| {
            let kernels = Footprint::kernels(footprints, US, Some(&DataSheet::A100));
            kernels.iter().map(|kernel| (kernel.share, kernel.waves.get())).collect::<Vec<_>>()
        };
        // 224 x 224 positions of 4 samples: 1,568 tiles on 108 multiprocessors.
        let conv = layer(Conv2d::new(64, 3).padding(1), Shape::image(64, 224, 224));
        assert_eq!(waves(&Footprint::of_forward(&conv, 4)), [(1.0, 15)]);
        // 14 x 14 positions of 4 samples: 28 tiles.
        let small = layer(Conv2d::new(512, 3).padding(1), Shape::image(512, 14, 14));
        assert_eq!(waves(&Footprint::of_forward(&small, 4)), [(28.0 / 108.0, 1)]);
        // 865 blocks, of which 8 fit on each.
        let relu = layer(LayerKind::Relu, Shape::features(865 * 1_024));
        assert_eq!(waves(&Footprint::of_forward(&relu, 1)), [(1.0, 2)]);
    }

    #[test]
    fn memory_share_is_relative_to_bandwidth() {
        let relu = layer(LayerKind::Relu, Shape::features(1_555_000));
        // 12.44 MB of input and output take 8 us at 1,555 GB/s.
        let kernels = Footprint::kernels(&Footprint::of_forward(&relu, 1), 16 * US, Some(&DataSheet::A100));
        assert!((kernels[0].memory - 0.5).abs() < 1e-12, "{kernels:?}");
        assert!((kernels[0].share - 1.0).abs() < 1e-12, "{kernels:?}");
    }

    #[test]
    fn kernels_take_the_time_of_the_step() {
        let conv = layer(Conv2d::new(8, 3), Shape::image(3, 8, 8));
        for nanos in [0, 1, 2, 7, 1_000] {
            let duration = Duration::from_nanos(nanos);
            for sheet in [None, Some(&DataSheet::A100)] {
                let kernels = Footprint::kernels(&Footprint::of_backward(&conv, 2, true), duration, sheet);
                assert_eq!(kernels.iter().map(|kernel| kernel.duration).sum::<Duration>(), duration);
                let in_range = |kernel: &KernelCost| {
                    kernel.share > 0.0 && kernel.share <= 1.0 && (0.0..=1.0).contains(&kernel.memory)
                };
                assert!(kernels.iter().all(in_range), "{kernels:?}");
            }
        }
    }
}
