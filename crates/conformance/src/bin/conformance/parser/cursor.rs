//! A place in the text of a script.

use super::SyntaxError;

pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The same place, to look ahead from.
    pub(super) const fn clone_at(&self) -> Self {
        Self {
            text: self.text,
            at: self.at,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn line(&self) -> usize {
        1 + self.text[..self.at]
            .bytes()
            .filter(|byte| *byte == b'\n')
            .count()
    }

    pub(super) fn error(&self, what: &str) -> SyntaxError {
        let near: String = self
            .rest()
            .chars()
            .take_while(|c| *c != '\n')
            .take(24)
            .collect();
        let near = match near.trim() {
            "" => "the end of the line".to_owned(),
            near => format!("`{near}`"),
        };
        SyntaxError {
            line: self.line(),
            what: format!("at {near}: {what}"),
        }
    }

    /// White space and comments: `//` and `#` to the end of the line, and `/* */`.
    pub(super) fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start().len();
            if self.is_next("//") || self.is_next("#") {
                self.rest_of_line();
            } else if self.is_next("/*") {
                if !self.skip_past("*/") {
                    self.at = self.text.len();
                }
            } else {
                return;
            }
        }
    }

    pub(super) fn is_next(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        let there = self.is_next(text);
        if there {
            self.at += text.len();
        }
        there
    }

    /// Takes `text` with white space before it, or an error.
    pub(super) fn expect(&mut self, text: &str) -> Result<(), SyntaxError> {
        self.skip_space();
        if self.take(text) {
            Ok(())
        } else {
            Err(self.error(&format!("`{text}` is expected")))
        }
    }

    /// Takes `word` where it stands alone, with white space before it.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let follows = self.rest().strip_prefix(word);
        let alone = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let there = follows.is_some_and(alone);
        if there {
            self.at += word.len();
        }
        there
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !wanted(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    pub(super) fn digits(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_digit())
    }

    /// Letters, digits and underscores.
    pub(super) fn identifier(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// All characters up to white space.
    pub(super) fn token(&mut self) -> &'a str {
        self.take_while(|c| !c.is_whitespace())
    }

    pub(super) fn rest_of_line(&mut self) -> &'a str {
        self.take_while(|c| c != '\n')
    }

    /// Goes behind the next `end`; whether there is one.
    pub(super) fn skip_past(&mut self, end: &str) -> bool {
        self.up_to(end).is_some()
    }

    /// Goes behind the next `end`; all that is before it.
    pub(super) fn up_to(&mut self, end: &str) -> Option<&'a str> {
        let rest = self.rest();
        let at = rest.find(end)?;
        self.at += at + end.len();
        Some(&rest[..at])
    }

    /// All up to the next `end`, and behind it.
    pub(super) fn until(&mut self, end: char) -> Option<&'a str> {
        let rest = self.rest();
        let at = rest.find(end)?;
        self.at += at + end.len_utf8();
        Some(&rest[..at])
    }

    /// A decimal number with white space before it.
    pub(super) fn number<T: core::str::FromStr>(&mut self, what: &str) -> Result<T, SyntaxError> {
        self.skip_space();
        let start = self.at;
        let digits = self.digits();
        digits.parse().map_err(|_| {
            self.at = start;
            self.error(&format!("{what} is expected, in digits"))
        })
    }
}
