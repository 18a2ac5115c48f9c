//! Loads, stores and atomic operations in all state spaces, by type.

use super::{Form, bits::Bits, form};
use crate::gpu::{Gpu, Value, arguments};
use ptx_emulator::Dimensions;

/// Four 64-bit numbers with sign bits at all element sizes.
const PATTERN: [u64; 4] =
    [0x8182_0384_8586_8788, 0x7172_f374_7576_7778, 0xffff_ffff_0000_0080, 0x0000_8000_ffff_7fff];

/// Element types.
const TYPES: [&str; 16] = [
    "b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16", "b32", "u32", "s32", "f32", "b64", "u64", "s64",
    "f64",
];

/// Numbers of elements with their modifiers.
const COUNTS: [(usize, &str); 3] = [(1, ""), (2, ".v2"), (4, ".v4")];

const LOADED: [&str; 6] = ["", ".global", ".shared", ".local", ".const", ".param"];
const STORED: [&str; 4] = ["", ".global", ".shared", ".local"];

/// Registers that hold elements, the opcode type that reads and writes them, and their size in
/// bytes.
const REGISTERS: [(&str, &str, usize); 3] = [("%h", "u16", 2), ("%r", "u32", 4), ("%rd", "u64", 8)];

pub(super) fn names() -> impl Iterator<Item = String> {
    let of = |base: &'static str, spaces: &'static [&'static str]| {
        spaces.iter().flat_map(move |space| {
            COUNTS
                .into_iter()
                .flat_map(move |(_, count)| TYPES.map(|kind| format!("{base}{space}{count}.{kind}")))
        })
    };
    of("ld", &LOADED).chain(of("st", &STORED)).chain(atomics().into_iter().flat_map(|form| form.names))
}

fn bytes_of(kind: &str) -> usize {
    kind.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse::<usize>().unwrap() / 8
}

/// Returns a kernel that initialises 32 bytes at [`address`] in `space` from the argument `given`
/// and executes `body`.
fn kernel(space: &str, body: &str) -> String {
    let table: Vec<_> =
        PATTERN.iter().flat_map(|number| number.to_le_bytes()).map(|byte| byte.to_string()).collect();
    let copies: String = (0..4)
        .filter(|_| STORED.contains(&space))
        .map(|i| {
            let place = address(space, 8 * i);
            format!("ld.param.u64 %rd9, [given+{}]; st{space}.u64 {place}, %rd9;\n", 8 * i)
        })
        .collect();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64
        .const .align 32 .b8 table[32] = {{{}}};
        .visible .entry test(.param .u64 out, .param .align 32 .b8 given[32]) {{
        .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<19>;
        .shared .align 32 .b8 tile[32]; .local .align 32 .b8 own[32];
        ld.param.u64 %rd10, [out]; mov.u64 %rd11, tile; cvta.shared.u64 %rd12, %rd11;
        {copies}{body}
        ret; }}",
        table.join(", ")
    )
}

/// Returns an address in a state space. Generic addresses refer to shared memory; in global memory,
/// the results come first.
fn address(space: &str, offset: usize) -> String {
    match space {
        ".global" => format!("[%rd10+{}]", 32 + offset),
        ".shared" => format!("[%rd11+{offset}]"),
        ".local" => format!("[own+{offset}]"),
        ".const" => format!("[table+{offset}]"),
        ".param" => format!("[given+{offset}]"),
        _ => format!("[%rd12+{offset}]"),
    }
}

/// Runs the kernel and returns the 32 bytes of results.
fn run(ptx: &str) -> Vec<u8> {
    let mut gpu = Gpu::plain(ptx);
    let given: Vec<u8> = PATTERN.iter().flat_map(|number| number.bytes()).collect();
    let out = gpu.upload(&[vec![0; 32], given.clone()].concat());
    gpu.run("test", Dimensions::linear(1, 1), &[out.bytes(), given]);
    gpu.download::<u8>(out, 32)
}

fn registers(register: &str, count: usize) -> String {
    let names: Vec<_> = (0..count).map(|i| format!("{register}{i}")).collect();
    if count == 1 { names[0].clone() } else { format!("{{{}}}", names.join(", ")) }
}

