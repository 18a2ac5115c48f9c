//! Numbers as register bits, and Rust functions as references for instructions.

use super::Kind;

/// Number in a register.
pub(super) trait Bits: Copy + 'static {
    const KIND: Kind;
    /// Edge values of arithmetic.
    const EDGES: &'static [Self];

    fn of(bits: u64) -> Self;

    fn bits(self) -> u64;

    fn same(a: Self, b: Self) -> bool {
        a.bits() == b.bits()
    }
}

macro_rules! integers {
    ($($number:ty as $unsigned:ty: $kind:ident, $edges:ident;)*) => {$(
        impl Bits for $number {
            const KIND: Kind = Kind::$kind;
            const EDGES: &'static [Self] = &{
                let mut edges = [0; $edges.len()];
                let mut i = 0;
                while i < edges.len() {
                    edges[i] = $edges[i] as $number;
                    i += 1;
                }
                edges
            };

            fn of(bits: u64) -> Self {
                bits as Self
            }

            fn bits(self) -> u64 {
                (self as $unsigned).into()
            }
        }
    )*};
}

const HALVES: [u64; 12] = [0, 1, 2, 3, 15, 16, 17, 31, 0x7fff, 0x8000, 0xabcd, 0xffff];
const WORDS: [u64; 16] = [
    0,
    1,
    2,
    5,
    8,
    31,
    32,
    33,
    255,
    0x7654_3210,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xa5c3_f00f,
    0xffff_fffe,
    0xffff_ffff,
];
const DOUBLES: [u64; 17] = [
    0,
    1,
    2,
    5,
    63,
    64,
    65,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    0x0123_4567_89ab_cdef,
    i64::MAX as u64,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 1,
    u64::MAX,
];

integers! {
    u16 as u16: Half, HALVES;
    i16 as u16: Half, HALVES;
    u32 as u32: Word, WORDS;
    i32 as u32: Word, WORDS;
    u64 as u64: Double, DOUBLES;
    i64 as u64: Double, DOUBLES;
}

macro_rules! floats {
    ($($number:ty: $kind:ident, $($edge:expr),*;)*) => {$(
        impl Bits for $number {
            const KIND: Kind = Kind::$kind;
            const EDGES: &'static [Self] = &[$($edge),*];

            fn of(bits: u64) -> Self {
                Self::from_bits(bits as _)
            }

            fn bits(self) -> u64 {
                self.to_bits().into()
            }

            fn same(a: Self, b: Self) -> bool {
                a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
            }
        }
    )*};
}

floats! {
    f32: Word, 0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.1, 1e-40, -1e-45, f32::MIN_POSITIVE, -f32::MIN_POSITIVE,
        f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 16_777_217.0, -1e-30, 3e38;
    f64: Double, 0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 0.1, 1e-310, -5e-324, f64::MIN_POSITIVE, f64::MAX,
        f64::MIN, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 9_007_199_254_740_992.0, -1e-300;
}

impl Bits for bool {
    const KIND: Kind = Kind::Predicate;
    const EDGES: &'static [Self] = &[false, true];

    fn of(bits: u64) -> Self {
        bits & 1 != 0
    }

    fn bits(self) -> u64 {
        self.into()
    }
}

/// Reference function of one to four numbers.
pub(super) trait Reference<A> {
    /// Returns the kinds of the result and the operands.
    fn kinds() -> Vec<Kind>;
    /// Returns all combinations of edge values as bits; with four operands, of every other edge
    /// value.
    fn rows() -> Vec<Vec<u64>>;
    fn call(&self, row: &[u64]) -> u64;
    fn same(a: u64, b: u64) -> bool;
}

fn combinations(edges: &[Vec<u64>]) -> Vec<Vec<u64>> {
    edges.iter().fold(vec![Vec::new()], |rows, edges| {
        rows.iter().flat_map(|row| edges.iter().map(|edge| [row.as_slice(), &[*edge]].concat())).collect()
    })
}

/// Returns every `step`-th edge value as bits, and the last one.
fn edges<T: Bits>(step: usize) -> Vec<u64> {
    let all: Vec<_> = T::EDGES.iter().map(|edge| edge.bits()).collect();
    all.iter().copied().step_by(step).chain(all.last().copied().filter(|_| step > 1)).collect()
}

macro_rules! references {
    ($($step:literal: $($operand:ident $index:literal),+;)*) => {$(
        impl<F: Fn($($operand),+) -> R, R: Bits, $($operand: Bits),+> Reference<(R, $($operand),+)> for F {
            fn kinds() -> Vec<Kind> {
                vec![R::KIND, $($operand::KIND),+]
            }

            fn rows() -> Vec<Vec<u64>> {
                combinations(&[$(edges::<$operand>($step)),+])
            }

            fn call(&self, row: &[u64]) -> u64 {
                self($($operand::of(row[$index])),+).bits()
            }

            fn same(a: u64, b: u64) -> bool {
                R::same(R::of(a), R::of(b))
            }
        }
    )*};
}

references! {
    1: A 0;
    1: A 0, B 1;
    1: A 0, B 1, C 2;
    2: A 0, B 1, C 2, E 3;
}
