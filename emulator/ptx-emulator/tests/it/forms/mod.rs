//! Every supported instruction on edge values, compared with Rust's arithmetic: tables of expected
//! results, and a test that the tables are complete.

mod bits;
mod carries;
mod comparisons;
mod conversions;
mod exchange;
mod floats;
mod integers;
mod memory;
mod moves;
mod rounding;

use crate::{
    faults::kernel,
    gpu::{Gpu, arguments},
};
use bits::Reference;
use ptx_emulator::{Dimensions, instruction_forms};
use std::collections::BTreeSet;

/// Test of one or more instructions with the same effect.
struct Form {
    /// Opcodes with modifiers.
    names: Vec<String>,
    /// Executed code: `OP` is the opcode, `D` the result, `A` to `E` are the operands.
    program: String,
    /// Register kinds of the result and the operands.
    kinds: Vec<Kind>,
    /// Operands as bits.
    rows: Vec<Vec<u64>>,
    expected: Box<dyn Fn(&[u64]) -> u64>,
    /// Returns whether two results are equal. NaNs are equal regardless of their bits.
    same: fn(u64, u64) -> bool,
}

/// Kind of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Predicate,
    Half,
    Word,
    Double,
}

/// Creates a form for opcodes that take their operands in order and compute `reference`, on all
/// combinations of edge values.
fn form<F: Reference<A> + 'static, A>(names: &[&str], reference: F) -> Form {
    let operands = F::kinds().len() - 1;
    Form {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        program: format!("OP D, {};", ["A", "B", "C", "E"][..operands].join(", ")),
        kinds: F::kinds(),
        rows: F::rows(),
        expected: Box::new(move |row| reference.call(row)),
        same: F::same,
    }
}

impl Form {
    /// Replaces the executed code.
    fn by(self, program: &str) -> Self {
        Self { program: program.to_owned(), ..self }
    }

    fn check(&self) {
        for name in &self.names {
            let found = results(&self.program.replace("OP", name), &self.kinds, &self.rows);
            for (found, row) in found.into_iter().zip(&self.rows) {
                let expected = (self.expected)(row);
                assert!(
                    (self.same)(found, expected),
                    "{name} of {row:x?} is {found:#x}, not {expected:#x}, by `{}`",
                    self.program
                );
            }
        }
    }
}

/// Executes a program on each row, one thread for each, and returns the results as bits.
fn results(program: &str, kinds: &[Kind], rows: &[Vec<u64>]) -> Vec<u64> {
    let stride = 8 * kinds.len();
    let mut body = format!(
        "mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mad.lo.s32 %r1, %r10, %r11, %r1;
         mul.wide.u32 %rd10, %r1, {stride}; add.s64 %rd10, %rd10, %rd1;\n"
    );
    let name = |index: usize, kind: Kind| match kind {
        Kind::Predicate => format!("%p{}", index + 10),
        Kind::Half => format!("%h{}", index + 10),
        Kind::Word => format!("%r{}", index + 12),
        Kind::Double => format!("%rd{}", index + 11),
    };
    let names: Vec<_> = kinds.iter().enumerate().map(|(index, kind)| name(index, *kind)).collect();
    for (index, kind) in kinds.iter().enumerate().skip(1) {
        let (name, offset) = (&names[index], 8 * index);
        body += &match kind {
            Kind::Predicate => format!("ld.global.u32 %r9, [%rd10+{offset}]; setp.ne.u32 {name}, %r9, 0;\n"),
            Kind::Half => format!("ld.global.u16 {name}, [%rd10+{offset}];\n"),
            Kind::Word => format!("ld.global.u32 {name}, [%rd10+{offset}];\n"),
            Kind::Double => format!("ld.global.u64 {name}, [%rd10+{offset}];\n"),
        };
    }
    let place = |word: &str| ["D", "A", "B", "C", "E"].iter().position(|letter| *letter == word);
    let words = program.split_inclusive(|c: char| !c.is_ascii_alphanumeric());
    body.extend(words.map(|text| {
        let word = text.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = place(word).map_or(word, |index| &names[index]);
        format!("{name}{}", &text[word.len()..])
    }));
    let to = &names[0];
    body += &match kinds[0] {
        Kind::Predicate => format!("\nselp.u32 %r9, 1, 0, {to}; st.global.u32 [%rd10], %r9;"),
        Kind::Half => format!("\nst.global.u16 [%rd10], {to};"),
        Kind::Word => format!("\nst.global.u32 [%rd10], {to};"),
        Kind::Double => format!("\nst.global.u64 [%rd10], {to};"),
    };
    let mut gpu = Gpu::new(&kernel(&body));
    let mut table: Vec<u64> = rows.iter().flat_map(|row| [&[0], row.as_slice()].concat()).collect();
    table.resize(rows.len().next_multiple_of(64) * kinds.len(), 0);
    let at = gpu.upload(&table);
    gpu.run("test", Dimensions::linear(rows.len().div_ceil(64) as u32, 64), &arguments![at]);
    gpu.download::<u64>(at, rows.len() * kinds.len()).chunks(kinds.len()).map(|row| row[0]).collect()
}

/// Returns all tables of forms.
fn tables() -> Vec<Form> {
    [
        integers::forms(),
        carries::forms(),
        floats::forms(),
        rounding::forms(),
        moves::forms(),
        comparisons::forms(),
        conversions::forms(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn every_supported_instruction_is_in_a_table() {
    let supported: BTreeSet<String> = instruction_forms().into_iter().collect();
    let named = tables().into_iter().flat_map(|form| form.names);
    let tested: BTreeSet<String> = named.chain(memory::names()).chain(exchange::names()).collect();
    let untested: Vec<_> = supported.difference(&tested).collect();
    let unsupported: Vec<_> = tested.difference(&supported).collect();
    assert!(
        untested.is_empty() && unsupported.is_empty(),
        "not tested: {untested:?}; not supported: {unsupported:?}"
    );
}
