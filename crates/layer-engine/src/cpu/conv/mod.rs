//! Convolution as products of packed panels: the weights with what each window sees (forward, and the gradient of the
//! input), and the gradient of the output with what each window sees (the gradient of the weights).

mod columns;
mod geometry;
mod weight_gradient;
mod weights;

use super::Real;
use super::operation::{Operands, Operation};
use super::tile::Tile;
use super::workers::Workers;
use crate::{EngineError, LaunchContext};
use columns::{ColumnProduct, Strided};
pub(super) use geometry::Geometry;
use weight_gradient::WeightGradient;
use weights::{Layout, PackedWeights};

/// Which of a convolution's passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConvPass {
    Forward,
    Backward,
    BackwardParameters,
}

/// A convolution's pass with its workspace.
#[derive(Debug)]
pub(super) struct Convolution<T: 'static> {
    geometry: Geometry,
    samples: usize,
    pass: ConvPass,
    workers: Workers,
    /// The weights of each group as the left factor of the pass's product with columns.
    weights: Vec<PackedWeights<T>>,
    slots: Vec<Slot<T>>,
    gradient: Option<WeightGradient<T>>,
}

/// The workspace of one thread.
#[derive(Debug)]
struct Slot<T: 'static> {
    product: ColumnProduct<T>,
    /// The gradient of a sample's columns, where it cannot be summed up window by window.
    columns: Vec<T>,
}

impl<T: Real> Convolution<T> {
    pub(super) fn new(geometry: Geometry, samples: usize, pass: ConvPass, workers: &Workers) -> Self {
        Self::with_tile(Tile::best(), geometry, samples, pass, workers)
    }

    fn with_tile(
        tile: Tile<T>,
        geometry: Geometry,
        samples: usize,
        pass: ConvPass,
        workers: &Workers,
    ) -> Self {
        let Geometry { groups, out_channels, windows } = geometry;
        let slots = workers.threads().min(samples);
        let share = samples.div_ceil(slots.max(1));
        let reversed = windows.reversed(out_channels);
        // Rows, windows and the elements of a sample's columns of the product with columns.
        let (rows, seen, scratch) = match (pass, reversed) {
            (ConvPass::Forward, _) => (out_channels, Some(windows), 0),
            (ConvPass::Backward, Some(reversed)) => (windows.channels, Some(reversed), 0),
            (ConvPass::Backward, None) => {
                let patch = windows.patch();
                (patch, Some(windows.pointwise(out_channels)), patch * windows.count())
            }
            (ConvPass::BackwardParameters, _) => (0, None, 0),
        };
        let gradient = (pass != ConvPass::Forward)
            .then(|| WeightGradient::new(tile, windows, out_channels, samples, workers.threads()));
        let weights =
            |seen: geometry::Windows| (0..groups).map(move |_| PackedWeights::new(tile, rows, seen.patch()));
        let slot = |seen| Slot {
            product: ColumnProduct::new(tile, seen, if scratch == 0 { share } else { 1 }),
            columns: vec![T::zero(); scratch],
        };
        Self {
            geometry,
            samples,
            pass,
            workers: workers.clone(),
            weights: seen.into_iter().flat_map(weights).collect(),
            slots: seen.map_or_else(Vec::new, |seen| (0..slots).map(|_| slot(seen)).collect()),
            gradient,
        }
    }

    /// Samples a slot.
    fn share(&self) -> usize {
        self.samples.div_ceil(self.slots.len().max(1))
    }

    fn pack_weights(&mut self, weights: &[T], layout: Layout) {
        let each = self.geometry.group_weights();
        for (packed, weights) in self.weights.iter_mut().zip(weights.chunks_exact(each)) {
            packed.pack(weights, layout, &self.workers);
        }
    }

    fn forward(&mut self, input: &[T], parameters: &[T], output: &mut [T]) {
        let (weights, bias) = parameters.split_at(self.geometry.weight_elements());
        self.pack_weights(weights, Layout::Rows { depth: self.geometry.windows.patch() });
        let share = self.share();
        let geometry = &self.geometry;
        let (image, result) = (geometry.input_elements(), geometry.output_elements());
        let packed = &self.weights;
        self.workers.chunk_pairs((output, share * result), (&mut self.slots, 1), |index, outputs, slot| {
            let samples = outputs.len() / result;
            for (group, weights) in packed.iter().enumerate() {
                let data = &input[index * share * image + group * geometry.group_input()..];
                let images = Strided { data, stride: image };
                let bias = bias.chunks_exact(geometry.out_channels).nth(group).unwrap_or_default();
                let data = &mut outputs[group * geometry.group_output()..];
                let mut outputs = Strided { data, stride: result };
                slot[0].product.multiply(weights, bias, images, &mut outputs, samples);
            }
        });
    }

