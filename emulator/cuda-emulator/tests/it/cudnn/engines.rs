//! Engines that heuristics propose, beside those of the real library.

use super::{
    BF16, Cudnn, DEVICE, DOWN_CONVERT_INPUTS, F32, NONDETERMINISTIC, PLAN, Shape, TENSOR_CORE, Value, real,
    strides,
};
use cuda_emulator::{Emulator, Setting};
use std::collections::BTreeMap;

const MODE_A: i32 = 3;
const FALLBACK: i32 = 2;

/// Returns a convolution with square stride and dilation.
const fn shape(
    (batch, channels, image, filters): (i64, i64, i64, i64),
    window: [i64; 2],
    stride: i64,
    padding: [i64; 2],
    groups: i64,
) -> Shape {
    Shape {
        batch,
        channels,
        image: [image; 2],
        filters,
        window,
        stride,
        padding,
        dilation: 1,
        groups,
        flipped: false,
    }
}

/// Convolutions of the networks that are trained: of each kind the largest and a small one.
pub(super) const ZOO: [Shape; 20] = [
    shape((32, 256, 14, 1024), [1, 1], 1, [0, 0], 1),
    shape((4, 16, 8, 32), [1, 1], 1, [0, 0], 1),
    shape((32, 256, 56, 512), [1, 1], 2, [0, 0], 1),
    shape((8, 16, 8, 32), [1, 1], 2, [0, 0], 1),
    shape((32, 64, 56, 64), [3, 3], 1, [1, 1], 1),
    shape((128, 512, 2, 512), [3, 3], 1, [1, 1], 1),
    shape((8, 16, 16, 16), [3, 3], 1, [1, 1], 1),
    shape((128, 3, 32, 64), [3, 3], 1, [1, 1], 1),
    shape((8, 1, 8, 16), [3, 3], 1, [1, 1], 1),
    shape((32, 64, 56, 128), [3, 3], 2, [1, 1], 1),
    shape((32, 3, 299, 32), [3, 3], 2, [0, 0], 1),
    shape((32, 48, 35, 64), [5, 5], 1, [2, 2], 1),
    shape((32, 3, 224, 64), [7, 7], 2, [3, 3], 1),
    shape((32, 3, 224, 64), [11, 11], 4, [2, 2], 1),
    shape((32, 3, 224, 768), [16, 16], 16, [0, 0], 1),
    shape((32, 192, 17, 192), [1, 7], 1, [0, 3], 1),
    shape((32, 192, 17, 192), [7, 1], 1, [3, 0], 1),
    shape((32, 128, 56, 128), [3, 3], 1, [1, 1], 32),
    shape((32, 144, 56, 144), [3, 3], 1, [1, 1], 144),
    shape((32, 144, 56, 144), [3, 3], 2, [1, 1], 144),
];

/// Precisions: data type and whether channels are last.
const PRECISIONS: [(i32, bool); 3] = [(F32, false), (F32, true), (BF16, true)];

/// Lists the engines of modes A and FALLBACK for each convolution, pass and precision, with their
/// notes. Each engine is finalised as a plan.
fn lists(cudnn: &Cudnn) -> Vec<String> {
    let device = cudnn.h100();
    let mut lines = Vec::new();
    for (index, shape) in ZOO.iter().enumerate() {
        for (pass, (data_type, channels_last)) in
            (0..3).flat_map(|pass| PRECISIONS.map(|precision| (pass, precision)))
        {
            let all = shape.dimensions().map(|dimensions| strides(dimensions, channels_last));
            let graph = cudnn.graph(shape, pass, data_type, all, [1.0, 0.0]);
            let mut engines = BTreeMap::new();
            for configuration in [MODE_A, FALLBACK].iter().flat_map(|mode| cudnn.proposed(graph, *mode, None))
            {
                let attributes = [(401, Value::Object(configuration)), (407, Value::Object(device))];
                let plan = cudnn.made(PLAN, &attributes);
                let (engine, notes) = cudnn.described(configuration);
                engines.insert(engine, notes);
                cudnn.destroy(&[configuration, plan]);
            }
            cudnn.destroy(&[graph]);
            let engines: Vec<_> =
                engines.iter().map(|(engine, notes)| format!("{engine}{notes:?}")).collect();
            lines.push(format!("{index} {pass} {data_type} {channels_last}: {}", engines.join(" ")));
        }
    }
    cudnn.destroy(&[device]);
    lines
}

