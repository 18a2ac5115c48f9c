//! Sums, packing, norms and gradient descent, compared with the CPU engine.

use layer_engine::{CpuEngine, Engine, KernelSpec, LaunchContext, Precision, Real, Sgd};

use super::{ORDERS, on_device};
use crate::any_engine::{distance, download, numbers, upload};

const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.3 };

/// Runs a kernel on pseudorandom operands and returns the content of the operands that it writes.
fn run<E: Engine<Scalar: Real>>(
    engine: &E,
    spec: &KernelSpec<'_>,
    reads: &[usize],
    writes: &[usize],
) -> Vec<Vec<f64>> {
    let mut queue = engine.queue().unwrap();
    let mut upload_numbers = |offset: u64, lengths: &[usize]| -> Vec<E::Buffer> {
        let lengths = (offset..).zip(lengths);
        lengths.map(|(salt, &length)| upload(engine, &numbers(salt, length), &mut queue)).collect()
    };
    let (reads, mut written) = (upload_numbers(1, reads), upload_numbers(50, writes));
    let mut kernel = engine.prepare(spec, Precision::F32).unwrap();
    let reads: Vec<_> = reads.iter().collect();
    let mut targets: Vec<_> = written.iter_mut().collect();
    engine.enqueue(&mut kernel, &reads, &mut targets, &CONTEXT, &mut queue).unwrap();
    written.iter().zip(writes).map(|(buffer, &length)| download(engine, buffer, length, &mut queue)).collect()
}

#[test]
fn sums_norms_and_steps_match_cpu_engine() {
    let rule = Sgd { momentum: 0.9, weight_decay: 0.01, clip_norm: None };
    // The given squared norm is pseudorandom and positive.
    let clipped = Sgd { clip_norm: Some(0.1), ..rule };
    let parts = vec![3, 0, 700, 1];
    let whole = parts.iter().sum();
    let specs = [
        (KernelSpec::Sum { terms: 1, elements: 9 }, vec![9], vec![9]),
        (KernelSpec::Sum { terms: 8, elements: 300 }, vec![300; 8], vec![300]),
        (KernelSpec::Sum { terms: 2, elements: 0 }, vec![0; 2], vec![0]),
        (KernelSpec::Add { elements: 300 }, vec![300], vec![300]),
        (KernelSpec::Add { elements: 0 }, vec![0], vec![0]),
        (
            KernelSpec::Scale { sample_elements: 70, factors: vec![(2, 1.5), (3, 0.0), (0, 7.0), (1, -1.0)] },
            vec![],
            vec![420],
        ),
        (KernelSpec::Pack { elements: parts.clone() }, parts.clone(), vec![whole]),
        (KernelSpec::Unpack { elements: parts.clone() }, vec![whole], parts.clone()),
        (KernelSpec::SquaredNorm { elements: parts.clone() }, parts, vec![1]),
        (KernelSpec::SquaredNorm { elements: vec![] }, vec![], vec![1]),
        (KernelSpec::SquaredNorm { elements: vec![9000] }, vec![9000], vec![1]),
        (KernelSpec::Sgd { elements: 500, rule }, vec![500], vec![500; 2]),
        (KernelSpec::Sgd { elements: 500, rule: clipped }, vec![500, 1], vec![500; 2]),
    ];
    for order in ORDERS {
        on_device(order, |engine| {
            for (spec, reads, writes) in &specs {
                let expected = run(&CpuEngine::<f32>::new(), spec, reads, writes);
                let got = run(engine, spec, reads, writes);
                for (got, expected) in got.iter().zip(&expected) {
                    if got.iter().chain(expected).all(|value| value.is_nan()) {
                        continue;
                    }
                    let distance = distance(got, expected);
                    assert!(distance <= 1e-6, "{spec:?}: {distance:.1e} from the CPU engine's");
                }
            }
        });
    }
}
