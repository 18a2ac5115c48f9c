//! Mutation tests of the checks: each barrier of the training kernels is removed, and each bound of
//! an integer comparison moved by one. A wrong result, a race or an access out of bounds must
//! reveal the change. Changes without effect are listed.

use crate::{
    gpu::{Gpu, difference},
    training::{self, CASES, Case},
};
use std::collections::BTreeSet;

/// Text of a kernel with one change.
struct Mutation {
    /// Description of the change: the line of a barrier, or the result of a comparison.
    description: String,
    ptx: String,
}

/// Changes of comparisons that move the bound by one.
const MOVED: [(&str, &str); 4] =
    [("setp.lt.", "setp.le."), ("setp.le.", "setp.lt."), ("setp.gt.", "setp.ge."), ("setp.ge.", "setp.gt.")];

/// Returns all mutations of a kernel. Each text holds that kernel only, so that it loads fast.
fn mutations(kernel: &str) -> Vec<Mutation> {
    let header = training::PTX.lines().take_while(|line| !line.starts_with(".visible"));
    let body =
        training::PTX.lines().skip_while(|line| !line.starts_with(&format!(".visible .entry {kernel}(")));
    let length = body.clone().position(|line| line == "}").unwrap();
    let lines: Vec<_> = header.chain(body.take(length + 1)).collect();
    let mut all = Vec::new();
    for (at, text) in lines.iter().enumerate() {
        let text = text.trim();
        let moved = MOVED.iter().find(|(from, _)| text.starts_with(from) && !text.contains(".f32"));
        let (description, changed) = match moved {
            Some((from, to)) => {
                let result = text.split([' ', '\t', ',']).find(|word| word.starts_with("%p")).unwrap();
                (result.to_owned(), text.replace(from, to))
            }
            None if text.starts_with("bar.sync") => {
                (format!("bar.sync, line {at} of the kernel"), String::new())
            }
            None => continue,
        };
        let mut mutated = lines.clone();
        mutated[at] = &changed;
        all.push(Mutation { description, ptx: mutated.join("\n") });
    }
    all
}

/// Returns whether a run with all checks, in one of two orders, reveals the change.
fn is_found(case: &Case, expected: &[Vec<f64>], ptx: &str) -> bool {
    case.sizes.iter().zip(expected).any(|(sizes, expected)| {
        (0..2).any(|seed| {
            let mut gpu = Gpu::new(ptx);
            gpu.options = training::options(seed);
            gpu.options.max_instructions = 1_000_000;
            match (case.run)(&mut gpu, sizes) {
                Ok(found) => difference(&found, expected, case.tolerance).is_some(),
                Err(_) => true,
            }
        })
    })
}

#[test]
fn every_barrier_and_bound_is_covered_by_a_check() {
    let (mut count, mut left) = (0, BTreeSet::new());
    for case in CASES {
        let expected: Vec<_> = case.sizes.iter().map(|sizes| (case.expected)(sizes)).collect();
        for Mutation { description, ptx } in mutations(case.kernel) {
            count += 1;
            if !is_found(case, &expected, &ptx) {
                left.insert((case.kernel, description));
            }
        }
    }
    println!("{count} changes, of which {} are not found", left.len());
    let harmless: BTreeSet<_> = HARMLESS
        .iter()
        .flat_map(|(kernel, _, results)| results.split(' ').map(|result| (*kernel, result.to_owned())))
        .collect();
    let unexplained: Vec<_> = left.difference(&harmless).collect();
    let found: Vec<_> = harmless.difference(&left).collect();
    assert!(
        unexplained.is_empty() && found.is_empty(),
        "changed without being found: {unexplained:?}; listed as harmless, but found: {found:?}"
    );
}

/// Comparisons whose bound may be moved without an effect: kernel, reason, and result registers.
const HARMLESS: &[(&str, &str, &str)] = &[
    ("gemm", "an additional iteration adds zeros", "%p1 %p56"),
    ("gemm", "a block has no thread 1023", "%p2"),
    (
        "gemm",
        "in the remainder loop, which no thread executes",
        "%p4 %p5 %p8 %p9 %p12 %p13 %p31 %p32 %p35 %p36 %p39 %p40",
    ),
    ("convolution", "the second iteration starts in the tile's 14th row: no image starts below it", "%p11"),
    ("convolution", "in the code for a third iteration, which no thread executes", "%p17 %p18 %p20 %p22"),
    ("convolution", "a block has no thread 323", "%p23"),
    (
        "convolution",
        "in the code for four iterations, which no thread executes",
        "%p30 %p31 %p32 %p34 %p36 %p38 %p39 %p41 %p43 %p45 %p46 %p48 %p50 %p52 %p53 %p55 %p57 %p59",
    ),
    ("softmax_cross_entropy", "the value subtracted from all scores need not be their maximum", "%p4"),
    ("softmax_cross_entropy", "in the logarithm, for an infinite argument", "%p37"),
    ("max_pool_backward", "windows start inside the image, in an even row and column", "%p2 %p3"),
];
