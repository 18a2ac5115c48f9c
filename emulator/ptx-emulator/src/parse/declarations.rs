//! Parser of declarations outside function bodies.

use super::{
    Entry, File, Space,
    body::body,
    lexer::{TokenKind, tokens},
    reader::Reader,
    variables::{variable, variables},
};
use crate::LoadError;

/// Parses a PTX text. Functions other than kernels are skipped. Text that is not valid PTX and
/// unsupported directives are errors.
pub(crate) fn parse(text: &str) -> Result<File<'_>, LoadError> {
    let mut reader = Reader::new(tokens(text)?);
    let mut file = File::default();
    while reader.peek().is_some() {
        declaration(&mut reader, &mut file)?;
    }
    Ok(file)
}

fn declaration<'a>(reader: &mut Reader<'a>, file: &mut File<'a>) -> Result<(), LoadError> {
    let line = reader.line();
    let word = reader.word("a directive")?;
    match word {
        ".version" => version(reader)?,
        ".target" => {
            reader.word("a target")?;
            while reader.skip(',') {
                reader.word("a target")?;
            }
        }
        ".address_size" => {
            if reader.integer("the size of addresses")? != 64 {
                return Err(LoadError::unsupported(line, ".address_size other than 64"));
            }
        }
        ".file" => {
            let number = reader.integer("a file's number")?;
            let Some(TokenKind::Text(name)) = reader.take() else {
                return Err(LoadError::syntax(line, "`.file` without a name"));
            };
            while reader.skip(',') {
                reader.integer("a time or a size")?;
            }
            file.sources.push((number, name));
        }
        ".section" => {
            reader.word("a section's name")?;
            reader.skip_braces()?;
        }
        ".pragma" => reader.skip_pragma()?,
        ".visible" | ".extern" | ".weak" | ".common" => {}
        ".entry" => {
            let entry = entry(reader)?;
            if file.entries.iter().any(|other| other.name == entry.name) {
                return Err(LoadError::syntax(
                    line,
                    format!("the kernel `{}` is declared twice", entry.name),
                ));
            }
            file.entries.push(entry);
        }
        ".func" => skip_function(reader)?,
        ".global" | ".const" => file.globals.extend(variables(reader, word)?),
        ".shared" => file.shared.extend(variables(reader, word)?),
        other => return Err(LoadError::unsupported(line, other)),
    }
    Ok(())
}

fn version(reader: &mut Reader<'_>) -> Result<(), LoadError> {
    match reader.take() {
        Some(TokenKind::Double(_) | TokenKind::Integer(_)) => Ok(()),
        _ => Err(reader.unexpected("a version")),
    }
}

fn entry<'a>(reader: &mut Reader<'a>) -> Result<Entry<'a>, LoadError> {
    let name = reader.word("a kernel's name")?;
    let mut parameters = Vec::new();
    if reader.skip('(') && !reader.skip(')') {
        loop {
            let line = reader.line();
            match reader.word("`.param`")? {
                ".param" => parameters.push(variable(reader, Space::Parameter)?),
                other => return Err(LoadError::syntax(line, format!("`.param` is expected, not `{other}`"))),
            }
            if !reader.skip(',') {
                break;
            }
        }
        reader.expect(')')?;
    }
    let mut entry = Entry { name, parameters, max_threads: None, required_block: None, body: Vec::new() };
    while let Some(TokenKind::Word(directive)) = reader.peek() {
        let line = reader.line();
        reader.take();
        let sides = |reader: &mut Reader<'a>| -> Result<[u64; 3], LoadError> {
            let sides = reader.integers("a number of threads")?;
            Ok([0, 1, 2].map(|side| sides.get(side).copied().unwrap_or(1)))
        };
        match directive {
            ".maxntid" => {
                entry.max_threads = Some(sides(reader)?.into_iter().fold(1, u64::saturating_mul));
            }
            ".reqntid" => entry.required_block = Some(sides(reader)?),
            ".minnctapersm" | ".maxnreg" => {
                reader.integer("a number")?;
            }
            ".pragma" => reader.skip_pragma()?,
            other => return Err(LoadError::unsupported(line, other)),
        }
    }
    reader.expect('{')?;
    entry.body = body(reader)?;
    Ok(entry)
}

/// Skips a function. Calls are not supported; a call instruction is an error where it occurs.
fn skip_function(reader: &mut Reader<'_>) -> Result<(), LoadError> {
    loop {
        match reader.peek() {
            Some(TokenKind::Punctuation('{')) => return reader.skip_braces(),
            Some(TokenKind::Punctuation(';')) => return reader.expect(';'),
            Some(_) => drop(reader.take()),
            None => return Err(reader.unexpected("a function's body")),
        }
    }
}
