//! Generated kernels with divergent branches and loops and with long-lived and short-lived values,
//! compared with an execution thread by thread.

use crate::gpu::{Gpu, arguments};
use proptest::prelude::*;
use ptx_emulator::Dimensions;
use std::collections::HashMap;

const THREADS: u32 = 80;
/// Number of registers whose final values are compared.
const KEPT: usize = 4;
/// Number of named registers, including those that start as zero and are not compared.
const NAMED: usize = 12;

/// Operand of an instruction.
#[derive(Clone, Debug)]
enum Source {
    Named(usize),
    /// Result of an earlier instruction in the same section, counted backwards.
    Recent(usize),
}

#[derive(Clone, Debug)]
enum Statement {
    /// Instructions with one result register each; the last result is stored in a named register.
    /// With a guard, it passes through a register that only some threads write.
    Section { instructions: Vec<(usize, Source, Source)>, to: usize, guard: Option<usize> },
    /// Executed by threads whose register is odd.
    If(usize, Vec<Statement>),
    /// Executed one to four times by each thread, depending on its register.
    Loop(usize, Vec<Statement>),
}

type Operation = (&'static str, fn(u32, u32) -> u32);

const OPERATIONS: [Operation; 5] = [
    ("add.u32", u32::wrapping_add),
    ("sub.u32", u32::wrapping_sub),
    ("mul.lo.u32", u32::wrapping_mul),
    ("xor.b32", |a, b| a ^ b),
    ("max.s32", |a, b| (a as i32).max(b as i32) as u32),
];

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![(0..NAMED).prop_map(Source::Named), (0..9_usize).prop_map(Source::Recent)]
}

fn statement() -> impl Strategy<Value = Statement> {
    let instruction = (0..OPERATIONS.len(), source(), source());
    let section = (prop::collection::vec(instruction, 1..12), 0..NAMED, prop::option::of(0..KEPT))
        .prop_map(|(instructions, to, guard)| Statement::Section { instructions, to, guard });
    section.prop_recursive(4, 40, 5, |inner| {
        let body = prop::collection::vec(inner, 1..5);
        prop_oneof![
            (0..KEPT, body.clone()).prop_map(|(kept, body)| Statement::If(kept, body)),
            (0..KEPT, body).prop_map(|(kept, body)| Statement::Loop(kept, body)),
        ]
    })
}

/// Text of a kernel under construction.
#[derive(Default)]
struct Text {
    body: String,
    registers: usize,
    labels: usize,
}

impl Text {
    fn register(&mut self) -> String {
        self.registers += 1;
        format!("%t{}", self.registers - 1)
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    fn write(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Section { instructions, to, guard } => self.section(instructions, *to, *guard),
                Statement::If(odd, body) => {
                    let (bit, end) = (self.register(), self.label());
                    self.body +=
                        &format!("and.b32 {bit}, %k{odd}, 1; setp.eq.u32 %p1, {bit}, 0; @%p1 bra {end};\n");
                    self.write(body);
                    self.body += &format!("{end}:\n");
                }
                Statement::Loop(times, body) => {
                    let (left, start) = (self.register(), self.label());
                    self.body += &format!("and.b32 {left}, %k{times}, 3;\n{start}:\n");
                    self.write(body);
                    self.body += &format!(
                        "sub.u32 {left}, {left}, 1; setp.ge.s32 %p1, {left}, 0; @%p1 bra {start};\n"
                    );
                }
            }
        }
    }

    fn section(&mut self, instructions: &[(usize, Source, Source)], named: usize, guard: Option<usize>) {
        let mut results: Vec<String> = Vec::new();
        for (operation, a, b) in instructions {
            let [a, b] = [a, b].map(|source| match source {
                Source::Recent(back) if *back < results.len() => results[results.len() - 1 - back].clone(),
                Source::Recent(back) => format!("%k{}", back % KEPT),
                Source::Named(named) => format!("%k{named}"),
            });
            let to = self.register();
            self.body += &format!("{} {to}, {a}, {b};\n", OPERATIONS[*operation].0);
            results.push(to);
        }
        let last = &results[results.len() - 1];
        match guard {
            None => self.body += &format!("mov.u32 %k{named}, {last};\n"),
            Some(odd) => {
                let (bit, some) = (self.register(), self.register());
                self.body += &format!(
                    "and.b32 {bit}, %k{odd}, 1; setp.ne.u32 %p1, {bit}, 0; @%p1 mov.u32 {some}, {last};
                     add.u32 %k{named}, %k{named}, {some};\n"
                );
            }
        }
    }
}

