//! Damaged PTX causes an error, or a kernel that ends or is stopped: never a panic or a hang.

use crate::training;
use proptest::prelude::*;
use ptx_emulator::{Dimensions, Memory, Module, Options};

/// Returns the number of cases: the environment variable `PTX_EMULATOR_MUTATIONS`, or 300.
fn cases() -> u32 {
    std::env::var("PTX_EMULATOR_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

/// Returns texts of the header with one kernel each, so that damaged lines are likely to be
/// executed.
fn kernels() -> Vec<String> {
    let (header, rest) = training::PTX.split_at(training::PTX.find(".visible").unwrap());
    let rest = &rest[..rest.find("\t.file").unwrap()];
    rest.split(".visible")
        .filter(|kernel| !kernel.is_empty())
        .map(|kernel| format!("{header}.visible{kernel}"))
        .collect()
}

/// Replaces, removes, repeats or swaps words, or changes a character.
fn damage(text: &str, kind: u8, places: [usize; 2], character: char) -> String {
    let mut words: Vec<_> =
        text.split_inclusive(|c: char| c.is_whitespace() || c == ',' || c == '.').collect();
    let (at, from) = (places[0] % words.len(), places[1] % words.len());
    match kind % 5 {
        0 => words[at] = words[from],
        1 => drop(words.remove(at)),
        2 => words.insert(at, words[from]),
        3 => words.swap(at, from),
        _ => {
            let mut text: Vec<_> = text.chars().collect();
            let at = places[0] % text.len();
            text[at] = character;
            return text.into_iter().collect();
        }
    }
    words.concat()
}

fn run(ptx: &str) {
    let mut memory = Memory::new();
    let Ok(module) = Module::load(ptx, &mut memory) else { return };
    let buffer = memory.allocate(1 << 16).unwrap();
    let mut options = Options::default();
    (options.max_instructions, options.check_races, options.check_uninitialised) = (20_000, true, true);
    for kernel in module.kernels() {
        let sizes = module.parameter_bytes(kernel).unwrap();
        let argument = |bytes: usize| {
            let value = if bytes == 8 { buffer } else { 40 };
            let mut argument = value.to_le_bytes().to_vec();
            argument.resize(bytes, 0);
            argument
        };
        let arguments: Vec<_> = sizes.into_iter().map(argument).collect();
        let arguments: Vec<_> = arguments.iter().map(Vec::as_slice).collect();
        // The result does not matter, only that the launch ends.
        let _ = module.launch(&memory, kernel, Dimensions::linear(2, 64), &arguments, &options);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn damaged_kernels_terminate(
        kernel: prop::sample::Index,
        damages in prop::collection::vec(
            (any::<u8>(), any::<[usize; 2]>(), prop::char::range(' ', '~')), 1..4,
        ),
    ) {
        let kernels = kernels();
        let mut text = kernel.get(&kernels).clone();
        for (kind, places, character) in damages {
            text = damage(&text, kind, places, character);
        }
        run(&text);
    }
}
