//! A position in the tokens, with the small questions that every part of the parser asks.

use super::lexer::{Kind, Number, Token, number};
use crate::error::PtxError;

pub type Result<T> = std::result::Result<T, PtxError>;

/// Walks over the tokens of one text.
pub struct Cursor<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(tokens: Vec<Token<'a>>) -> Self {
        Cursor { tokens, at: 0 }
    }

    pub fn peek(&self) -> Token<'a> {
        self.peek_at(0)
    }

    /// The token `n` places ahead; the last one (`End`) is never passed.
    pub fn peek_at(&self, n: usize) -> Token<'a> {
        self.tokens[(self.at + n).min(self.tokens.len() - 1)]
    }

    pub fn next(&mut self) -> Token<'a> {
        let t = self.peek();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        t
    }

    pub fn line(&self) -> u32 {
        self.peek().line
    }

    /// An error at the current token.
    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(PtxError::new(self.line(), message))
    }

    /// An error that says what was found instead.
    pub fn expected<T>(&self, what: &str) -> Result<T> {
        let t = self.peek();
        let found = match t.kind {
            Kind::End => "the end of the text".to_string(),
            Kind::Dot => format!("`.{}`", t.text),
            _ => format!("`{}`", t.text),
        };
        self.error(format!("expected {what}, found {found}"))
    }

    pub fn is(&self, c: u8) -> bool {
        self.peek().kind == Kind::Punct(c)
    }

    pub fn eat(&mut self, c: u8) -> bool {
        let yes = self.is(c);
        if yes {
            self.next();
        }
        yes
    }

    pub fn want(&mut self, c: u8) -> Result<()> {
        if self.eat(c) { Ok(()) } else { self.expected(&format!("`{}`", c as char)) }
    }

    pub fn is_dot(&self, name: &str) -> bool {
        let t = self.peek();
        t.kind == Kind::Dot && t.text == name
    }

    pub fn eat_dot(&mut self, name: &str) -> bool {
        let yes = self.is_dot(name);
        if yes {
            self.next();
        }
        yes
    }

    /// Any `.word`.
    pub fn dot(&mut self) -> Result<&'a str> {
        if self.peek().kind == Kind::Dot {
            Ok(self.next().text)
        } else {
            self.expected("a directive or type")
        }
    }

    pub fn ident(&mut self) -> Result<&'a str> {
        if self.peek().kind == Kind::Ident { Ok(self.next().text) } else { self.expected("a name") }
    }

    /// A number with an optional sign; integers are returned in two's complement.
    pub fn number(&mut self) -> Result<Number> {
        let negative = self.eat(b'-');
        if !negative {
            self.eat(b'+');
        }
        if self.peek().kind != Kind::Number {
            return self.expected("a number");
        }
        let Some(n) = number(self.peek().text) else {
            return self.error(format!("`{}` is not a number", self.peek().text));
        };
        self.next();
        Ok(match n {
            Number::Int(v) if negative => Number::Int(v.wrapping_neg()),
            Number::F32(v) if negative => Number::F32(v ^ 1 << 31),
            Number::F64(v) if negative => Number::F64(v ^ 1 << 63),
            n => n,
        })
    }

    /// An integer; a constant expression of numbers, `+ - * / << >> & | ^ ~ ( )` is accepted.
    pub fn integer(&mut self) -> Result<i64> {
        self.expression(0, 0)
    }

    fn expression(&mut self, level: u8, depth: u32) -> Result<i64> {
        if depth > 64 {
            return self.error("expression is nested too deeply");
        }
        let mut left = self.unary(depth)?;
        loop {
            let two = self.peek().text == self.peek_at(1).text;
            let (op, rank) = match self.peek().kind {
                Kind::Punct(b'|') => (b'|', 1),
                Kind::Punct(b'^') => (b'^', 2),
                Kind::Punct(b'&') => (b'&', 3),
                Kind::Punct(c @ (b'<' | b'>')) if two => (c, 4),
                Kind::Punct(c @ (b'+' | b'-')) => (c, 5),
                Kind::Punct(c @ (b'*' | b'/')) => (c, 6),
                _ => return Ok(left),
            };
            if rank <= level {
                return Ok(left);
            }
            self.next();
            if rank == 4 {
                self.next();
            }
            let right = self.expression(rank, depth + 1)?;
            left = match op {
                b'|' => left | right,
                b'^' => left ^ right,
                b'&' => left & right,
                b'<' => left.wrapping_shl(right as u32),
                b'>' => left.wrapping_shr(right as u32),
                b'+' => left.wrapping_add(right),
                b'-' => left.wrapping_sub(right),
                b'*' => left.wrapping_mul(right),
                _ if right == 0 => return self.error("division by zero in a constant expression"),
                _ => left.wrapping_div(right),
            };
        }
    }

    fn unary(&mut self, depth: u32) -> Result<i64> {
        if depth > 64 {
            return self.error("expression is nested too deeply");
        }
        if self.eat(b'(') {
            let v = self.expression(0, depth + 1)?;
            self.want(b')')?;
            return Ok(v);
        }
        if self.eat(b'-') {
            return Ok(self.unary(depth + 1)?.wrapping_neg());
        }
        if self.eat(b'~') {
            return Ok(!self.unary(depth + 1)?);
        }
        match self.number()? {
            Number::Int(v) => Ok(v as i64),
            _ => self.error("expected an integer"),
        }
    }

    /// An integer that is a size, count or alignment: not negative and at most `max`.
    pub fn size(&mut self, max: u64) -> Result<u64> {
        let line = self.line();
        let v = self.integer()?;
        if v < 0 || v as u64 > max {
            return Err(PtxError::new(line, format!("{v} is out of range (0 to {max})")));
        }
        Ok(v as u64)
    }

    /// Passes everything up to the end of the current line.
    pub fn skip_line(&mut self) {
        let line = self.line();
        while self.line() == line && self.peek().kind != Kind::End {
            self.next();
        }
    }

    /// Passes a block in braces with all that is in it.
    pub fn skip_braces(&mut self) -> Result<()> {
        self.want(b'{')?;
        let mut depth = 1u64;
        while depth > 0 {
            match self.next().kind {
                Kind::Punct(b'{') => depth += 1,
                Kind::Punct(b'}') => depth -= 1,
                Kind::End => return self.error("`{` without `}`"),
                _ => {}
            }
        }
        Ok(())
    }
}
