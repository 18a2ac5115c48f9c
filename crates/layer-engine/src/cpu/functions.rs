//! Elementary functions of the scalars. The functions of `f32` have no branches and no calls, so
//! that the compiler can vectorise loops over them. They are inlined because kernels are
//! instantiated in other crates. The functions of `f64` call the standard library and `libm`.

/// Functions that a [`Real`](super::Real) has in addition to arithmetic.
pub trait ElementaryFunctions {
    /// Computes `e^x` to about two units in the last place.
    fn exponential(self) -> Self;

    /// Computes the error function to about one unit in the last place of 1.
    fn error_function(self) -> Self;

    /// Computes the hyperbolic tangent to about two units in the last place.
    fn hyperbolic_tangent(self) -> Self;
}

impl ElementaryFunctions for f32 {
    #[inline]
    fn exponential(self) -> Self {
        /// Bounds of the argument: beyond them the power of two would be infinite or subnormal.
        const MAX: f32 = 88.376;
        const MIN: f32 = -87.336;
        /// Adding this number leaves the integral part of a number in the lowest bits.
        const SHIFT: f32 = 12_582_912.0;
        // `x = n ln 2 + r`, with `ln 2` in two parts, of which the first has spare bits for the
        // product. The polynomial is that of Cephes' `expf` (Moshier).
        const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
        const POLYNOMIAL: [f32; 6] =
            [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
        let x = self.clamp(MIN, MAX);
        let shifted = x * std::f32::consts::LOG2_E + SHIFT;
        let n = shifted - SHIFT;
        let r = x - n * LN_2[0] - n * LN_2[1];
        let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
        let value = (polynomial(&POLYNOMIAL, r) * r * r + r + 1.0) * power;
        let value = select(self > MAX, f32::INFINITY, value);
        select(self < MIN, 0.0, value)
    }

    #[inline]
    fn error_function(self) -> Self {
        // Polynomials of Juffa's `erff`: in `x^2` near zero, else the logarithm of the complement.
        const NEAR: [f32; 6] =
            [-5.967_617e-4, 4.991_194e-3, -2.676_813_5e-2, 1.128_199_2e-1, -3.761_253_4e-1, 1.283_791_7e-1];
        const FAR: [f32; 7] = [
            -1.728_534_7e-5,
            3.831_971_3e-4,
            -3.883_964_4e-3,
            2.425_462_2e-2,
            -1.067_778_8e-1,
            -6.348_467e-1,
            -1.287_175_1e-1,
        ];
        const BORDER: f32 = 0.927_734_4;
        // The result is 1 in single precision beyond 4.
        let distance = self.clamp(-4.0, 4.0).abs();
        let near = polynomial(&NEAR, self * self) * self + self;
        let exponent = polynomial(&FAR, distance) * distance - distance;
        let far = (1.0 - exponent.exponential()).copysign(self);
        select(distance > BORDER, far, near)
    }

    #[inline]
    fn hyperbolic_tangent(self) -> Self {
        // The polynomial in `x^2` near zero is that of Cephes' `tanhf` (Moshier).
        const NEAR: [f32; 5] =
            [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1];
        const BORDER: f32 = 0.625;
        let square = self * self;
        let near = polynomial(&NEAR, square) * square * self + self;
        let distance = self.abs();
        let far = (1.0 - 2.0 / ((2.0 * distance).exponential() + 1.0)).copysign(self);
        select(distance > BORDER, far, near)
    }
}

/// Selects one of two numbers without a branch. With an `if`, the compiler moves the computation of
/// each number into its branch and does not vectorise the loop.
#[inline]
fn select(condition: bool, yes: f32, no: f32) -> f32 {
    let mask = u32::from(condition).wrapping_neg();
    f32::from_bits((yes.to_bits() & mask) | (no.to_bits() & !mask))
}

/// Evaluates a polynomial. The coefficient of the highest power is first.
#[inline]
fn polynomial(coefficients: &[f32], x: f32) -> f32 {
    coefficients.iter().fold(0.0, |sum, &coefficient| sum * x + coefficient)
}

impl ElementaryFunctions for f64 {
    fn exponential(self) -> Self {
        self.exp()
    }

    fn error_function(self) -> Self {
        libm::erf(self)
    }

    fn hyperbolic_tangent(self) -> Self {
        self.tanh()
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "limits are exact")]
mod tests {
    use super::ElementaryFunctions;

    /// Returns every 1009th single-precision number between two bounds.
    fn numbers(low: f32, high: f32) -> impl Iterator<Item = f32> {
        let up_to = |bound: f32| (0..bound.abs().to_bits()).step_by(1009).map(f32::from_bits);
        up_to(low).map(|x| -x).chain(up_to(high))
    }

    #[test]
    fn exponential_is_accurate_in_single_precision() {
        for x in numbers(-87.3, 88.3) {
            let exact = f64::from(x).exp();
            let error = (f64::from(x.exponential()) - exact).abs() / exact;
            assert!(error < 1.5e-7, "{x}: {error}");
        }
        assert_eq!(f32::NEG_INFINITY.exponential(), 0.0);
        assert_eq!((-88.0_f32).exponential(), 0.0);
        assert_eq!(89.0_f32.exponential(), f32::INFINITY);
        assert_eq!(0.0_f32.exponential(), 1.0);
        assert!(f32::NAN.exponential().is_nan());
    }

    #[test]
    fn error_function_is_accurate_in_single_precision() {
        for x in numbers(-10.0, 10.0) {
            let exact = libm::erf(f64::from(x));
            let error = (f64::from(x.error_function()) - exact).abs();
            assert!(error < 1e-7, "{x}: {error}");
        }
        assert_eq!(f32::INFINITY.error_function(), 1.0);
        assert!(f32::NAN.error_function().is_nan());
    }

    #[test]
    fn hyperbolic_tangent_is_accurate_in_single_precision() {
        for x in numbers(-50.0, 50.0).filter(|&x| x != 0.0) {
            let exact = f64::from(x).tanh();
            let error = (f64::from(x.hyperbolic_tangent()) - exact).abs() / exact.abs();
            assert!(error < 1.5e-7, "{x}: {error}");
        }
        assert_eq!(f32::NEG_INFINITY.hyperbolic_tangent(), -1.0);
        assert_eq!(0.0_f32.hyperbolic_tangent(), 0.0);
        assert!(f32::NAN.hyperbolic_tangent().is_nan());
    }
}
