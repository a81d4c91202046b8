//! A message is accepted once per consumer.

mod accept;
mod handler;
mod race;

const ID: &str = "11111111-1111-4111-8111-111111111111";

fn receive(consumer: &str, fields: &str) -> String {
    format!(
        r#"SELECT outcome FROM postroom.store_inbox_messages('[{{"message_id": "{ID}", "message_type": "note", "payload": 1{fields}}}]', '{consumer}')"#
    )
}
