//! Whether what was found would have left a sign, had it changed since: times of files are no finer than the
//! kernel's clock for them.

/// Whether what has this identity changed last so long (`grain`, nanoseconds) before a moment that a change
/// since would have left a sign.
pub(crate) fn is_older(&[_, _, _, modified, changed]: &[u64; 5], grain: u64, moment: u64) -> bool {
    /// File systems whose times are whole seconds, some even ones only (vfat).
    const COARSE: u64 = 3_000_000_000;
    let coarse = [modified, changed].iter().all(|time| time.is_multiple_of(1_000_000_000));
    let grain = if coarse { grain.max(COARSE) } else { grain };
    // Anybody can set that to a time to come, which changes the other one.
    let modified = if modified > moment { 0 } else { modified };
    modified.max(changed).saturating_add(grain) < moment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_whole_seconds_what_changed_in_the_last_ones_may_change_without_a_sign() {
        const SECOND: u64 = 1_000_000_000;
        let older = |time: u64| is_older(&[1, 1, 1, time, time], 20_000_000, 10 * SECOND);
        assert!(older(9 * SECOND + 1) && !older(10 * SECOND - 1));
        assert!(!older(9 * SECOND) && !older(7 * SECOND) && older(6 * SECOND));
    }

    #[test]
    fn a_time_to_come_that_a_file_was_given_long_ago_is_no_change() {
        let older = |modified, changed| is_older(&[1, 1, 1, modified, changed], 10, 1000);
        assert!(older(5000, 900), "somebody set it so");
        assert!(!older(5000, 999) && !older(5000, 5000), "just now; by a clock that was set back");
        assert!(!older(999, 900), "the control");
    }
}
