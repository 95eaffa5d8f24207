//! How settings in the environment are read: one that is empty is not set, and one that means nothing is an error, since
//! whoever set it would otherwise get something else in silence.

use std::ops::RangeInclusive;

/// A setting that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: `{value}` is no {what}")]
pub struct WrongSetting {
    name: &'static str,
    value: String,
    what: String,
}

/// Reads settings, and keeps the first that is wrong: all that have no value are as if they were not set.
#[derive(Debug)]
pub struct Settings<V> {
    variable: V,
    wrong: Option<WrongSetting>,
}

impl<V: Fn(&str) -> Option<String>> Settings<V> {
    /// With what gives a variable's value.
    pub fn new(variable: V) -> Self {
        Self { variable, wrong: None }
    }

    /// The first wrong one, if any was.
    pub fn wrong(self) -> Option<WrongSetting> {
        self.wrong
    }

    /// The text of one that is set.
    pub fn text(&self, name: &'static str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.trim().is_empty())
    }

    fn parsed<T>(
        &mut self,
        name: &'static str,
        what: impl FnOnce() -> String,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.text(name)?;
        let parsed = parse(value.trim());
        if parsed.is_none() && self.wrong.is_none() {
            self.wrong = Some(WrongSetting { name, value, what: what() });
        }
        parsed
    }

    /// A whole number in a range.
    pub fn number(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let what = || format!("whole number from {} to {}", range.start(), range.end());
        self.parsed(name, what, |text| text.parse().ok().filter(|number| range.contains(number)))
    }

    /// A number in a range.
    pub fn factor(&mut self, name: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let what = || format!("number from {} to {}", range.start(), range.end());
        self.parsed(name, what, |text| text.parse().ok().filter(|number| range.contains(number)))
    }

    /// A number of bytes, at least so many.
    pub fn bytes(&mut self, name: &'static str, least: u64) -> Option<u64> {
        let what = || format!("number of bytes, with an optional K, M or G, of at least {least}");
        self.parsed(name, what, |text| bytes(text).filter(|number| *number >= least))
    }

    /// Is it this word? Only `word` and `usual`, what there is without it, mean anything.
    pub fn is(&mut self, name: &'static str, word: &str, usual: &str) -> bool {
        let either = |text: &str| [word, usual].contains(&text).then(|| text == word);
        self.parsed(name, || format!("`{word}` and no `{usual}`"), either).unwrap_or(false)
    }
}

/// A number of bytes with an optional K, M or G (or KiB, MiB, GiB), powers of 1024.
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        _ => return None,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(value: &str) -> Settings<impl Fn(&str) -> Option<String>> {
        let value = value.to_owned();
        Settings::new(move |name| (name == "SET").then(|| value.clone()))
    }

    #[test]
    fn bytes_have_units() {
        let sizes = [("7", 7), (" 3 K", 3 << 10), ("512M", 512 << 20), ("8g", 8 << 30), ("8GiB", 8 << 30)];
        for (text, size) in sizes {
            assert_eq!(bytes(text), Some(size), "{text}");
        }
        for text in ["", "K", "-1", "1.5G", "8GB", "99999999999G", "1e9", "3 X"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_set_is_not_wrong() {
        for value in ["", "  "] {
            let mut of = settings(value);
            assert_eq!(
                (of.number("SET", 1..=9), of.bytes("OTHER", 1), of.is("SET", "a", "b")),
                (None, None, false)
            );
            assert_eq!(of.wrong(), None);
        }
    }

    #[test]
    fn the_first_wrong_one_is_named_with_what_fits() {
        let mut of = settings("11");
        assert_eq!((of.number("SET", 1..=10), of.is("SET", "a", "b")), (None, false));
        assert_eq!(of.wrong().unwrap().to_string(), "SET: `11` is no whole number from 1 to 10");
        let mut of = settings("nan");
        assert_eq!(of.factor("SET", 1.0..=5.0), None);
        assert!(of.wrong().is_some());
        let mut of = settings("b");
        assert!(!of.is("SET", "a", "b"));
        assert_eq!(of.wrong(), None);
        assert!(settings("a").is("SET", "a", "b"));
    }
}
