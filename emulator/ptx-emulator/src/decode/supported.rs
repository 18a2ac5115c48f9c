//! List of supported instructions.

use super::{
    access::{ATOMICS, ELEMENTS},
    compare::{COMPARISONS, SetpModifiers},
    convert::{Conversion, NumberType, ROUNDINGS},
    warp::{BARRIER_REDUCTIONS, MATCHES, REDUCTIONS, SHUFFLES, VOTES},
};
use crate::operations::{find, names};

/// Returns the opcodes, with modifiers, of all supported instructions that compute, move or
/// exchange values. Modifiers without effect in the emulator are omitted: memory ordering, scope
/// and cache operators.
///
/// ```
/// let forms = ptx_emulator::instruction_forms();
/// assert!(forms.iter().any(|form| form == "fma.rn.f32"));
/// assert!(!forms.iter().any(|form| form.starts_with("mma")));
/// ```
#[must_use]
pub fn instruction_forms() -> Vec<String> {
    let mut forms: Vec<_> = names().filter(|name| is_opcode(name)).map(str::to_owned).collect();
    forms.extend(comparisons());
    forms.extend(conversions());
    forms.extend(accesses());
    let of = |base: &'static str, modifiers: &str| format!("{base}.{modifiers}");
    forms.extend(SHUFFLES.map(|(modifiers, _)| of("shfl", modifiers)));
    forms.extend(VOTES.map(|(modifiers, _)| of("vote", modifiers)));
    forms.extend(MATCHES.map(|(modifiers, _)| of("match", modifiers)));
    forms.extend(REDUCTIONS.map(|(modifiers, _)| of("redux", modifiers)));
    forms.extend(BARRIER_REDUCTIONS.map(|(modifiers, _)| of("bar", modifiers)));
    forms
}

/// Returns whether a table entry is a complete opcode: neither a comparison without `setp` nor a
/// part of an instruction.
fn is_opcode(name: &str) -> bool {
    !name.contains(' ') && find(name).is_some_and(|(_, shape)| !shape.compares)
}

fn comparisons() -> impl Iterator<Item = String> {
    let kinds = names().filter_map(|name| name.strip_prefix("eq."));
    let all = kinds.flat_map(|kind| {
        let combined = ["", "and.", "or.", "xor."];
        combined.into_iter().flat_map(move |combine| {
            COMPARISONS.into_iter().map(move |comparison| format!("{comparison}.{combine}{kind}"))
        })
    });
    all.filter(|modifiers| SetpModifiers::parse(modifiers).is_some())
        .map(|modifiers| format!("setp.{modifiers}"))
}

fn conversions() -> impl Iterator<Item = String> {
    let types = NumberType::ALL.into_iter().flat_map(|(to, _)| NumberType::ALL.map(|(from, _)| (to, from)));
    let all = types.flat_map(|(to, from)| {
        let roundings = ROUNDINGS.into_iter().map(|rounding| format!("{rounding}.")).chain([String::new()]);
        roundings.flat_map(move |rounding| {
            let rest = ["", "ftz.", "sat.", "ftz.sat."];
            rest.map(|rest| format!("{rounding}{rest}{to}.{from}"))
        })
    });
    // Some conversions are table operations.
    all.filter(|modifiers| Conversion::parse(modifiers).is_some())
        .map(|modifiers| format!("cvt.{modifiers}"))
        .filter(|form| find(form).is_none())
}

fn accesses() -> impl Iterator<Item = String> {
    let spaces = |base: &'static str, spaces: &[&'static str]| -> Vec<String> {
        spaces.iter().map(|space| format!("{base}{space}")).collect()
    };
    let loads = spaces("ld", &["", ".global", ".shared", ".local", ".const", ".param"]);
    let stores = spaces("st", &["", ".global", ".shared", ".local"]);
    let moves = loads.into_iter().chain(stores).flat_map(|place| {
        let counted = ["", ".v2", ".v4"].map(|count| format!("{place}{count}"));
        counted.into_iter().flat_map(|access| ELEMENTS.map(|(kind, _)| format!("{access}.{kind}")))
    });
    let atomics = ["", ".global", ".shared"].into_iter().flat_map(|space| {
        ATOMICS.into_iter().flat_map(move |(name, kind, operation)| {
            let atom = format!("atom{space}.{name}.{kind}");
            let red = operation.reduces().then(|| format!("red{space}.{name}.{kind}"));
            [Some(atom), red].into_iter().flatten()
        })
    });
    moves.chain(atomics)
}
