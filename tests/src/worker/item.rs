//! What a claim gives, and messages to be claimed.

/// One message of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub claim: String,
    pub number: i64,
    pub message: String,
    /// Empty for a message without one.
    pub stream: String,
    pub attempt: i32,
    /// The payload; of a JSON string, its text.
    pub payload: String,
}

/// What a claim call answered.
pub struct Claimed {
    pub items: Vec<Item>,
    pub come_back: bool,
}

/// The rows of [`claim_sql`](super::Worker::claim_sql).
pub fn parse(rows: &[String]) -> Claimed {
    let mut claimed = Claimed {
        items: Vec::new(),
        come_back: false,
    };
    for row in rows {
        let columns: Vec<&str> = row.splitn(7, '|').collect();
        let [claim, number, message, stream, attempt, come_back, payload] = columns[..] else {
            panic!("not a row of a claim: {row}")
        };
        claimed.come_back = come_back == "t";
        if !message.is_empty() {
            claimed.items.push(Item {
                claim: claim.to_string(),
                number: number.parse().expect("sequence_order is a number"),
                message: message.to_string(),
                stream: stream.to_string(),
                attempt: attempt.parse().expect("attempt is a number"),
                payload: payload.trim_matches('"').to_string(),
            });
        }
    }
    claimed
}

/// What the items say, in their order.
pub fn payloads(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.payload.as_str()).collect()
}

/// Sends one message per label to the stream of that name, in one call; the label is the payload.
/// Without a stream (an empty name) each message stands alone.
pub fn send_sql(stream: &str, labels: &[&str]) -> String {
    let messages: Vec<String> = labels
        .iter()
        .map(|label| {
            let stream = if stream.is_empty() { "NULL".into() } else { format!("postroom.stream_id_of('{stream}')") };
            format!(
                "jsonb_build_object('message_type', 'note', 'payload', '{label}', 'destination', 'desk', 'stream_id', {stream})"
            )
        })
        .collect();
    format!(
        "SELECT * FROM postroom.store_outbox_messages(jsonb_build_array({}))",
        messages.join(", ")
    )
}

/// The same for the inbox of a consumer; message ids are made from the labels.
pub fn receive_sql(consumer: &str, stream: &str, labels: &[&str]) -> String {
    let messages: Vec<String> = labels
        .iter()
        .map(|label| {
            let stream = if stream.is_empty() { "NULL".into() } else { format!("postroom.stream_id_of('{stream}')") };
            format!(
                "jsonb_build_object('message_id', postroom.stream_id_of('{label}'), 'message_type', 'note', 'payload', '{label}', 'stream_id', {stream})"
            )
        })
        .collect();
    format!(
        "SELECT outcome FROM postroom.store_inbox_messages(jsonb_build_array({}), '{consumer}')",
        messages.join(", ")
    )
}
