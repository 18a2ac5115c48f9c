//! Parser of variables and parameters.

use super::{Space, Variable, lexer::TokenKind, reader::Reader};
use crate::LoadError;

/// Parses the declaration of a variable after its state space `word`, such as `.global`. Any other
/// word is an error. The result has one element.
pub(super) fn variables<'a>(reader: &mut Reader<'a>, word: &str) -> Result<Vec<Variable<'a>>, LoadError> {
    let space = match word {
        ".global" => Space::Global,
        ".const" => Space::Constant,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        _ => return Err(LoadError::unsupported(reader.line(), word)),
    };
    let variable = variable(reader, space)?;
    reader.expect(';')?;
    Ok(vec![variable])
}

/// Parses a variable or parameter after its state space, without the semicolon.
pub(super) fn variable<'a>(reader: &mut Reader<'a>, space: Space) -> Result<Variable<'a>, LoadError> {
    let line = reader.line();
    let (mut align, mut element, mut vector) = (None, None, 1);
    let name = loop {
        let line = reader.line();
        match reader.word("a variable's name")? {
            ".align" => {
                let given = reader.integer("an alignment")?;
                // In `.ptr .align`, the alignment is that of the pointer's target, not of the
                // parameter.
                if element.is_none() {
                    align = Some(given);
                }
            }
            ".attribute" => return Err(LoadError::unsupported(line, ".attribute")),
            ".ptr" | ".global" | ".const" | ".shared" | ".local" if element.is_some() => {}
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            word if word.starts_with('.') => {
                element = Some(type_bytes(word).ok_or_else(|| LoadError::unsupported(line, word))?);
            }
            name => break name,
        }
    };
    let element = element.ok_or_else(|| LoadError::syntax(line, format!("`{name}` has no type")))?;
    let mut bytes = Some(element * vector);
    while reader.skip('[') {
        let length = if reader.peek() == Some(TokenKind::Punctuation(']')) {
            None
        } else {
            Some(reader.integer("a length")?)
        };
        reader.expect(']')?;
        bytes = match (bytes, length) {
            (Some(bytes), Some(length)) => {
                Some(bytes.checked_mul(length).ok_or_else(|| too_large(line, name))?)
            }
            _ => None,
        };
    }
    let align = align.unwrap_or(element * vector);
    if !align.is_power_of_two() || align > 4096 {
        return Err(LoadError::syntax(line, format!("`{name}` is aligned to {align} bytes")));
    }
    let mut content = Vec::new();
    if reader.skip('=') {
        initial(reader, element as usize, &mut content)?;
        if bytes.is_none_or(|bytes| content.len() as u64 > bytes) {
            bytes = bytes.is_none().then_some(content.len() as u64);
        }
        if bytes.is_none() {
            return Err(LoadError::syntax(line, format!("more values than `{name}` holds")));
        }
    }
    Ok(Variable { line, space, name, align, bytes, content })
}

fn too_large(line: u32, name: &str) -> LoadError {
    LoadError::TooLarge { line, subject: format!("the variable `{name}`") }
}

/// Parses an initial value, or values in braces, which may be nested.
fn initial(reader: &mut Reader<'_>, element: usize, content: &mut Vec<u8>) -> Result<(), LoadError> {
    let mut depth = 0_usize;
    loop {
        if reader.skip('{') {
            depth += 1;
            continue;
        }
        if reader.skip('}') {
            let Some(outer) = depth.checked_sub(1) else { return Err(reader.unexpected("a value")) };
            depth = outer;
        } else {
            let value = match reader.peek() {
                Some(TokenKind::Single(bits)) => {
                    reader.take();
                    bits.into()
                }
                Some(TokenKind::Double(bits)) => {
                    reader.take();
                    bits
                }
                Some(TokenKind::Word(word)) => {
                    return Err(LoadError::unsupported(reader.line(), format!("the initial value `{word}`")));
                }
                _ => reader.signed("an initial value")? as u64,
            };
            content.extend_from_slice(&value.to_le_bytes()[..element]);
        }
        while depth > 0 && reader.skip('}') {
            depth -= 1;
        }
        if depth == 0 {
            return Ok(());
        }
        if !reader.skip(',') {
            return Err(reader.unexpected("`,`"));
        }
    }
}

/// Returns the size in bytes of a type such as `.f32`, or `None` if the type is unknown.
pub(crate) fn type_bytes(word: &str) -> Option<u64> {
    Some(match word {
        ".b8" | ".u8" | ".s8" => 1,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 2,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" => 4,
        ".b64" | ".u64" | ".s64" | ".f64" => 8,
        _ => return None,
    })
}
