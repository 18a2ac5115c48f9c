//! Comparisons, named without `setp`.

use super::{
    apply::{q_dd, q_ff, q_gg, q_ww},
    float::ftz,
    short, table,
    vectors::outlined,
};

table! { Compare, outlined
    q_ww [P; H H; compares] {
        Equal16: "eq.u16" "eq.s16" "eq.b16", |a, b| a == b;
        Less16: "lt.u16", |a, b| a < b;
        LessOrEqual16: "le.u16", |a, b| a <= b;
        LessSigned16: "lt.s16", |a, b| short(a) < short(b);
        LessOrEqualSigned16: "le.s16", |a, b| short(a) <= short(b);
    }
    q_dd [P; D D; compares] {
        Equal64: "eq.u64" "eq.s64" "eq.b64", |a, b| a == b;
        LessOrEqual64: "le.u64", |a, b| a <= b;
        LessOrEqualSigned64: "le.s64", |a, b| a as i64 <= b as i64;
    }
    q_ff [P; W W; compares] {
        UnequalF32: "ne.f32", |a, b| a < b || b < a;
        NumbersF32: "num.f32", |a, b| !a.is_nan() && !b.is_nan();
        EqualFtz: "eq.ftz.f32", |a, b| ftz(a) == ftz(b);
        LessFtz: "lt.ftz.f32", |a, b| ftz(a) < ftz(b);
        LessOrEqualFtz: "le.ftz.f32", |a, b| ftz(a) <= ftz(b);
        UnequalFtz: "ne.ftz.f32", |a, b| ftz(a) < ftz(b) || ftz(b) < ftz(a);
        NumbersFtz: "num.ftz.f32", |a, b| !a.is_nan() && !b.is_nan();
    }
    q_gg [P; D D; compares] {
        EqualF64: "eq.f64", |a, b| a == b;
        LessF64: "lt.f64", |a, b| a < b;
        LessOrEqualF64: "le.f64", |a, b| a <= b;
        UnequalF64: "ne.f64", |a, b| a < b || b < a;
        NumbersF64: "num.f64", |a, b| !a.is_nan() && !b.is_nan();
    }
}
