//! Sums and products with directed rounding, compared with the sign of the error of rounding to
//! nearest.

use super::{Form, floats::flush, form};
use std::cmp::Ordering;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Towards {
    Nearest,
    Zero,
    Down,
    Up,
}

/// Modifiers of directed rounding.
const DIRECTIONS: [(&str, Towards); 3] = [("rz", Towards::Zero), ("rm", Towards::Down), ("rp", Towards::Up)];

pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for (modifier, towards) in DIRECTIONS {
        let name = |base: &str| vec![format!("{base}.{modifier}.f32")];
        forms.extend([
            Form { names: name("add"), ..form(&[], move |a: f32, b: f32| fused(a, 1.0, b, towards)) },
            Form { names: name("sub"), ..form(&[], move |a: f32, b: f32| fused(a, 1.0, -b, towards)) },
            Form { names: name("mul"), ..form(&[], move |a: f32, b: f32| product(a, b, towards)) },
            Form { names: name("fma"), ..form(&[], move |a: f32, b: f32, c: f32| fused(a, b, c, towards)) },
        ]);
    }
    forms.push(form(&["fma.rm.ftz.f32"], |a: f32, b: f32, c: f32| {
        flush(fused(flush(a), flush(b), flush(c), Towards::Down))
    }));
    forms
}

/// Computes `a * b + c`.
fn fused(a: f32, b: f32, c: f32, towards: Towards) -> f32 {
    let near = a.mul_add(b, c);
    let product = f64::from(a) * f64::from(b);
    if near == 0.0 && product == -f64::from(c) {
        // An exact zero has the sign of its terms, or if they differ that of the rounding mode.
        let same = product == 0.0 && product.is_sign_negative() == c.is_sign_negative();
        return if same {
            c
        } else if towards == Towards::Down {
            -0.0
        } else {
            0.0
        };
    }
    rounded(near, &[product, c.into()], towards)
}

fn product(a: f32, b: f32, towards: Towards) -> f32 {
    rounded(a * b, &[f64::from(a) * f64::from(b)], towards)
}

/// Rounds the exact sum of `terms`, whose nearest number is `near`.
pub(super) fn rounded(near: f32, terms: &[f64], towards: Towards) -> f32 {
    if near.is_nan() || terms.iter().any(|term| term.is_infinite()) {
        return near;
    }
    let (against_zero, against_near) = if near.is_infinite() {
        // The sum is finite.
        (near.total_cmp(&0.0), 0.0_f32.total_cmp(&near))
    } else {
        (sign(terms), sign(&[terms, &[-f64::from(near)]].concat()))
    };
    let towards = match (towards, against_zero) {
        (Towards::Zero, Ordering::Greater) => Towards::Down,
        (Towards::Zero, _) => Towards::Up,
        (other, _) => other,
    };
    match (towards, against_near) {
        (Towards::Down, Ordering::Less) => -next_up(-near),
        (Towards::Up, Ordering::Greater) => next_up(near),
        _ => near,
    }
}

/// Returns the next larger value. The standard library has this function since Rust 1.86.
fn next_up(value: f32) -> f32 {
    match value {
        0.0 => f32::from_bits(1),
        f32::NEG_INFINITY => f32::MIN,
        _ if value > 0.0 => f32::from_bits(value.to_bits() + 1),
        _ => f32::from_bits(value.to_bits() - 1),
    }
}

/// Returns the sign of an exact sum. The terms are expanded into parts, each larger than the sum of
/// all smaller ones (Shewchuk).
fn sign(terms: &[f64]) -> Ordering {
    let mut parts: Vec<f64> = Vec::new();
    for term in terms {
        let (mut carried, mut kept) = (*term, Vec::new());
        for part in parts {
            let (large, small) = if carried.abs() < part.abs() { (part, carried) } else { (carried, part) };
            let sum = large + small;
            kept.push(small - (sum - large));
            carried = sum;
        }
        kept.push(carried);
        parts = kept.into_iter().filter(|part| *part != 0.0).collect();
    }
    parts
        .last()
        .map_or(Ordering::Equal, |largest| if *largest > 0.0 { Ordering::Greater } else { Ordering::Less })
}

#[test]
fn directed_rounding_matches_reference() {
    forms().iter().for_each(Form::check);
}
