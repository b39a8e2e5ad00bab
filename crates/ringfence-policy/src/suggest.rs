//! The nearest known word: "did you mean".

/// The known word nearest to `word`, when one is near enough to be what was meant.
///
/// Case is ignored. A word is near when it differs by few letters for its length, or when
/// one is the beginning of the other.
pub fn nearest<'a, S: AsRef<str>>(word: &str, known: &'a [S]) -> Option<&'a str> {
    let word = word.to_lowercase();
    let allowed = (word.chars().count() / 3).max(1);
    let distance = |candidate: &str| {
        let lower = candidate.to_lowercase();
        let distance = strsim::damerau_levenshtein(&word, &lower);
        let prefix = word.len() >= 3 && (lower.starts_with(&word) || word.starts_with(&lower));
        if prefix { distance.min(allowed) } else { distance }
    };
    let candidates = known.iter().map(|known| (distance(known.as_ref()), known.as_ref()));
    let near = candidates.filter(|(distance, _)| *distance <= allowed);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// `; did you mean X?`, or else what is said where nothing is near.
pub fn meant(word: &str, known: &[&str], or: &str) -> String {
    match nearest(word, known) {
        Some(nearest) => format!("; did you mean {nearest}?"),
        None => or.to_owned(),
    }
}

/// `; the nearest is X`, or nothing: the tail of a message about an unknown word.
pub(crate) fn tail(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("; the nearest is `{nearest}`")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_the_word() {
        let known = ["read", "write", "deny", "protect"];
        assert_eq!(nearest("wirte", &known), Some("write"));
        assert_eq!(nearest("PROTECTED", &known), Some("protect"));
        assert_eq!(nearest("reed", &known), Some("read"));
    }

    #[test]
    fn a_different_word_finds_nothing() {
        assert_eq!(nearest("network", &["read", "write"]), None);
        assert_eq!(nearest("", &["read"]), None);
    }
}
