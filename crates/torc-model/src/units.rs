//! Memory sizes and durations: one parser and one printer each.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A memory size in bytes. Units are powers of 1024, as Slurm and Torc users expect (`8g` = `8GB` =
/// 8 GiB).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Memory(pub u64);

/// A length of time in whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Runtime(pub u64);

/// Why a text is not a size or a duration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitError(pub String);

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnitError {}

impl Memory {
    /// Reads `512m`, `8GB`, `1.5g`, `512 MiB`, `1048576`. A bare number is bytes.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let expected = || {
            UnitError(format!(
                "`{text}` is not a memory size; write it like `512m`, `8g` or `1.5GB`"
            ))
        };
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let shift = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(expected()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            let bytes = whole.checked_mul(1 << shift).filter(|b| *b <= i64::MAX as u64);
            return bytes
                .map(Self)
                .ok_or_else(|| UnitError(format!("`{text}` is more memory than can be counted")));
        }
        let value: f64 = number.parse().map_err(|_| expected())?;
        let bytes = value * (1u64 << shift) as f64;
        if !bytes.is_finite() || bytes > i64::MAX as f64 {
            return Err(UnitError(format!("`{text}` is more memory than can be counted")));
        }
        Ok(Self(bytes.round() as u64))
    }

    /// This size times a factor, rounded up to a whole MiB.
    pub fn scaled(self, factor: f64) -> Self {
        let mib = (self.0 as f64 * factor / 1048576.0).ceil().clamp(0.0, (i64::MAX >> 20) as f64);
        Self((mib as u64) << 20)
    }
}

impl fmt::Display for Memory {
    /// The largest unit that gives a whole number: `8g`, `1536m`, `1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "t"), (30, "g"), (20, "m"), (10, "k")];
        match units.iter().find(|(shift, _)| self.0 != 0 && self.0.is_multiple_of(1 << shift)) {
            Some((shift, unit)) => f.pad(&format!("{}{unit}", self.0 >> shift)),
            None => f.pad(&self.0.to_string()),
        }
    }
}

const MAX_SECONDS: u64 = 100 * 365 * 86_400;

impl Runtime {
    /// Reads `PT2H30M`, `P1DT12H`, `2h30m`, `1d 4h`, `90s`, `02:30:00`, `1-12:00:00`, `45:00`
    /// (minutes and seconds). A bare number is seconds.
    pub fn parse(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        let expected = || {
            UnitError(format!(
                "`{text}` is not a duration; write it like `2h30m`, `02:30:00`, `90s` or `PT2H30M`"
            ))
        };
        if trimmed.is_empty() {
            return Err(expected());
        }
        let seconds = if let Some(iso) = trimmed.strip_prefix(['P', 'p']) {
            parse_iso(iso).ok_or_else(expected)?
        } else if trimmed.contains(':') {
            parse_clock(trimmed).ok_or_else(expected)?
        } else if let Ok(whole) = trimmed.parse::<u64>() {
            whole as f64
        } else {
            parse_units(trimmed, &FRIENDLY).ok_or_else(expected)?
        };
        if seconds > MAX_SECONDS as f64 {
            return Err(UnitError(format!("`{text}` is longer than 100 years")));
        }
        Ok(Self(seconds.ceil() as u64))
    }

    /// This duration times a factor, rounded up to a whole second.
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).ceil().clamp(0.0, MAX_SECONDS as f64) as u64)
    }

    /// `1h 30m`, for people.
    pub fn friendly(self) -> String {
        let mut rest = self.0;
        let mut parts = Vec::new();
        for (size, unit) in [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")] {
            if rest / size > 0 {
                parts.push(format!("{}{unit}", rest / size));
                rest %= size;
            }
        }
        if parts.is_empty() { "0s".into() } else { parts.join(" ") }
    }
}

impl fmt::Display for Runtime {
    /// The canonical form is ISO 8601: `PT2H30M`, `P1DT12H`, `PT0S`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, rest) = (self.0 / 86_400, self.0 % 86_400);
        let mut out = String::from("P");
        if days > 0 {
            out += &format!("{days}D");
        }
        if rest > 0 || days == 0 {
            out.push('T');
            for (size, unit) in [(3_600, 'H'), (60, 'M'), (1, 'S')] {
                let amount = rest % (size * 60).min(86_400) / size;
                if amount > 0 || (self.0 == 0 && unit == 'S') {
                    out += &format!("{amount}{unit}");
                }
            }
        }
        f.pad(&out)
    }
}

