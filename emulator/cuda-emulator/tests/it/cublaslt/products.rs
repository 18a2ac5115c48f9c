//! Products against an oracle in f64.

use super::{
    BIAS_BATCH_STRIDE, BIAS_POINTER, COMPUTE_32F, COMPUTE_FAST_BF16, COMPUTE_FAST_TF32, EPILOGUE, Element,
    Lt, Matrices, Product, Shape, TRANSA, TRANSB, noise,
};
use proptest::prelude::*;

/// Epilogue: code, whether a bias is added, and the activation.
type Epilogue = (u32, bool, fn(f64) -> f64);

const EPILOGUES: [Epilogue; 6] = [
    (1, false, |x| x),
    (2, false, |x| x.max(0.0)),
    (4, true, |x| x),
    (6, true, |x| x.max(0.0)),
    (32, false, gelu),
    (36, true, gelu),
];

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

/// Types of A and B, and of C and D.
const TYPES: [(Element, Element); 5] = [
    (Element::F32, Element::F32),
    (Element::Bf16, Element::Bf16),
    (Element::Bf16, Element::F32),
    (Element::F16, Element::F16),
    (Element::F16, Element::F32),
];

#[derive(Debug, Clone)]
struct Case {
    sizes: [usize; 3],
    batches: usize,
    types: (Element, Element),
    transposes: [bool; 2],
    by_rows: [bool; 4],
    gaps: [usize; 4],
    factors: (f32, f32),
    epilogue: Epilogue,
    /// Elements between the biases of consecutive batches, or `None` for one bias of all.
    bias_gap: Option<usize>,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = ([1..40_usize, 1..40, 1..100], 1..4_usize, any::<[bool; 2]>(), any::<[bool; 4]>());
    let rest = (
        proptest::sample::select(&TYPES),
        [0..3_usize, 0..3, 0..3, 0..3],
        proptest::sample::select(&[(1.0, 0.0), (0.5, 1.0), (-1.0, 0.25)]),
        0..EPILOGUES.len(),
        proptest::option::of(0..3_usize),
        any::<u64>(),
    );
    // Half of the cases have sizes for vector loads.
    (shape, rest, proptest::sample::select(&[1, 8])).prop_map(
        |((sizes, batches, transposes, by_rows), (types, gaps, factors, epilogue, bias_gap, seed), unit)| {
            Case {
                sizes: sizes.map(|size| size.next_multiple_of(unit)),
                batches,
                types,
                transposes,
                by_rows,
                gaps: gaps.map(|gap| gap * unit),
                factors,
                // Epilogues need D in column order.
                epilogue: EPILOGUES[if by_rows[3] { 0 } else { epilogue }],
                bias_gap,
                seed,
            }
        },
    )
}

/// Returns the largest absolute difference, and the root mean square of both the differences and
/// the expected values.
fn differences(found: &[f32], expected: &[f64]) -> (f64, f64, f64) {
    let differences = || found.iter().zip(expected).map(|(found, expected)| f64::from(*found) - expected);
    let norm = |squares: f64| (squares / expected.len() as f64).sqrt();
    (
        differences().map(f64::abs).fold(0.0, f64::max),
        norm(differences().map(|difference| difference * difference).sum()),
        norm(expected.iter().map(|value| value * value).sum()),
    )
}

