//! The one atomic call.

mod call;
mod repeat;

use postroom_tests::Session;

const ME: &str = "11111111-1111-4111-8111-111111111111";
const A: &str = "22222222-2222-4222-8222-222222222222";
const B: &str = "33333333-3333-4333-8333-333333333333";

/// One call of `ME`; kind, queue, message_id, outcome, claim_id, attempt, payload of each row.
async fn call(session: &Session, arguments: &str) -> Vec<Vec<String>> {
    let rows = session.rows(&call_sql(arguments)).await;
    rows.iter()
        .map(|row| row.split('|').map(str::to_string).collect())
        .collect()
}

fn call_sql(arguments: &str) -> String {
    let comma = if arguments.is_empty() { "" } else { ", " };
    format!(
        "SELECT kind, queue, message_id, outcome, claim_id, attempt, payload
           FROM postroom.process_work_batch('{ME}', 'tests'{comma}{arguments})"
    )
}

fn of_kind<'a>(rows: &'a [Vec<String>], kind: &str) -> Vec<&'a Vec<String>> {
    rows.iter()
        .filter(|row| row[0] == kind && !(kind == "work" && row[2].is_empty()))
        .collect()
}

fn message(id: &str, payload: &str) -> String {
    format!(
        r#"{{"message_id": "{id}", "message_type": "note", "payload": "{payload}", "destination": "desk"}}"#
    )
}
