//! The sequence, the lock table and what is committed; whose step comes next is anyone's.

use super::protocol::{self, Ground};
use super::replay::{Answer, Pending, Replay, Step};
use super::session::{Move, Observer, Observes, Storer};
use stateright::{Model, Property};

pub const NOTHING_SKIPPED: &str = "what is committed below the cursor was seen";
pub const SETTLED_STAYS: &str = "nobody holds or will draw a number that was settled";
pub const NOBODY_WAITS: &str = "with no transaction open, one more call sees everything";
pub const SOMETHING_SEEN: &str = "everything drawn was committed, and seen";

/// How a storer draws and an observer reads: as the extension does, or with something wrong.
#[derive(Clone, Copy)]
pub struct Steps {
    pub draw: fn(&mut Replay, usize) -> Result<Vec<i64>, Pending>,
    pub read: fn(&mut Replay, i64) -> Result<i64, Pending>,
    /// Announcements are held by transactions; otherwise by sessions.
    pub locks_end: bool,
}

impl Default for Steps {
    fn default() -> Steps {
        Steps {
            draw: |ground, count| protocol::draw(ground, count),
            read: |ground, after| {
                let read = |ground: &mut Replay, upto| ground.read(upto);
                Ok(protocol::read(ground, after, read)?.0)
            },
            locks_end: true,
        }
    }
}

pub struct World {
    pub steps: Steps,
    pub storers: Vec<Storer>,
    pub observer: Observer,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    last: i64,
    committed: Vec<i64>,
    committed_events: Vec<i64>,
    storers: Vec<Storer>,
    observer: Observer,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Moves(usize, Move),
    Steps(usize, Step),
    Observes(Step),
}

impl World {
    /// One call, as far as its answers go; at its end, what the session remembers.
    fn store(&self, storer: &Storer, answers: &[Answer]) -> Result<Option<i64>, Pending> {
        let mut ground = Replay::new(answers, storer.remembered);
        for number in (self.steps.draw)(&mut ground, 1)? {
            ground.insert(number)?;
        }
        Ok(ground.remembered())
    }

    fn observe(&self, observer: &Observer, answers: &[Answer]) -> Result<i64, Pending> {
        (self.steps.read)(&mut Replay::new(answers, None), observer.cursor)
    }

    fn take_store_step(&self, state: &mut State, i: usize, step: Step) {
        let last = &mut state.last;
        let storer = &mut state.storers[i];
        let mut answer = None;
        match step {
            Step::LastNumber => answer = Some(*last),
            Step::IsAnnounced(n) => {
                answer = storer
                    .announced
                    .iter()
                    .map(|(held, _)| *held)
                    .find(|held| *held == n);
            }
            Step::Announce(n) => storer.announced.push((n, storer.level)),
            Step::Draw => {
                *last += 1;
                answer = Some(*last);
                storer.drawn.push((*last, storer.level));
            }
            Step::Insert(n) => assert!(storer.drawn.contains(&(n, storer.level))),
            other => unreachable!("a storer does not take {other:?}"),
        }
        let mut answers = storer.call.take().unwrap_or_default();
        answers.push(answer);
        match self.store(storer, &answers) {
            Err(_) => storer.call = Some(answers),
            Ok(remembered) => storer.remembered = remembered,
        }
    }

    fn take_observer_step(&self, state: &mut State, step: Step) {
        let answer = match step {
            Step::LastNumber => Some(state.last),
            Step::LeastAnnounced => state.least_announced(),
            Step::Snapshot => {
                state.observer.snapshot = Some(state.visible());
                None
            }
            Step::Read { upto } => {
                let snapshot = state.observer.snapshot.take();
                let visible = snapshot.unwrap_or_else(|| state.visible());
                state.observer.see(&visible, upto);
                None
            }
            other => unreachable!("an observer does not take {other:?}"),
        };
        state.observer.call.push(answer);
        match self.observe(&state.observer, &state.observer.call) {
            Ok(reached) => {
                state.observer.cursor = reached;
                state.observer.call.clear();
            }
            Err(Pending(Step::Read { upto })) => {
                state.observer.promised = state.observer.promised.max(upto);
            }
            Err(_) => {}
        }
    }
}

impl State {
    fn is_observed(&self, storer: &Storer) -> bool {
        storer.events || self.observer.observes == Observes::Messages
    }

    /// What this observer asks for: of events, or of all messages.
    fn least_announced(&self) -> Option<i64> {
        let observed = self
            .storers
            .iter()
            .filter(|storer| self.is_observed(storer));
        observed
            .flat_map(|storer| &storer.announced)
            .map(|(n, _)| *n)
            .min()
    }

    fn visible(&self) -> Vec<i64> {
        match self.observer.observes {
            Observes::Events => self.committed_events.clone(),
            Observes::Messages => self.committed.clone(),
        }
    }

    fn nothing_skipped(&self) -> bool {
        let seen = |n: &i64| *n > self.observer.cursor || self.observer.seen.contains(n);
        self.visible().iter().all(seen)
    }

    fn settled_stays(&self) -> bool {
        let observed = self
            .storers
            .iter()
            .filter(|storer| self.is_observed(storer));
        let mut open = observed.flat_map(|storer| &storer.drawn);
        self.last >= self.observer.promised && open.all(|(n, _)| *n > self.observer.promised)
    }

    /// Whether a call from here, undisturbed, comes to the end.
    fn nobody_waits(&self, world: &World) -> bool {
        if !self.storers.iter().all(Storer::is_quiet) || !self.observer.call.is_empty() {
            return true;
        }
        let mut alone = self.clone();
        while let Err(Pending(step)) = world.observe(&alone.observer, &alone.observer.call) {
            world.take_observer_step(&mut alone, step);
            if alone.observer.call.is_empty() {
                break;
            }
        }
        alone.observer.seen == alone.visible()
    }

    fn everything_seen(&self) -> bool {
        let all = self.last > 1 && self.committed.len() as i64 == self.last;
        all && !self.visible().is_empty() && self.observer.seen == self.visible()
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            last: 0,
            committed: Vec::new(),
            committed_events: Vec::new(),
            storers: self.storers.clone(),
            observer: self.observer.clone(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (i, storer) in state.storers.iter().enumerate() {
            actions.extend(
                storer
                    .moves()
                    .into_iter()
                    .map(|chosen| Action::Moves(i, chosen)),
            );
            if let Some(answers) = &storer.call
                && let Err(Pending(step)) = self.store(storer, answers)
            {
                actions.push(Action::Steps(i, step));
            }
        }
        if let Err(Pending(step)) = self.observe(&state.observer, &state.observer.call) {
            actions.push(Action::Observes(step));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Moves(i, chosen) => {
                let numbers = state.storers[i].make(chosen, self.steps.locks_end);
                if state.storers[i].events {
                    state.committed_events.extend(&numbers);
                    state.committed_events.sort_unstable();
                }
                state.committed.extend(numbers);
                state.committed.sort_unstable();
            }
            Action::Steps(i, step) => self.take_store_step(&mut state, i, step),
            Action::Observes(step) => self.take_observer_step(&mut state, step),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always(NOTHING_SKIPPED, |_, state: &State| state.nothing_skipped()),
            Property::always(SETTLED_STAYS, |_, state: &State| state.settled_stays()),
            Property::always(NOBODY_WAITS, |world, state: &State| {
                state.nobody_waits(world)
            }),
            Property::sometimes(SOMETHING_SEEN, |_, state: &State| state.everything_seen()),
        ]
    }
}