#[test]
fn every_convolution_has_a_strict_deterministic_engine() {
    let emulator = Emulator::new().unwrap();
    let is_strict = |notes: &str| {
        ![TENSOR_CORE, DOWN_CONVERT_INPUTS, NONDETERMINISTIC]
            .iter()
            .any(|note| notes.split([',', '[', ']']).skip(1).any(|other| other.trim() == note.to_string()))
    };
    for line in lists(&Cudnn::emulated()) {
        assert!(line.split(' ').skip(4).any(is_strict), "{line}");
    }
    assert_eq!((emulator.misuse(), emulator.leaks()), (Vec::new(), Vec::<String>::new()));
}

/// Most engines that the emulator proposes for a convolution are proposed by the real library, too,
/// with the same notes: the table is by kinds of convolutions, not by their sizes.
#[test]
fn engines_resemble_those_of_the_real_library() {
    let test = "cudnn::engines::engines_resemble_those_of_the_real_library";
    let Some(expected) = real::lines(test, lists) else { return };
    let _emulator = Emulator::new().unwrap();
    let actual = lists(&Cudnn::emulated());
    assert_eq!(actual.len(), expected.len());
    let (mut common, mut mine, mut theirs) = (0, 0, 0);
    for (actual, expected) in actual.iter().zip(&expected) {
        let engines = |line: &str| {
            line.replace("], ", "] ")
                .replace(", ", ",")
                .split(' ')
                .skip(4)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (actual_engines, expected_engines) = (engines(actual), engines(expected));
        let shared = actual_engines.iter().filter(|engine| expected_engines.contains(engine)).count();
        assert!(shared > 0, "{actual} instead of {expected}");
        (common, mine, theirs) =
            (common + shared, mine + actual_engines.len(), theirs + expected_engines.len());
    }
    println!("{common} of {mine} engines are real, of {theirs}");
    assert!(common * 10 >= mine * 8 && common * 10 >= theirs * 8, "{common} of {mine} and {theirs}");
}

#[test]
fn targets_leave_engines_that_can_be_limited() {
    let emulator = Emulator::new().unwrap();
    let cudnn = Cudnn::emulated();
    let all = ZOO[4].dimensions().map(|dimensions| strides(dimensions, true));
    let graph = cudnn.graph(&ZOO[4], 0, F32, all, [1.0, 0.0]);
    let count = |target| {
        let configurations = cudnn.proposed(graph, MODE_A, target);
        cudnn.destroy(&configurations);
        configurations.len()
    };
    assert_eq!((count(Some(8)), count(Some(64))), (1, 0));
    assert_eq!(count(None), count(Some(8)) + count(Some(132)));
    cudnn.destroy(&[graph]);
    assert_eq!(emulator.leaks(), Vec::<String>::new());
}

#[test]
fn device_properties_come_from_the_device() {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::Multiprocessors, 14);
    let cudnn = Cudnn::emulated();
    let device = cudnn.made(DEVICE, &[]);
    let all = ZOO[6].dimensions().map(|dimensions| strides(dimensions, false));
    let graph = cudnn.graph(&ZOO[6], 0, F32, all, [1.0, 0.0]);
    let target = |target: &i32| {
        let attributes = [
            (201, Value::Object(graph)),
            (200, Value::Int32(super::HEURISTIC_MODE, &[MODE_A])),
            (204, Value::Object(device)),
            (203, Value::Int32(super::INT32, std::slice::from_ref(target))),
        ];
        let (heuristic, statuses) = cudnn.tried(super::HEURISTIC, &attributes);
        cudnn.destroy(&[heuristic]);
        statuses[4]
    };
    assert_eq!((target(&14), target(&15)), (0, 2000));
    cudnn.destroy(&[device, graph]);
    assert_eq!(emulator.leaks(), Vec::<String>::new());
}
