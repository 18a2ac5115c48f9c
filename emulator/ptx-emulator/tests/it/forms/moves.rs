//! Moves, selection, packing and unpacking, and conversion of addresses between state spaces.

use super::{Form, form};

/// First generic addresses of the emulator's windows.
const SHARED: u64 = 0x0300_0000_0000;
const LOCAL: u64 = 0x0400_0000_0000;

pub(super) fn forms() -> Vec<Form> {
    let mut forms = vec![
        form(&["mov.b16", "mov.u16", "mov.s16"], |a: u16| a),
        form(&["mov.b32", "mov.u32", "mov.s32", "mov.f32"], |a: u32| a),
        form(&["mov.b64", "mov.u64", "mov.s64", "mov.f64"], |a: u64| a),
        form(&["mov.pred"], |a: bool| a),
        form(&["not.pred"], |a: bool| !a),
        form(&["and.pred"], |a: bool, b: bool| a & b),
        form(&["or.pred"], |a: bool, b: bool| a | b),
        form(&["xor.pred"], |a: bool, b: bool| a ^ b),
        form(&["selp.b16", "selp.u16", "selp.s16"], |a: u16, b: u16, c: bool| if c { a } else { b }),
        form(
            &["selp.b32", "selp.u32", "selp.s32", "selp.f32"],
            |a: u32, b: u32, c: bool| if c { a } else { b },
        ),
        form(
            &["selp.b64", "selp.u64", "selp.s64", "selp.f64"],
            |a: u64, b: u64, c: bool| if c { a } else { b },
        ),
        form(&["mov.b32"], |a: u16, b: u16| u32::from(a) | u32::from(b) << 16).by("OP D, {A, B};"),
        form(&["mov.b64"], |a: u32, b: u32| u64::from(a) | u64::from(b) << 32).by("OP D, {A, B};"),
        form(&["mov.b32"], |a: u32| a as u16).by("OP {D, %h1}, A;"),
        form(&["mov.b32"], |a: u32| (a >> 16) as u16).by("OP {%h1, D}, A;"),
        form(&["mov.b64"], |a: u64| a as u32).by("OP {D, %r7}, A;"),
        form(&["mov.b64"], |a: u64| (a >> 32) as u32).by("OP {_, D}, A;"),
        form(&["cvta.to.global.u64", "cvta.global.u64", "cvta.to.const.u64", "cvta.const.u64"], |a: u64| a),
        form(&["cvta.shared.u64"], |a: u64| a.wrapping_add(SHARED)),
        form(&["cvta.to.shared.u64"], |a: u64| a.wrapping_sub(SHARED)),
        form(&["cvta.local.u64"], |a: u64| a.wrapping_add(LOCAL)),
        form(&["cvta.to.local.u64"], |a: u64| a.wrapping_sub(LOCAL)),
    ];
    // Pointers into each memory.
    let pointers = |at: u64| (0..4).map(move |step| vec![at + 5 * step]);
    for (name, space) in
        [("isspacep.shared", SHARED), ("isspacep.local", LOCAL), ("isspacep.global", 0x0d00_0000_0000)]
    {
        let found = form(&[name], move |a: u64| a >> 40 == space >> 40);
        let rows = [SHARED, LOCAL, 0x0d00_0000_0000].into_iter().flat_map(pointers).collect();
        forms.push(Form { rows, ..found });
    }
    forms
}

#[test]
fn moves_match_reference() {
    forms().iter().for_each(Form::check);
}
