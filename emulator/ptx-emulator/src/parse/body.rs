//! Parser of a function's body: declarations, labels and instructions.

use super::{Operand, ParsedInstruction, Statement, lexer::TokenKind, reader::Reader, variables::variables};
use crate::{LoadError, operations::Kind};

/// Parses the body of a function after its opening brace, up to and including the closing one.
pub(super) fn body<'a>(reader: &mut Reader<'a>) -> Result<Vec<Statement<'a>>, LoadError> {
    let (mut statements, mut depth) = (Vec::new(), 0_usize);
    loop {
        if reader.skip(';') {
            continue;
        }
        if reader.skip('{') {
            depth += 1;
            statements.push(Statement::Open);
            continue;
        }
        if reader.skip('}') {
            let Some(outer) = depth.checked_sub(1) else { return Ok(statements) };
            depth = outer;
            statements.push(Statement::Close);
            continue;
        }
        statement(reader, &mut statements)?;
    }
}

fn statement<'a>(reader: &mut Reader<'a>, statements: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
    let line = reader.line();
    let guard = if reader.skip('@') {
        let negated = reader.skip('!');
        Some((reader.word("a predicate")?, negated))
    } else {
        None
    };
    let word = reader.word("an instruction")?;
    if guard.is_none() {
        match word {
            ".reg" => return registers(reader, statements),
            ".local" | ".shared" => {
                statements.extend(variables(reader, word)?.into_iter().map(Statement::Variable));
                return Ok(());
            }
            ".loc" => {
                statements.push(location(reader)?);
                return Ok(());
            }
            ".pragma" => return reader.skip_pragma(),
            directive if directive.starts_with('.') => return Err(LoadError::unsupported(line, directive)),
            name if reader.skip(':') => {
                statements.push(Statement::Label { line, name });
                return Ok(());
            }
            _ => {}
        }
    }
    let mut operands = Vec::new();
    if !reader.skip(';') {
        loop {
            operands.push(operand(reader)?);
            if !reader.skip(',') {
                break;
            }
        }
        reader.expect(';')?;
    }
    statements.push(Statement::Instruction(ParsedInstruction { line, guard, opcode: word, operands }));
    Ok(())
}

fn registers<'a>(reader: &mut Reader<'a>, statements: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
    let line = reader.line();
    let kind = match reader.word("a type")? {
        ".pred" => Kind::P,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => Kind::H,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => Kind::W,
        ".b64" | ".u64" | ".s64" | ".f64" => Kind::D,
        other => return Err(LoadError::unsupported(line, format!(".reg {other}"))),
    };
    loop {
        let name = reader.word("a register's name")?;
        let count = if reader.skip('<') {
            let count = reader.integer("a number of registers")?;
            reader.expect('>')?;
            Some(count)
        } else {
            None
        };
        statements.push(Statement::Registers { line, kind, name, count });
        if !reader.skip(',') {
            return reader.expect(';');
        }
    }
}

fn location<'a>(reader: &mut Reader<'a>) -> Result<Statement<'a>, LoadError> {
    let file = reader.integer("a file's number")?;
    let line = reader.integer("a line")?;
    reader.integer("a column")?;
    while reader.skip(',') {
        if reader.skip_word("function_name") {
            reader.word("a label")?;
            if reader.skip('+') {
                reader.integer("an offset")?;
            }
        } else if reader.skip_word("inlined_at") {
            for _ in 0..3 {
                reader.integer("a place")?;
            }
        } else {
            return Err(reader.unexpected("`function_name` or `inlined_at`"));
        }
    }
    Ok(Statement::Location { file, line })
}

fn operand<'a>(reader: &mut Reader<'a>) -> Result<Operand<'a>, LoadError> {
    if reader.skip('{') {
        let mut elements = Vec::new();
        loop {
            elements.push(simple(reader)?);
            if !reader.skip(',') {
                break;
            }
        }
        reader.expect('}')?;
        return Ok(Operand::Vector(elements));
    }
    if reader.skip('[') {
        let address = match simple(reader)? {
            Operand::Name(name, offset) => Operand::Address(Some(name), offset),
            Operand::Integer(value) => Operand::Address(None, value as i64),
            _ => return Err(reader.unexpected("an address")),
        };
        reader.expect(']')?;
        return Ok(address);
    }
    simple(reader)
}

fn simple<'a>(reader: &mut Reader<'a>) -> Result<Operand<'a>, LoadError> {
    if reader.skip('!') {
        return Ok(Operand::Not(reader.word("a predicate")?));
    }
    Ok(match reader.peek() {
        Some(TokenKind::Single(bits)) => {
            reader.take();
            Operand::Single(bits)
        }
        Some(TokenKind::Double(bits)) => {
            reader.take();
            Operand::Double(bits)
        }
        Some(TokenKind::Word(name)) => {
            reader.take();
            if reader.skip('|') {
                Operand::Pair(name, reader.word("a register")?)
            } else if reader.skip('+') || reader.peek() == Some(TokenKind::Punctuation('-')) {
                Operand::Name(name, reader.signed("an offset")?)
            } else {
                Operand::Name(name, 0)
            }
        }
        _ => Operand::Integer(reader.signed("an operand")? as u64),
    })
}
