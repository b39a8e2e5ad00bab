//! Medians, intervals, and whether the bench cries wolf.

use fastrand::Rng;
use proptest::prelude::*;
use ringfence_bench::stats;

/// Samples like those of a program's times: skewed, with a slow stretch now and then.
fn times(rng: &mut Rng, count: usize, centre: f64) -> Vec<f64> {
    let mut slow = 0usize;
    (0..count)
        .map(|_| {
            // Stretches of slow samples: what makes neighbours alike.
            slow = if slow > 0 {
                slow - 1
            } else if rng.f64() < 0.03 {
                rng.usize(2..6)
            } else {
                0
            };
            let noise = -rng.f64().max(1e-9).ln() * 0.06;
            centre * (1.0 + noise + if slow > 0 { 0.15 } else { 0.0 })
        })
        .collect()
}

proptest! {
    #[test]
    fn the_median_lies_between_the_ends_and_halves_the_samples(
        samples in prop::collection::vec(0.0..1e6f64, 1..200)
    ) {
        let median = stats::median(&samples);
        let below = samples.iter().filter(|sample| **sample < median).count();
        let above = samples.iter().filter(|sample| **sample > median).count();
        prop_assert!(below <= samples.len() / 2 && above <= samples.len() / 2);
    }

    #[test]
    fn the_median_is_the_middle_quantile(samples in prop::collection::vec(0.0..1e6f64, 1..200)) {
        let (median, middle) = (stats::median(&samples), stats::quantile(&samples, 0.5));
        prop_assert!((median - middle).abs() <= 1e-9 * median.abs().max(1.0));
    }

    #[test]
    fn quantiles_rise(samples in prop::collection::vec(0.0..1e6f64, 1..100), a in 0.0..1.0f64, b in 0.0..1.0f64) {
        let (low, high) = (a.min(b), a.max(b));
        prop_assert!(stats::quantile(&samples, low) <= stats::quantile(&samples, high));
    }

    #[test]
    fn an_interval_holds_its_own_median(samples in prop::collection::vec(1.0..1e3f64, 3..60), seed: u64) {
        let estimate = stats::estimate(&samples, &mut Rng::with_seed(seed));
        prop_assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
    }

    #[test]
    fn a_factor_has_no_unit(
        samples in prop::collection::vec(1.0..1e3f64, 5..40), scale in 0.001..1e3f64, seed: u64
    ) {
        let scaled: Vec<f64> = samples.iter().map(|sample| sample * scale).collect();
        let factor = stats::factor(&samples, &scaled, &mut Rng::with_seed(seed)).expect("positive samples");
        prop_assert!((factor.value / scale - 1.0).abs() < 1e-9);
        prop_assert!((factor.high / factor.low - 1.0).abs() < 1e-9);
    }
}

#[test]
fn without_samples_there_is_no_number() {
    assert!(stats::median(&[]).is_nan());
    assert!(stats::factor(&[], &[1.0], &mut Rng::with_seed(1)).is_none());
    assert!(stats::factor(&[0.0, 0.0], &[1.0, 1.0], &mut Rng::with_seed(1)).is_none());
}

#[test]
fn one_sample_has_an_interval_of_no_width() {
    let estimate = stats::estimate(&[3.0], &mut Rng::with_seed(1));
    assert_eq!((estimate.low, estimate.value, estimate.high), (3.0, 3.0, 3.0));
}

#[test]
fn an_interval_covers_the_truth_about_as_often_as_it_says() {
    let mut rng = Rng::with_seed(7);
    let truth = stats::median(&times(&mut rng, 100_000, 1.0));
    let covered = (0..200)
        .filter(|_| {
            let estimate =
                stats::estimate(&times(&mut rng, 60, 1.0), &mut Rng::with_seed(rng.u64(..)));
            estimate.low <= truth && truth <= estimate.high
        })
        .count();
    // 95 % of 200 is 190; dependence between neighbours costs a few.
    assert!(covered >= 180, "{covered} of 200");
}

#[test]
fn a_pairs_ratio_is_blind_to_a_drift_of_the_machine() {
    let mut rng = Rng::with_seed(3);
    let drift: Vec<f64> = (0..80).map(|at| 1.0 + f64::from(at) / 40.0).collect();
    let (base, lane) = (times(&mut rng, 80, 1.0), times(&mut rng, 80, 3.0));
    let slowed =
        |samples: &[f64]| -> Vec<f64> { samples.iter().zip(&drift).map(|(s, d)| s * d).collect() };
    let factor =
        stats::factor(&slowed(&base), &slowed(&lane), &mut Rng::with_seed(1)).expect("a factor");
    assert!((factor.value - 3.0).abs() < 0.1 && factor.high - factor.low < 0.3, "{factor:?}");
}

#[test]
fn the_normal_quantiles_are_those_of_the_tables() {
    for (p, quantile) in [(0.975, 1.959_96), (0.995, 2.575_83), (0.9995, 3.290_53)] {
        assert!((stats::normal_quantile(p) - quantile).abs() < 0.001, "{p}");
    }
}
