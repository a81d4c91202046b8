//! Why a target was missed, in processor time: on a machine that is busy, rates are its reciprocals.

use super::super::run::Results;
use super::super::side::Side;
use super::ratio::{TARGETS, micros};
use super::words;

/// A paragraph for each target that processor time does not meet.
pub fn missed(results: &Results) -> String {
    let mut text = String::new();
    for target in &TARGETS {
        let micros = |side| micros(results, target.cell, side);
        let (Some(ours), Some(theirs), Some(hand)) = (
            micros(Side::Postroom),
            micros(target.peer),
            micros(Side::SkipLocked),
        ) else {
            continue;
        };
        if theirs >= target.at_least * ours {
            continue;
        }
        text += &format!(
            "*{}*: in processor time a message takes postroom {ours:.1} µs in all and {} {theirs:.1} µs: \
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
