//! What was measured, as it is written to the results, and what is made of it.

use serde::{Deserialize, Serialize};

use super::meter::Spent;
use super::plan::Cell;
use super::side::Side;

/// One side's turn at one cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    pub cell: Cell,
    pub side: Side,
    pub run: usize,
    /// Messages that were stored, completed or delivered: whatever the cell counts.
    pub messages: f64,
    pub spent: Spent,
    /// Milliseconds: of a call that takes messages, or of a message on its way. Median and 99th percentile.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    /// Milliseconds of the median call of the last tenth.
    pub late: Option<f64>,
    /// Messages that overtook an earlier one of their stream.
    pub overtaken: Option<u64>,
}

impl Sample {
    pub fn rate(&self) -> f64 {
        self.messages / self.spent.seconds.max(1e-9)
    }

    pub fn per_message(&self, spent: f64) -> Option<f64> {
        (self.messages > 0.0).then(|| spent / self.messages)
    }
}

/// The middle and the ends of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Middle {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Middle {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Middle> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        Some(Middle {
            median: percentile(&sorted, 0.5)?,
            least,
            most,
        })
    }
}

/// The value below which this part of the sorted values lies, between two of them if need be.
pub fn percentile(sorted: &[f64], part: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = part * last as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_one_or_between_two() {
        assert_eq!(Middle::of([3.0, 1.0, 2.0]).unwrap().median, 2.0);
        let four = Middle::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((four.median, four.least, four.most), (2.5, 1.0, 4.0));
        assert_eq!(Middle::of([]), None);
    }
}
