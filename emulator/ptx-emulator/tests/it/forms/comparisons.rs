//! `setp`: all comparisons of all types, alone and combined with a predicate, with both results.

use super::{Form, bits::Bits, floats::flush, form};

type Compare<T> = fn(T, T) -> bool;

/// Returns whether neither value is NaN.
fn numbers<T: PartialOrd + Copy>(a: T, b: T) -> bool {
    a.partial_cmp(&b).is_some()
}

/// Returns the comparisons of signed and floating-point numbers.
fn ordered<T: PartialOrd + Copy>() -> Vec<(&'static str, Compare<T>)> {
    vec![
        ("eq", |a, b| a == b),
        ("ne", |a, b| a < b || a > b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
    ]
}

fn unsigned<T: PartialOrd + Copy>() -> Vec<(&'static str, Compare<T>)> {
    let more: [(_, Compare<T>); 4] =
        [("lo", |a, b| a < b), ("ls", |a, b| a <= b), ("hi", |a, b| a > b), ("hs", |a, b| a >= b)];
    [ordered(), more.to_vec()].concat()
}

fn unordered<T: PartialOrd + Copy>() -> Vec<(&'static str, Compare<T>)> {
    let more: [(_, Compare<T>); 8] = [
        ("equ", |a, b| a == b || !numbers(a, b)),
        ("neu", |a, b| a != b || !numbers(a, b)),
        ("ltu", |a, b| a < b || !numbers(a, b)),
        ("leu", |a, b| a <= b || !numbers(a, b)),
        ("gtu", |a, b| a > b || !numbers(a, b)),
        ("geu", |a, b| a >= b || !numbers(a, b)),
        ("num", numbers),
        ("nan", |a, b| !numbers(a, b)),
    ];
    [ordered(), more.to_vec()].concat()
}

pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    macro_rules! types {
        ($($number:ty: $table:expr, $name:literal;)*) => {
            $(of_type::<$number>(&mut forms, $name, &$table, |value| value);)*
        };
    }
    types! {
        u16: unsigned(), "u16";
        i16: ordered(), "s16";
        u16: ordered()[..2], "b16";
        u32: unsigned(), "u32";
        i32: ordered(), "s32";
        u32: ordered()[..2], "b32";
        u64: unsigned(), "u64";
        i64: ordered(), "s64";
        u64: ordered()[..2], "b64";
        f32: unordered(), "f32";
        f64: unordered(), "f64";
    }
    of_type::<f32>(&mut forms, "ftz.f32", &unordered(), flush);
    forms
}

fn of_type<T: Bits>(
    forms: &mut Vec<Form>,
    kind: &str,
    table: &[(&'static str, Compare<T>)],
    value: fn(T) -> T,
) {
    for &(comparison, compare) in table {
        let compare = move |a: T, b: T| compare(value(a), value(b));
        let name = |combine: &str| format!("setp.{comparison}.{combine}{kind}");
        forms.push(form(&[&name("")], compare));
        forms.push(form(&[&name("")], move |a: T, b: T| !compare(a, b)).by("OP %p1|D, A, B;"));
        let joins: [(_, fn(bool, bool) -> bool); 3] =
            [("and.", |a, b| a & b), ("or.", |a, b| a | b), ("xor.", |a, b| a ^ b)];
        for (combine, join) in joins {
            let first = form(&[&name(combine)], move |a: T, b: T, c: bool| join(compare(a, b), c));
            let second = form(&[&name(combine)], move |a: T, b: T, c: bool| join(!compare(a, b), !c));
            forms.extend([first, second.by("OP %p1|D, A, B, !C;")]);
        }
    }
}

#[test]
fn comparisons_match_reference() {
    forms().iter().for_each(Form::check);
}
