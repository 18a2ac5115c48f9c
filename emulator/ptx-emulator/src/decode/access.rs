//! Decoder of loads, stores and atomic operations. A lane is one of the 32 threads of a warp. The
//! slot of a register is its index among the registers of its width.

use super::{
    function::Decoder,
    symbols::{Register, Symbol},
};
use crate::{
    LoadError,
    operations::{Instruction, Kind, Op},
    parse::{Operand, ParsedInstruction, Space},
};
use arrayvec::ArrayVec;

/// Load, store or atomic operation, of one element or of a vector of elements in each lane.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// State space of the address. A generic address is resolved in each lane.
    pub(crate) space: Space,
    /// Size of an element in bytes: 1, 2, 4 or 8.
    pub(crate) bytes: u32,
    /// Whether a loaded element is sign-extended to the width of its register.
    pub(crate) signed: bool,
    /// Registers of the elements: one, two or four. They are read by a store and written otherwise.
    pub(crate) registers: ArrayVec<Register, 4>,
    /// Slot of the address register, among the registers of 64 bits if `wide_address` is set and of
    /// 32 bits otherwise.
    pub(crate) address: u16,
    /// Whether the address register has 64 bits.
    pub(crate) wide_address: bool,
    /// Offset in bytes that is added to the address register. For a parameter that is given by its
    /// name, without an address register: offset in parameter memory.
    pub(crate) offset: i64,
    /// Whether other threads may access the same memory concurrently (`.volatile`, `.relaxed` and
    /// the like, and all atomic operations).
    pub(crate) strong: bool,
    /// Operands of an atomic operation. `None` for loads and stores.
    pub(crate) atomic: Option<AtomicOperands>,
}

/// Operation and operands of an atomic access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtomicOperands {
    /// Operation that computes the new value.
    pub(crate) operation: AtomicOperation,
    /// Slot of the operand, among the registers of the access size.
    pub(crate) operand: u16,
    /// For [`CompareAndSwap`](AtomicOperation::CompareAndSwap): slot of the new value, among the
    /// registers of the access size. Unused otherwise.
    pub(crate) swap: u16,
    /// Whether the old value is written to a register (`atom`, not `red`).
    pub(crate) returns: bool,
}

/// Operation that computes the new value of a location from the old value and the operand. Integers
/// are unsigned unless the name says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtomicOperation {
    /// Sum of integers, modulo the width.
    Add,
    /// Sum of single-precision numbers.
    AddF32,
    /// Sum of double-precision numbers.
    AddF64,
    /// Minimum of unsigned integers.
    Minimum,
    /// Minimum of signed integers.
    MinimumSigned,
    /// Maximum of unsigned integers.
    Maximum,
    /// Maximum of signed integers.
    MaximumSigned,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The operand (`exch`).
    Exchange,
    /// The old value plus 1, or 0 if the old value is at least the operand (`inc`).
    Increment,
    /// The old value minus 1, or the operand if the old value is 0 or above the operand (`dec`).
    Decrement,
    /// A second operand if the old value equals the first operand, otherwise the old value (`cas`).
    CompareAndSwap,
}

/// Parsed modifiers of an opcode.
struct Modifiers<'m> {
    space: Space,
    strong: bool,
    count: usize,
    operation: Option<&'m str>,
    kind: &'m str,
}

/// Returns whether a modifier affects only ordering or caching, which the emulator does not need:
/// accesses are in order and uncached.
fn is_order_or_cache(modifier: &str) -> bool {
    matches!(
        modifier,
        "weak"
            | "nc"
            | "ca"
            | "cg"
            | "cs"
            | "lu"
            | "cv"
            | "wb"
            | "wt"
            | "cta"
            | "cluster"
            | "gpu"
            | "sys"
            | "noftz"
    ) || modifier.starts_with("L1::")
        || modifier.starts_with("L2::") && modifier != "L2::cache_hint"
}

