//! Decoder of `setp`. Each comparison is expressed by one of a few comparison operations, with
//! operands swapped and the result inverted where needed.

use super::function::Decoder;
use crate::{
    LoadError,
    operations::{Combine, Comparison, Instruction, Kind, Op, Shape, find},
    parse::ParsedInstruction,
};

/// Parsed modifiers of `setp`.
pub(super) struct SetpModifiers {
    op: Op,
    shape: Shape,
    swapped: bool,
    inverted: bool,
    combine: Combine,
}

/// PTX names of the comparisons of `setp`.
pub(super) const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu",
    "num", "nan",
];

impl SetpModifiers {
    /// Parses the part of the opcode after `setp.`. Returns `None` if it is not supported.
    pub(super) fn parse(modifiers: &str) -> Option<Self> {
        let mut parts = modifiers.split('.');
        let comparison = parts.next()?;
        let rest: Vec<_> = parts.collect();
        let (combine, kinds) = match rest.as_slice() {
            ["and", kinds @ ..] => (Combine::And, kinds),
            ["or", kinds @ ..] => (Combine::Or, kinds),
            ["xor", kinds @ ..] => (Combine::Xor, kinds),
            kinds => (Combine::None, kinds),
        };
        let float = matches!(kinds, ["f32" | "f64"] | ["ftz", "f32"]);
        let unsigned = matches!(kinds, ["u16" | "u32" | "u64"]);
        let (name, swapped, inverted) = match comparison {
            "eq" => ("eq", false, false),
            "ne" if float => ("ne", false, false),
            "ne" => ("eq", false, true),
            "lt" | "le" => (comparison, false, false),
            "gt" => ("lt", true, false),
            "ge" => ("le", true, false),
            "lo" if unsigned => ("lt", false, false),
            "ls" if unsigned => ("le", false, false),
            "hi" if unsigned => ("lt", true, false),
            "hs" if unsigned => ("le", true, false),
            "equ" if float => ("ne", false, true),
            "neu" if float => ("eq", false, true),
            "ltu" if float => ("le", true, true),
            "leu" if float => ("lt", true, true),
            "gtu" if float => ("le", false, true),
            "geu" if float => ("lt", false, true),
            "num" if float => ("num", false, false),
            "nan" if float => ("num", false, true),
            _ => return None,
        };
        let (op, shape) = find(&format!("{name}.{}", kinds.join("."))).filter(|(_, shape)| shape.compares)?;
        Some(Self { op, shape, swapped, inverted, combine })
    }
}

impl<'a> Decoder<'_, 'a> {
    /// Decodes the `setp` instruction `parsed` and emits one instruction. `modifiers` is the part
    /// of the opcode after `setp.`. It is an error if the comparison is not supported or an operand
    /// is invalid.
    pub(super) fn compare(
        &mut self,
        parsed: &ParsedInstruction<'a>,
        modifiers: &str,
    ) -> Result<(), LoadError> {
        let Some(SetpModifiers { op, shape, swapped, inverted, combine }) = SetpModifiers::parse(modifiers)
        else {
            return Err(self.unsupported(parsed));
        };
        let takes = if matches!(combine, Combine::None) { 3 } else { 4 };
        if parsed.operands.len() != takes {
            let given = parsed.operands.len();
            return Err(self
                .operands
                .error(format!("`{}` takes {takes} operands, not {given}", parsed.opcode)));
        }
        let mut i = Instruction::new(op);
        i.a = self.operands.value(&parsed.operands[1], shape.from[0])?;
        i.b = self.operands.value(&parsed.operands[2], shape.from[1])?;
        if swapped {
            (i.a, i.b) = (i.b, i.a);
        }
        if let Some(other) = parsed.operands.get(3) {
            let (slot, negated) = self.operands.predicate(other)?;
            (i.c, i.e) = (slot, negated.into());
        }
        let (d, second) = self.operands.with_predicate(&parsed.operands[0], Kind::P)?;
        i.d = d;
        i.extra = Comparison { inverted, combine, second }.pack();
        self.emit(i);
        Ok(())
    }
}
