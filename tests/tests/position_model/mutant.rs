//! The steps with one thing wrong in each.

use super::protocol::{self, Ground};
use super::replay::{Pending, Replay};

type Drawn = Result<Vec<i64>, Pending>;
type Reached = Result<i64, Pending>;

/// The announcements first, the last number second.
pub fn locks_first(ground: &mut Replay, after: i64) -> Reached {
    let announced = ground.least_announced()?;
    let last = ground.last_number()?;
    let stable = announced.map_or(last, |least| least.min(last)).max(after);
    ground.read(stable)?;
    Ok(stable)
}

/// In the snapshot of a statement that was already under way.
pub fn snapshot_first(ground: &mut Replay, after: i64) -> Reached {
    ground.snapshot()?;
    let stable = protocol::settled(ground)?.max(after);
    ground.read(stable)?;
    Ok(stable)
}

/// A flag of the session instead of a question to the lock table.
pub fn trusting_memory(ground: &mut Replay, count: usize) -> Drawn {
    if ground.remembered().is_none() {
        let number = ground.last_number()?;
        ground.announce(number)?;
    }
    ground.draw(count)
}

/// The number first, its announcement second.
pub fn draw_first(ground: &mut Replay, count: usize) -> Drawn {
    let numbers = ground.draw(count)?;
    let last = ground.last_number()?;
    ground.announce(last.min(numbers[0] - 1))?;
    Ok(numbers)
}

pub fn silently(ground: &mut Replay, count: usize) -> Drawn {
    ground.draw(count)
}

/// The number it hopes to draw instead of the last that it will not.
pub fn announcing_too_much(ground: &mut Replay, count: usize) -> Drawn {
    let number = ground.last_number()?;
    ground.announce(number + 1)?;
    ground.draw(count)
}
