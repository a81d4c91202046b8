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

/// The ratios of the runs, each of two turns that followed one another: median, least and most.
fn ratio(results: &Results, cell: Cell, us: Side, peer: Side) -> Option<Middle> {
    let pairs = samples(results, cell, us).into_iter().filter_map(|mine| {
        let theirs = samples(results, cell, peer);
        let its = theirs.into_iter().find(|its| its.run == mine.run)?;
        Some(mine.rate() / its.rate())
    });
    Middle::of(pairs)
}

/// Microseconds of processor a message takes in all: sessions, the rest of the server, client.
pub fn micros(results: &Results, cell: Cell, side: Side) -> Option<f64> {
    let all = |sample: &Sample| {
        let spent = sample.spent.sessions + sample.spent.others + sample.spent.client;
        sample.per_message(spent * 1e6)
    };
    let all = samples(results, cell, side).into_iter().filter_map(all);
    Middle::of(all).map(|middle| middle.median)
}

/// A table with a line for each target, then the other comparisons.
pub fn lines(results: &Results) -> String {
    let mut text = String::from(
        "| messages a second, medians | postroom | peer | ratio of a run: median (least to most) | in processor time | wanted |\n|---|---|---|---|---|---|\n",
    );
    for target in &TARGETS {
        text += &line(
            results,
            target.what,
            (target.cell, Side::Postroom, target.peer),
            Some(target.at_least),
        );
    }
    for (what, cell, us, peer) in ALSO {
        text += &line(results, what, (cell, us, peer), None);
    }
    text
}

/// Met, only if the median ratio of the runs and the ratio of the medians both say so.
fn verdict(wanted: f64, of_runs: f64, of_medians: f64) -> String {
    let said = match (of_runs >= wanted, of_medians >= wanted) {
        (true, true) => "met".to_string(),
        (false, false) => "**missed**".to_string(),
        _ => format!("**open**: the ratio of the medians is {of_medians:.2}"),
    };
    format!("≥ {wanted}: {said}")
}

fn line(
    results: &Results,
    what: &str,
    (cell, us, peer): (Cell, Side, Side),
    wanted: Option<f64>,
) -> String {
    let rates = (rate(results, cell, us), rate(results, cell, peer));
    let ((Some(ours), Some(theirs)), Some(ratio)) = (rates, ratio(results, cell, us, peer)) else {
        return String::new();
    };
    let (said, verdict) = if theirs.median > 0.0 {
        let said = format!(
            "{:.2} ({:.2} to {:.2})",
            ratio.median, ratio.least, ratio.most
        );
        let verdict = wanted.map(|w| verdict(w, ratio.median, ours.median / theirs.median));
        (said, verdict)
    } else {
        // Nothing was finished: less than what could be in hand when time was up.
        let seconds = samples(results, cell, peer)
            .iter()
            .map(|s| s.spent.seconds)
            .fold(0.0, f64::max);
        let least = ours.median / (UNFINISHED / seconds.max(1.0));
        (
            format!("more than {least:.0}"),
            wanted.map(|w| verdict(w, least, least)),
        )
    };
    let processor = in_processor_time(results, cell, us, peer);
    let side = |side: Side, rate: f64| format!("{} {}", side.name(), thousands(rate));
    format!(
        "| {what} | {} | {} | {said} | {processor} | {} |\n",
        side(us, ours.median),
        side(peer, theirs.median),
        verdict.unwrap_or_default()
    )
}

fn in_processor_time(results: &Results, cell: Cell, us: Side, peer: Side) -> String {
    match (micros(results, cell, us), micros(results, cell, peer)) {
        (Some(ours), Some(theirs)) => format!("{:.2}", theirs / ours),
        _ => "–".into(),
    }
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
    fn target_is_met_only_if_both_ratios_say_so() {
        assert_eq!(verdict(2.0, 2.1, 2.0), "≥ 2: met");
        assert_eq!(verdict(2.0, 1.9, 1.5), "≥ 2: **missed**");
        assert!(verdict(2.0, 1.9, 2.5).contains("**open**"));
        assert!(verdict(2.0, 2.5, 1.9).contains("**open**"));
    }

    #[test]
    fn thousands_are_parted() {
        assert_eq!(thousands(7.4), "7");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(-1000.0), "-1,000");
    }
}
