//! The extension's functions, one step at a time: a call is run again from its beginning with the
//! answers it got so far, and stops at the first step that has none yet.

use super::protocol::Ground;

/// A step that a session takes as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    LastNumber,
    LeastAnnounced,
    IsAnnounced(i64),
    Announce(i64),
    Draw,
    Insert(i64),
    /// Only in mutants: everywhere else reading takes a snapshot of its own.
    Snapshot,
    Read {
        upto: i64,
    },
}

/// What a step answered; of those that answer nothing, none.
pub type Answer = Option<i64>;

/// The call has come to a step that is still to be taken.
#[derive(Debug)]
pub struct Pending(pub Step);

pub struct Replay<'a> {
    answers: &'a [Answer],
    remembered: Option<i64>,
}

impl<'a> Replay<'a> {
    pub fn new(answers: &'a [Answer], remembered: Option<i64>) -> Replay<'a> {
        Replay {
            answers,
            remembered,
        }
    }

    fn take(&mut self, step: Step) -> Result<Answer, Pending> {
        let (first, rest) = self.answers.split_first().ok_or(Pending(step))?;
        self.answers = rest;
        Ok(*first)
    }

    fn number(&mut self, step: Step) -> Result<i64, Pending> {
        Ok(self.take(step)?.expect("the step answers a number"))
    }

    pub fn insert(&mut self, number: i64) -> Result<(), Pending> {
        self.take(Step::Insert(number)).map(|_| ())
    }

    pub fn snapshot(&mut self) -> Result<(), Pending> {
        self.take(Step::Snapshot).map(|_| ())
    }

    pub fn read(&mut self, upto: i64) -> Result<(), Pending> {
        self.take(Step::Read { upto }).map(|_| ())
    }
}

impl Ground for Replay<'_> {
    type Error = Pending;

    fn last_number(&mut self) -> Result<i64, Pending> {
        self.number(Step::LastNumber)
    }

    fn least_announced(&mut self) -> Result<Option<i64>, Pending> {
        self.take(Step::LeastAnnounced)
    }

    fn remembered(&self) -> Option<i64> {
        self.remembered
    }

    fn is_announced(&mut self, number: i64) -> Result<bool, Pending> {
        Ok(self.take(Step::IsAnnounced(number))?.is_some())
    }

    fn announce(&mut self, number: i64) -> Result<(), Pending> {
        self.remembered = Some(number);
        self.take(Step::Announce(number)).map(|_| ())
    }

    fn draw(&mut self, count: usize) -> Result<Vec<i64>, Pending> {
        (0..count).map(|_| self.number(Step::Draw)).collect()
    }
}
