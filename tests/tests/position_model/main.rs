//! A reader skips nothing and a lane is left behind by no message, in whatever order several sessions
//! take their steps: all orders are tried. The steps are those of the extension, from its own file; each
//! mutant below changes one thing in them, and a run must find what it breaks.

#[path = "../../../extension/src/position/protocol.rs"]
mod protocol;

mod mutant;
mod replay;
mod session;
mod world;

use session::{Observer, Observes, Storer};
use stateright::{Checker, HasDiscoveries, Model};
use world::{Steps, World};

/// One that stores twice, with a savepoint, beside one that stores once.
fn saving() -> Vec<Storer> {
    vec![Storer::new(2, 1, true), Storer::new(1, 1, false)]
}

/// One that goes on to a second transaction beside one that stores twice in its only one.
fn repeating() -> Vec<Storer> {
    vec![Storer::new(1, 2, false), Storer::new(2, 1, false)]
}

fn world(observes: Observes, steps: Steps, storers: Vec<Storer>) -> World {
    World {
        steps,
        storers,
        observer: Observer::new(observes),
    }
}

fn assert_holds(world: World) {
    let checker = world.checker().spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

/// A run finds what is wrong, and says by which steps.
fn assert_found(world: World, property: &'static str) {
    let when = HasDiscoveries::AllOf([property].into());
    let checker = world.checker().finish_when(when).spawn_bfs().join();
    println!("not so: {property}:");
    for action in checker.assert_any_discovery(property).into_actions() {
        println!("  {action:?}");
    }
}

#[test]
fn reader_skips_nothing() {
    let twice_each = vec![Storer::new(2, 1, true), Storer::new(2, 1, false)];
    for storers in [saving(), repeating(), twice_each] {
        assert_holds(world(Observes::Events, Steps::default(), storers));
    }
}

#[test]
fn claims_leave_no_message_behind() {
    for storers in [saving(), repeating()] {
        assert_holds(world(Observes::Messages, Steps::default(), storers));
    }
}

#[test]
fn plain_messages_between_events_hold_back_claims_only() {
    for observes in [Observes::Events, Observes::Messages] {
        let plain = Storer::new(2, 1, false).of_plain_messages();
        let storers = vec![Storer::new(1, 1, true), plain];
        assert_holds(world(observes, Steps::default(), storers));
    }
}

#[test]
fn three_storers_are_as_safe_as_two() {
    let storers = vec![Storer::new(1, 1, false); 3];
    assert_holds(world(Observes::Events, Steps::default(), storers));
}

#[test]
fn announcements_read_before_the_last_number_are_found_out() {
    let steps = Steps {
        read: mutant::locks_first,
        ..Steps::default()
    };
    assert_found(
        world(Observes::Events, steps, saving()),
        world::NOTHING_SKIPPED,
    );
    assert_found(
        world(Observes::Events, steps, saving()),
        world::SETTLED_STAYS,
    );
    assert_found(
        world(Observes::Messages, steps, saving()),
        world::NOTHING_SKIPPED,
    );
}

#[test]
fn snapshot_older_than_the_bound_is_found_out() {
    let steps = Steps {
        read: mutant::snapshot_first,
        ..Steps::default()
    };
    assert_found(
        world(Observes::Events, steps, saving()),
        world::NOTHING_SKIPPED,
    );
    assert_found(
        world(Observes::Messages, steps, saving()),
        world::NOTHING_SKIPPED,
    );
}

#[test]
fn announcement_that_is_only_remembered_is_found_out() {
    let steps = Steps {
        draw: mutant::trusting_memory,
        ..Steps::default()
    };
    // Within a transaction, after a savepoint; and from one transaction to the next.
    assert_found(
        world(Observes::Events, steps, saving()),
        world::NOTHING_SKIPPED,
    );
    assert_found(
        world(Observes::Events, steps, repeating()),
        world::NOTHING_SKIPPED,
    );
}

#[test]
fn announcement_after_the_draw_is_found_out() {
    let steps = Steps {
        draw: mutant::draw_first,
        ..Steps::default()
    };
    assert_found(
        world(Observes::Events, steps, saving()),
        world::NOTHING_SKIPPED,
    );
}

#[test]
fn storer_that_announces_nothing_is_found_out() {
    let steps = Steps {
        draw: mutant::silently,
        ..Steps::default()
    };
    assert_found(
        world(Observes::Events, steps, saving()),
        world::NOTHING_SKIPPED,
    );
    assert_found(
        world(Observes::Messages, steps, saving()),
        world::NOTHING_SKIPPED,
    );
}

#[test]
fn plain_messages_without_announcements_are_found_out_by_claims() {
    let steps = Steps {
        draw: mutant::silently,
        ..Steps::default()
    };
    let plain = vec![Storer::new(1, 1, false).of_plain_messages(); 2];
    assert_found(
        world(Observes::Messages, steps, plain),
        world::NOTHING_SKIPPED,
    );
}

#[test]
fn bound_that_passes_the_announcement_is_found_out() {
    let steps = Steps {
        draw: mutant::announcing_too_much,
        ..Steps::default()
    };
    assert_found(
        world(Observes::Events, steps, saving()),
        world::NOTHING_SKIPPED,
    );
}

#[test]
fn announcement_of_a_session_instead_of_a_transaction_is_found_out() {
    let steps = Steps {
        locks_end: false,
        ..Steps::default()
    };
    assert_found(
        world(Observes::Events, steps, saving()),
        world::NOBODY_WAITS,
    );
}
