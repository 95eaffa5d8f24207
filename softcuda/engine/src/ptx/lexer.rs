//! PTX text to tokens.

use crate::error::PtxError;

/// What a token is; its text is a part of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `add`, `%r1`, `$L__BB0_1`, `_`.
    Ident,
    /// `.global`, without the dot.
    Dot,
    /// Any number, unparsed, without a sign.
    Number,
    /// A string, without quotes, escapes left as they are.
    Str,
    /// One character.
    Punct(u8),
    /// The end of the text.
    End,
}

/// A token and the line that it is on.
#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub line: u32,
}

fn word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%')
}

/// Splits the whole text. The last token is always [`Kind::End`].
pub fn lex(text: &str, first: u32) -> Result<Vec<Token<'_>>, PtxError> {
    let b = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 5 + 1);
    let (mut i, mut line) = (0, first);
    while i < b.len() {
        let start = i;
        let mut push = |kind, from: usize, to: usize| out.push(Token { kind, text: &text[from..to], line });
        match b[i] {
            b'\n' => {
                line += 1;
                i += 1;
            }
            b' ' | b'\t' | b'\r' | 0x0b | 0x0c => i += 1,
            // A text that came as a C string may carry its end.
            0 if b[i..].iter().all(|&c| c == 0) => break,
            b'/' if b.get(i + 1) == Some(&b'/') => i = end_of_line(b, i),
            b'/' if b.get(i + 1) == Some(&b'*') => {
                let len =
                    text[i + 2..].find("*/").ok_or_else(|| PtxError::new(line, "comment without end"))?;
                line += b[i..i + 2 + len].iter().filter(|&&c| c == b'\n').count() as u32;
                i += len + 4;
            }
            b'#' => i = end_of_line(b, i),
            b'"' => {
                i += 1;
                while i < b.len() && b[i] != b'"' && b[i] != b'\n' {
                    i += if b[i] == b'\\' { 2 } else { 1 };
                }
                if b.get(i) != Some(&b'"') || !text.is_char_boundary(i) {
                    return Err(PtxError::new(line, "string without end"));
                }
                push(Kind::Str, start + 1, i);
                i += 1;
            }
            b'.' if b.get(i + 1).is_some_and(|&c| word(c)) => {
                i = end_of_dotted(b, i + 1);
                push(Kind::Dot, start + 1, i);
            }
            c if c.is_ascii_digit() => {
                i = end_of_number(b, i);
                push(Kind::Number, start, i);
            }
            c if word(c) => {
                i = b[i..].iter().position(|&c| !word(c)).map_or(b.len(), |n| i + n);
                push(Kind::Ident, start, i);
            }
            c if c.is_ascii_graphic() => {
                i += 1;
                push(Kind::Punct(c), start, i);
            }
            c => return Err(PtxError::new(line, format!("unexpected byte 0x{c:02x}"))),
        }
    }
    out.push(Token { kind: Kind::End, text: "", line });
    Ok(out)
}

fn end_of_line(b: &[u8], i: usize) -> usize {
    b[i..].iter().position(|&c| c == b'\n').map_or(b.len(), |n| i + n)
}

/// A modifier may hold `::` as in `.shared::cta`.
fn end_of_dotted(b: &[u8], mut i: usize) -> usize {
    loop {
        while i < b.len() && word(b[i]) {
            i += 1;
        }
        if b[i..].starts_with(b"::") && b.get(i + 2).is_some_and(|&c| word(c)) {
            i += 2;
        } else {
            return i;
        }
    }
}

fn end_of_number(b: &[u8], start: usize) -> usize {
    let mut i = start;
    let hex = b[i] == b'0' && b.get(i + 1).is_some_and(|c| matches!(c, b'x' | b'X'));
    while i < b.len() {
        let exponent = !hex && i > start && matches!(b[i - 1], b'e' | b'E') && matches!(b[i], b'+' | b'-');
        let fraction = b[i] == b'.' && b.get(i + 1).is_some_and(u8::is_ascii_digit);
        if !(word(b[i]) || exponent && b[start..i].contains(&b'.') || fraction) {
            break;
        }
        i += 1;
    }
    i
}

/// A number as PTX writes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Int(u64),
    /// Bits of a `0f` literal.
    F32(u32),
    /// Bits of a `0d` literal or a decimal fraction.
    F64(u64),
}

/// Reads the text of a [`Kind::Number`].
pub fn number(text: &str) -> Option<Number> {
    let (head, tail) = text.split_at(text.len().min(2));
    match head {
        "0f" | "0F" if tail.len() == 8 => return u32::from_str_radix(tail, 16).ok().map(Number::F32),
        "0d" | "0D" if tail.len() == 16 => return u64::from_str_radix(tail, 16).ok().map(Number::F64),
        "0x" | "0X" => {
            return u64::from_str_radix(tail.trim_end_matches(['U', 'u']), 16).ok().map(Number::Int);
        }
        "0b" | "0B" => {
            return u64::from_str_radix(tail.trim_end_matches(['U', 'u']), 2).ok().map(Number::Int);
        }
        _ => {}
    }
    if text.contains('.') {
        return text.parse::<f64>().ok().map(|v| Number::F64(v.to_bits()));
    }
    let digits = text.trim_end_matches(['U', 'u']);
    if digits.len() > 1 && digits.starts_with('0') {
        return u64::from_str_radix(&digits[1..], 8).ok().map(Number::Int);
    }
    digits.parse().ok().map(Number::Int)
}