fn modifiers(text: &str) -> Option<Modifiers<'_>> {
    let mut parts: Vec<_> = text.split('.').collect();
    let kind = parts.pop()?;
    let mut found = Modifiers { space: Space::Generic, strong: false, count: 1, operation: None, kind };
    for part in parts {
        match part {
            "global" => found.space = Space::Global,
            "shared" | "shared::cta" => found.space = Space::Shared,
            "local" => found.space = Space::Local,
            "const" => found.space = Space::Constant,
            "param" | "param::entry" => found.space = Space::Parameter,
            "volatile" | "relaxed" | "acquire" | "release" | "acq_rel" => found.strong = true,
            "v2" => found.count = 2,
            "v4" => found.count = 4,
            "add" | "min" | "max" | "and" | "or" | "xor" | "exch" | "inc" | "dec" | "cas" => {
                found.operation = Some(part);
            }
            part if is_order_or_cache(part) => {}
            _ => return None,
        }
    }
    Some(found)
}

/// Element types of accesses: PTX name, size in bytes, and whether loads sign-extend.
pub(super) const ELEMENTS: [(&str, (u32, bool)); 16] = [
    ("b8", (1, false)),
    ("u8", (1, false)),
    ("s8", (1, true)),
    ("b16", (2, false)),
    ("u16", (2, false)),
    ("f16", (2, false)),
    ("bf16", (2, false)),
    ("s16", (2, true)),
    ("b32", (4, false)),
    ("u32", (4, false)),
    ("f32", (4, false)),
    ("s32", (4, true)),
    ("b64", (8, false)),
    ("u64", (8, false)),
    ("s64", (8, false)),
    ("f64", (8, false)),
];

/// Atomic operations: PTX name, element type, and operation.
pub(super) const ATOMICS: [(&str, &str, AtomicOperation); 26] = {
    use AtomicOperation as Is;
    [
        ("add", "u32", Is::Add),
        ("add", "s32", Is::Add),
        ("add", "u64", Is::Add),
        ("add", "s64", Is::Add),
        ("add", "f32", Is::AddF32),
        ("add", "f64", Is::AddF64),
        ("min", "u32", Is::Minimum),
        ("min", "u64", Is::Minimum),
        ("min", "s32", Is::MinimumSigned),
        ("min", "s64", Is::MinimumSigned),
        ("max", "u32", Is::Maximum),
        ("max", "u64", Is::Maximum),
        ("max", "s32", Is::MaximumSigned),
        ("max", "s64", Is::MaximumSigned),
        ("and", "b32", Is::And),
        ("and", "b64", Is::And),
        ("or", "b32", Is::Or),
        ("or", "b64", Is::Or),
        ("xor", "b32", Is::Xor),
        ("xor", "b64", Is::Xor),
        ("exch", "b32", Is::Exchange),
        ("exch", "b64", Is::Exchange),
        ("inc", "u32", Is::Increment),
        ("dec", "u32", Is::Decrement),
        ("cas", "b32", Is::CompareAndSwap),
        ("cas", "b64", Is::CompareAndSwap),
    ]
};

impl AtomicOperation {
    /// Returns whether the operation has a form without a result (`red`).
    pub(super) fn reduces(self) -> bool {
        !matches!(self, Self::Exchange | Self::CompareAndSwap)
    }
}

