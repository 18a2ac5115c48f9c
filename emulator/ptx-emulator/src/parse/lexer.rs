//! Lexer of PTX text.

use crate::LoadError;

/// Token with its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    /// Line of the text, from 1.
    pub(crate) line: u32,
    /// Kind and content.
    pub(crate) kind: TokenKind<'a>,
}

/// Kind and content of a token.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum TokenKind<'a> {
    /// Name, directive, register, or opcode with its modifiers.
    Word(&'a str),
    /// Integer up to `u64::MAX`. A preceding minus is a separate token.
    Integer(u64),
    /// Bits of a single-precision number, such as `0f3f800000`.
    Single(u32),
    /// Bits of a double-precision number, such as `0d3ff0000000000000`, or of a decimal number with
    /// a point.
    Double(u64),
    /// Text between quotes.
    Text(&'a str),
    /// Punctuation: any other ASCII character.
    Punctuation(char),
}

/// Splits a PTX text into tokens. Comments and white space are dropped. It is an error if a part of
/// the text is no token.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, LoadError> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let length = if let Some(comment) = rest.strip_prefix("/*") {
            let end =
                comment.find("*/").ok_or_else(|| LoadError::syntax(line, "a comment without an end"))?;
            end + 4
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first.is_whitespace() || first == '\0' {
            first.len_utf8()
        } else {
            let (kind, length) = token(rest, first).map_err(|problem| LoadError::syntax(line, problem))?;
            tokens.push(Token { line, kind });
            length
        };
        let (done, left) = rest.split_at(length);
        line += done.bytes().filter(|byte| *byte == b'\n').count() as u32;
        rest = left;
    }
    Ok(tokens)
}

fn token(rest: &str, first: char) -> Result<(TokenKind<'_>, usize), String> {
    if first.is_ascii_digit() {
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(rest.len());
        return Ok((number(&rest[..length])?, length));
    }
    if first == '"' {
        let end = rest[1..].find('"').ok_or("a text without an end")?;
        return Ok((TokenKind::Text(&rest[1..=end]), end + 2));
    }
    let length = word_length(rest);
    if length > 0 {
        return Ok((TokenKind::Word(&rest[..length]), length));
    }
    if first.is_ascii_punctuation() {
        return Ok((TokenKind::Punctuation(first), 1));
    }
    Err(format!("the character {first:?}"))
}

/// Returns the length of a word. Pairs of colons belong to it, as in `st.shared::cta`; a single
/// colon ends a label.
fn word_length(rest: &str) -> usize {
    let mut length = 0;
    loop {
        let part = rest[length..]
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')))
            .unwrap_or(rest.len() - length);
        length += part;
        if length == 0 || !rest[length..].starts_with("::") {
            return length;
        }
        length += 2;
    }
}

fn number(text: &str) -> Result<TokenKind<'_>, String> {
    let wrong = || format!("`{text}` is no number");
    let lower = text.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0f") {
        return u32::from_str_radix(digits, 16).map(TokenKind::Single).map_err(|_| wrong());
    }
    if let Some(digits) = lower.strip_prefix("0d") {
        return u64::from_str_radix(digits, 16).map(TokenKind::Double).map_err(|_| wrong());
    }
    if text.contains('.') {
        return text.parse().map(|value: f64| TokenKind::Double(value.to_bits())).map_err(|_| wrong());
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    let value = if let Some(hexadecimal) = digits.strip_prefix("0x") {
        u64::from_str_radix(hexadecimal, 16)
    } else if let Some(binary) = digits.strip_prefix("0b") {
        u64::from_str_radix(binary, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8)
    } else {
        digits.parse()
    };
    value.map(TokenKind::Integer).map_err(|_| wrong())
}
