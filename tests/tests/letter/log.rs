//! What was done to letters stays known, and a dry run does nothing.

use postroom_tests::Database;

use crate::{bury_first, bury_sql, count, id_of, purge_sql, replay_sql};

#[tokio::test]
async fn history_of_a_letter_outlives_it() {
    let db = Database::create().await;
    let session = db.session().await;
    let id = bury_first(&db, "s", &["x"]).await;
    session.run(&replay_sql(&id)).await;
    session.run(&bury_sql(&id)).await;
    session.run(&purge_sql(&id)).await;
    assert_eq!(
        session
            .rows(&format!(
                "SELECT outcome, actor, reason, letter_reason, buried_at IS NOT NULL
                   FROM postroom.replay_log WHERE message_id = '{id}' ORDER BY replay_id"
            ))
            .await,
        [
            "buried|ada|bad address|buried_by_hand|t",
            "replayed|ada|address mended|buried_by_hand|t",
            "buried|ada|bad address|buried_by_hand|t",
            "purged|ada|too old|buried_by_hand|t",
        ]
    );
    assert_eq!(count(&session, "dead_letter").await, 0);
    db.assert_sound().await;
}

#[tokio::test]
async fn dry_run_tells_and_changes_nothing() {
    let db = Database::create().await;
    let session = db.session().await;
    let free = bury_first(&db, "s", &["x"]).await;
    let taken = bury_first(&db, "s", &["y"]).await;
    session
        .run(&format!(
            "SELECT postroom.send('note', '1', message_id => '{taken}')"
        ))
        .await;
    session.run("BEGIN").await;
    let told = session
        .rows(&format!(
            "SELECT message_id = '{free}', outcome FROM postroom.replay_dead_letters('{{{free},{taken}}}', 'ada', 'try', dry_run => true)
             UNION ALL
             SELECT message_id = '{free}', outcome FROM postroom.purge_dead_letters('{{{free},{taken}}}', 'ada', 'try', dry_run => true)"
        ))
        .await;
    assert_eq!(told, ["t|replayed", "f|duplicate", "t|purged", "f|purged"]);
    let xid = "SELECT pg_current_xact_id_if_assigned() IS NULL";
    assert_eq!(
        session.value(xid).await,
        "t",
        "nothing was written or locked"
    );
    session.run("COMMIT").await;
    assert_eq!(count(&session, "dead_letter").await, 2);
    assert_eq!(count(&session, "replay_log").await, 2, "the burials");
    db.assert_sound().await;
}

#[tokio::test]
async fn letters_are_read_page_by_page_newest_first() {
    let db = Database::create().await;
    let session = db.session().await;
    session
        .run("SELECT postroom.send('note', to_jsonb('l' || n)) FROM generate_series(1, 25) AS n")
        .await;
    // All buried at one moment: only their ids tell them apart.
    session
        .run(
            "SELECT postroom.bury('outbox', NULL, message_id, 'ada', 'x') FROM postroom.outbox;
              UPDATE postroom.dead_letter SET buried_at = now()",
        )
        .await;
    let mut seen = Vec::new();
    let mut behind = String::new();
    loop {
        let page = session
            .rows(&format!(
                "SELECT message_id, buried_at FROM postroom.read_dead_letters(queue => 'outbox', max_letters => 10{behind})"
            ))
            .await;
        let Some((id, at)) = page.last().and_then(|row| row.split_once('|')) else {
            break;
        };
        behind = format!(", buried_before => '{at}', before_message_id => '{id}'");
        seen.extend(page);
    }
    let all = "SELECT message_id, buried_at FROM postroom.dead_letter ORDER BY buried_at DESC, message_id DESC";
    assert_eq!(seen, session.rows(all).await);
    assert_eq!(seen.len(), 25);
    let one = id_of(&db, "l7").await;
    let named =
        format!("SELECT payload FROM postroom.read_dead_letters(message_ids => '{{{one}}}')");
    assert_eq!(session.value(&named).await, "\"l7\"");
    db.assert_sound().await;
}
