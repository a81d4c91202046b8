//! A stream is a gap-free list; you append at the version you saw.

mod race;
mod repeat;
mod version;

const A: &str = "11111111-1111-4111-8111-111111111111";
const B: &str = "22222222-2222-4222-8222-222222222222";
const S: &str = "33333333-3333-4333-8333-333333333333";
const T: &str = "44444444-4444-4444-8444-444444444444";

/// Appends events by their ids; `rest` as `, expected_version => 1`.
fn append(stream: &str, ids: &[&str], rest: &str) -> String {
    let events: Vec<String> = ids
        .iter()
        .map(|id| format!(r#"{{"event_id": "{id}", "event_type": "e", "payload": "{id}"}}"#))
        .collect();
    format!(
        "SELECT event_id, version FROM postroom.append_events('{stream}', '[{}]'{rest})",
        events.join(", ")
    )
}

/// Stores events as messages with a destination, `(stream, id)` each.
fn store(events: &[(&str, &str)]) -> String {
    let events: Vec<String> = events
        .iter()
        .map(|(stream, id)| {
            format!(
                r#"{{"message_id": "{id}", "stream_id": "{stream}", "message_type": "e", "payload": "{id}", "is_event": true, "destination": "d"}}"#
            )
        })
        .collect();
    format!(
        "SELECT message_id, outcome, event_version FROM postroom.store_outbox_messages('[{}]')",
        events.join(", ")
    )
}

fn id(n: usize) -> String {
    format!("{n:08}-0000-4000-8000-000000000000")
}