type Units = [(&'static str, f64)];

const FRIENDLY: [(&str, f64); 22] = [
    ("w", 604_800.0),
    ("week", 604_800.0),
    ("weeks", 604_800.0),
    ("d", 86_400.0),
    ("day", 86_400.0),
    ("days", 86_400.0),
    ("h", 3_600.0),
    ("hr", 3_600.0),
    ("hrs", 3_600.0),
    ("hour", 3_600.0),
    ("hours", 3_600.0),
    ("m", 60.0),
    ("min", 60.0),
    ("mins", 60.0),
    ("minute", 60.0),
    ("minutes", 60.0),
    ("s", 1.0),
    ("sec", 1.0),
    ("secs", 1.0),
    ("second", 1.0),
    ("seconds", 1.0),
    ("ms", 0.001),
];

/// A row of numbers with units, such as `2h30m` or `1d 4h`. Units must not repeat.
fn parse_units(text: &str, units: &Units) -> Option<f64> {
    let mut total = 0.0;
    let mut rest = text.trim();
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit = rest[..letters].to_ascii_lowercase();
        let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
        if seen.contains(&size.to_bits()) {
            return None;
        }
        seen.push(size.to_bits());
        total += number * size;
        rest = rest[letters..].trim_start_matches([' ', ',']);
    }
    (!seen.is_empty()).then_some(total)
}

fn parse_iso(text: &str) -> Option<f64> {
    const DATE: [(&str, f64); 4] =
        [("y", 31_557_600.0), ("m", 2_630_016.0), ("w", 604_800.0), ("d", 86_400.0)];
    const TIME: [(&str, f64); 3] = [("h", 3_600.0), ("m", 60.0), ("s", 1.0)];
    match text.split_once(['T', 't']) {
        Some(("", time)) => parse_units(time, &TIME),
        Some((date, time)) => Some(parse_units(date, &DATE)? + parse_units(time, &TIME)?),
        None => parse_units(text, &DATE),
    }
}

/// `D-HH:MM:SS`, `HH:MM:SS`, `MM:SS`, as Slurm writes them (also `D-HH:MM` and `D-HH`).
fn parse_clock(text: &str) -> Option<f64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(days.parse::<u32>().ok()?), clock),
        None => (None, text),
    };
    let parts: Vec<u32> = clock.split(':').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let (h, m, s) = match (parts.as_slice(), days) {
        ([h, m, s], _) => (*h, *m, *s),
        ([h, m], Some(_)) => (*h, *m, 0),
        ([m, s], None) => (0, *m, *s),
        _ => return None,
    };
    let leading_only = m < 60 || (parts.len() == 2 && days.is_none());
    (leading_only && s < 60).then(|| {
        f64::from(days.unwrap_or(0)) * 86_400.0
            + f64::from(h) * 3_600.0
            + f64::from(m) * 60.0
            + f64::from(s)
    })
}

macro_rules! text_serde {
    ($name:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("a text or a whole number")
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        $name::parse(text).map_err(E::custom)
                    }
                    fn visit_u64<E: de::Error>(self, number: u64) -> Result<$name, E> {
                        $name::parse(&number.to_string()).map_err(E::custom)
                    }
                    fn visit_i64<E: de::Error>(self, number: i64) -> Result<$name, E> {
                        $name::parse(&number.to_string()).map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                String::schema()
            }
        }
        impl utoipa::ToSchema for $name {}
    };
}

text_serde!(Memory);
text_serde!(Runtime);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_reads_what_people_write() {
        let cases = [
            ("1048576", 1 << 20),
            ("512m", 512 << 20),
            ("8GB", 8 << 30),
            ("8 g", 8 << 30),
            ("1.5g", 3 << 29),
            ("512 MiB", 512 << 20),
            ("2t", 2 << 40),
            ("1k", 1024),
            ("0", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(Memory::parse(text), Ok(Memory(bytes)), "{text}");
        }
        for bad in ["", "g", "8x", "-1g", "1e3", "1.2.3g", "99999999999t", "nan"] {
            assert!(Memory::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn runtime_reads_what_people_write() {
        let cases = [
            ("PT30M", 1800),
            ("P0DT1M", 60),
            ("P1DT12H", 129_600),
            ("P2W", 1_209_600),
            ("2h30m", 9000),
            ("2h 30m", 9000),
            ("90s", 90),
            ("90", 90),
            ("1.5h", 5400),
            ("02:30:00", 9000),
            ("1-12:00:00", 129_600),
            ("1-12:00", 129_600),
            ("45:30", 2730),
            ("500ms", 1),
            ("2 hours", 7200),
            ("PT0S", 0),
        ];
        for (text, seconds) in cases {
            assert_eq!(Runtime::parse(text), Ok(Runtime(seconds)), "{text}");
        }
        for bad in ["", "P", "PT", "2x", "h", "-5m", "1:2:3:4", "00:99:00", "2h2h", "200y", "1e9h"]
        {
            assert!(Runtime::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn runtime_prints_iso() {
        for (seconds, text) in
            [(0, "PT0S"), (60, "PT1M"), (9000, "PT2H30M"), (129_600, "P1DT12H"), (86_400, "P1D")]
        {
            assert_eq!(Runtime(seconds).to_string(), text);
        }
        assert_eq!(Runtime(5430).friendly(), "1h 30m 30s");
    }

    proptest! {
        #[test]
        fn sizes_and_durations_round_trip(bytes in 0u64..=i64::MAX as u64, seconds in 0..=MAX_SECONDS) {
            prop_assert_eq!(Memory::parse(&Memory(bytes).to_string()), Ok(Memory(bytes)));
            prop_assert_eq!(Runtime::parse(&Runtime(seconds).to_string()), Ok(Runtime(seconds)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Memory::parse(&text);
            let _ = Runtime::parse(&text);
        }
    }
}
