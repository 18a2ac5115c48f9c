//! Decoder of a kernel's statements.

use super::{
    DecodedKernel, Globals, SourceLocation,
    operands::Operands,
    slots::RegisterUse,
    symbols::{ScopeIndex, Symbol, SymbolTable},
};
use crate::{
    LoadError,
    memory::MAX_SHARED_BYTES,
    operations::{Instruction, Kind, Op, Registers, find},
    parse::{Entry, File, Operand, ParsedInstruction, Space, Statement, Variable},
};

/// Maximum local memory of a thread in bytes, as on GPUs.
const MAX_LOCAL_BYTES: u64 = 512 << 10;
/// Maximum size of the parameters in bytes, as on GPUs.
const MAX_PARAMETER_BYTES: u64 = 32764;

/// Branch to a label that is not resolved yet.
struct Jump<'a> {
    at: usize,
    label: &'a str,
    scope: ScopeIndex,
    line: u32,
}

/// Decoder of one kernel.
pub(super) struct Decoder<'n, 'a> {
    /// Kernel to which decoded instructions are appended.
    pub(super) decoded: &'n mut DecodedKernel,
    /// Resolver of the operands of the current instruction.
    pub(super) operands: Operands<'n, 'a>,
    guard: u16,
    location: SourceLocation,
    jumps: &'n mut Vec<Jump<'a>>,
}

/// Decodes a kernel of a file. `globals` holds the addresses of the file's variables. It is an
/// error if the kernel uses an unsupported instruction or exceeds the limits of a device.
pub(crate) fn decode_kernel<'a>(
    file: &File<'a>,
    entry: &Entry<'a>,
    globals: &Globals<'a>,
) -> Result<DecodedKernel, LoadError> {
    // The first pass collects the live ranges of registers, the second shares slots between them.
    let mut names = SymbolTable::new();
    decode(file, entry, globals, &mut names)?;
    decode(file, entry, globals, &mut names.sharing())
}

fn decode<'a>(
    file: &File<'a>,
    entry: &Entry<'a>,
    globals: &Globals<'a>,
    names: &mut SymbolTable<'a>,
) -> Result<DecodedKernel, LoadError> {
    let mut decoded = DecodedKernel {
        code: Vec::new(),
        locations: Vec::new(),
        accesses: Vec::new(),
        words: 0,
        words64: 0,
        predicates: 0,
        constant_words: Vec::new(),
        constant_words64: Vec::new(),
        specials: Vec::new(),
        parameters: Vec::new(),
        shared_bytes: 0,
        local_bytes: 0,
        max_threads: entry.max_threads,
        required_block: entry.required_block,
    };
    for parameter in &entry.parameters {
        add_parameter(&mut decoded, names, parameter)?;
    }
    for variable in &file.shared {
        add_variable(&mut decoded, names, variable)?;
    }
    // Shared variables of all scopes come first; those without a size start after them.
    let declared = entry.body.iter().filter_map(|statement| match statement {
        Statement::Variable(variable) if variable.space == Space::Shared => Some(variable),
        _ => None,
    });
    let dynamic_shared = declared.fold(decoded.shared_bytes, |end, variable| {
        end.next_multiple_of(variable.align).saturating_add(variable.bytes.unwrap_or(0))
    });
    let dynamic_shared = dynamic_shared.min(MAX_SHARED_BYTES).next_multiple_of(16);
    let (mut jumps, mut source) = (Vec::new(), None);
    for statement in &entry.body {
        match statement {
            Statement::Open => names.open(),
            Statement::Close => names.close(),
            Statement::Registers { line, kind, name, count } => names.declare(*line, *kind, name, *count)?,
            Statement::Variable(variable) => add_variable(&mut decoded, names, variable)?,
            Statement::Label { line, name } => names.set_label(*line, name, decoded.code.len() as u32)?,
            // Line 0 marks code without a source line.
            Statement::Location { file, line } if *line > 0 => source = Some((*file, *line as u32)),
            Statement::Location { .. } => {}
            Statement::Instruction(parsed) => {
                let result_usage =
                    if parsed.guard.is_none() { RegisterUse::Write } else { RegisterUse::GuardedWrite };
                let line = parsed.line;
                names.next_instruction();
                let mut operands = Operands { names, globals, dynamic_shared, line, result_usage };
                let guard = match parsed.guard {
                    None => Registers::ALWAYS as u16,
                    Some((name, negated)) => {
                        let slot = operands.value(&Operand::Name(name, 0), Kind::P)?;
                        slot | if negated { Instruction::NEGATED } else { 0 }
                    }
                };
                let location = SourceLocation { line: parsed.line, source };
                Decoder { decoded: &mut decoded, operands, guard, location, jumps: &mut jumps }
                    .instruction(parsed)?;
            }
        }
    }
    let line = decoded.locations.last().map_or(1, |location| location.line);
    decoded.code.push(Instruction::new(Op::Exit));
    decoded.locations.push(SourceLocation { line, source });
    for jump in jumps {
        let to = names.label(jump.scope, jump.label);
        decoded.code[jump.at].extra =
            to.ok_or_else(|| LoadError::syntax(jump.line, format!("there is no label `{}`", jump.label)))?;
    }
    if decoded.shared_bytes > 0 {
        decoded.shared_bytes = decoded.shared_bytes.max(dynamic_shared);
    }
    names.finish(&mut decoded);
    Ok(decoded)
}

