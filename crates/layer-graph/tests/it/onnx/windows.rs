//! Padding of pooling windows, tested against ONNX's definition.

use layer_graph::LayerKind;
use layer_graph::onnx::from_bytes;
use proptest::prelude::*;

use super::file::Attribute::{Int, Ints};
use super::file::Model;

/// Returns the pixels of each window along one direction by ONNX's definition: windows are added
/// until one extends beyond the padding or, with `ceil`, starts beyond the image.
fn windows(size: i64, kernel: i64, stride: i64, pads: [i64; 2], ceil: bool) -> Vec<Vec<i64>> {
    let mut windows = Vec::new();
    for first in (-pads[0]..).step_by(stride as usize) {
        let fits = first + kernel <= size + pads[1];
        let rounded_up = ceil && first < size && first - stride + kernel < size + pads[1];
        if !(fits || rounded_up && !windows.is_empty()) {
            return windows;
        }
        windows.push((first..first + kernel).filter(|pixel| (0..size).contains(pixel)).collect());
    }
    windows
}

proptest! {
    #[test]
    fn imported_pooling_covers_the_same_pixels(
        size in 1i64..12, kernel in 1i64..6, stride in 1i64..5,
        before in 0i64..4, after in 0i64..4, ceil: bool,
    ) {
        let expected = windows(size, kernel, stride, [before, after], ceil);
        let model = Model::new(13, &[1, 1, size, 1], &[-1, -1])
            .node("MaxPool", "x", "p", &[
                Ints("kernel_shape", &[kernel, 1]), Ints("strides", &[stride, 1]),
                Ints("pads", &[before, 0, after, 0]), Int("ceil_mode", i64::from(ceil)),
            ])
            .node("Flatten", "p", "y", &[]);
        match from_bytes("net", &model.bytes()) {
            Ok(imported) => {
                let (_, layer) = imported.graph.layers().nth(1).expect("a layer");
                let LayerKind::MaxPool2d(pool) = layer.kind() else { panic!("not a pooling") };
                prop_assert_eq!(layer.output_shape().dims(), &[1, expected.len(), 1]);
                // Windows of the resulting `Pool2d`.
                let [padding, extra] =
                    [pool.padding[0], pool.extra_padding[0]].map(|size| i64::try_from(size).expect("small"));
                prop_assert_eq!(windows(size, kernel, stride, [padding, padding + extra], false), expected);
            }
            // There is no window, one that covers only padding, or padding that the layer cannot
            // express.
            Err(_) => prop_assert!(
                expected.is_empty() || expected.iter().any(Vec::is_empty) || before > kernel / 2
                    || before > after || after - before >= kernel
            ),
        }
    }
}
