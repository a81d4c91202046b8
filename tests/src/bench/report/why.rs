//! Why a target was missed, in processor time: on a machine that is busy, rates are its reciprocals.

use super::super::plan::Cell;
use super::super::run::Results;
use super::super::sample::{Middle, Sample};
use super::super::side::Side;
use super::ratio::{TARGETS, rate, samples};
use super::words;

/// Microseconds of processor a message takes in all: sessions, the rest of the server, client.
fn micros(results: &Results, cell: Cell, side: Side) -> Option<f64> {
    let all = |sample: &&Sample| {
        let spent = sample.spent.sessions + sample.spent.others + sample.spent.client;
        sample.per_message(spent * 1e6)
    };
    Middle::of(samples(results, cell, side).iter().filter_map(all)).map(|middle| middle.median)
}

/// A paragraph for each target that was missed.
pub fn missed(results: &Results) -> String {
    let mut text = String::new();
    for target in &TARGETS {
        let rates = (
            rate(results, target.cell, Side::Postroom),
            rate(results, target.cell, target.peer),
        );
        let (Some(ours), Some(theirs)) = rates else {
            continue;
        };
        if ours.median >= target.at_least * theirs.median {
            continue;
        }
        let micros = |side| micros(results, target.cell, side);
        let (Some(ours), Some(theirs), Some(hand)) = (
            micros(Side::Postroom),
            micros(target.peer),
            micros(Side::SkipLocked),
        ) else {
            continue;
        };
        text += &format!(
            "*{}* misses its target. In processor time a message takes postroom {ours:.1} µs in all and {} {theirs:.1} µs: \
             {:.2} times as much; the target asks for {:.1} µs, and the queue by hand, which has no leases, no order and no \
             ids of its own, takes {hand:.1} µs. {}\n\n",
            words::title(target.cell),
            target.peer.name(),
            theirs / ours,
            theirs / target.at_least,
            words::where_it_goes(target.cell),
        );
    }
    text
}