fn add_parameter<'a>(
    decoded: &mut DecodedKernel,
    names: &mut SymbolTable<'a>,
    parameter: &Variable<'a>,
) -> Result<(), LoadError> {
    let bytes =
        parameter.bytes.ok_or_else(|| LoadError::syntax(parameter.line, "a parameter without a size"))?;
    let end = decoded.parameters.last().map_or(0, |(offset, bytes)| offset + bytes);
    let offset = (end as u64).next_multiple_of(parameter.align);
    if bytes > MAX_PARAMETER_BYTES || offset + bytes > MAX_PARAMETER_BYTES {
        return Err(LoadError::TooLarge {
            line: parameter.line,
            subject: format!("the parameter `{}`", parameter.name),
        });
    }
    decoded.parameters.push((offset as usize, bytes as usize));
    names.set_symbol(parameter.name, Symbol::Parameter(offset));
    Ok(())
}

fn add_variable<'a>(
    decoded: &mut DecodedKernel,
    names: &mut SymbolTable<'a>,
    variable: &Variable<'a>,
) -> Result<(), LoadError> {
    let (end, limit) = match variable.space {
        Space::Local => (&mut decoded.local_bytes, MAX_LOCAL_BYTES),
        _ => (&mut decoded.shared_bytes, MAX_SHARED_BYTES),
    };
    let Some(bytes) = variable.bytes else {
        names.set_symbol(variable.name, Symbol::DynamicShared);
        return Ok(());
    };
    let start = end.next_multiple_of(variable.align);
    *end = start.saturating_add(bytes);
    if *end > limit {
        return Err(LoadError::TooLarge {
            line: variable.line,
            subject: format!("the variable `{}`", variable.name),
        });
    }
    names.set_symbol(variable.name, Symbol::Address(start));
    Ok(())
}

