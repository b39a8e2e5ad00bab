//! Sizes, durations and counts as people write them.

use std::time::Duration;

/// Units of size, binary and decimal, as `(suffix in lower case, bytes)`.
const SIZES: [(&str, u64); 17] = [
    ("", 1),
    ("b", 1),
    ("k", 1 << 10),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("tb", 1_000_000_000_000),
    ("tib", 1 << 40),
    ("p", 1 << 50),
    ("pb", 1_000_000_000_000_000),
    ("pib", 1 << 50),
];

/// Units of time in nanoseconds.
const TIMES: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Bytes: `4GiB`, `512M` (binary, as everywhere in this field), `1.5g`, `100kB` (decimal), `4096`.
///
/// # Errors
/// A sentence that names the text and the nearest valid form; zero and overflow are errors.
pub fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text.trim());
    let lower = unit.to_lowercase();
    let Some((_, factor)) = SIZES.iter().find(|(suffix, _)| *suffix == lower) else {
        let known = ["KiB", "MiB", "GiB", "TiB", "K", "M", "G", "T"];
        let near = unit_near(unit, &known).unwrap_or("MiB");
        return Err(format!("`{text}` is no size; write for example `{}{near}`", or_one(number)));
    };
    let bytes = scaled(number, *factor)
        .ok_or_else(|| format!("`{text}` is no size; write for example `512MiB` or `4GiB`"))?;
    if bytes == 0 {
        Err(format!("`{text}` is nothing; leave it out for no limit"))
    } else {
        Ok(bytes)
    }
}

/// A time: `500ms`, `1s`, `2m`, `1h30m`, `1.5h`. A bare number is seconds.
///
/// # Errors
/// A sentence that names the text and a valid form; zero and overflow are errors.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration; write for example `500ms`, `30s` or `1h30m`");
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let (number, after) = split(rest);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let factor = if unit.is_empty() && smallest == u64::MAX {
            1_000_000_000
        } else {
            let known = TIMES.iter().find(|(suffix, _)| *suffix == unit.trim_end());
            known.ok_or_else(wrong)?.1
        };
        // `30m1h` and `1s1s` are slips, not durations.
        if factor >= smallest {
            return Err(wrong());
        }
        smallest = factor;
        total = scaled(number, factor).and_then(|n| total.checked_add(n)).ok_or_else(wrong)?;
        rest = next;
    }
    if total == 0 { Err(wrong()) } else { Ok(Duration::from_nanos(total)) }
}

/// Processors in thousandths: `2`, `1.5`, `0.25`.
///
/// # Errors
/// A sentence that names the text and a valid form; zero is an error.
pub fn cpus(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no number of processors; write for example `2` or `1.5`");
    let (number, unit) = split(text.trim());
    let thousandths = scaled(number, 1000).filter(|_| unit.is_empty()).ok_or_else(wrong)?;
    match u32::try_from(thousandths) {
        Ok(0) | Err(_) => Err(wrong()),
        Ok(thousandths) => Ok(thousandths),
    }
}

/// A whole number above zero.
///
/// # Errors
/// A sentence that names the text.
pub fn count(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    let wrong = || format!("`{text}` is no whole number above zero; write for example `512`");
    number.filter(|&number: &u64| number > 0).ok_or_else(wrong)
}

/// Splits after the digits and decimal point.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// `number × factor`, exactly, fractions of the last unit dropped; `None` for no number or overflow.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = fraction.parse().ok()?;
    let total =
        u128::from(whole) * u128::from(factor) + u128::from(fraction) * u128::from(factor) / scale;
    u64::try_from(total).ok()
}

fn or_one(number: &str) -> &str {
    if number.is_empty() { "1" } else { number }
}

fn unit_near<'a>(unit: &str, known: &'a [&'a str]) -> Option<&'a str> {
    let first = unit.chars().next()?.to_ascii_uppercase();
    let near = crate::suggest::nearest(unit, known);
    near.or_else(|| known.iter().find(|known| known.starts_with(first)).copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("4GiB"), Ok(4 << 30));
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("100k"), Ok(100 << 10));
        assert_eq!(size("100kB"), Ok(100_000));
        assert_eq!(size("1.5g"), Ok(3 << 29));
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("4 GiB"), Ok(4 << 30));
    }

    #[test]
    fn what_is_no_size_is_refused_with_one_that_is() {
        assert_eq!(size("4GBi").map_err(|e| e.contains("4GiB")), Err(true));
        for wrong in ["", "GiB", "0", "-1", "1e9", "1..5G", ".5G", "99999999T", "4 x", "５"] {
            let message = size(wrong).expect_err(wrong);
            assert!(message.contains(&format!("`{wrong}`")), "{message}");
        }
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for wrong in ["", "s", "0", "0s", "1x", "30m1h", "1s1s", "1h30", "-1s", "1 fortnight"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn processors_and_counts_are_read() {
        assert_eq!(cpus("1.5"), Ok(1500));
        assert_eq!(cpus("2"), Ok(2000));
        assert_eq!(count("512"), Ok(512));
        for wrong in ["", "0", "-1", "two", "1.5.5", "99999999999"] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "0", "-1", "1.5", "+5", "1k"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }
}