#[test]
fn loads_extend_elements_to_their_registers() {
    let pattern: Vec<u8> = PATTERN.iter().flat_map(|number| number.to_le_bytes()).collect();
    for (space, kind, (count, counted)) in all(&LOADED) {
        let bytes = bytes_of(kind);
        for (register, stored, width) in REGISTERS.into_iter().filter(|(_, _, width)| *width >= bytes) {
            let stores: String = (0..count)
                .map(|i| format!("st.global.{stored} [%rd10+{}], {register}{i};\n", 8 * i))
                .collect();
            let mut places = vec![address(space, 0)];
            // The address of a parameter can also be in a register.
            places.extend((space == ".param").then(|| "[%rd13]".to_owned()));
            for place in places {
                let load = format!(
                    "mov.b64 %rd13, given;\nld{space}{counted}.{kind} {}, {place};\n",
                    registers(register, count)
                );
                let found = run(&kernel(space, &(load.clone() + &stores)));
                for (i, found) in found.chunks(8).take(count).enumerate() {
                    let element = &pattern[i * bytes..(i + 1) * bytes];
                    let negative = kind.starts_with('s') && element[bytes - 1] > 127;
                    let mut expected = element.to_vec();
                    expected.resize(width, if negative { 255 } else { 0 });
                    assert_eq!(&found[..width], expected, "{load}");
                }
            }
        }
    }
}

#[test]
fn stores_write_the_low_bytes_of_registers() {
    for (space, kind, (count, counted)) in all(&STORED) {
        let bytes = bytes_of(kind);
        for (register, loaded, _) in REGISTERS.into_iter().filter(|(_, _, width)| *width >= bytes) {
            // Stored in another order, so that the contents change.
            let loads: String = (0..count)
                .map(|i| format!("ld.param.{loaded} {register}{i}, [given+{}];\n", 8 * (3 - i)))
                .collect();
            let store =
                format!("st{space}{counted}.{kind} {}, {};\n", address(space, 0), registers(register, count));
            let results: String = (0..4)
                .map(|i| {
                    let place = address(space, 8 * i);
                    format!("ld{space}.u64 %rd9, {place}; st.global.u64 [%rd10+{}], %rd9;\n", 8 * i)
                })
                .collect();
            let found = run(&kernel(space, &(loads + &store + &results)));
            let mut expected: Vec<u8> = PATTERN.iter().flat_map(|number| number.to_le_bytes()).collect();
            for i in 0..count {
                expected[i * bytes..(i + 1) * bytes].copy_from_slice(&PATTERN[3 - i].to_le_bytes()[..bytes]);
            }
            assert_eq!(found, expected, "{store}");
        }
    }
}

