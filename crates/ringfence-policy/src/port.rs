//! Sets of ports.

use std::fmt;

/// A set of ports: sorted, separate ranges, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports(Vec<(u16, u16)>);

impl Default for Ports {
    /// 80 and 443.
    fn default() -> Ports {
        Ports(vec![(80, 80), (443, 443)])
    }
}

impl Ports {
    /// Every port.
    pub fn all() -> Ports {
        Ports(vec![(1, u16::MAX)])
    }

    /// This one port.
    pub fn one(port: u16) -> Ports {
        Ports(vec![(port, port)])
    }

    /// Reads `443`, `8000-8010`, `80,443` or `*`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Ports, String> {
        if text == "*" {
            return Ok(Ports::all());
        }
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (port(first)?, port(last)?);
            if first > last {
                return Err(format!("the range of ports {part} runs backwards"));
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => {
                    previous.1 = previous.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        Ok(Ports(merged))
    }

    /// Whether a port is in the set.
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&port))
    }

    /// The ranges, both ends included, in ascending order.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// All ports of the set, when they are few enough to be listed one by one.
    pub fn list(&self, most: usize) -> Option<Vec<u16>> {
        let count: usize = self.0.iter().map(|(a, b)| usize::from(b - a) + 1).sum();
        (count <= most).then(|| self.0.iter().flat_map(|&(a, b)| a..=b).collect())
    }
}

/// Reads one port, 1 to 65535, digits only.
///
/// # Errors
/// A sentence that names the text.
pub fn port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse::<u16>().ok() } else { None };
    let wrong =
        || format!("`{}` is no port; a port is a number from 1 to 65535", text.escape_debug());
    number.filter(|&number| number > 0).ok_or_else(wrong)
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Ports::all() {
            return f.write_str("*");
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_sorted_and_merged() {
        let ports = Ports::parse("443,8000-8010,8005-8020,80").expect("ports");
        assert_eq!(ports.to_string(), "80,443,8000-8020");
        assert!(ports.contains(8020) && !ports.contains(8021) && !ports.contains(7999));
        assert_eq!(Ports::parse("*").expect("ports").ranges(), &[(1, 65535)]);
        assert_eq!(Ports::parse("1-65535").expect("ports").to_string(), "*");
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for wrong in ["", "0", "65536", "-1", "80-", "90-80", "+80", "80,,443", "http", "８０"] {
            assert!(Ports::parse(wrong).is_err(), "{wrong}");
        }
    }
}
