//! Symbol table: registers, variables and labels by scope. The slot of a register is its index
//! among the registers of its width. A lane is one of the 32 threads of a warp.

use super::{
    DecodedKernel, SpecialRegister,
    slots::{Position, RegisterFile, RegisterUse},
};
use crate::{
    LoadError,
    operations::{Kind, Registers},
};
use std::collections::HashMap;

/// Addresses of the module's variables in global and constant memory, by name.
pub(crate) type Globals<'a> = HashMap<&'a str, u64>;

/// Register of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Register {
    /// Kind of the register, which selects the registers that `slot` counts in.
    pub(crate) kind: Kind,
    /// Index among the warp's registers of 32 bits (also for 16-bit values), of 64 bits, or
    /// predicates.
    pub(crate) slot: u16,
}

/// Meaning of the name of a variable or parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Symbol {
    /// Variable: its address in the memory of its state space.
    Address(u64),
    /// Shared variable without a declared size. It starts after all others.
    DynamicShared,
    /// Parameter: its offset in parameter memory, in bytes.
    Parameter(u64),
}

/// Index of a scope (a part of the kernel in braces) in the symbol table. Names are looked up in a
/// scope and its ancestors.
pub(crate) type ScopeIndex = usize;

#[derive(Default)]
struct Scope<'a> {
    parent: Option<ScopeIndex>,
    registers: HashMap<&'a str, Register>,
    /// Declarations such as `%r<10>`, by prefix `%r`.
    families: HashMap<&'a str, (Kind, u64)>,
    symbols: HashMap<&'a str, Symbol>,
    labels: HashMap<&'a str, u32>,
}

/// Registers, variables and labels of a kernel by name, and the slots of its registers.
pub(crate) struct SymbolTable<'a> {
    scopes: Vec<Scope<'a>>,
    current: ScopeIndex,
    words: RegisterFile,
    words64: RegisterFile,
    predicates: usize,
    position: Position,
    constant_words: HashMap<u32, u16>,
    constant_words64: HashMap<u64, u16>,
    specials: Vec<(SpecialRegister, u16)>,
}

impl<'a> SymbolTable<'a> {
    /// Creates an empty table in which each register has its own slot.
    pub(crate) fn new() -> Self {
        Self::with_files(RegisterFile::default(), RegisterFile::default())
    }

    /// Creates an empty table for the second pass, in which registers share slots by the live
    /// ranges of the first pass.
    pub(crate) fn sharing(self) -> Self {
        Self::with_files(self.words.sharing(), self.words64.sharing())
    }

    fn with_files(words: RegisterFile, words64: RegisterFile) -> Self {
        Self {
            scopes: vec![Scope::default()],
            current: 0,
            words,
            words64,
            predicates: Registers::RESERVED_PREDICATES,
            position: Position::default(),
            constant_words: HashMap::new(),
            constant_words64: HashMap::new(),
            specials: Vec::new(),
        }
    }

    /// Opens a scope inside the current one.
    pub(crate) fn open(&mut self) {
        self.scopes.push(Scope { parent: Some(self.current), ..Scope::default() });
        self.current = self.scopes.len() - 1;
    }

    /// Closes the current scope. Its parent becomes the current one.
    pub(crate) fn close(&mut self) {
        self.current = self.scopes[self.current].parent.unwrap_or(0);
    }

    /// Returns the current scope.
    pub(crate) fn scope(&self) -> ScopeIndex {
        self.current
    }

