//! Sequential reader of tokens.

use super::lexer::{Token, TokenKind};
use crate::LoadError;

/// Reader of a sequence of tokens, with its position.
pub(super) struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the first token.
    pub(super) fn new(tokens: Vec<Token<'a>>) -> Self {
        Self { tokens, next: 0 }
    }

    /// Returns the next token without consuming it, or `None` at the end.
    pub(super) fn peek(&self) -> Option<TokenKind<'a>> {
        self.tokens.get(self.next).map(|token| token.kind)
    }

    /// Returns the line of the next token, or of the last token at the end.
    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    /// Consumes and returns the next token, or returns `None` at the end.
    pub(super) fn take(&mut self) -> Option<TokenKind<'a>> {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Consumes the next token if it is the given punctuation. Returns whether it was.
    pub(super) fn skip(&mut self, character: char) -> bool {
        let found = self.peek() == Some(TokenKind::Punctuation(character));
        self.next += usize::from(found);
        found
    }

    /// Consumes the next token if it is the given word. Returns whether it was.
    pub(super) fn skip_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(TokenKind::Word(word));
        self.next += usize::from(found);
        found
    }

    /// Consumes the given punctuation. Any other token is an error and is not consumed.
    pub(super) fn expect(&mut self, character: char) -> Result<(), LoadError> {
        if self.skip(character) { Ok(()) } else { Err(self.unexpected(&format!("`{character}`"))) }
    }

    /// Consumes and returns a word. Any other token is an error, in which `expected` names what is
    /// missing.
    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str, LoadError> {
        match self.peek() {
            Some(TokenKind::Word(word)) => {
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Consumes and returns an integer. Any other token is an error, in which `expected` names what
    /// is missing.
    pub(super) fn integer(&mut self, expected: &str) -> Result<u64, LoadError> {
        match self.peek() {
            Some(TokenKind::Integer(value)) => {
                self.next += 1;
                Ok(value)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Consumes and returns an integer with an optional minus. Any other token is an error, in
    /// which `expected` names what is missing.
    pub(super) fn signed(&mut self, expected: &str) -> Result<i64, LoadError> {
        let negative = self.skip('-');
        let value = self.integer(expected)? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// Consumes and returns one or more integers separated by commas. Any other token is an error,
    /// in which `expected` names what is missing.
    pub(super) fn integers(&mut self, expected: &str) -> Result<Vec<u64>, LoadError> {
        let mut values = vec![self.integer(expected)?];
        while self.skip(',') {
            values.push(self.integer(expected)?);
        }
        Ok(values)
    }

    /// Consumes a text in braces, including both braces. An end without closing brace is an error.
    pub(super) fn skip_braces(&mut self) -> Result<(), LoadError> {
        self.expect('{')?;
        let mut depth = 1_usize;
        while depth > 0 {
            match self.take() {
                Some(TokenKind::Punctuation('{')) => depth += 1,
                Some(TokenKind::Punctuation('}')) => depth -= 1,
                Some(_) => {}
                None => return Err(self.unexpected("`}`")),
            }
        }
        Ok(())
    }

    /// Consumes the strings of a `.pragma` and the semicolon after them.
    pub(super) fn skip_pragma(&mut self) -> Result<(), LoadError> {
        while let Some(TokenKind::Text(_) | TokenKind::Punctuation(',')) = self.peek() {
            self.take();
        }
        self.expect(';')
    }

    /// Returns the syntax error for the next token, where `expected` names what should be there.
    pub(super) fn unexpected(&self, expected: &str) -> LoadError {
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some(TokenKind::Word(word) | TokenKind::Text(word)) => format!("`{word}`"),
            Some(TokenKind::Integer(value)) => format!("`{value}`"),
            Some(TokenKind::Single(_) | TokenKind::Double(_)) => "a number".to_owned(),
            Some(TokenKind::Punctuation(character)) => format!("`{character}`"),
        };
        LoadError::syntax(self.line(), format!("{expected} is expected, not {found}"))
    }
}
