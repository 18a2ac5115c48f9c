//! Floating-point operations, with rounding modes, flushed subnormals and saturation.

use super::{
    apply::{d_dd, f_f, f_ff, f_fff, g_g, g_gg, p_w, w_ww},
    float::{Rounding, add32, fma32, ftz, max32, max64, min32, min64, mul32, saturate},
    table,
    vectors::outlined,
};

table! { Float, outlined
    w_ww [W; W W] {
        CopySign32: "copysign.f32", |a, b| a & 0x8000_0000 | b & 0x7fff_ffff;
    }
    d_dd [D; D D] {
        CopySign64: "copysign.f64", |a, b| a & 1 << 63 | b & !(1 << 63);
    }
    p_w [P; W] {
        TestFinite32: "testp.finite.f32", |a| f32::from_bits(a).is_finite();
        TestInfinite32: "testp.infinite.f32", |a| f32::from_bits(a).is_infinite();
        TestNumber32: "testp.number.f32", |a| !f32::from_bits(a).is_nan();
        TestNan32: "testp.notanumber.f32", |a| f32::from_bits(a).is_nan();
        TestNormal32: "testp.normal.f32", |a| f32::from_bits(a).is_normal();
        TestSubnormal32: "testp.subnormal.f32", |a| f32::from_bits(a).is_subnormal();
    }
    f_f [W; W] {
        NegateFtz: "neg.ftz.f32", |a| -ftz(a);
        AbsoluteFtz: "abs.ftz.f32", |a| ftz(a).abs();
        SquareRootFtz: "sqrt.rn.ftz.f32" "sqrt.approx.ftz.f32", |a| ftz(ftz(a).sqrt());
        ReciprocalRoot: "rsqrt.approx.f32", |a| (1.0 / f64::from(a).sqrt()) as f32;
        ReciprocalRootFtz: "rsqrt.approx.ftz.f32", |a| (1.0 / f64::from(ftz(a)).sqrt()) as f32;
        Reciprocal: "rcp.rn.f32" "rcp.approx.f32", |a| 1.0 / a;
        ReciprocalFtz: "rcp.rn.ftz.f32" "rcp.approx.ftz.f32", |a| ftz(1.0 / ftz(a));
        Exponential2: "ex2.approx.f32", |a| f64::from(a).exp2() as f32;
        Exponential2Ftz: "ex2.approx.ftz.f32", |a| ftz(f64::from(ftz(a)).exp2() as f32);
        Logarithm2: "lg2.approx.f32", |a| f64::from(a).log2() as f32;
        Logarithm2Ftz: "lg2.approx.ftz.f32", |a| f64::from(ftz(a)).log2() as f32;
        Sine: "sin.approx.f32", |a| f64::from(a).sin() as f32;
        SineFtz: "sin.approx.ftz.f32", |a| ftz(f64::from(ftz(a)).sin() as f32);
        Cosine: "cos.approx.f32", |a| f64::from(a).cos() as f32;
        CosineFtz: "cos.approx.ftz.f32", |a| f64::from(ftz(a)).cos() as f32;
        HyperbolicTangent: "tanh.approx.f32", |a| f64::from(a).tanh() as f32;
    }
    f_ff [W; W W] {
        AddFtz: "add.ftz.f32" "add.rn.ftz.f32", |a, b| ftz(ftz(a) + ftz(b));
        AddSat: "add.sat.f32" "add.rn.sat.f32", |a, b| saturate(a + b);
        AddSatFtz: "add.ftz.sat.f32" "add.rn.ftz.sat.f32", |a, b| saturate(ftz(ftz(a) + ftz(b)));
        AddZero: "add.rz.f32", |a, b| add32(a, b, Rounding::Zero);
        AddDown: "add.rm.f32", |a, b| add32(a, b, Rounding::Down);
        AddUp: "add.rp.f32", |a, b| add32(a, b, Rounding::Up);
        SubtractFtz: "sub.ftz.f32" "sub.rn.ftz.f32", |a, b| ftz(ftz(a) - ftz(b));
        SubtractZero: "sub.rz.f32", |a, b| add32(a, -b, Rounding::Zero);
        SubtractDown: "sub.rm.f32", |a, b| add32(a, -b, Rounding::Down);
        SubtractUp: "sub.rp.f32", |a, b| add32(a, -b, Rounding::Up);
        MultiplyFtz: "mul.ftz.f32" "mul.rn.ftz.f32", |a, b| ftz(ftz(a) * ftz(b));
        MultiplySat: "mul.sat.f32" "mul.rn.sat.f32", |a, b| saturate(a * b);
        MultiplySatFtz: "mul.ftz.sat.f32" "mul.rn.ftz.sat.f32", |a, b| saturate(ftz(ftz(a) * ftz(b)));
        MultiplyZero: "mul.rz.f32", |a, b| mul32(a, b, Rounding::Zero);
        MultiplyDown: "mul.rm.f32", |a, b| mul32(a, b, Rounding::Down);
        MultiplyUp: "mul.rp.f32", |a, b| mul32(a, b, Rounding::Up);
        DivideFtz: "div.rn.ftz.f32" "div.full.ftz.f32" "div.approx.ftz.f32", |a, b| ftz(ftz(a) / ftz(b));
        MinimumFtz: "min.ftz.f32", |a, b| min32(ftz(a), ftz(b));
        MaximumFtz: "max.ftz.f32", |a, b| max32(ftz(a), ftz(b));
        MinimumNan: "min.NaN.f32", |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { min32(a, b) };
        MaximumNan: "max.NaN.f32", |a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { max32(a, b) };
    }
    f_fff [W; W W W] {
        FusedFtz: "fma.rn.ftz.f32", |a, b, c| ftz(ftz(a).mul_add(ftz(b), ftz(c)));
        FusedSat: "fma.rn.sat.f32", |a, b, c| saturate(a.mul_add(b, c));
        FusedSatFtz: "fma.rn.ftz.sat.f32", |a, b, c| saturate(ftz(ftz(a).mul_add(ftz(b), ftz(c))));
        FusedZero: "fma.rz.f32", |a, b, c| fma32(a, b, c, Rounding::Zero);
        FusedDown: "fma.rm.f32", |a, b, c| fma32(a, b, c, Rounding::Down);
        FusedDownFtz: "fma.rm.ftz.f32", |a, b, c| ftz(fma32(ftz(a), ftz(b), ftz(c), Rounding::Down));
        FusedUp: "fma.rp.f32", |a, b, c| fma32(a, b, c, Rounding::Up);
    }
    g_g [D; D] {
        NegateF64: "neg.f64", |a| -a;
        AbsoluteF64: "abs.f64", |a| a.abs();
        SquareRootF64: "sqrt.rn.f64", |a| a.sqrt();
        ReciprocalF64: "rcp.rn.f64" "rcp.approx.ftz.f64", |a| 1.0 / a;
        ReciprocalRootF64: "rsqrt.approx.f64" "rsqrt.approx.ftz.f64", |a| 1.0 / a.sqrt();
    }
    g_gg [D; D D] {
        SubtractF64: "sub.f64" "sub.rn.f64", |a, b| a - b;
        DivideF64: "div.rn.f64", |a, b| a / b;
        MinimumF64: "min.f64", min64;
        MaximumF64: "max.f64", max64;
    }
}
