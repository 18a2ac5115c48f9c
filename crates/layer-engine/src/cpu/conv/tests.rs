use layer_graph::{Conv2d, LayerGraph, Shape};

use super::super::Real;
use super::super::operation::{Operands, Operation};
use super::super::workers::Workers;
use super::{ConvPass, Convolution, Geometry};
use crate::LaunchContext;

const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.0 };

/// Returns small integers, whose products and sums are exact in single precision.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 31 + seed * 17) % 7) as f32 - 3.0).collect()
}

fn launch(kernel: &mut Convolution<f32>, reads: &[&Vec<f32>], writes: &mut [&mut Vec<f32>]) {
    let reads: Vec<&[f32]> = reads.iter().map(|buffer| buffer.as_slice()).collect();
    let mut writes: Vec<&mut [f32]> = writes.iter_mut().map(|buffer| buffer.as_mut_slice()).collect();
    kernel
        .run(Operands { kernel: "conv", reads: &reads, writes: &mut writes }, &CONTEXT)
        .expect("operands that fit");
}

/// A convolution with its sizes, from which the reference is computed.
struct ConvCase {
    conv: Conv2d,
    geometry: Geometry,
    samples: usize,
}

impl ConvCase {
    fn input_elements(&self) -> usize {
        let Geometry { groups, channels, image, .. } = &self.geometry;
        self.samples * groups * channels * image[0] * image[1]
    }

    fn windows(&self) -> usize {
        self.geometry.output[0] * self.geometry.output[1]
    }

    fn output_elements(&self) -> usize {
        self.samples * self.conv.out_channels * self.windows()
    }

    /// Calls `body` with the indices of input, weight and output of every product in the
    /// convolution's sums.
    fn products(&self, mut body: impl FnMut(usize, usize, usize)) {
        let ConvCase { conv, geometry, samples } = self;
        let &Geometry { groups, channels, filters, image: [height, width], output, .. } = geometry;
        let taps = conv.kernel[0] * conv.kernel[1];
        for (sample, group) in (0..*samples).flat_map(|s| (0..groups).map(move |g| (s, g))) {
            for (filter, window) in (0..filters).flat_map(|f| (0..self.windows()).map(move |w| (f, w))) {
                for term in 0..channels * taps {
                    let (channel, tap) = (term / taps, term % taps);
                    let y = window / output[1] * conv.stride[0] + tap / conv.kernel[1];
                    let x = window % output[1] * conv.stride[1] + tap % conv.kernel[1];
                    let y = y.checked_sub(conv.padding[0]).filter(|&y| y < height);
                    let x = x.checked_sub(conv.padding[1]).filter(|&x| x < width);
                    let Some((y, x)) = y.zip(x) else { continue };
                    let plane = (sample * groups + group) * channels + channel;
                    let row = group * filters + filter;
                    body(
                        (plane * height + y) * width + x,
                        row * channels * taps + term,
                        (sample * groups * filters + row) * self.windows() + window,
                    );
                }
            }
        }
    }
}

/// Compares every instruction set of this processor with the definition, for sizes that fill
/// blocks, panels and tiles completely or partly.
#[test]
fn conv_matches_definition_on_every_instruction_set() {
    let square = |conv: Conv2d, side| (conv, [40, side, side]);
    let cases = [
        (square(Conv2d::new(13, 3).padding(1), 7), 5),
        (square(Conv2d::new(24, 1), 10), 3),
        (square(Conv2d::new(9, 3).stride(2), 9), 4),
        (square(Conv2d::new(20, 3).padding(1).groups(4), 5), 3),
        (square(Conv2d::rectangular(16, [1, 7]).padding_hw([0, 3]), 17), 2),
        ((Conv2d::new(10, 5).padding(5), [3, 23, 4]), 1),
        ((Conv2d::new(4, 2).stride(3), [2, 30, 31]), 2),
        // More than one block of terms, windows that lie in the padding, and an empty batch.
        (square(Conv2d::new(3, 4).stride(3).padding(1), 8), 9),
        (square(Conv2d::new(17, 3).padding(4), 3), 1),
        // Joint blocks of samples, of which the last has fewer.
        (square(Conv2d::new(18, 3).padding(1), 2), 70),
        (square(Conv2d::new(12, 3).padding(1).stride(2).groups(4), 6), 31),
        (square(Conv2d::new(5, 3), 4), 0),
    ];
    for ((conv, [channels, height, width]), samples) in cases {
        let mut net = LayerGraph::new("net", Shape::image(channels, height, width)).expect("an image");
        let id = net.add("conv", conv.clone(), [net.input()]).expect("a layer that fits");
        let geometry = Geometry::new(net.layer(id), &conv).expect("images");
        let case = ConvCase { conv, geometry, samples };
        let ConvCase { conv, geometry, .. } = &case;
        let input = numbers(case.input_elements(), 1);
        let weights = numbers(geometry.weight_elements(), 2);
        let bias = numbers(conv.out_channels, 3);
        let output_gradient = numbers(case.output_elements(), 4);

        let windows = case.windows();
        let mut output: Vec<f32> =
            (0..output_gradient.len()).map(|i| bias[i / windows % bias.len()]).collect();
        let mut input_gradient = vec![0.0; input.len()];
        let mut gradient = vec![0.0; weights.len()];
        case.products(|x, w, y| {
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

        for kernels in f32::kernels() {
            for threads in [1, 3] {
                let workers = Workers::pool(threads).expect("threads");
                let kernel =
                    |pass| Convolution::with_kernels(kernels, geometry.clone(), samples, pass, &workers);
                let mut y = vec![f32::NAN; output.len()];
                let mut dx = vec![f32::NAN; input.len()];
                let mut dw = vec![f32::NAN; parameters.len()];
                launch(&mut kernel(ConvPass::Forward), &[&input, &parameters], &mut [&mut y]);
                assert!(y == output, "{conv:?} on {kernels:?}");
                let reads = [&input, &parameters, &output_gradient];
                launch(&mut kernel(ConvPass::Backward), &reads, &mut [&mut dx, &mut dw]);
                assert!(dx == input_gradient, "{conv:?} on {kernels:?}");
                assert!(dw == parameter_gradient, "{conv:?} on {kernels:?}");
                dw.fill(f32::NAN);
                let reads = [&input, &output_gradient];
                launch(&mut kernel(ConvPass::BackwardParameters), &reads, &mut [&mut dw]);
                assert!(dw == parameter_gradient, "{conv:?} on {kernels:?}");
            }
        }
    }
}
