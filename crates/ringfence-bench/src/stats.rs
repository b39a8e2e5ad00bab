//! Medians, and how sure of them one may be.
//!
//! Times of programs are skewed and have outliers, so everything rests on medians and on the
//! bootstrap (Efron 1979), which assumes no distribution. Samples taken one after the other on one
//! machine are not independent: a slow second touches its neighbours. So whole blocks of consecutive
//! samples are drawn (the moving block bootstrap, Künsch 1989), which keeps that dependence.

use fastrand::Rng;

/// A value with the interval that it lies in, at a stated level of confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
}

/// How often a bootstrap draws.
pub const DRAWS: usize = 2000;
/// The confidence of the intervals shown.
pub const LEVEL: f64 = 0.95;

/// The quantile `q` (0 to 1) of `samples`, interpolated; NaN when there are none.
#[must_use]
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, q)
}

fn quantile_of_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (below, share) = (place.floor() as usize, place.fract());
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * share
}

/// The median; NaN when there are no samples.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    median_in_place(&mut samples.to_vec())
}

/// The median, reordering the samples instead of copying them: the bootstrap's inner loop.
fn median_in_place(samples: &mut [f64]) -> f64 {
    let half = samples.len() / 2;
    if samples.is_empty() {
        return f64::NAN;
    }
    let even = samples.len().is_multiple_of(2);
    let (below, middle, _) = samples.select_nth_unstable_by(half, f64::total_cmp);
    let middle = *middle;
    if even { (below.iter().copied().fold(f64::MIN, f64::max) + middle) / 2.0 } else { middle }
}

/// The arithmetic mean; NaN when there are no samples.
#[must_use]
pub fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

/// The median distance from the median: spread that outliers don't move.
#[must_use]
pub fn deviation(samples: &[f64]) -> f64 {
    let middle = median(samples);
    median(&samples.iter().map(|sample| (sample - middle).abs()).collect::<Vec<_>>())
}

/// The length of the blocks that a bootstrap of `count` samples draws: long enough to hold a slow
/// moment of the machine, short enough that many different draws exist.
fn block(count: usize) -> usize {
    ((count as f64).cbrt().round() as usize).max(1)
}

/// Draws places of a series of `count` samples, block by block, going round at the end.
fn draw(count: usize, rng: &mut Rng, into: &mut Vec<usize>) {
    into.clear();
    let length = block(count);
    while into.len() < count {
        let start = rng.usize(..count);
        let wanted = length.min(count - into.len());
        into.extend((start..start + wanted).map(|place| place % count));
    }
}

/// The medians of `draws` resamplings of `series`.
fn resampled_medians(series: &[f64], draws: usize, rng: &mut Rng) -> Vec<f64> {
    let mut places = Vec::with_capacity(series.len());
    let mut drawn = Vec::with_capacity(series.len());
    (0..draws)
        .map(|_| {
            draw(series.len(), rng, &mut places);
            drawn.clear();
            drawn.extend(places.iter().map(|&place| series[place]));
            median_in_place(&mut drawn)
        })
        .collect()
}

fn interval(value: f64, mut resampled: Vec<f64>, level: f64) -> Estimate {
    resampled.sort_by(f64::total_cmp);
    let tail = (1.0 - level) / 2.0;
    Estimate {
        value,
        low: quantile_of_sorted(&resampled, tail),
        high: quantile_of_sorted(&resampled, 1.0 - tail),
    }
}

/// The median of `series` with its interval. One sample has no interval: both ends are its value.
#[must_use]
pub fn estimate(series: &[f64], rng: &mut Rng) -> Estimate {
    if series.len() < 2 {
        let value = median(series);
        return Estimate { value, low: value, high: value };
    }
    interval(median(series), resampled_medians(series, DRAWS, rng), LEVEL)
}

/// By what factor `lane` differs from `base`: the median of the pairs' ratios where the samples were
/// taken in pairs, else the ratio of the medians.
#[must_use]
pub fn factor(base: &[f64], lane: &[f64], rng: &mut Rng) -> Option<Estimate> {
    if base.is_empty() || lane.is_empty() || base.iter().any(|value| *value <= 0.0) {
        return None;
    }
    if base.len() == lane.len() {
        return Some(estimate(&ratios(base, lane), rng));
    }
    let value = median(lane) / median(base);
    if base.len() < 2 || lane.len() < 2 {
        return Some(Estimate { value, low: value, high: value });
    }
    let below = resampled_medians(base, DRAWS, rng);
    let above = resampled_medians(lane, DRAWS, rng);
    let drawn = above.iter().zip(&below).map(|(above, below)| above / below).collect();
    Some(interval(value, drawn, LEVEL))
}

