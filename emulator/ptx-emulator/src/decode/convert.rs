//! Decoder of `cvt`.

use super::function::Decoder;
use crate::{
    LoadError,
    operations::{Instruction, Kind, Op, Rounding},
    parse::ParsedInstruction,
};

/// Number type of PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberType {
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    S8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    S16,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    S32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    S64,
    /// Half-precision number.
    F16,
    /// 16-bit number with the exponent range of single precision (bfloat16).
    Bf16,
    /// Single-precision number.
    F32,
    /// Double-precision number.
    F64,
}

impl NumberType {
    /// PTX name and value of each number type, in the order of their discriminants.
    pub(super) const ALL: [(&'static str, Self); 12] = [
        ("u8", Self::U8),
        ("s8", Self::S8),
        ("u16", Self::U16),
        ("s16", Self::S16),
        ("u32", Self::U32),
        ("s32", Self::S32),
        ("u64", Self::U64),
        ("s64", Self::S64),
        ("f16", Self::F16),
        ("bf16", Self::Bf16),
        ("f32", Self::F32),
        ("f64", Self::F64),
    ];

    fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(other, _)| *other == name).map(|(_, number)| *number)
    }

    /// Returns the size in bits.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::U8 | Self::S8 => 8,
            Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 16,
            Self::U32 | Self::S32 | Self::F32 => 32,
            Self::U64 | Self::S64 | Self::F64 => 64,
        }
    }

    /// Returns whether it is a floating-point type.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Returns whether it is a signed integer type. Floating-point types and unsigned integers are
    /// not.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }
}

/// Rounding modifiers of `cvt`: to nearest even, towards zero, down and up. The second half rounds
/// to integral values.
pub(super) const ROUNDINGS: [&str; 8] = ["rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"];

/// Conversion by `cvt`: its types and modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conversion {
    /// Type of the operand.
    pub(crate) from: NumberType,
    /// Type of the result.
    pub(crate) to: NumberType,
    /// Direction of rounding. [`Rounding::Nearest`] if the instruction has no rounding modifier.
    pub(crate) rounding: Rounding,
    /// Whether to round to an integral value (`.rni` and similar).
    pub(crate) to_integral: bool,
    /// Whether results out of range are clamped (`.sat`): to the range of an integer type, or to
    /// `0..=1` for floating-point types.
    pub(crate) saturate: bool,
    /// Whether subnormal single-precision numbers are replaced by zero (`.ftz`).
    pub(crate) flush: bool,
}

impl Conversion {
    /// Parses the modifiers of `cvt`: the part of the opcode after `cvt.`, such as `rn.f32.s32`.
    /// Returns `None` if the combination is not supported.
    pub(crate) fn parse(modifiers: &str) -> Option<Self> {
        let mut parts: Vec<_> = modifiers.split('.').collect();
        let (from, to) = (NumberType::find(parts.pop()?)?, NumberType::find(parts.pop()?)?);
        let mut found =
            Self { from, to, rounding: Rounding::Nearest, to_integral: false, saturate: false, flush: false };
        let mut rounded = false;
        for part in parts {
            match part {
                "sat" => found.saturate = true,
                "ftz" => found.flush = true,
                part if ROUNDINGS.contains(&part) && !rounded => {
                    rounded = true;
                    found.to_integral = part.ends_with('i');
                    found.rounding = match part.as_bytes()[1] {
                        b'n' => Rounding::Nearest,
                        b'z' => Rounding::Zero,
                        b'm' => Rounding::Down,
                        _ => Rounding::Up,
                    };
                }
                _ => return None,
            }
        }
        let (narrows, same) = (from.bits() > to.bits(), from == to);
        let supported = match (from.is_float(), to.is_float()) {
            (false, false) => !rounded && !found.flush,
            // As in `ptxas`, a rounding modifier is required where rounding may occur and an error
            // elsewhere.
            (false, true) => rounded && !found.to_integral && !found.flush && nearest_for_halves(found),
            (true, false) => rounded && found.to_integral,
            (true, true) if narrows => rounded && !found.to_integral && nearest_for_halves(found),
            (true, true) if same => found.to_integral || !rounded,
            (true, true) => !rounded,
        };
        supported.then_some(found)
    }

    /// Packs the conversion into the field `extra` of an instruction.
    fn pack(self) -> u32 {
        let index = |number: NumberType| number as u32;
        index(self.from)
            | index(self.to) << 4
            | (self.rounding as u32) << 8
            | u32::from(self.to_integral) << 10
            | u32::from(self.saturate) << 11
            | u32::from(self.flush) << 12
    }

    /// Restores a conversion from the field `extra` of an instruction.
    pub(crate) fn unpack(extra: u32) -> Self {
        let number = |index: u32| NumberType::ALL[index as usize % NumberType::ALL.len()].1;
        Self {
            from: number(extra & 15),
            to: number(extra >> 4 & 15),
            rounding: [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up]
                [(extra >> 8 & 3) as usize],
            to_integral: extra >> 10 & 1 != 0,
            saturate: extra >> 11 & 1 != 0,
            flush: extra >> 12 & 1 != 0,
        }
    }
}

/// Returns whether the rounding is supported: half precision supports only rounding to nearest.
fn nearest_for_halves(conversion: Conversion) -> bool {
    !matches!(conversion.to, NumberType::F16 | NumberType::Bf16) || conversion.rounding == Rounding::Nearest
}

impl<'a> Decoder<'_, 'a> {
    /// Decodes the `cvt` instruction `parsed` and emits one instruction. `modifiers` is the part
    /// of the opcode after `cvt.`.
    ///
    /// # Errors
    ///
    /// Returns an error if the conversion is not supported, or if an operand is invalid.
    pub(super) fn convert(
        &mut self,
        parsed: &ParsedInstruction<'a>,
        modifiers: &str,
    ) -> Result<(), LoadError> {
        let Some(conversion) = Conversion::parse(modifiers) else { return Err(self.unsupported(parsed)) };
        let [to, from] = self.take::<2>(parsed)?;
        let from = self.operands.wide_value(&from, conversion.from.bits())?;
        let to = self.operands.wide_result(&to, conversion.to.bits())?;
        // Bit 0: 64-bit source register. Bit 1: 64-bit result register. Bit 2: 16-bit result
        // register.
        let e = u16::from(from.kind == Kind::D)
            | u16::from(to.kind == Kind::D) << 1
            | u16::from(to.kind == Kind::H) << 2;
        let extra = conversion.pack();
        self.emit(Instruction { d: to.slot, a: from.slot, e, extra, ..Instruction::new(Op::Convert) });
        Ok(())
    }
}
