//! A reader of the global order never skips a number that appears later.

mod announcement;
mod fence;
mod gap;
mod order;
mod pause;
mod reader;
mod savepoint;
mod sequence;

use postroom_tests::{Database, Session};

const EVENT: &str = r#"'[{"event_type": "noted", "payload": 1}]'"#;

fn append(stream: &str) -> String {
    format!(
        "SELECT position FROM postroom.append_events(postroom.stream_id_of('{stream}'), {EVENT})"
    )
}

/// A reader that pages through the global order from where it stopped.
struct Reader {
    session: Session,
    cursor: i64,
    seen: Vec<i64>,
}

impl Reader {
    async fn new(db: &Database) -> Reader {
        Reader {
            session: db.session().await,
            cursor: 0,
            seen: Vec::new(),
        }
    }

    /// One page; the number of events in it.
    async fn page(&mut self, max: u32) -> usize {
        let rows = self
            .session
            .rows(&format!(
                "SELECT position, event_id FROM postroom.read_events({}, {max})",
                self.cursor
            ))
            .await;
        let (last, events) = rows
            .split_last()
            .expect("the last row tells how far the call looked");
        for row in events {
            let (position, _) = row.split_once('|').expect("two columns");
            let position: i64 = position.parse().expect("a position");
            assert!(
                position > self.cursor,
                "{position} is not above {}",
                self.cursor
            );
            assert!(
                self.seen.last().is_none_or(|last| *last < position),
                "positions rise"
            );
            self.seen.push(position);
        }
        let (reached, event) = last.split_once('|').expect("two columns");
        assert_eq!(event, "", "the last row has no event");
        let reached = reached.parse().expect("a position");
        assert!(reached >= self.cursor, "a cursor never goes back");
        assert!(self.seen.last().is_none_or(|last| *last <= reached));
        self.cursor = reached;
        events.len()
    }

    /// Pages until nothing new comes.
    async fn catch_up(&mut self) {
        while self.page(100).await > 0 {}
    }
}
