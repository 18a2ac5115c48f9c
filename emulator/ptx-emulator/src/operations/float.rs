//! Floating-point operations whose rules differ between PTX and Rust.

/// Flushes a subnormal number to zero of the same sign (`.ftz`).
#[inline(always)]
pub(crate) fn ftz(value: f32) -> f32 {
    let bits = value.to_bits();
    if bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { value }
}

/// Clamps a number to `0..=1`; NaN becomes 0 (`.sat`).
#[inline(always)]
pub(crate) fn saturate(value: f32) -> f32 {
    // The comparison is false for NaN and for -0.
    if value > 0.0 { if value < 1.0 { value } else { 1.0 } } else { 0.0 }
}

macro_rules! smallest_and_largest {
    ($min:ident, $max:ident, $float:ty) => {
        /// Returns the minimum of two numbers, where -0 is less than 0. If one is NaN, returns the
        /// other.
        #[inline(always)]
        pub(crate) fn $min(a: $float, b: $float) -> $float {
            let equal = <$float>::from_bits(a.to_bits() | b.to_bits());
            if a < b {
                a
            } else if b < a {
                b
            } else if a == b {
                equal
            } else if a.is_nan() {
                b
            } else {
                a
            }
        }

        /// Returns the maximum of two numbers, where 0 is greater than -0. If one is NaN, returns
        /// the other.
        #[inline(always)]
        pub(crate) fn $max(a: $float, b: $float) -> $float {
            let equal = <$float>::from_bits(a.to_bits() & b.to_bits());
            if a > b {
                a
            } else if b > a {
                b
            } else if a == b {
                equal
            } else if a.is_nan() {
                b
            } else {
                a
            }
        }
    };
}

smallest_and_largest!(min32, max32, f32);
smallest_and_largest!(min64, max64, f64);

macro_rules! neighbours {
    ($up:ident, $down:ident, $float:ty) => {
        /// Returns the next larger number. Positive infinity and NaN are unchanged.
        pub(crate) fn $up(value: $float) -> $float {
            if value.is_nan() || value == <$float>::INFINITY {
                value
            } else if value == 0.0 {
                <$float>::from_bits(1)
            } else if value > 0.0 {
                <$float>::from_bits(value.to_bits() + 1)
            } else {
                <$float>::from_bits(value.to_bits() - 1)
            }
        }

        /// Returns the next smaller number. Negative infinity and NaN are unchanged.
        pub(crate) fn $down(value: $float) -> $float {
            -$up(-value)
        }
    };
}

// In the standard library since Rust 1.86.
neighbours!(next_up32, next_down32, f32);
neighbours!(next_up64, next_down64, f64);

/// Direction of rounding of inexact results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    /// To the nearest number, ties to even.
    Nearest,
    /// Towards zero.
    Zero,
    /// Towards negative infinity.
    Down,
    /// Towards positive infinity.
    Up,
}

/// Rounds `high + low` to `f32`. `low` is less than half a unit in the last place of `high`.
fn round_sum(high: f64, low: f64, rounding: Rounding) -> f32 {
    let near = high as f32;
    if !high.is_finite() || rounding == Rounding::Nearest {
        return near;
    }
    // Exact, since `near` is adjacent to `high`. If `near` is infinite, the sign is still right.
    let left = high - f64::from(near);
    let sign = if left == 0.0 { low } else { left };
    let towards_zero = if high > 0.0 { Rounding::Down } else { Rounding::Up };
    match (if rounding == Rounding::Zero { towards_zero } else { rounding }, sign) {
        (Rounding::Down, ..0.0) => next_down32(near),
        (Rounding::Up, sign) if sign > 0.0 => next_up32(near),
        _ => near,
    }
}

/// Rounds a double-precision number to single precision.
pub(crate) fn narrow(value: f64, rounding: Rounding) -> f32 {
    round_sum(value, 0.0, rounding)
}

/// Returns `a + b` exactly, as the rounded sum and its error (Knuth's two-sum).
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let part = sum - a;
    (sum, (a - (sum - part)) + (b - part))
}

/// Computes `a * b + c` with one rounding. The product is exact in double precision, and so are the
/// sum and its error together.
pub(crate) fn fma32(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    let product = f64::from(a) * f64::from(b);
    let (sum, rest) = two_sum(product, f64::from(c));
    if sum == 0.0 && rest == 0.0 {
        // The sum of zeros with equal signs keeps the sign. Other exact zeros are -0 when rounding
        // down and 0 otherwise.
        let same = product == 0.0 && product.is_sign_negative() == c.is_sign_negative();
        return match (same, rounding) {
            (true, _) => c,
            (false, Rounding::Down) => -0.0,
            (false, _) => 0.0,
        };
    }
    if rounding == Rounding::Nearest { a.mul_add(b, c) } else { round_sum(sum, rest, rounding) }
}

/// Computes `a + b` with one rounding.
pub(crate) fn add32(a: f32, b: f32, rounding: Rounding) -> f32 {
    fma32(a, 1.0, b, rounding)
}

/// Computes `a * b` with one rounding. The product is exact in double precision.
pub(crate) fn mul32(a: f32, b: f32, rounding: Rounding) -> f32 {
    round_sum(f64::from(a) * f64::from(b), 0.0, rounding)
}
