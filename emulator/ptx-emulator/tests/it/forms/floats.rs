//! Floating-point operations rounded to nearest, with flushed subnormals and saturation.

use super::{Form, form};

/// Flushes a subnormal number to zero (`.ftz`).
pub(super) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0.0_f32.copysign(value) } else { value }
}

/// Clamps to 0..=1 (`.sat`).
pub(super) fn saturate(value: f32) -> f32 {
    if value.is_nan() || value <= 0.0 { 0.0 } else { value.min(1.0) }
}

pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    binary(&mut forms, &["add", "add.rn"], true, |a, b| a + b);
    binary(&mut forms, &["sub", "sub.rn"], false, |a, b| a - b);
    binary(&mut forms, &["mul", "mul.rn"], true, |a, b| a * b);
    binary(&mut forms, &["div.rn", "div.full", "div.approx"], false, |a, b| a / b);
    binary(&mut forms, &["min"], false, smaller);
    binary(&mut forms, &["max"], false, |a, b| -smaller(-a, -b));
    unary(&mut forms, &["neg"], |a| -a);
    unary(&mut forms, &["abs"], f32::abs);
    unary(&mut forms, &["sqrt.rn", "sqrt.approx"], f32::sqrt);
    unary(&mut forms, &["rcp.rn", "rcp.approx"], |a| 1.0 / a);
    // Computed in double precision and rounded.
    unary(&mut forms, &["rsqrt.approx"], |a| (1.0 / f64::from(a).sqrt()) as f32);
    unary(&mut forms, &["ex2.approx"], |a| 2.0_f64.powf(a.into()) as f32);
    unary(&mut forms, &["lg2.approx"], |a| f64::from(a).log2() as f32);
    unary(&mut forms, &["sin.approx"], |a| f64::from(a).sin() as f32);
    unary(&mut forms, &["cos.approx"], |a| f64::from(a).cos() as f32);
    forms.extend([
        form(&["tanh.approx.f32"], |a: f32| f64::from(a).tanh() as f32),
        form(
            &["min.NaN.f32"],
            |a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { smaller(a, b) },
        ),
        form(
            &["max.NaN.f32"],
            |a: f32, b: f32| {
                if a.is_nan() || b.is_nan() { f32::NAN } else { -smaller(-a, -b) }
            },
        ),
        form(&["fma.rn.f32", "mad.rn.f32"], f32::mul_add),
        form(&["fma.rn.ftz.f32"], |a: f32, b: f32, c: f32| flush(flush(a).mul_add(flush(b), flush(c)))),
        form(&["fma.rn.sat.f32"], |a: f32, b: f32, c: f32| saturate(a.mul_add(b, c))),
        form(&["fma.rn.ftz.sat.f32"], |a: f32, b: f32, c: f32| {
            saturate(flush(flush(a).mul_add(flush(b), flush(c))))
        }),
        // Sign of the first operand, magnitude of the second.
        form(&["copysign.f32"], |a: f32, b: f32| b.copysign(a).to_bits()),
        form(&["testp.finite.f32"], |a: f32| a.abs() < f32::INFINITY),
        form(&["testp.infinite.f32"], |a: f32| a.abs() == f32::INFINITY),
        form(&["testp.number.f32"], |a: f32| !a.is_nan()),
        form(&["testp.notanumber.f32"], f32::is_nan),
        form(&["testp.normal.f32"], |a: f32| a.abs() >= f32::MIN_POSITIVE && a.abs() <= f32::MAX),
        form(&["testp.subnormal.f32"], |a: f32| a != 0.0 && a.abs() < f32::MIN_POSITIVE),
    ]);
    forms.extend(double_precision());
    forms
}

fn double_precision() -> Vec<Form> {
    let smaller = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    };
    vec![
        form(&["add.f64", "add.rn.f64"], |a: f64, b: f64| a + b),
        form(&["sub.f64", "sub.rn.f64"], |a: f64, b: f64| a - b),
        form(&["mul.f64", "mul.rn.f64"], |a: f64, b: f64| a * b),
        form(&["div.rn.f64"], |a: f64, b: f64| a / b),
        form(&["min.f64"], smaller),
        form(&["max.f64"], move |a: f64, b: f64| -smaller(-a, -b)),
        form(&["fma.rn.f64", "mad.rn.f64"], f64::mul_add),
        form(&["neg.f64"], |a: f64| -a),
        form(&["abs.f64"], f64::abs),
        form(&["sqrt.rn.f64"], f64::sqrt),
        form(&["rcp.rn.f64", "rcp.approx.ftz.f64"], |a: f64| 1.0 / a),
        form(&["rsqrt.approx.f64", "rsqrt.approx.ftz.f64"], |a: f64| 1.0 / a.sqrt()),
        form(&["copysign.f64"], |a: f64, b: f64| b.copysign(a).to_bits()),
    ]
}

/// Returns the minimum, where -0 is less than 0, or the other number if one is NaN.
fn smaller(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    }
}

fn named(bases: &[&str], modifiers: &str) -> Vec<String> {
    bases.iter().map(|base| format!("{base}{modifiers}.f32")).collect()
}

/// Adds a function with and without `.ftz`.
fn unary(forms: &mut Vec<Form>, bases: &[&str], function: fn(f32) -> f32) {
    forms.push(Form { names: named(bases, ""), ..form(&[], function) });
    forms.push(Form { names: named(bases, ".ftz"), ..form(&[], move |a: f32| flush(function(flush(a)))) });
}

/// Adds a function with and without `.ftz`, and with `.sat` if `saturates`.
fn binary(forms: &mut Vec<Form>, bases: &[&str], saturates: bool, function: fn(f32, f32) -> f32) {
    let flushed = move |a: f32, b: f32| flush(function(flush(a), flush(b)));
    forms.push(Form { names: named(bases, ""), ..form(&[], function) });
    forms.push(Form { names: named(bases, ".ftz"), ..form(&[], flushed) });
    if saturates {
        forms.push(Form {
            names: named(bases, ".sat"),
            ..form(&[], move |a: f32, b: f32| saturate(function(a, b)))
        });
        forms.push(Form {
            names: named(bases, ".ftz.sat"),
            ..form(&[], move |a: f32, b: f32| saturate(flushed(a, b)))
        });
    }
}

#[test]
fn floating_point_operations_match_reference() {
    forms().iter().for_each(Form::check);
}