    fn input_gradient(&mut self, parameters: &[T], output_gradient: &[T], input_gradient: &mut [T]) {
        let share = self.share();
        let Geometry { windows, out_channels, .. } = self.geometry;
        let weights = &parameters[..self.geometry.weight_elements()];
        let summed = windows.reversed(out_channels).is_some();
        self.pack_weights(
            weights,
            if summed {
                Layout::Turned { channels: windows.channels, taps: windows.taps() }
            } else {
                Layout::Transposed { patch: windows.patch() }
            },
        );
        let geometry = &self.geometry;
        let (image, result) = (geometry.input_elements(), geometry.output_elements());
        let packed = &self.weights;
        let slots = (&mut self.slots[..], 1);
        self.workers.chunk_pairs((input_gradient, share * image), slots, |index, gradients, slot| {
            let Slot { product, columns } = &mut slot[0];
            let samples = gradients.len() / image;
            for (group, weights) in packed.iter().enumerate() {
                let data = &output_gradient[index * share * result + group * geometry.group_output()..];
                let outputs = Strided { data, stride: result };
                let data = &mut gradients[group * geometry.group_input()..];
                if summed {
                    let mut gradients = Strided { data, stride: image };
                    product.multiply(weights, &[], outputs, &mut gradients, samples);
                    continue;
                }
                for (sample, data) in data.chunks_mut(image).enumerate().take(samples) {
                    let outputs = Strided { data: &outputs.data[sample * result..], stride: result };
                    let stride = columns.len();
                    let mut target = Strided { data: &mut columns[..], stride };
                    product.multiply(weights, &[], outputs, &mut target, 1);
                    let data = &mut data[..geometry.group_input()];
                    data.fill(T::zero());
                    windows.scatter(columns, data);
                }
            }
        });
    }

    fn parameter_gradient(&mut self, input: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let geometry = &self.geometry;
        let (image, result) = (geometry.input_elements(), geometry.output_elements());
        let (weights, bias) = gradient.split_at_mut(geometry.weight_elements());
        if let Some(product) = &mut self.gradient {
            for (group, weights) in weights.chunks_exact_mut(geometry.group_weights()).enumerate() {
                let images = Strided {
                    data: input.get(group * geometry.group_input()..).unwrap_or_default(),
                    stride: image,
                };
                let data = output_gradient.get(group * geometry.group_output()..).unwrap_or_default();
                let outputs = Strided { data, stride: result };
                product.run(images, outputs, weights, self.samples, &self.workers);
            }
        }
        let windows = geometry.windows.count();
        self.workers.chunks(bias, 1, |channel, bias| {
            let samples = output_gradient.chunks_exact(result.max(1));
            let sums = samples.map(|sample| sum(&sample[channel * windows..][..windows]));
            bias[0] = sums.fold(T::zero(), |all, one| all + one);
        });
    }
}

/// The sum of a slice, eight at a time: in the same order everywhere, and in vector registers.
fn sum<T: Real>(values: &[T]) -> T {
    let mut lanes = [T::zero(); 8];
    let chunks = values.chunks_exact(lanes.len());
    let rest = chunks.remainder().iter().fold(T::zero(), |sum, &value| sum + value);
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(sum, &value)| *sum += value);
    }
    lanes.iter().fold(rest, |sum, &lane| sum + lane)
}

