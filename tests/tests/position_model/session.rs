//! What a session is in the midst of.

use super::replay::Answer;

/// A number drawn, and in which subtransaction: rolling that back undoes it.
pub type InLevel = (i64, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Idle,
    Open,
    /// Its rows are visible, or gone; its locks are still there.
    Ending,
}

/// A session that stores in transactions, one number a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Storer {
    pub events: bool,
    may_save: bool,
    stores_each: u8,
    stores_left: u8,
    transactions_left: u8,
    pub phase: Phase,
    /// 0, or 1 inside the savepoint.
    pub level: u8,
    saved: bool,
    pub announced: Vec<InLevel>,
    pub drawn: Vec<InLevel>,
    /// Of the session: it outlives transactions.
    pub remembered: Option<i64>,
    /// The answers of the call under way.
    pub call: Option<Vec<Answer>>,
}

/// What a storer can do between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    Begin,
    Store,
    Savepoint,
    RollbackToSavepoint,
    Commit,
    Rollback,
    ReleaseLocks,
}

impl Storer {
    pub fn new(stores_each: u8, transactions: u8, may_save: bool) -> Storer {
        Storer {
            events: true,
            may_save,
            stores_each,
            stores_left: 0,
            transactions_left: transactions,
            phase: Phase::Idle,
            level: 0,
            saved: false,
            announced: Vec::new(),
            drawn: Vec::new(),
            remembered: None,
            call: None,
        }
    }

    pub fn of_plain_messages(self) -> Storer {
        Storer {
            events: false,
            ..self
        }
    }

    pub fn moves(&self) -> Vec<Move> {
        match self.phase {
            _ if self.call.is_some() => Vec::new(),
            Phase::Idle if self.transactions_left > 0 => vec![Move::Begin],
            Phase::Idle => Vec::new(),
            Phase::Ending => vec![Move::ReleaseLocks],
            Phase::Open => self.open_moves(),
        }
    }

    fn open_moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        if self.stores_left > 0 {
            moves.push(Move::Store);
        }
        if self.stores_left < self.stores_each {
            moves.extend([Move::Commit, Move::Rollback]);
        }
        if self.level > 0 {
            moves.push(Move::RollbackToSavepoint);
        } else if self.may_save && !self.saved && self.stores_left > 0 {
            moves.push(Move::Savepoint);
        }
        moves
    }

    /// Makes a move; returns the numbers that it commits.
    pub fn make(&mut self, chosen: Move, locks_end: bool) -> Vec<i64> {
        let mut committed = Vec::new();
        match chosen {
            Move::Begin => {
                self.phase = Phase::Open;
                self.transactions_left -= 1;
                self.stores_left = self.stores_each;
                self.saved = false;
            }
            Move::Store => {
                self.stores_left -= 1;
                self.call = Some(Vec::new());
            }
            Move::Savepoint => (self.level, self.saved) = (1, true),
            Move::RollbackToSavepoint => {
                self.drawn.retain(|(_, level)| *level == 0);
                self.announced.retain(|(_, level)| *level == 0);
                self.level = 0;
            }
            Move::Commit => committed = self.end().into_iter().map(|(n, _)| n).collect(),
            Move::Rollback => drop(self.end()),
            Move::ReleaseLocks => {
                self.announced.retain(|_| !locks_end);
                self.phase = Phase::Idle;
            }
        }
        committed
    }

    fn end(&mut self) -> Vec<InLevel> {
        (self.phase, self.level) = (Phase::Ending, 0);
        std::mem::take(&mut self.drawn)
    }

    pub fn is_quiet(&self) -> bool {
        self.phase == Phase::Idle
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Observes {
    /// A reader of the global order, with a cursor.
    Events,
    /// The owner of a lane, with a low-water: it takes whatever it sees above.
    Messages,
}

/// A session that reads from where it stopped, again and again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observer {
    pub observes: Observes,
    /// It has come this far.
    pub cursor: i64,
    /// The greatest number a call of it relied on.
    pub promised: i64,
    pub seen: Vec<i64>,
    pub snapshot: Option<Vec<i64>>,
    pub call: Vec<Answer>,
}

impl Observer {
    pub fn new(observes: Observes) -> Observer {
        Observer {
            observes,
            cursor: 0,
            promised: 0,
            seen: Vec::new(),
            snapshot: None,
            call: Vec::new(),
        }
    }

    /// Sees what is visible behind its cursor: a reader as far as is settled, a lane's owner all of it.
    pub fn see(&mut self, visible: &[i64], upto: i64) {
        let is_wanted =
            |n: &i64| *n > self.cursor && (self.observes == Observes::Messages || *n <= upto);
        let new: Vec<i64> = visible.iter().copied().filter(is_wanted).collect();
        self.seen.extend(new);
        self.seen.sort_unstable();
        self.seen.dedup();
    }
}
