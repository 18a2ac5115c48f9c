//! Sequential reader of tokens.

use super::lexer::{Token, TokenKind};
use crate::LoadError;

pub(super) struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(tokens: Vec<Token<'a>>) -> Self {
        Self { tokens, next: 0 }
    }

    pub(super) fn peek(&self) -> Option<TokenKind<'a>> {
        self.tokens.get(self.next).map(|token| token.kind)
    }

    /// Returns the line of the next token, or of the last one at the end.
    pub(super) fn line(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(super) fn take(&mut self) -> Option<TokenKind<'a>> {
        let token = self.peek();
        self.next += 1;
        token
    }

    /// Consumes the next token if it is the given punctuation.
    pub(super) fn skip(&mut self, character: char) -> bool {
        let found = self.peek() == Some(TokenKind::Punctuation(character));
        self.next += usize::from(found);
        found
    }

    /// Consumes the next token if it is the given word.
    pub(super) fn skip_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(TokenKind::Word(word));
        self.next += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, character: char) -> Result<(), LoadError> {
        if self.skip(character) { Ok(()) } else { Err(self.unexpected(&format!("`{character}`"))) }
    }

    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str, LoadError> {
        match self.peek() {
            Some(TokenKind::Word(word)) => {
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    pub(super) fn integer(&mut self, expected: &str) -> Result<u64, LoadError> {
        match self.peek() {
            Some(TokenKind::Integer(value)) => {
                self.next += 1;
                Ok(value)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Reads an integer with an optional minus, in two's complement.
    pub(super) fn signed(&mut self, expected: &str) -> Result<i64, LoadError> {
        let negative = self.skip('-');
        let value = self.integer(expected)? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// Reads integers separated by commas.
    pub(super) fn integers(&mut self, expected: &str) -> Result<Vec<u64>, LoadError> {
        let mut values = vec![self.integer(expected)?];
        while self.skip(',') {
            values.push(self.integer(expected)?);
        }
        Ok(values)
    }

    /// Skips everything between an opening brace and its closing brace.
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

    /// Skips the texts of a pragma.
    pub(super) fn skip_pragma(&mut self) -> Result<(), LoadError> {
        while let Some(TokenKind::Text(_) | TokenKind::Punctuation(',')) = self.peek() {
            self.take();
        }
        self.expect(';')
    }

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