impl<'a> Decoder<'_, 'a> {
    /// Decodes the load, store or atomic operation `parsed` and emits one instruction. `base` is
    /// the opcode up to the first dot, such as `ld`, and `text` the rest. It is an error if the
    /// opcode is not supported or an operand is invalid.
    pub(super) fn memory(
        &mut self,
        parsed: &ParsedInstruction<'a>,
        base: &str,
        text: &str,
    ) -> Result<(), LoadError> {
        let Some(modifiers) = modifiers(text) else { return Err(self.unsupported(parsed)) };
        let element = ELEMENTS.iter().find(|(name, _)| *name == modifiers.kind);
        let Some(&(_, (bytes, signed))) = element else { return Err(self.unsupported(parsed)) };
        if matches!(base, "atom" | "red") {
            return self.atomic(parsed, &modifiers, bytes, base == "atom");
        }
        let stores = base == "st";
        if modifiers.operation.is_some()
            || stores && matches!(modifiers.space, Space::Constant | Space::Parameter)
        {
            return Err(self.unsupported(parsed));
        }
        let [first, second] = self.take::<2>(parsed)?;
        let (address, value) = if stores { (first, second) } else { (second, first) };
        let elements = match value {
            Operand::Vector(elements) => elements,
            single => vec![single],
        };
        if elements.len() != modifiers.count {
            let (count, given) = (modifiers.count, elements.len());
            return Err(self
                .operands
                .error(format!("`{}` takes {count} values, not {given}", parsed.opcode)));
        }
        let mut registers = ArrayVec::new();
        for element in &elements {
            let bits = bytes * 8;
            let register = if stores {
                self.operands.wide_value(element, bits)?
            } else {
                self.operands.wide_result(element, bits)?
            };
            registers.push(register);
        }
        let access = Access {
            space: modifiers.space,
            bytes,
            signed,
            registers,
            address: 0,
            wide_address: true,
            offset: 0,
            strong: modifiers.strong,
            atomic: None,
        };
        if modifiers.space == Space::Parameter {
            return self.parameter(&address, access);
        }
        let narrow = access.registers.iter().all(|register| register.kind == Kind::W) && bytes == 4;
        let op = match (stores, modifiers.space) {
            (false, Space::Shared) if narrow => Op::LoadShared,
            (false, Space::Global) if narrow => Op::LoadGlobal,
            (true, Space::Shared) if narrow => Op::StoreShared,
            (true, Space::Global) if narrow => Op::StoreGlobal,
            (false, _) => Op::Load,
            (true, _) => Op::Store,
        };
        self.emit_access(op, &address, access)
    }

    fn emit_access(&mut self, op: Op, address: &Operand<'a>, mut access: Access) -> Result<(), LoadError> {
        let (register, offset) = self.operands.address(address)?;
        access.address = register.slot;
        access.wide_address = register.kind == Kind::D;
        access.offset = offset;
        let extra = self.decoded.accesses.len() as u32;
        self.decoded.accesses.push(access);
        self.emit(Instruction { extra, ..Instruction::new(op) });
        Ok(())
    }

    fn parameter(&mut self, address: &Operand<'a>, mut access: Access) -> Result<(), LoadError> {
        let Operand::Address(Some(name), offset) = address else {
            return Err(self.operands.error("a parameter's name is expected"));
        };
        let Some(Symbol::Parameter(start)) = self.operands.names.symbol(name) else {
            // A register with the address of an element of a parameter.
            return self.emit_access(Op::LoadParameterAt, address, access);
        };
        let end = self.decoded.parameters.last().map_or(0, |(offset, bytes)| offset + bytes) as i64;
        access.offset = (start as i64).saturating_add(*offset);
        let bytes = i64::from(access.bytes) * access.registers.len() as i64;
        if access.offset < 0 || access.offset.saturating_add(bytes) > end {
            return Err(self.operands.error(format!("`{name}` is shorter than that")));
        }
        let extra = self.decoded.accesses.len() as u32;
        self.decoded.accesses.push(access);
        self.emit(Instruction { extra, ..Instruction::new(Op::LoadParameter) });
        Ok(())
    }

    fn atomic(
        &mut self,
        parsed: &ParsedInstruction<'a>,
        modifiers: &Modifiers<'_>,
        bytes: u32,
        returns: bool,
    ) -> Result<(), LoadError> {
        let named =
            |(name, kind, _): &&(&str, &str, _)| modifiers.operation == Some(name) && modifiers.kind == *kind;
        let operation = ATOMICS.iter().find(named).map(|(_, _, operation)| *operation);
        let operation = operation.filter(|operation| returns || operation.reduces());
        let (Some(operation), 1) = (operation, modifiers.count) else {
            return Err(self.unsupported(parsed));
        };
        if !matches!(modifiers.space, Space::Generic | Space::Global | Space::Shared) {
            return Err(self.unsupported(parsed));
        }
        let kind = if bytes == 8 { Kind::D } else { Kind::W };
        let swaps = operation == AtomicOperation::CompareAndSwap;
        let mut operands = parsed.operands.iter();
        let mut next =
            || operands.next().ok_or_else(|| LoadError::syntax(parsed.line, "an operand is missing"));
        let result = if returns { self.operands.result(next()?, kind)? } else { 0 };
        let address = next()?;
        let operand = self.operands.value(next()?, kind)?;
        let swap = if swaps { self.operands.value(next()?, kind)? } else { 0 };
        if operands.next().is_some() {
            return Err(self.operands.error("too many operands"));
        }
        let access = Access {
            space: modifiers.space,
            bytes,
            signed: false,
            registers: ArrayVec::from_iter([Register { kind, slot: result }]),
            address: 0,
            wide_address: true,
            offset: 0,
            strong: true,
            atomic: Some(AtomicOperands { operation, operand, swap, returns }),
        };
        self.emit_access(Op::Atomic, address, access)
    }
}
