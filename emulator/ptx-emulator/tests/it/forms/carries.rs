//! Multi-word addition and subtraction: results and carry flag.

use super::{Form, bits::Bits, form};

/// Sets the carry flag from a register that is 0 or 1, by an addition that overflows.
const SET_FLAG: &str = "and.b32 %r8, CARRY, 1; add.cc.u32 %r8, %r8, 0xffffffff;";

pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    macro_rules! chains {
        ($($number:ty as $wide:ty: $types:expr;)*) => {$(
            for kind in $types {
                for (name, uses) in [("add.cc", false), ("addc", true), ("addc.cc", true)] {
                    chain(&mut forms, name, kind, move |a: $number, b: $number, carry: u32| {
                        let carry = <$wide>::from(u8::from(uses) * carry as u8);
                        let sum = <$wide>::from(a) + <$wide>::from(b) + carry;
                        (sum as $number, sum >> <$number>::BITS != 0)
                    });
                }
                for (name, uses) in [("sub.cc", false), ("subc", true), ("subc.cc", true)] {
                    chain(&mut forms, name, kind, move |a: $number, b: $number, borrow: u32| {
                        let taken = <$wide>::from(b) + <$wide>::from(u8::from(uses) * borrow as u8);
                        (a.wrapping_sub(taken as $number), <$wide>::from(a) < taken)
                    });
                }
            }
        )*};
    }
    chains! {
        u32 as u64: ["u32", "s32"];
        u64 as u128: ["u64", "s64"];
    }
    for (name, uses) in [("mad.lo.cc", false), ("madc.lo", true), ("madc.lo.cc", true)] {
        for kind in ["u32", "s32"] {
            chain3(&mut forms, name, kind, move |a: u32, b: u32, c: u32, carry: u32| {
                let sum = u64::from(a.wrapping_mul(b)) + u64::from(c) + u64::from(u32::from(uses) * carry);
                (sum as u32, sum >> 32 != 0)
            });
        }
    }
    for (name, uses) in [("mad.hi.cc", false), ("madc.hi", true), ("madc.hi.cc", true)] {
        chain3(&mut forms, name, "u32", move |a: u32, b: u32, c: u32, carry: u32| {
            let sum = (u64::from(a) * u64::from(b) >> 32) + u64::from(c) + u64::from(u32::from(uses) * carry);
            (sum as u32, sum >> 32 != 0)
        });
    }
    for kind in ["u64", "s64"] {
        chain3(&mut forms, "mad.lo.cc", kind, |a: u64, b: u64, c: u64, _| {
            a.wrapping_mul(b).overflowing_add(c)
        });
    }
    forms
}

/// Adds forms for the value and for the flag of an operation on two numbers and the flag.
fn chain<T: Bits>(
    forms: &mut Vec<Form>,
    name: &str,
    kind: &str,
    function: impl Fn(T, T, u32) -> (T, bool) + Copy + 'static,
) {
    let name = format!("{name}.{kind}");
    let value = form(&[&name], move |a: T, b: T, carry: u32| function(a, b, carry & 1).0);
    let sets = name.contains(".cc.");
    let flag = form(
        &[&name],
        move |a: T, b: T, carry: u32| {
            if sets { function(a, b, carry & 1).1.into() } else { carry & 1 }
        },
    );
    forms.push(value.by(&format!("{} OP D, A, B;", SET_FLAG.replace("CARRY", "C"))));
    let unused = if kind.ends_with("64") { "%rd9" } else { "%r7" };
    forms.push(flag.by(&format!("{} OP {unused}, A, B; addc.u32 D, 0, 0;", SET_FLAG.replace("CARRY", "C"))));
}

/// Adds forms for the value and for the flag of an operation on three numbers and the flag.
fn chain3<T: Bits>(
    forms: &mut Vec<Form>,
    name: &str,
    kind: &str,
    function: impl Fn(T, T, T, u32) -> (T, bool) + Copy + 'static,
) {
    let name = format!("{name}.{kind}");
    let value = form(&[&name], move |a: T, b: T, c: T, carry: u32| function(a, b, c, carry & 1).0);
    let sets = name.contains(".cc.");
    let flag = form(
        &[&name],
        move |a: T, b: T, c: T, carry: u32| {
            if sets { function(a, b, c, carry & 1).1.into() } else { carry & 1 }
        },
    );
    forms.push(value.by(&format!("{} OP D, A, B, C;", SET_FLAG.replace("CARRY", "E"))));
    let unused = if kind.ends_with("64") { "%rd9" } else { "%r7" };
    forms.push(
        flag.by(&format!("{} OP {unused}, A, B, C; addc.u32 D, 0, 0;", SET_FLAG.replace("CARRY", "E"))),
    );
}

#[test]
fn carry_chains_match_reference() {
    forms().iter().for_each(Form::check);
}
