//! How postroom compares with a peer where a target was set.

use super::super::plan::Cell;
use super::super::run::Results;
use super::super::sample::{Middle, Sample};
use super::super::side::Side;

/// A target: this many times what the peer does.
pub struct Target {
    what: &'static str,
    pub cell: Cell,
    pub peer: Side,
    pub at_least: f64,
}

pub const TARGETS: [Target; 4] = [
    Target {
        what: "claim and complete, 100 a call",
        cell: Cell::Drain100,
        peer: Side::Pgmq,
        at_least: 2.0,
    },
    Target {
        what: "claim and complete, 1,000 a call",
        cell: Cell::Drain1000,
        peer: Side::Pgmq,
        at_least: 2.0,
    },
    Target {
        what: "strict order, 10,000 streams",
        cell: Cell::Order,
        peer: Side::PgmqGrouped,
        at_least: 50.0,
    },
    Target {
        what: "store, 1,000 a call",
        cell: Cell::Enqueue,
        peer: Side::Pgmq,
        at_least: 0.6,
    },
];

/// Further comparisons without a target.
const ALSO: [(&str, Cell, Side, Side); 5] = [
    (
        "complete and claim in one call, 100 a call",
        Cell::Drain100,
        Side::PostroomBatch,
        Side::PgmqPaired,
    ),
    (
        "strict order, 10,000 streams",
        Cell::Order,
        Side::Postroom,
        Side::PgmqHead,
    ),
    (
        "strict order, 10,000 streams",
        Cell::Order,
        Side::Postroom,
        Side::PgmqRoundRobin,
    ),
    (
        "strict order, 10,000 streams",
        Cell::Order,
        Side::Postroom,
        Side::Pgq,
    ),
    (
        "store and work off at once",
        Cell::Together,
        Side::Postroom,
        Side::Pgmq,
    ),
];

/// Messages that workers could hold unfinished when time was up: four, a hundred each.
const UNFINISHED: f64 = 400.0;

pub fn samples(results: &Results, cell: Cell, side: Side) -> Vec<&Sample> {
    let wanted = |sample: &&Sample| sample.cell == cell && sample.side == side;
    results.samples.iter().filter(wanted).collect()
}

pub fn rate(results: &Results, cell: Cell, side: Side) -> Option<Middle> {
    Middle::of(
        samples(results, cell, side)
            .iter()
            .map(|sample| sample.rate()),
    )
}

/// The ratio of the medians, and the least and most ratio of a run.
fn ratio(results: &Results, cell: Cell, us: Side, peer: Side) -> Option<Middle> {
    let (ours, theirs) = (rate(results, cell, us)?, rate(results, cell, peer)?);
    let pairs = samples(results, cell, us).into_iter().filter_map(|mine| {
        let its = samples(results, cell, peer)
            .into_iter()
            .find(|its| its.run == mine.run)?;
        Some(mine.rate() / its.rate())
    });
    let pairs = Middle::of(pairs)?;
    Some(Middle {
        median: ours.median / theirs.median,
        ..pairs
    })
}

/// A table with a line for each target, then the other comparisons.
pub fn lines(results: &Results) -> String {
    let mut text = String::from(
        "| messages a second, median of the runs | postroom | peer | ratio (of a run) | wanted |\n|---|---|---|---|---|\n",
    );
    for target in &TARGETS {
        let wanted = |ratio: f64| {
            let met = if ratio >= target.at_least {
                "met"
            } else {
                "**missed**"
            };
            format!("≥ {} {met}", target.at_least)
        };
        text += &line(
            results,
            target.what,
            (target.cell, Side::Postroom, target.peer),
            wanted,
        );
    }
    for (what, cell, us, peer) in ALSO {
        text += &line(results, what, (cell, us, peer), |_| String::new());
    }
    text
}

fn line(
    results: &Results,
    what: &str,
    (cell, us, peer): (Cell, Side, Side),
    wanted: impl Fn(f64) -> String,
) -> String {
    let (Some(ours), Some(theirs)) = (rate(results, cell, us), rate(results, cell, peer)) else {
        return String::new();
    };
    let (ratio, times) = if theirs.median > 0.0 {
        let Some(ratio) = ratio(results, cell, us, peer) else {
            return String::new();
        };
        let most = if ratio.most.is_finite() {
            format!("{:.2}", ratio.most)
        } else {
            "∞".into()
        };
        (
            ratio.median,
            format!("{:.2} ({:.2} to {most})", ratio.median, ratio.least),
        )
    } else {
        // Nothing was finished: less than what could be in hand when time was up.
        let seconds = samples(results, cell, peer)
            .iter()
            .map(|s| s.spent.seconds)
            .fold(0.0, f64::max);
        let least = ours.median / (UNFINISHED / seconds.max(1.0));
        (least, format!("more than {least:.0}"))
    };
    let side = |side: Side, rate: f64| format!("{} {}", side.name(), thousands(rate));
    format!(
        "| {what} | {} | {} | {times} | {} |\n",
        side(us, ours.median),
        side(peer, theirs.median),
        wanted(ratio)
    )
}

/// 1,234,567
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 {
        format!("-{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_parted() {
        assert_eq!(thousands(7.4), "7");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(-1000.0), "-1,000");
    }
}