impl<'a> Decoder<'_, 'a> {
    /// Appends an instruction, with the guard and location of the PTX instruction being decoded.
    pub(super) fn emit(&mut self, instruction: Instruction) {
        self.decoded.code.push(Instruction { guard: self.guard, ..instruction });
        self.decoded.locations.push(self.location);
    }

    /// Returns the error for an instruction that is not supported.
    pub(super) fn unsupported(&self, parsed: &ParsedInstruction<'_>) -> LoadError {
        LoadError::unsupported(self.operands.line, parsed.opcode)
    }

    /// Returns the operands of an instruction. A number of operands other than `N` is an error.
    pub(super) fn take<const N: usize>(
        &self,
        parsed: &ParsedInstruction<'a>,
    ) -> Result<[Operand<'a>; N], LoadError> {
        parsed.operands.clone().try_into().map_err(|given: Vec<_>| {
            self.operands.error(format!("`{}` takes {N} operands, not {}", parsed.opcode, given.len()))
        })
    }

    fn instruction(&mut self, parsed: &ParsedInstruction<'a>) -> Result<(), LoadError> {
        let opcode = parsed.opcode;
        let (base, modifiers) = opcode.split_once('.').unwrap_or((opcode, ""));
        match base {
            "bra" if matches!(modifiers, "" | "uni") => return self.branch(parsed),
            "ret" | "exit" if matches!(modifiers, "" | "uni") => {
                self.take::<0>(parsed)?;
                self.emit(Instruction::new(Op::Exit));
                return Ok(());
            }
            "trap" => {
                self.emit(Instruction::new(Op::Trap));
                return Ok(());
            }
            "setp" => return self.compare(parsed, modifiers),
            "mov" if parsed.operands.iter().any(|operand| matches!(operand, Operand::Vector(_))) => {
                return self.pack_or_unpack(parsed, modifiers);
            }
            "mov" if modifiers == "u32" || modifiers == "u64" => {
                if let Some(Operand::Name(name @ ("%clock" | "%clock64" | "%globaltimer" | "%clock_hi"), 0)) =
                    parsed.operands.get(1)
                {
                    return self.clock(parsed, name);
                }
            }
            "ld" | "ldu" | "st" | "atom" | "red" => return self.memory(parsed, base, modifiers),
            "bar" | "barrier" | "shfl" | "vote" | "match" | "redux" | "activemask" => {
                return self.warp_or_block(parsed, base, modifiers);
            }
            // Memory accesses are in the order of the instructions and uncached.
            "membar" | "fence" | "prefetch" | "prefetchu" | "discard" | "nanosleep" | "pmevent"
            | "griddepcontrol" => {
                return Ok(());
            }
            _ => {}
        }
        if let Some((op, shape)) = find(opcode).filter(|(_, shape)| !shape.compares) {
            return self.table(parsed, op, shape.to, shape.from);
        }
        if base == "cvt" {
            return self.convert(parsed, modifiers);
        }
        Err(self.unsupported(parsed))
    }

    /// Emits a table operation.
    fn table(
        &mut self,
        parsed: &ParsedInstruction<'a>,
        op: Op,
        to: Kind,
        from: &[Kind],
    ) -> Result<(), LoadError> {
        if parsed.operands.len() != from.len() + 1 {
            let (takes, given) = (from.len() + 1, parsed.operands.len());
            return Err(self
                .operands
                .error(format!("`{}` takes {takes} operands, not {given}", parsed.opcode)));
        }
        let mut slots = [0; 4];
        for ((slot, operand), kind) in slots.iter_mut().zip(&parsed.operands[1..]).zip(from) {
            *slot = self.operands.value(operand, *kind)?;
        }
        let d = self.operands.result(&parsed.operands[0], to)?;
        let [a, b, c, e] = slots;
        // `extra` is 1 if the instruction sets the carry flag.
        let extra = u32::from(parsed.opcode.contains(".cc."));
        self.emit(Instruction { d, a, b, c, e, extra, ..Instruction::new(op) });
        Ok(())
    }

    fn branch(&mut self, parsed: &ParsedInstruction<'a>) -> Result<(), LoadError> {
        let [Operand::Name(label, 0)] = self.take::<1>(parsed)? else {
            return Err(self.operands.error("a label is expected"));
        };
        let (at, scope) = (self.decoded.code.len(), self.operands.names.scope());
        self.jumps.push(Jump { at, label, scope, line: parsed.line });
        self.operands.names.start_basic_block();
        self.emit(Instruction::new(Op::Branch));
        Ok(())
    }

    /// Decodes `mov.b64 {lo, hi}, d` and `mov.b64 d, {lo, hi}`, and the same for halves of 32-bit
    /// words.
    fn pack_or_unpack(&mut self, parsed: &ParsedInstruction<'a>, modifiers: &str) -> Result<(), LoadError> {
        // Names with a blank cannot collide with opcodes.
        let forms = match modifiers {
            "b32" => ["pack b32", "unpack low b32", "unpack high b32"],
            "b64" => ["pack b64", "unpack low b64", "unpack high b64"],
            _ => return Err(self.unsupported(parsed)),
        };
        let part = |operands: Vec<Operand<'a>>, opcode| ParsedInstruction {
            line: parsed.line,
            guard: None,
            opcode,
            operands,
        };
        let emit = |decoder: &mut Self, parsed: &ParsedInstruction<'a>| match find(parsed.opcode) {
            Some((op, shape)) => decoder.table(parsed, op, shape.to, shape.from),
            None => Err(decoder.unsupported(parsed)),
        };
        match self.take::<2>(parsed)? {
            [to, Operand::Vector(parts)] if parts.len() == 2 => {
                emit(self, &part([vec![to], parts].concat(), forms[0]))
            }
            [Operand::Vector(parts), from] if parts.len() == 2 => {
                for (to, form) in parts.into_iter().zip([forms[1], forms[2]]) {
                    if !matches!(to, Operand::Name("_", 0)) {
                        emit(self, &part(vec![to, from.clone()], form))?;
                    }
                }
                Ok(())
            }
            _ => Err(self.unsupported(parsed)),
        }
    }

    fn clock(&mut self, parsed: &ParsedInstruction<'a>, name: &str) -> Result<(), LoadError> {
        let wide = matches!(name, "%clock64" | "%globaltimer");
        let d = self.operands.result(&parsed.operands[0], if wide { Kind::D } else { Kind::W })?;
        if parsed.operands.len() != 2 || wide != (parsed.opcode == "mov.u64") || name == "%clock_hi" {
            return Err(self.unsupported(parsed));
        }
        self.emit(Instruction { d, extra: wide.into(), ..Instruction::new(Op::Clock) });
        Ok(())
    }
}