fn check(case: &Case) {
    let lt = Lt::start();
    let Case { sizes: [m, n, k], batches, types: (inputs, outputs), transposes, by_rows, gaps, .. } = *case;
    let shape = |matrix: usize, rows, columns, transposed| {
        let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
        Shape { rows, columns, batches, by_rows: by_rows[matrix], gap: gaps[matrix] }
    };
    let a = Matrices::new(&lt, inputs, shape(0, m, k, transposes[0]), case.seed);
    let b = Matrices::new(&lt, inputs, shape(1, k, n, transposes[1]), case.seed ^ 1);
    let c = Matrices::new(&lt, outputs, shape(2, m, n, false), case.seed ^ 2);
    let d = Matrices::new(&lt, outputs, shape(3, m, n, false), case.seed ^ 3);
    let mut product = Product::new(&lt, COMPUTE_32F, [a, b, c, d]);
    (product.alpha, product.beta) = case.factors;
    for (attribute, transposed) in [(TRANSA, transposes[0]), (TRANSB, transposes[1])] {
        lt.cuda.ok(lt.describe(product.description, attribute, &u32::from(transposed).to_le_bytes()));
    }
    let (code, has_bias, activation) = case.epilogue;
    lt.cuda.ok(lt.describe(product.description, EPILOGUE, &code.to_le_bytes()));
    let bias_stride = case.bias_gap.map_or(0, |gap| m + gap);
    let bias = outputs.encode(&noise(m + bias_stride * (batches - 1), case.seed ^ 4));
    let bias_address = lt.upload(&bias);
    if has_bias {
        lt.cuda.ok(lt.describe(product.description, BIAS_POINTER, &bias_address.to_le_bytes()));
        lt.cuda.ok(lt.describe(product.description, BIAS_BATCH_STRIDE, &bias_stride.to_le_bytes()));
    }
    let bias = outputs.decode(&bias);

    let Product { a, b, c, d, alpha, beta, .. } = &product;
    // Gaps are unchanged.
    let mut expected: Vec<_> = d.values.iter().map(|value| f64::from(*value)).collect();
    for (batch, row, column) in
        (0..batches).flat_map(|z| (0..m).flat_map(move |i| (0..n).map(move |j| (z, i, j))))
    {
        let sum: f64 =
            (0..k).map(|l| a.at(transposes[0], batch, row, l) * b.at(transposes[1], batch, l, column)).sum();
        let sum = f64::from(*alpha) * sum + f64::from(*beta) * c.at(false, batch, row, column);
        let sum = sum + if has_bias { f64::from(bias[batch * bias_stride + row]) } else { 0.0 };
        expected[d.index(batch, row, column)] = activation(sum);
    }
    // Rounding of the result to the type of D, and of the sums to f32.
    let tolerance = match outputs {
        Element::F32 => 4e-6,
        Element::F16 => 1e-3,
        Element::Bf16 => 8e-3,
    };
    for found in product.algorithms(&lt) {
        lt.cuda.ok(product.enqueue(&lt, Some(&found.algorithm), 0));
        let (_, error, norm) = differences(&product.d.read(&lt), &expected);
        assert!(error <= tolerance * norm.max(0.1), "{error} of {norm}: {found:?}");
    }
    lt.cuda.ok(lt.cuda.cuMemFree_v2(bias_address));
    product.end(&lt);
    lt.cuda.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn all_algorithms_match_the_oracle(case in cases()) {
        check(&case);
    }
}

#[test]
fn large_shapes_match_the_oracle() {
    for (sizes, batches) in [([1, 1, 1], 1), ([600, 3, 70], 1), ([7, 530, 64], 2), ([64, 64, 513], 1)] {
        check(&Case {
            sizes,
            batches,
            types: TYPES[0],
            transposes: [true, false],
            by_rows: [false; 4],
            gaps: [0; 4],
            factors: (1.0, 0.0),
            epilogue: EPILOGUES[2],
            bias_gap: None,
            seed: 7,
        });
    }
}

/// Returns the result of the first algorithm, and the root mean square of its error relative to the
/// exact result.
fn error_of(compute: u32) -> f64 {
    let lt = Lt::start();
    let [m, n, k] = [48, 40, 256];
    let product = Product::plain(&lt, compute, [m, n, k]);
    let mut expected = Vec::new();
    for (row, column) in (0..n).flat_map(|column| (0..m).map(move |row| (row, column))) {
        let products = (0..k).map(|l| product.a.at(false, 0, row, l) * product.b.at(false, 0, l, column));
        expected.push(products.sum());
    }
    let mut errors = product.algorithms(&lt).into_iter().map(|found| {
        lt.cuda.ok(product.enqueue(&lt, Some(&found.algorithm), 0));
        let (_, error, norm) = differences(&product.d.read(&lt), &expected);
        error / norm
    });
    let first = errors.next().unwrap();
    errors.for_each(|error| assert!(error < 4.0 * first && first < 4.0 * error, "{error} and {first}"));
    product.end(&lt);
    lt.cuda.end();
    first
}

#[test]
fn compute_types_round_their_operands() {
    let (f32, tf32, bf16) = (error_of(COMPUTE_32F), error_of(COMPUTE_FAST_TF32), error_of(COMPUTE_FAST_BF16));
    assert!((1e-9..1e-6).contains(&f32), "{f32}");
    assert!((5e-5..2e-3).contains(&tf32), "{tf32}");
    assert!((5e-4..1e-2).contains(&bf16), "{bf16}");
}

