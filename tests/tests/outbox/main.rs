//! A message is stored with the change that caused it.

mod refuse;
mod repeat;
mod schedule;
mod store;

const ID: &str = "11111111-1111-4111-8111-111111111111";
const STREAM: &str = "22222222-2222-4222-8222-222222222222";
const OTHER: &str = "33333333-3333-4333-8333-333333333333";

fn store(messages: &str) -> String {
    format!(
        "SELECT message_id, outcome, event_version FROM postroom.store_outbox_messages('{messages}')"
    )
}
