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
    let layers = [vec![2100, 0], vec![7; 130], vec![0]].concat();
    let updated: Vec<usize> = layers.iter().flat_map(|&elements| [elements; 2]).collect();
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
        (KernelSpec::SquaredNorm { elements: parts.clone() }, parts, vec![1]),
        (KernelSpec::SquaredNorm { elements: vec![] }, vec![], vec![1]),
        (KernelSpec::SquaredNorm { elements: vec![9000] }, vec![9000], vec![1]),
        (KernelSpec::Sgd { elements: vec![500], rule }, vec![500], vec![500; 2]),
        (KernelSpec::Sgd { elements: vec![500], rule: clipped }, vec![500, 1], vec![500; 2]),
        (KernelSpec::Sgd { elements: vec![], rule }, vec![], vec![]),
        // More layers than one launch updates.
        (KernelSpec::Sgd { elements: layers.clone(), rule }, layers.clone(), updated.clone()),
        (KernelSpec::Sgd { elements: layers.clone(), rule: clipped }, [&layers[..], &[1]].concat(), updated),
        (KernelSpec::SquaredNorm { elements: layers.clone() }, layers, vec![1]),
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

/// Layers that are updated together get the same bits as layers that are updated one by one.
#[test]
fn joint_updates_equal_separate_updates() {
    let rule = Sgd { momentum: 0.9, weight_decay: 0.01, clip_norm: Some(0.1) };
    let layers = [1500, 3, 1024];
    on_device(ORDERS[0], |engine| {
        let mut queue = engine.queue().unwrap();
        let of_layer = |salt: u64, operand: u64, elements: usize| numbers(10 * operand + salt, elements);
        let norm = upload(engine, &[0.7], &mut queue);
        let [mut together, mut apart] = [0, 1].map(|_| {
            let operands = (0..)
                .zip(layers)
                .flat_map(|(salt, elements)| [1, 2].map(|operand| of_layer(salt, operand, elements)));
            operands.map(|values| upload(engine, &values, &mut queue)).collect::<Vec<_>>()
        });
        let gradients: Vec<_> =
            (0..).zip(layers).map(|(salt, elements)| of_layer(salt, 0, elements)).collect();
        let gradients: Vec<_> = gradients.iter().map(|values| upload(engine, values, &mut queue)).collect();
        let prepare = |elements| engine.prepare(&KernelSpec::Sgd { elements, rule }, Precision::F32).unwrap();

        let reads: Vec<_> = gradients.iter().chain([&norm]).collect();
        let mut writes: Vec<_> = together.iter_mut().collect();
        let mut step = prepare(layers.to_vec());
        assert_eq!(step.launches(), 1);
        engine.enqueue(&mut step, &reads, &mut writes, &CONTEXT, &mut queue).unwrap();
        for (layer, writes) in apart.chunks_mut(2).enumerate() {
            let mut writes: Vec<_> = writes.iter_mut().collect();
            let mut step = prepare(vec![layers[layer]]);
            engine
                .enqueue(&mut step, &[&gradients[layer], &norm], &mut writes, &CONTEXT, &mut queue)
                .unwrap();
        }
        for (operand, (together, apart)) in together.iter().zip(&apart).enumerate() {
            let [together, apart] =
                [together, apart].map(|buffer| download(engine, buffer, layers[operand / 2], &mut queue));
            assert_eq!(together, apart, "operand {operand}");
        }
    });
}
