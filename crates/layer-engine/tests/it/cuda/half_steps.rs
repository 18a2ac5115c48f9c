//! Sums, chains and gradient descent with operands in 16 bits, compared with single precision.

use cuda::Buffer;
use layer_engine::{
    CudaEngine, CudaKernel, CudaQueue, ElementwiseChain, Engine, KernelSpec, LaunchContext, Precision,
    Rectifier, Sgd, Storage,
};

use super::chains::chained;
use super::{ORDERS, on_device};
use crate::any_engine::numbers;

const CONTEXT: LaunchContext = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.3 };

/// Odd, so that the last scalar holds one element.
const ELEMENTS: usize = 701;

fn singles(salt: u64, count: usize) -> Vec<f32> {
    numbers(salt, count).into_iter().map(|number| number as f32).collect()
}

/// Returns pseudorandom numbers in 16 bits, and their scalars.
fn halves(salt: u64, count: usize) -> (Vec<f32>, Vec<f32>) {
    let scalars = Storage::Bf16.pack(&singles(salt, count)).into_owned();
    (Storage::Bf16.unpack(&scalars, count).into_owned(), scalars)
}

/// Runs a kernel and returns the operands that it writes.
fn run(
    engine: &CudaEngine,
    kernel: &mut CudaKernel,
    reads: &[Vec<f32>],
    writes: &[Vec<f32>],
    queue: &mut CudaQueue,
) -> Vec<Vec<f32>> {
    let upload = |values: &Vec<f32>| Buffer::from_slice(engine.context(), values).unwrap();
    let reads: Vec<_> = reads.iter().map(upload).collect();
    let mut written: Vec<_> = writes.iter().map(upload).collect();
    let reads: Vec<_> = reads.iter().collect();
    let mut targets: Vec<_> = written.iter_mut().collect();
    engine.enqueue(kernel, &reads, &mut targets, &CONTEXT, queue).unwrap();
    written.iter().map(|buffer| buffer.to_vec(queue.stream()).unwrap()).collect()
}

#[test]
fn chains_sums_and_scalings_round_once() {
    on_device(ORDERS[1], |engine| {
        let mut queue = engine.queue().unwrap();
        let (numbers, scalars): (Vec<_>, Vec<_>) = (0..9).map(|salt| halves(salt, ELEMENTS)).unzip();
        let zeros = vec![0.0; scalars[0].len()];
        for (terms, rectifier, copies) in
            [(1, None, 4), (3, Some(Rectifier::Forward), 1), (4, Some(Rectifier::Backward), 2)]
        {
            let expected = chained(&numbers, terms, rectifier);
            let expected = Storage::Bf16.pack(&expected);
            let storage = Storage::Bf16;
            let chain =
                ElementwiseChain { elements: ELEMENTS, storage, terms, rectifier, copies, norm: None };
            let mut kernel = engine.prepare_chain(&chain).unwrap();
            let reads = terms + usize::from(rectifier == Some(Rectifier::Backward));
            let got = run(engine, &mut kernel, &scalars[..reads], &vec![zeros.clone(); copies], &mut queue);
            assert!(got.iter().all(|got| got[..] == expected[..]), "{chain:?}");
        }
        for terms in [1, 4, 5, 9] {
            let sum = |i: usize| numbers[1..terms].iter().fold(numbers[0][i], |sum, term| sum + term[i]);
            let expected: Vec<f32> = (0..ELEMENTS).map(sum).collect();
            let expected = Storage::Bf16.pack(&expected);
            let spec = KernelSpec::Sum { terms, elements: ELEMENTS };
            let mut sum = engine.prepare(&spec, Precision::Bf16).unwrap();
            let got = run(engine, &mut sum, &scalars[..terms], std::slice::from_ref(&zeros), &mut queue);
            assert_eq!(got[0], expected[..], "{terms} terms");
        }
        // Ranges begin at odd elements.
        let factors = vec![(1, 0.3), (2, 0.0), (ELEMENTS - 3, -0.7)];
        let spec = KernelSpec::Scale { sample_elements: 1, factors };
        let mut scale = engine.prepare(&spec, Precision::Bf16).unwrap();
        let got = run(engine, &mut scale, &[], &scalars[..1], &mut queue);
        let factor = |i: usize| [0.3, 0.0, 0.0, -0.7][i.min(3)];
        let expected: Vec<f32> = (0..ELEMENTS).map(|i| factor(i) * numbers[0][i]).collect();
        let got = Storage::Bf16.unpack(&got[0], ELEMENTS);
        let expected = Storage::Bf16.pack(&expected);
        assert_eq!(got, Storage::Bf16.unpack(&expected, ELEMENTS));
    });
}

/// More layers than one launch takes in 16 bits.
#[test]
fn master_parameters_equal_those_of_single_precision() {
    let layers = [vec![2101, 0], vec![7; 110], vec![300]].concat();
    let rule = Sgd { momentum: 0.9, weight_decay: 0.01, clip_norm: Some(0.5) };
    on_device(ORDERS[0], |engine| {
        let mut queue = engine.queue().unwrap();
        let mut reads: Vec<_> = (1..).zip(&layers).map(|(salt, &count)| singles(salt, count)).collect();
        reads.push(vec![reads.iter().flatten().map(|value| value * value).sum()]);
        let state: Vec<[Vec<f32>; 2]> = (300..)
            .zip(&layers)
            .map(|(salt, &count)| [singles(salt, count), singles(salt + 500, count)])
            .collect();
        let spec = KernelSpec::Sgd { elements: layers.clone(), rule };
        let [mut single, mut mixed] =
            [Precision::F32, Precision::Bf16].map(|precision| engine.prepare(&spec, precision).unwrap());
        assert_eq!([single.launches(), mixed.launches()], [1, 2]);
        let expected = run(engine, &mut single, &reads, &state.concat(), &mut queue);
        let with_halves = |[master, velocity]: &[Vec<f32>; 2]| {
            let parameters = vec![0.0; Storage::Bf16.scalars(master.len())];
            [parameters, master.clone(), velocity.clone()]
        };
        let writes: Vec<_> = state.iter().flat_map(with_halves).collect();
        let got = run(engine, &mut mixed, &reads, &writes, &mut queue);
        for (got, expected) in got.chunks(3).zip(expected.chunks(2)) {
            assert_eq!(got[1..], *expected);
            assert_eq!(got[0], Storage::Bf16.pack(&got[1])[..]);
        }
    });
}
