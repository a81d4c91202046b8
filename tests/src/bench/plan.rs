//! What is measured: the cells, who takes part in each, how long a turn is, and in which order.

use serde::{Deserialize, Serialize};

use super::options::Options;
use super::side::Side;

/// A kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cell {
    Enqueue,
    Drain100,
    Drain1000,
    Order,
    Together,
    Small,
    Large,
    SmallHeld,
    LargeHeld,
    Append,
    AppendMany,
    Latency,
}

/// One side's turn.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub cell: Cell,
    pub side: Side,
    pub run: usize,
}

impl Cell {
    pub const ALL: [Cell; 12] = [
        Cell::Enqueue,
        Cell::Drain100,
        Cell::Drain1000,
        Cell::Order,
        Cell::Together,
        Cell::Small,
        Cell::SmallHeld,
        Cell::Large,
        Cell::LargeHeld,
        Cell::Append,
        Cell::AppendMany,
        Cell::Latency,
    ];

    pub fn slug(self) -> &'static str {
        match self {
            Cell::Enqueue => "enqueue",
            Cell::Drain100 => "drain100",
            Cell::Drain1000 => "drain1000",
            Cell::Order => "order",
            Cell::Together => "together",
            Cell::Small => "small",
            Cell::SmallHeld => "small-held",
            Cell::Large => "large",
            Cell::LargeHeld => "large-held",
            Cell::Append => "append",
            Cell::AppendMany => "append-many",
            Cell::Latency => "latency",
        }
    }

    pub fn sides(self) -> &'static [Side] {
        use Side::*;
        match self {
            Cell::Enqueue => &[Postroom, Pgmq, Pgq, SkipLocked, Copy],
            Cell::Drain100 => &[Postroom, PostroomBatch, Pgmq, PgmqPaired, SkipLocked],
            Cell::Drain1000 => &[Postroom, Pgmq, SkipLocked, Bare],
            Cell::Order => &[Postroom, PgmqGrouped, PgmqRoundRobin, PgmqHead, Pgq],
            Cell::Together | Cell::Latency => &[Postroom, Pgmq, SkipLocked],
            Cell::Small | Cell::Large | Cell::SmallHeld | Cell::LargeHeld => {
                &[Postroom, Pgmq, SkipLocked]
            }
            Cell::Append | Cell::AppendMany => &[Postroom, Bare],
        }
    }

    /// The part of a whole turn that one of this side takes at most.
    pub fn part(self, side: Side) -> f64 {
        match (self, side) {
            (Cell::Order, Side::PgmqRoundRobin | Side::PgmqHead) => 0.5,
            (Cell::Order, _) => 3.0,
            (Cell::Drain100 | Cell::Drain1000, _) => 1.0,
            (Cell::Enqueue | Cell::Together, Side::Postroom | Side::Pgmq) => 0.5,
            (Cell::SmallHeld | Cell::LargeHeld | Cell::Latency, _) => 0.3,
            _ => 0.25,
        }
    }

    pub fn seconds(self, side: Side, options: &Options) -> f64 {
        options.seconds * self.part(side)
    }
}

/// Every turn, in order: the runs one after another, and within a cell another side first each time.
pub fn steps(options: &Options) -> Vec<Step> {
    let mut steps = Vec::new();
    for run in 0..options.runs {
        for cell in &options.cells {
            let mut sides: Vec<Side> = cell.sides().to_vec();
            sides.retain(|side| options.templates.iter().any(|t| t.serves(*side)));
            let first = run % sides.len().max(1);
            sides.rotate_left(first);
            steps.extend(sides.into_iter().map(|side| Step {
                cell: *cell,
                side,
                run,
            }));
        }
    }
    steps
}