#[test]
fn operands_of_ten_bits_are_exact_in_tf32() {
    let lt = Lt::start();
    // 1 + 2^-10 is a TF32 number; 1 + 2^-11 is halfway between two and rounds to the even one.
    let values = [1.0 + 2_f32.powi(-10), 1.0 + 2_f32.powi(-11), 1.0 + 3.0 * 2_f32.powi(-11), -3.0];
    let rounded = [values[0], 1.0, 1.0 + 2.0 * 2_f32.powi(-10), -3.0];
    let mut product = Product::plain(&lt, COMPUTE_FAST_TF32, [4, 1, 1]);
    for (address, values) in [(product.a.address, &values[..]), (product.b.address, &[1.0])] {
        let bytes = Element::F32.encode(values);
        lt.cuda.ok(lt.cuda.cuMemcpyHtoDAsync_v2(address, bytes.as_ptr(), bytes.len(), 0));
    }
    lt.cuda.ok(product.enqueue(&lt, None, 0));
    assert_eq!(product.d.read(&lt), rounded);
    product.alpha = 2.0;
    lt.cuda.ok(product.enqueue(&lt, None, 0));
    assert_eq!(product.d.read(&lt), rounded.map(|value| 2.0 * value));
    product.end(&lt);
    lt.cuda.end();
}

#[test]
fn algorithms_differ_in_rounding_and_are_deterministic() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [64, 64, 512]);
    let found = product.algorithms(&lt);
    let run = |found: &super::Found| {
        lt.cuda.ok(product.enqueue(&lt, Some(&found.algorithm), 0));
        product.d.read(&lt).iter().map(|value| value.to_bits()).collect::<Vec<_>>()
    };
    let results: Vec<_> = found.iter().map(run).collect();
    assert_eq!(results, found.iter().map(run).collect::<Vec<_>>());
    let mut distinct = results.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(found.len(), 8);
    assert!(distinct.len() >= 7, "{}", distinct.len());
    // Several algorithms split the reduced dimension, and some need no workspace.
    assert!(found.iter().filter(|found| found.workspace > 0).count() >= 3);
    let (status, without) = product.heuristic(&lt, 0);
    lt.cuda.ok(status);
    assert!(!without.is_empty() && without.iter().all(|found| found.workspace == 0 && found.waves > 0.0));
    let limit = found.iter().map(|found| found.workspace).max().unwrap() - 1;
    let (_, limited) = product.heuristic(&lt, limit);
    assert!(limited.len() < found.len() && limited.iter().all(|found| found.workspace <= limit));
    product.end(&lt);
    lt.cuda.end();
}

#[test]
fn gradients_of_the_bias_are_sums_of_the_operands() {
    for (epilogue, length) in [(256_u32, 24_usize), (512, 20)] {
        let lt = Lt::start();
        let [m, n, k] = [24, 20, 48];
        let product = Product::plain(&lt, COMPUTE_32F, [m, n, k]);
        let gradient = lt.upload(&vec![0; 4 * length]);
        lt.cuda.ok(lt.describe(product.description, EPILOGUE, &epilogue.to_le_bytes()));
        lt.cuda.ok(lt.describe(product.description, BIAS_POINTER, &gradient.to_le_bytes()));
        lt.cuda.ok(product.enqueue(&lt, None, 0));
        let expected: Vec<f64> = (0..length)
            .map(|place| match epilogue {
                256 => (0..k).map(|l| product.a.at(false, 0, place, l)).sum(),
                _ => (0..k).map(|l| product.b.at(false, 0, l, place)).sum(),
            })
            .collect();
        let found = Element::F32.decode(&lt.download(gradient, 4 * length));
        assert!(differences(&found, &expected).0 < 1e-5, "{found:?} and {expected:?}");
        lt.cuda.ok(lt.cuda.cuMemFree_v2(gradient));
        product.end(&lt);
        lt.cuda.end();
    }
}

#[test]
fn product_adds_to_c_in_place() {
    let lt = Lt::start();
    let mut product = Product::plain(&lt, COMPUTE_32F, [8, 8, 8]);
    (product.alpha, product.beta) = (0.0, 1.0);
    let [c, d] = [product.c.address, product.d.address];
    product.c.address = d;
    lt.cuda.ok(product.enqueue(&lt, None, 0));
    assert_eq!(product.d.read(&lt), product.d.values);
    product.c.address = c;
    product.end(&lt);
    lt.cuda.end();
}
