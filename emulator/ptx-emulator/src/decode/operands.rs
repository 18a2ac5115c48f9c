//! Decoder of operands: resolves them to registers. Constants are held in registers that no
//! instruction writes. The slot of a register is its index among the registers of its width.

use super::{
    Globals, SpecialRegister,
    slots::RegisterUse,
    symbols::{Register, Symbol, SymbolTable},
};
use crate::{
    LoadError,
    operations::{Kind, Registers},
    parse::Operand,
};

/// Context in which operands are resolved.
pub(crate) struct Operands<'n, 'a> {
    /// Registers, variables and labels of the kernel.
    pub(crate) names: &'n mut SymbolTable<'a>,
    /// Addresses of the module's variables, by name.
    pub(crate) globals: &'n Globals<'a>,
    /// Offset in shared memory of the variables without a declared size, in bytes.
    pub(crate) dynamic_shared: u64,
    /// Line of the current instruction in the PTX text, for error messages.
    pub(crate) line: u32,
    /// Use of the result registers by the current instruction: depends on whether it has a guard.
    pub(crate) result_usage: RegisterUse,
}

impl<'a> Operands<'_, 'a> {
    /// Returns a syntax error at the line of the current instruction.
    pub(crate) fn error(&self, problem: impl Into<String>) -> LoadError {
        LoadError::syntax(self.line, problem)
    }

    /// Returns the slot of a result register of the given kind. `_` stands for a register that is
    /// never read. Any other operand is an error.
    pub(crate) fn result(&mut self, operand: &Operand<'a>, kind: Kind) -> Result<u16, LoadError> {
        match operand {
            Operand::Name("_", 0) if kind == Kind::P => Ok(Registers::DISCARD as u16),
            Operand::Name("_", 0) => Ok(self.names.discard(self.line, kind)?.slot),
            Operand::Name(name, 0) => {
                let register = self.written(name)?;
                self.fits(register, kind, name)?;
                Ok(register.slot)
            }
            _ => Err(self.error("a register is expected for the result")),
        }
    }

    /// Returns the register of a result, which may have any width of at least `bits` bits. `_`
    /// stands for a register that is never read. A narrower register, a predicate or any other
    /// operand is an error.
    pub(crate) fn wide_result(&mut self, operand: &Operand<'a>, bits: u32) -> Result<Register, LoadError> {
        match operand {
            Operand::Name("_", 0) => self.names.discard(self.line, if bits > 32 { Kind::D } else { Kind::W }),
            Operand::Name(name, 0) => {
                let register = self.written(name)?;
                if width(register.kind) < bits || register.kind == Kind::P {
                    return Err(self.error(format!("`{name}` does not hold {bits} bits")));
                }
                Ok(register)
            }
            _ => Err(self.error("a register is expected for the result")),
        }
    }

    fn written(&mut self, name: &'a str) -> Result<Register, LoadError> {
        let register = self.names.register(self.line, name, self.result_usage)?;
        register.ok_or_else(|| self.error(format!("`{name}` is no register")))
    }

    fn fits(&self, register: Register, kind: Kind, name: &str) -> Result<(), LoadError> {
        if register.kind == kind {
            return Ok(());
        }
        Err(self.error(format!(
            "`{name}` has {} where {} are taken",
            describe(register.kind),
            describe(kind)
        )))
    }

    /// Returns the slot of a register that holds the value of an operand: a register of the given
    /// kind, a special register or a constant. A register of another kind is an error.
    pub(crate) fn value(&mut self, operand: &Operand<'a>, kind: Kind) -> Result<u16, LoadError> {
        if let Operand::Name(name, 0) = operand {
            let register = match SpecialRegister::find(name) {
                Some(special) => Some(self.names.special(self.line, special)?),
                None => self.names.register(self.line, name, RegisterUse::Read)?,
            };
            if let Some(register) = register {
                // Older compilers move 32-bit special registers to 16-bit and 64-bit registers.
                self.fits(register, kind, name)?;
                return Ok(register.slot);
            }
        }
        let constant = self.constant(operand, kind)?;
        match kind {
            Kind::P => Ok(if constant != 0 {
                Registers::ALWAYS
            } else {
                return Err(self.error("a predicate is expected"));
            } as u16),
            Kind::H => self.names.constant32(self.line, constant as u32 & 0xffff),
            Kind::W => self.names.constant32(self.line, constant as u32),
            Kind::D => self.names.constant64(self.line, constant),
        }
    }

    /// Returns a register that holds the value of an operand and may have any width of at least
    /// `bits` bits. A narrower register, a predicate or an operand without a value is an error.
    pub(crate) fn wide_value(&mut self, operand: &Operand<'a>, bits: u32) -> Result<Register, LoadError> {
        if let Operand::Name(name, 0) = operand {
            if let Some(register) = self.names.register(self.line, name, RegisterUse::Read)? {
                if width(register.kind) < bits || register.kind == Kind::P {
                    return Err(self.error(format!("`{name}` does not hold {bits} bits")));
                }
                return Ok(register);
            }
        }
        let kind = if bits > 32 { Kind::D } else { Kind::W };
        Ok(Register { kind, slot: self.value(operand, kind)? })
    }

    /// Evaluates an operand that is constant.
    fn constant(&self, operand: &Operand<'a>, kind: Kind) -> Result<u64, LoadError> {
        match operand {
            Operand::Integer(value) => Ok(*value),
            Operand::Single(bits) if kind == Kind::D => Ok(f64::from(f32::from_bits(*bits)).to_bits()),
            Operand::Single(bits) => Ok((*bits).into()),
            Operand::Double(bits) if kind == Kind::W => Ok((f64::from_bits(*bits) as f32).to_bits().into()),
            Operand::Double(bits) => Ok(*bits),
            Operand::Name("WARP_SZ", 0) => Ok(32),
            Operand::Name(name, offset) | Operand::Address(Some(name), offset) => {
                Ok(self.symbol(name)?.wrapping_add(*offset as u64))
            }
            _ => Err(self.error("a register or a number is expected")),
        }
    }

    /// Returns the address of a variable or parameter in its state space. An undeclared name is an
    /// error.
    pub(crate) fn symbol(&self, name: &str) -> Result<u64, LoadError> {
        match self.names.symbol(name) {
            Some(Symbol::Address(address) | Symbol::Parameter(address)) => Ok(address),
            Some(Symbol::DynamicShared) => Ok(self.dynamic_shared),
            None => {
                self.globals.get(name).copied().ok_or_else(|| self.error(format!("`{name}` is not declared")))
            }
        }
    }

    /// Returns the slot of a predicate operand and whether it is negated (`!p`). An operand that is
    /// neither a predicate nor an integer is an error.
    pub(crate) fn predicate(&mut self, operand: &Operand<'a>) -> Result<(u16, bool), LoadError> {
        match operand {
            Operand::Not(name) => Ok((self.value(&Operand::Name(name, 0), Kind::P)?, true)),
            Operand::Integer(0) => Ok((Registers::ALWAYS as u16, true)),
            other => Ok((self.value(other, Kind::P)?, false)),
        }
    }

    /// Returns the slots of a result operand, written `r` or `r|p`: the slot of the register `r`,
    /// and the slot of the predicate `p`, or `None` without one. It is an error if `r` is not a
    /// register of the given kind or `p` is not a predicate.
    pub(crate) fn with_predicate(
        &mut self,
        operand: &Operand<'a>,
        kind: Kind,
    ) -> Result<(u16, Option<u16>), LoadError> {
        match operand {
            Operand::Pair(first, second) => Ok((
                self.result(&Operand::Name(first, 0), kind)?,
                Some(self.result(&Operand::Name(second, 0), Kind::P)?),
            )),
            other => Ok((self.result(other, kind)?, None)),
        }
    }

    /// Returns the register of an address operand, with 32 or 64 bits, and the offset in bytes to
    /// add to it. An operand that is not an address in brackets is an error, and so is an unknown
    /// name.
    pub(crate) fn address(&mut self, operand: &Operand<'a>) -> Result<(Register, i64), LoadError> {
        match operand {
            Operand::Address(Some(name), offset) => {
                if let Some(register) = self.names.register(self.line, name, RegisterUse::Read)? {
                    if !matches!(register.kind, Kind::W | Kind::D) {
                        return Err(self.error(format!("`{name}` is no address")));
                    }
                    return Ok((register, *offset));
                }
                let address = self.symbol(name)?.wrapping_add(*offset as u64);
                Ok((Register { kind: Kind::D, slot: self.names.constant64(self.line, address)? }, 0))
            }
            Operand::Address(None, address) => {
                Ok((Register { kind: Kind::D, slot: self.names.constant64(self.line, *address as u64)? }, 0))
            }
            _ => Err(self.error("an address in brackets is expected")),
        }
    }
}

/// Returns the width of a register kind in bits.
pub(crate) fn width(kind: Kind) -> u32 {
    match kind {
        Kind::P => 1,
        Kind::H => 16,
        Kind::W => 32,
        Kind::D => 64,
    }
}

fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::P => "a truth value",
        Kind::H => "16 bits",
        Kind::W => "32 bits",
        Kind::D => "64 bits",
    }
}
