//! Do the checks find what they are for? Each barrier is taken out of the kernels of training, and each comparison moved by one:
//! a wrong result, a race or an access out of bounds has to tell.

use crate::{
    gpu::{Gpu, assert_close},
    training::{self, CASES, Case},
};
use std::{collections::BTreeMap, panic::catch_unwind};

/// A kernel's text with one change, and the number of the line.
struct Mutation {
    line: usize,
    what: String,
    ptx: String,
}

/// `setp.lt` for `setp.le` and so on.
const MOVED: [(&str, &str); 4] =
    [("setp.lt.", "setp.le."), ("setp.le.", "setp.lt."), ("setp.gt.", "setp.ge."), ("setp.ge.", "setp.gt.")];

fn mutations(kernel: &str) -> Vec<Mutation> {
    let lines: Vec<_> = training::PTX.lines().collect();
    let start =
        lines.iter().position(|line| line.starts_with(&format!(".visible .entry {kernel}("))).unwrap();
    let length = lines[start..].iter().position(|line| *line == "}").unwrap();
    let mut all = Vec::new();
    for line in start..start + length {
        let text = lines[line].trim();
        let changed = if text.starts_with("bar.sync") {
            Some(String::new())
        } else {
            let moved = MOVED.iter().find(|(from, _)| text.starts_with(from) && !text.contains(".f32"));
            moved.map(|(from, to)| text.replace(from, to))
        };
        if let Some(changed) = changed {
            let mut mutated = lines.clone();
            mutated[line] = &changed;
            all.push(Mutation { line: line + 1, what: text.to_owned(), ptx: mutated.join("\n") });
        }
    }
    all
}

/// Whether a run with all checks, in one of a few orders, tells that something is wrong.
fn is_found(case: &Case, ptx: &str, expected: &[f64]) -> bool {
    (0..2).any(|seed| {
        let mut gpu = Gpu::new(ptx);
        gpu.options = training::options(seed);
        gpu.options.instructions = 1_000_000;
        match (case.run)(&mut gpu) {
            Ok(found) => catch_unwind(|| assert_close(&found, expected, case.tolerance)).is_err(),
            Err(_) => true,
        }
    })
}

/// The line of the source that a line of PTX comes from.
fn source_line(line: usize) -> String {
    let locations = training::PTX.lines().take(line).filter_map(|text| text.trim().strip_prefix(".loc"));
    let numbers = locations.map(|text| text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap());
    let number = numbers.filter(|number| *number > 0).last().unwrap();
    include_str!("../kernels/training.cu").lines().nth(number - 1).unwrap().trim().to_owned()
}

#[test]
fn every_barrier_is_needed_and_every_bound_of_the_source_is_checked() {
    let (mut barriers, mut bounds) = (0, BTreeMap::<_, (usize, usize)>::new());
    for case in CASES {
        let expected = (case.expected)();
        for mutation in mutations(case.kernel) {
            let found = is_found(case, &mutation.ptx, &expected);
            if mutation.what.starts_with("bar.sync") {
                barriers += 1;
                assert!(
                    found,
                    "{}: line {} without its barrier gives the right results",
                    case.kernel, mutation.line
                );
            } else {
                let (all, told) = bounds.entry((case.kernel, source_line(mutation.line))).or_default();
                *all += 1;
                *told += usize::from(found);
            }
        }
    }
    let (all, told) = bounds.values().fold((0, 0), |(all, told), (a, t)| (all + a, told + t));
    println!("{barriers} barriers taken out, all found; {told} of {all} comparisons moved by one found");
    let harmless =
        |kernel: &str, line: &str| HARMLESS.iter().any(|(of, part, _)| *of == kernel && line.contains(part));
    // The compiler makes several comparisons of one bound, of which these sizes reach some.
    let unexplained: Vec<_> =
        bounds.iter().filter(|((kernel, line), (_, told))| *told == 0 && !harmless(kernel, line)).collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}

/// Bounds of the source that may be moved by one without a difference: kernel, part of the line, reason.
const HARMLESS: &[(&str, &str, &str)] = &[
    ("gemm", "for (int start = 0", "a round more adds zeros"),
    (
        "gemm",
        "const int tx",
        "of the rows from multiples of 4 on, none is the number of rows; a block has no thread 1023",
    ),
    ("gemm", "const int row0", "the copy for blocks whose rounds are no multiple of 4"),
    ("convolution", "const bool inside", "the copy for four rounds of a thread, which has at most two"),
    ("max_pool_backward", "const int x = i", "a window begins in an even row, and the height is odd"),
    (
        "softmax_cross_entropy",
        "losses[blockIdx.x] =",
        "the number of rounds left over, which is computed, not compared",
    ),
];
