//! Which SIGCONT a warden passes on.

use ringfence_start::warden::{ANY_STOP, Stops};

#[test]
fn a_stop_is_undone_by_a_word_about_it_and_by_no_older_one() {
    let mut stops = Stops::default();
    stops.stopped();
    assert_eq!(stops.judge(1), (true, true));
    stops.stopped();
    assert_eq!(stops.judge(1), (false, false));
    assert_eq!(stops.judge(2), (true, true));
}

#[test]
fn one_that_goes_on_already_is_sent_nothing_that_would_undo_the_next_stop() {
    let mut stops = Stops::default();
    stops.stopped();
    stops.continued();
    assert_eq!(stops.judge(1), (true, false));
    // Whoever means any stop means one that is on its way, too.
    assert_eq!(stops.judge(ANY_STOP), (true, true));
}

#[test]
fn the_count_goes_round() {
    let mut stops = Stops { count: 255, stopped: false };
    stops.stopped();
    assert_eq!(stops.judge(0), (true, true));
}