/// Reference execution of one thread.
struct Thread {
    named: [u32; NAMED],
    /// Values of the registers written under a guard, by address of the statement.
    guarded: HashMap<*const Statement, u32>,
}

impl Thread {
    fn execute(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Section { instructions, to, guard } => {
                    let last = self.section(instructions);
                    match guard {
                        None => self.named[*to] = last,
                        Some(odd) => {
                            let some = self.guarded.entry(statement).or_default();
                            if self.named[*odd] % 2 == 1 {
                                *some = last;
                            }
                            self.named[*to] = self.named[*to].wrapping_add(*some);
                        }
                    }
                }
                Statement::If(odd, body) => {
                    if self.named[*odd] % 2 == 1 {
                        self.execute(body);
                    }
                }
                Statement::Loop(times, body) => {
                    for _ in 0..=self.named[*times] % 4 {
                        self.execute(body);
                    }
                }
            }
        }
    }

    fn section(&self, instructions: &[(usize, Source, Source)]) -> u32 {
        let mut results: Vec<u32> = Vec::new();
        for (operation, a, b) in instructions {
            let [a, b] = [a, b].map(|source| match source {
                Source::Recent(back) if *back < results.len() => results[results.len() - 1 - back],
                Source::Recent(back) => self.named[back % KEPT],
                Source::Named(named) => self.named[*named],
            });
            results.push(OPERATIONS[*operation].1(a, b));
        }
        results[results.len() - 1]
    }
}

fn start(thread: u32) -> [u32; NAMED] {
    let mut named = [0; NAMED];
    named[..KEPT].copy_from_slice(&[thread, thread.wrapping_mul(0x9e37_79b9), thread / 3, 12345]);
    named
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn warps_match_execution_thread_by_thread(
        program in prop::collection::vec(statement(), 1..6), seed: Option<u64>,
    ) {
        let mut text = Text::default();
        text.write(&program);
        let ptx = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry test(.param .u64 out) {{
             .reg .pred %p<2>; .reg .b32 %k<{NAMED}>; .reg .b32 %t<{}>; .reg .b64 %rd<4>;
             mov.u32 %k0, %tid.x; mul.lo.u32 %k1, %k0, 0x9e3779b9; div.u32 %k2, %k0, 3; mov.u32 %k3, 12345;
             {}
             ld.param.u64 %rd1, [out]; mov.u32 %t{}, %tid.x; mad.wide.u32 %rd2, %t{}, 16, %rd1;
             st.global.v4.u32 [%rd2], {{%k0, %k1, %k2, %k3}}; ret; }}",
            text.registers + 1, text.body, text.registers, text.registers
        );
        let mut gpu = Gpu::plain(&ptx);
        gpu.options.seed = seed;
        let out = gpu.zeros::<u32>(THREADS as usize * KEPT);
        gpu.run("test", Dimensions::linear(1, THREADS), &arguments![out]);
        let found = gpu.download::<u32>(out, THREADS as usize * KEPT);
        for (thread, found) in (0..THREADS).zip(found.chunks(KEPT)) {
            let mut alone = Thread { named: start(thread), guarded: HashMap::new() };
            alone.execute(&program);
            prop_assert_eq!(found, &alone.named[..KEPT], "thread {}: {}", thread, &ptx);
        }
    }
}