/// Returns all combinations of state space, element type and number of elements.
fn all(
    spaces: &'static [&'static str],
) -> impl Iterator<Item = (&'static str, &'static str, (usize, &'static str))> {
    spaces
        .iter()
        .flat_map(|space| TYPES.into_iter().flat_map(move |kind| COUNTS.map(|count| (*space, kind, count))))
}

/// One 64-bit cell for each thread, in the table of operands and in shared memory.
const CELLS: [(&str, &str); 3] = [
    (".global", "add.s64 %rd9, %rd10, 8;"),
    (
        ".shared",
        ".shared .align 8 .b8 cells[512]; mov.u32 %r8, %tid.x; mul.wide.u32 %rd9, %r8, 8; mov.u64 %rd8, cells;
         add.s64 %rd9, %rd9, %rd8; st.shared.WIDTH [%rd9], A;",
    ),
    (
        "",
        ".shared .align 8 .b8 cells[512]; mov.u32 %r8, %tid.x; mul.wide.u32 %rd9, %r8, 8; mov.u64 %rd8, cells;
         add.s64 %rd9, %rd9, %rd8; st.shared.WIDTH [%rd9], A; cvta.shared.u64 %rd9, %rd9;",
    ),
];

/// Adds forms for the returned value and the new value of an atomic operation.
fn atomic<T: Bits>(forms: &mut Vec<Form>, operation: &str, kind: &str, new: fn(T, T) -> T) {
    let width = if bytes_of(kind) == 8 { "u64" } else { "u32" };
    let unused = if bytes_of(kind) == 8 { "%rd7" } else { "%r7" };
    for (space, prepare) in CELLS {
        let prepare = prepare.replace("WIDTH", width);
        let atom = format!("atom{space}.{operation}.{kind}");
        forms.push(form(&[&atom], |a: T, _: T| a).by(&format!("{prepare} OP D, [%rd9], B;")));
        let left = format!("ld{space}.{width} D, [%rd9];");
        forms.push(form(&[&atom], new).by(&format!("{prepare} OP {unused}, [%rd9], B; {left}")));
        if operation != "exch" {
            let red = format!("red{space}.{operation}.{kind}");
            forms.push(form(&[&red], new).by(&format!("{prepare} OP [%rd9], B; {left}")));
        }
    }
}

fn compare_and_swap<T: Bits + PartialEq>(forms: &mut Vec<Form>, kind: &str) {
    let width = if bytes_of(kind) == 8 { "u64" } else { "u32" };
    let unused = if bytes_of(kind) == 8 { "%rd7" } else { "%r7" };
    for (space, prepare) in CELLS {
        let prepare = prepare.replace("WIDTH", width);
        let atom = format!("atom{space}.cas.{kind}");
        forms.push(form(&[&atom], |a: T, _: T, _: T| a).by(&format!("{prepare} OP D, [%rd9], B, C;")));
        let new = form(&[&atom], |a: T, b: T, c: T| if a == b { c } else { a });
        forms.push(new.by(&format!("{prepare} OP {unused}, [%rd9], B, C; ld{space}.{width} D, [%rd9];")));
    }
}

fn atomics() -> Vec<Form> {
    let mut forms = Vec::new();
    macro_rules! integers {
        ($($number:ty: $name:literal;)*) => {$(
            atomic::<$number>(&mut forms, "add", $name, |a, b| a.wrapping_add(b));
            atomic::<$number>(&mut forms, "min", $name, |a, b| a.min(b));
            atomic::<$number>(&mut forms, "max", $name, |a, b| a.max(b));
        )*};
    }
    integers! { u32: "u32"; i32: "s32"; u64: "u64"; i64: "s64"; }
    macro_rules! bits {
        ($($number:ty: $name:literal;)*) => {$(
            atomic::<$number>(&mut forms, "and", $name, |a, b| a & b);
            atomic::<$number>(&mut forms, "or", $name, |a, b| a | b);
            atomic::<$number>(&mut forms, "xor", $name, |a, b| a ^ b);
            atomic::<$number>(&mut forms, "exch", $name, |_, b| b);
            compare_and_swap::<$number>(&mut forms, $name);
        )*};
    }
    bits! { u32: "b32"; u64: "b64"; }
    atomic::<f32>(&mut forms, "add", "f32", |a, b| a + b);
    atomic::<f64>(&mut forms, "add", "f64", |a, b| a + b);
    atomic::<u32>(&mut forms, "inc", "u32", |a, b| if a >= b { 0 } else { a + 1 });
    atomic::<u32>(&mut forms, "dec", "u32", |a, b| if a == 0 || a > b { b } else { a - 1 });
    forms
}

#[test]
fn atomic_operations_match_reference() {
    atomics().iter().for_each(Form::check);
}

/// For each lane, which of 32 parts of a memory it accesses.
const WALKS: [(&str, fn(usize) -> usize); 6] = [
    ("one part", |_| 20),
    ("one after the other", |lane| lane),
    ("backwards", |lane| 31 - lane),
    ("two parts", |lane| if lane < 16 { 8 } else { 30 }),
    ("mixed", |lane| lane * 13 % 32),
    ("all but one the same", |lane| if lane == 17 { 0 } else { 4 }),
];

#[test]
fn lanes_access_words_in_any_pattern() {
    for ((name, walk), members) in
        WALKS.into_iter().flat_map(|walk| [u32::MAX, 0x8000_0001, 0x0ff0_00f0].map(|members| (walk, members)))
    {
        for (count, counted) in COUNTS {
            let registers = registers("%r1", count);
            let words: Vec<u32> = (0..128).map(|word| 1000 + word).collect();
            let places: Vec<u32> = (0..32).map(|lane| (4 * count * walk(lane)) as u32).collect();
            let body = |space: &str, base: &str| {
                format!(
                    "add.s64 %rd6, %rd3, 512; ld.global.u32 %r2, [%rd6]; cvt.u64.u32 %rd7, %r2; \
                     add.s64 %rd7, %rd7, {base};
                     mov.u32 %r3, {members}; shr.u32 %r3, %r3, %r1; and.b32 %r3, %r3, 1;
                     setp.ne.u32 %p1, %r3, 0;
                     mov.u32 %r10, 1; mov.u32 %r11, 2; mov.u32 %r12, 3; mov.u32 %r13, 4;
                     @%p1 ld{space}{counted}.u32 {registers}, [%rd7];
                     mul.wide.u32 %rd8, %r1, 16; add.s64 %rd8, %rd8, %rd1;
                     st.global.v4.u32 [%rd8+1024], {{%r10, %r11, %r12, %r13}};
                     bar.warp.sync -1; mov.u32 %r10, %r1; add.u32 %r11, %r1, 100; add.u32 %r12, %r1, 200; \
                     add.u32 %r13, %r1, 300;
                     @%p1 st{space}{counted}.u32 [%rd7], {registers};"
                )
            };
            let shared = format!(
                ".shared .align 16 .b8 copy[512]; mov.u64 %rd9, copy; mul.wide.u32 %rd10, %r1, 16; \
                 add.s64 %rd11, %rd9, %rd10;
                 add.s64 %rd12, %rd1, %rd10; ld.global.v4.u32 {{%r14, %r15, %r16, %r17}}, [%rd12];
                 st.shared.v4.u32 [%rd11], {{%r14, %r15, %r16, %r17}}; bar.warp.sync -1; {} bar.warp.sync -1;
                 ld.shared.v4.u32 {{%r14, %r15, %r16, %r17}}, [%rd11]; \
                 st.global.v4.u32 [%rd12], {{%r14, %r15, %r16, %r17}};",
                body(".shared", "%rd9")
            );
            let taking_part = (0..32).filter(|lane| members >> lane & 1 != 0);
            let mut loaded: Vec<u32> = (0..128).map(|i| i % 4 + 1).collect();
            let mut stored = words.clone();
            for lane in taking_part {
                for i in 0..count {
                    loaded[4 * lane + i] = words[count * walk(lane) + i];
                    stored[count * walk(lane) + i] = (lane + 100 * i) as u32;
                }
            }
            for (text, gpu) in [body(".global", "%rd1"), shared]
                .iter()
                .flat_map(|text| [Gpu::new, Gpu::plain].map(|gpu| (text, gpu)))
            {
                let mut gpu = gpu(&crate::faults::kernel(text));
                let out = gpu.upload(&[words.as_slice(), &places, &[0; 224]].concat());
                gpu.run("test", Dimensions::linear(1, 32), &arguments![out]);
                let found = gpu.download::<u32>(out, 384);
                assert_eq!(found[256..], loaded, "{name}, {members:#x}: {text}");
                assert_eq!(found[..128], stored, "{name}, {members:#x}: {text}");
            }
        }
    }
}

#[test]
fn local_memory_is_private_to_each_thread() {
    // Each thread fills its array and reads it at a computed index.
    let body = ".local .align 4 .b8 own[64]; mov.u64 %rd6, own; mov.u32 %r2, 0;
        fill: mad.lo.u32 %r3, %r2, 100, %r1; mul.wide.u32 %rd7, %r2, 4; add.s64 %rd7, %rd7, %rd6; \
        st.local.u32 [%rd7], %r3;
        add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 16; @%p1 bra fill;
        and.b32 %r4, %r1, 15; mul.wide.u32 %rd7, %r4, 4; add.s64 %rd7, %rd7, %rd6; ld.local.u32 %r5, [%rd7];
        st.global.u32 [%rd3], %r5;";
    let mut gpu = Gpu::new(&crate::faults::kernel(body));
    let out = gpu.zeros::<u32>(64);
    gpu.run("test", Dimensions::linear(1, 64), &arguments![out]);
    let expected: Vec<u32> = (0..64).map(|thread| thread % 16 * 100 + thread).collect();
    assert_eq!(gpu.download::<u32>(out, 64), expected);
}