/// The ratio of each pair.
#[must_use]
pub fn ratios(base: &[f64], lane: &[f64]) -> Vec<f64> {
    base.iter().zip(lane).map(|(base, lane)| lane / base).collect()
}

/// A change of a median between two runs: the logarithm of its factor, and that logarithm's variance
/// as far as the samples themselves show it.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    log: f64,
    variance: f64,
}

/// By what factor series `b`'s median differs from series `a`'s. `None` when there are too few samples
/// to say anything.
#[must_use]
pub fn change(a: &[f64], b: &[f64], rng: &mut Rng) -> Option<Change> {
    if a.len() < FEWEST || b.len() < FEWEST {
        return None;
    }
    let (before, after) = (median(a), median(b));
    if before <= 0.0 || after <= 0.0 {
        return None;
    }
    let variance = log_variance(a, rng) + log_variance(b, rng);
    Some(Change { log: (after / before).ln(), variance })
}

impl Change {
    /// The mean of several independent changes: what they have in common.
    #[must_use]
    pub fn mean(changes: &[Change]) -> Option<Change> {
        let count = changes.len() as f64;
        let log = changes.iter().map(|change| change.log).sum::<f64>() / count;
        let variance = changes.iter().map(|change| change.variance).sum::<f64>() / (count * count);
        (!changes.is_empty()).then_some(Change { log, variance })
    }

    /// The factor with its interval at a confidence of `level`, when two runs of the same thing differ by
    /// a share of about `between` for reasons that no sample within a run shows.
    ///
    /// The spread comes from the bootstrap, the interval's width from the normal distribution of the
    /// logarithm: at the high confidences that many comparisons at once need, the tails of the
    /// bootstrap itself would rest on a handful of draws.
    #[must_use]
    pub fn estimate(self, level: f64, between: f64) -> Estimate {
        let quantile = normal_quantile(1.0 - (1.0 - level) / 2.0);
        let reach = quantile * (self.variance + between * between).sqrt();
        let end = |log: f64| log.exp();
        Estimate { value: end(self.log), low: end(self.log - reach), high: end(self.log + reach) }
    }
}

/// The fewest samples of each side that [`change`] draws a conclusion from.
pub const FEWEST: usize = 5;
/// How often the bootstrap draws that only a spread is wanted of.
const SPREAD_DRAWS: usize = 400;

/// The variance of the logarithm of a series' median: the larger of what the bootstrap says, and of
/// what the differences between consecutive portions of the series say (the method of batch means),
/// which shows disturbances longer than the bootstrap's blocks.
fn log_variance(series: &[f64], rng: &mut Rng) -> f64 {
    let log = |median: f64| median.max(f64::MIN_POSITIVE).ln();
    let drawn: Vec<f64> =
        resampled_medians(series, SPREAD_DRAWS, rng).into_iter().map(log).collect();
    let count = series.len() as f64;
    // A bootstrap underestimates the spread of a few samples by about this.
    let bootstrap = variance(&drawn) * count / (count - 1.0);
    if series.len() < 4 * PORTIONS {
        return bootstrap;
    }
    let portion = series.len() / PORTIONS;
    let medians: Vec<f64> =
        series.chunks_exact(portion).take(PORTIONS).map(|chunk| log(median(chunk))).collect();
    bootstrap.max(variance(&medians) / PORTIONS as f64)
}

/// How many portions a series is cut into, to see slow disturbances: as many as a group's passes.
const PORTIONS: usize = 5;

fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    squares / (values.len() as f64 - 1.0)
}

/// The standard normal quantile for `p` between 0.5 and 1 (Abramowitz and Stegun, 26.2.23: to 0.0005).
#[must_use]
pub fn normal_quantile(p: f64) -> f64 {
    let t = (-2.0 * (1.0 - p).max(1e-300).ln()).sqrt();
    let above = 2.515_517 + 0.802_853 * t + 0.010_328 * t * t;
    let below = 1.0 + 1.432_788 * t + 0.189_269 * t * t + 0.001_308 * t * t * t;
    t - above / below
}