    /// Returns the scopes from `from` outwards.
    fn outwards(&self, from: ScopeIndex) -> impl Iterator<Item = &Scope<'a>> {
        std::iter::successors(Some(from), |&index| self.scopes[index].parent).map(|index| &self.scopes[index])
    }

    /// Declares the register `name` of the given kind in the current scope, or with a `count` the
    /// registers `name0`, `name1` and so on, which are allocated when they are used first. Too many
    /// registers are an error at `line`.
    pub(crate) fn declare(
        &mut self,
        line: u32,
        kind: Kind,
        name: &'a str,
        count: Option<u64>,
    ) -> Result<(), LoadError> {
        if let Some(count) = count {
            self.scopes[self.current].families.insert(name, (kind, count));
            return Ok(());
        }
        let register = self.new_register(line, kind)?;
        self.scopes[self.current].registers.insert(name, register);
        Ok(())
    }

    /// Allocates an unnamed register.
    fn new_register(&mut self, line: u32, kind: Kind) -> Result<Register, LoadError> {
        let (count, limit) = match kind {
            Kind::P => (self.predicates, 1 << 15),
            Kind::H | Kind::W => (self.words.len(), usize::from(u16::MAX)),
            Kind::D => (self.words64.len(), usize::from(u16::MAX)),
        };
        if count >= limit {
            return Err(LoadError::TooLarge { line, subject: "the number of registers".to_owned() });
        }
        let slot = match kind {
            Kind::P => {
                self.predicates += 1;
                count as u16
            }
            Kind::H | Kind::W => self.words.add(),
            Kind::D => self.words64.add(),
        };
        Ok(Register { kind, slot })
    }

    /// Advances to the next instruction.
    pub(crate) fn next_instruction(&mut self) {
        self.position.at += 1;
    }

    /// Starts a new basic block. To be called at every label and branch.
    pub(crate) fn start_basic_block(&mut self) {
        self.position.basic_block += 1;
    }

    /// Records a use of a register and returns it.
    fn used(&mut self, register: Register, usage: RegisterUse) -> Register {
        match register.kind {
            Kind::P => {}
            Kind::H | Kind::W => self.words.record(register.slot, self.position, usage),
            Kind::D => self.words64.record(register.slot, self.position, usage),
        }
        register
    }

    /// Allocates a register for a result that is not used. Too many registers are an error at
    /// `line`.
    pub(crate) fn discard(&mut self, line: u32, kind: Kind) -> Result<Register, LoadError> {
        let register = self.new_register(line, kind)?;
        Ok(self.used(register, RegisterUse::Write))
    }

    /// Returns the register with the given name and records its use, or returns `None` if neither
    /// the current scope nor its ancestors declare it. Numbered registers are allocated on first
    /// use; too many are an error at `line`.
    pub(crate) fn register(
        &mut self,
        line: u32,
        name: &'a str,
        usage: RegisterUse,
    ) -> Result<Option<Register>, LoadError> {
        let register = self.find_register(line, name)?;
        Ok(register.map(|register| self.used(register, usage)))
    }

    fn find_register(&mut self, line: u32, name: &'a str) -> Result<Option<Register>, LoadError> {
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name[family.len()..].parse::<u64>().ok();
        let mut index = Some(self.current);
        while let Some(at) = index {
            let scope = &self.scopes[at];
            if let Some(register) = scope.registers.get(name) {
                return Ok(Some(*register));
            }
            if let (Some(&(kind, count)), Some(number)) = (scope.families.get(family), number) {
                if number < count {
                    let register = self.new_register(line, kind)?;
                    self.scopes[at].registers.insert(name, register);
                    return Ok(Some(register));
                }
            }
            index = scope.parent;
        }
        Ok(None)
    }

    /// Allocates a register that is initialised before the kernel starts.
    fn preset(&mut self, line: u32, kind: Kind) -> Result<Register, LoadError> {
        let register = self.new_register(line, kind)?;
        Ok(self.used(register, RegisterUse::Read))
    }

    /// Returns the slot of a 32-bit register that holds a constant in all lanes. Too many registers
    /// are an error at `line`.
    pub(crate) fn constant32(&mut self, line: u32, value: u32) -> Result<u16, LoadError> {
        if let Some(slot) = self.constant_words.get(&value) {
            return Ok(*slot);
        }
        let slot = self.preset(line, Kind::W)?.slot;
        self.constant_words.insert(value, slot);
        Ok(slot)
    }

    /// Returns the slot of a 64-bit register that holds a constant in all lanes. Too many registers
    /// are an error at `line`.
    pub(crate) fn constant64(&mut self, line: u32, value: u64) -> Result<u16, LoadError> {
        if let Some(slot) = self.constant_words64.get(&value) {
            return Ok(*slot);
        }
        let slot = self.preset(line, Kind::D)?.slot;
        self.constant_words64.insert(value, slot);
        Ok(slot)
    }

    /// Returns the register that holds a special register's value, initialised before the kernel
    /// starts. Too many registers are an error at `line`.
    pub(crate) fn special(&mut self, line: u32, special: SpecialRegister) -> Result<Register, LoadError> {
        let kind = special.kind();
        if let Some((_, slot)) = self.specials.iter().find(|(other, _)| *other == special) {
            return Ok(Register { kind, slot: *slot });
        }
        let register = self.preset(line, kind)?;
        self.specials.push((special, register.slot));
        Ok(register)
    }

    /// Declares a variable or parameter in the current scope.
    pub(crate) fn set_symbol(&mut self, name: &'a str, symbol: Symbol) {
        self.scopes[self.current].symbols.insert(name, symbol);
    }

    /// Returns the meaning of the name of a variable or parameter, or `None` if neither the current
    /// scope nor its ancestors declare it.
    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        self.outwards(self.current).find_map(|scope| scope.symbols.get(name)).copied()
    }

    /// Declares a label in the current scope. `to` is the index of the instruction after it. A
    /// second label of the same name in the scope is an error at `line`.
    pub(crate) fn set_label(&mut self, line: u32, name: &'a str, to: u32) -> Result<(), LoadError> {
        self.start_basic_block();
        match self.scopes[self.current].labels.insert(name, to) {
            None => Ok(()),
            Some(_) => Err(LoadError::syntax(line, format!("the label `{name}` stands twice"))),
        }
    }

    /// Returns the index of the instruction after a label, or `None` if neither `from` nor its
    /// ancestors contain the label.
    pub(crate) fn label(&self, from: ScopeIndex, name: &str) -> Option<u32> {
        self.outwards(from).find_map(|scope| scope.labels.get(name)).copied()
    }

    /// Writes the numbers of registers, the constants and the special registers into `decoded`.
    pub(crate) fn finish(&self, decoded: &mut DecodedKernel) {
        decoded.words = self.words.slots();
        decoded.words64 = self.words64.slots();
        decoded.predicates = self.predicates;
        decoded.constant_words = self.constant_words.iter().map(|(&value, &slot)| (slot, value)).collect();
        decoded.constant_words64 =
            self.constant_words64.iter().map(|(&value, &slot)| (slot, value)).collect();
        decoded.specials = self.specials.iter().map(|&(special, slot)| (slot, special)).collect();
    }
}
