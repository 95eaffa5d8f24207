//! `.target`: the architecture for which a text was made, and which devices run it.

/// An architecture by its name: `sm_75`, `sm_90a`, `sm_100f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// 10 × major + minor of the compute capability.
    pub number: u32,
    /// Which other devices run it.
    pub reach: Reach,
}

/// What the letter at the end of an architecture's name says (PTX manual, `.target`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// No letter: that device and every later one.
    Later,
    /// `f`: that device and the later ones of its family.
    Family,
    /// `a`: that device alone.
    Alone,
}

/// The first architectures that have features of their own, and of their family.
const FIRST_ALONE: u32 = 90;
const FIRST_FAMILY: u32 = 100;

impl Target {
    /// The architecture of this name; `None` if it is none.
    pub fn named(name: &str) -> Option<Target> {
        let text = name.strip_prefix("sm_").or_else(|| name.strip_prefix("compute_"))?;
        let (digits, reach) = match text.strip_suffix('a') {
            Some(digits) => (digits, Reach::Alone),
            None => text.strip_suffix('f').map_or((text, Reach::Later), |digits| (digits, Reach::Family)),
        };
        let number =
            digits.parse().ok().filter(|n| *n < 1000 && digits.bytes().all(|b| b.is_ascii_digit()))?;
        let first = match reach {
            Reach::Later => 0,
            Reach::Family => FIRST_FAMILY,
            Reach::Alone => FIRST_ALONE,
        };
        (number >= first).then_some(Target { number, reach })
    }

    /// The architecture that a PTX text names; `None` if it names none that is one. Only its beginning is read.
    pub fn of(ptx: &str) -> Option<Target> {
        let mut rest = ptx;
        loop {
            rest = rest.trim_start();
            if let Some(comment) = rest.strip_prefix("//") {
                rest = comment.split_once('\n')?.1;
            } else if let Some(comment) = rest.strip_prefix("/*") {
                rest = comment.split_once("*/")?.1;
            } else if let Some(names) = rest.strip_prefix(".target") {
                let names = names.trim_start();
                let end = names.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(names.len());
                return Target::named(&names[..end]);
            } else if rest.starts_with(".version") {
                // The directive, and its number.
                rest = rest[".version".len()..].trim_start().trim_start_matches(|c: char| !c.is_whitespace());
            } else {
                return None;
            }
        }
    }

    /// Whether a device of this compute capability (major, minor) runs it.
    pub fn runs_on(self, capability: (u32, u32)) -> bool {
        // 10.1 was given the number 11.0 later, and its family with it.
        let today = |number: u32| if number == 101 { 110 } else { number };
        let (own, device) = (today(self.number), today(capability.0 * 10 + capability.1));
        match self.reach {
            Reach::Later => self.number <= capability.0 * 10 + capability.1,
            Reach::Family => own / 10 == device / 10 && own <= device,
            Reach::Alone => own == device,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = match self.reach {
            Reach::Later => "",
            Reach::Family => "f",
            Reach::Alone => "a",
        };
        write!(f, "`sm_{}{letter}`", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reach, Target};

    #[test]
    fn names() {
        assert_eq!(Target::named("sm_75"), Some(Target { number: 75, reach: Reach::Later }));
        assert_eq!(Target::named("compute_120"), Some(Target { number: 120, reach: Reach::Later }));
        assert_eq!(Target::named("sm_90a"), Some(Target { number: 90, reach: Reach::Alone }));
        assert_eq!(Target::named("sm_103f"), Some(Target { number: 103, reach: Reach::Family }));
        for wrong in
            ["", "sm_", "sm_a", "sm_75a", "sm_90f", "sm_90af", "sm_+9", "sm_1000", "90", "texmode_unified"]
        {
            assert_eq!(Target::named(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn texts() {
        let of = |text| Target::of(text).map(|t| t.number);
        assert_eq!(of("// a .target sm_10\n\n.version 8.0\n.target sm_75, debug\n"), Some(75));
        assert_eq!(of("/* .target sm_10 */ .version 9.0 .target sm_121a .address_size 64"), Some(121));
        assert_eq!(of(".version 9.0"), None);
        assert_eq!(of(".version 9.0 .entry k() .target sm_75"), None);
        assert_eq!(of(""), None);
        assert_eq!(of("// .target sm_75"), None);
    }

    /// By the tables of the PTX manual's section on `.target`.
    #[test]
    fn devices() {
        let runs = |name: &str, capability| Target::named(name).is_some_and(|t| t.runs_on(capability));
        for (name, capability) in [
            ("sm_30", (9, 0)),
            ("sm_90", (9, 0)),
            ("sm_90", (12, 0)),
            ("sm_89", (9, 0)),
            ("sm_90a", (9, 0)),
            ("sm_100f", (10, 0)),
            ("sm_100f", (10, 3)),
            ("sm_101f", (11, 0)),
            ("sm_110a", (10, 1)),
            ("sm_120f", (12, 1)),
        ] {
            assert!(runs(name, capability), "{name} on {capability:?}");
        }
        for (name, capability) in [
            ("sm_90", (8, 9)),
            ("sm_120", (9, 0)),
            ("sm_90a", (10, 0)),
            ("sm_90a", (12, 0)),
            ("sm_103f", (10, 0)),
            ("sm_100f", (11, 0)),
            ("sm_100f", (12, 0)),
            ("sm_100f", (10, 1)),
            ("sm_121f", (12, 0)),
            ("sm_120a", (12, 1)),
        ] {
            assert!(!runs(name, capability), "{name} on {capability:?}");
        }
    }
}