impl<T: Real> Operation<T> for Convolution<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            ConvPass::Forward => {
                let ([input, parameters], [output]) = operands.exactly()?;
                self.forward(input, parameters, output);
            }
            ConvPass::Backward => {
                let ([input, parameters, output_gradient], [input_gradient, gradient]) =
                    operands.exactly()?;
                self.input_gradient(parameters, output_gradient, input_gradient);
                self.parameter_gradient(input, output_gradient, gradient);
            }
            ConvPass::BackwardParameters => {
                let ([input, output_gradient], [gradient]) = operands.exactly()?;
                self.parameter_gradient(input, output_gradient, gradient);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use layer_graph::{Conv2d, LayerGraph, Shape};

    use super::*;

    const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.0 };

    /// Small integers, whose products and sums are exact in single precision.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 31 + seed * 17) % 7) as f32 - 3.0).collect()
    }

    fn launch(kernel: &mut Convolution<f32>, reads: &[&Vec<f32>], writes: &mut [&mut Vec<f32>]) {
        kernel.run(Operands { kernel: "conv", reads, writes }, &CONTEXT).expect("operands that fit");
    }

    /// Calls `body` with the places of the input, the weight and the output of every product that a convolution sums.
    fn products(geometry: &Geometry, samples: usize, mut body: impl FnMut(usize, usize, usize)) {
        let &Geometry { groups, out_channels, windows } = geometry;
        for (sample, group) in (0..samples).flat_map(|s| (0..groups).map(move |g| (s, g))) {
            for (out, window) in (0..out_channels).flat_map(|o| (0..windows.count()).map(move |w| (o, w))) {
                for k in 0..windows.patch() {
                    let (channel, tap) = (k / windows.taps(), k % windows.taps());
                    let y = window / windows.out_width * windows.stride[0] + tap / windows.kernel[1];
                    let x = window % windows.out_width * windows.stride[1] + tap % windows.kernel[1];
                    let y = y.checked_sub(windows.padding[0]).filter(|&y| y < windows.height);
                    let x = x.checked_sub(windows.padding[1]).filter(|&x| x < windows.width);
                    let Some((y, x)) = y.zip(x) else { continue };
                    let plane = (sample * groups + group) * windows.channels + channel;
                    let row = group * out_channels + out;
                    body(
                        (plane * windows.height + y) * windows.width + x,
                        row * windows.patch() + k,
                        (sample * groups * out_channels + row) * windows.count() + window,
                    );
                }
            }
        }
    }

    /// Sizes that fill blocks, panels and tiles over and under, on every tile that this processor has, against the definition.
    #[test]
    fn every_tile_convolves_as_defined() {
        let square = |conv: Conv2d, side| (conv, [40, side, side]);
        let cases = [
            (square(Conv2d::new(13, 3).padding(1), 7), 5),
            (square(Conv2d::new(24, 1), 10), 3),
            (square(Conv2d::new(9, 3).stride(2), 9), 4),
            (square(Conv2d::new(20, 3).padding(1).groups(4), 5), 3),
            (square(Conv2d::rectangular(16, [1, 7]).padding_hw([0, 3]), 17), 2),
            ((Conv2d::new(10, 5).padding(5), [3, 23, 4]), 1),
            ((Conv2d::new(4, 2).stride(3), [2, 30, 31]), 2),
        ];
        for ((conv, [channels, height, width]), samples) in cases {
            let mut net = LayerGraph::new("net", Shape::image(channels, height, width)).expect("an image");
            let id = net.add("conv", conv.clone(), [net.input()]).expect("a layer that fits");
            let geometry = Geometry::new(net.layer(id), &conv).expect("images");
            let input = numbers(samples * geometry.input_elements(), 1);
            let weights = numbers(geometry.weight_elements(), 2);
            let bias = numbers(conv.out_channels, 3);
            let output_gradient = numbers(samples * geometry.output_elements(), 4);

            let windows = geometry.windows.count();
            let mut output: Vec<f32> =
                (0..output_gradient.len()).map(|i| bias[i / windows % bias.len()]).collect();
            let mut input_gradient = vec![0.0; input.len()];
            let mut gradient = vec![0.0; weights.len()];
            products(&geometry, samples, |x, w, y| {
                output[y] += input[x] * weights[w];
                input_gradient[x] += output_gradient[y] * weights[w];
                gradient[w] += output_gradient[y] * input[x];
            });
            let mut bias_gradient = vec![0.0; bias.len()];
            for (i, value) in output_gradient.iter().enumerate() {
                bias_gradient[i / windows % bias.len()] += value;
            }
            let parameters = [weights, bias].concat();
            let parameter_gradient = [gradient, bias_gradient].concat();

            for tile in f32::tiles() {
                for threads in [1, 3] {
                    let workers = Workers::pool(threads).expect("threads");
                    let kernel = |pass| Convolution::with_tile(tile, geometry, samples, pass, &workers);
                    let mut y = vec![f32::NAN; output.len()];
                    let mut dx = vec![f32::NAN; input.len()];
                    let mut dw = vec![f32::NAN; parameters.len()];
                    launch(&mut kernel(ConvPass::Forward), &[&input, &parameters], &mut [&mut y]);
                    assert!(y == output, "{conv:?} on {tile:?}");
                    let reads = [&input, &parameters, &output_gradient];
                    launch(&mut kernel(ConvPass::Backward), &reads, &mut [&mut dx, &mut dw]);
                    assert!(dx == input_gradient, "{conv:?} on {tile:?}");
                    assert!(dw == parameter_gradient, "{conv:?} on {tile:?}");
                    dw.fill(f32::NAN);
                    let reads = [&input, &output_gradient];
                    launch(&mut kernel(ConvPass::BackwardParameters), &reads, &mut [&mut dw]);
                    assert!(dw == parameter_gradient, "{conv:?} on {tile:?}");
                }
            }
        }
    }
}
