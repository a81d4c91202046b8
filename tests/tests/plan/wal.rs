//! What claiming and completing writes to the log, a message.

use postroom_tests::Worker;

use crate::{cost, database_of_its_own, fill, plan_on_empty};

#[tokio::test]
async fn claim_and_completion_write_little_for_each_message() {
    let db = database_of_its_own().await;
    let worker = Worker::register(&db).await;
    plan_on_empty(&worker).await;
    // At least eight messages in each of 64 lanes, whenever a batch is claimed.
    fill(&worker.session, 10_000, 2_500).await;
    db.admin().run("CHECKPOINT").await;
    let (mut claims, mut completions) = (0, 0);
    let rounds = 20;
    for _ in 0..rounds {
        let claim = format!(
            "SELECT * FROM postroom.claim_outbox('{}', 100)",
            worker.instance
        );
        claims += cost(&worker.session, &claim).await.bytes;
        let claimed = worker
            .session
            .value(&format!(
                "SELECT claim_id || ', ''' || message_ids::text || '''' FROM postroom.read_claims('{}')",
                worker.instance
            ))
            .await;
        let complete = format!("SELECT * FROM postroom.complete_outbox({claimed})");
        completions += cost(&worker.session, &complete).await.bytes;
    }
    let before = db.admin().value("SELECT pg_current_wal_insert_lsn()").await;
    db.admin()
        .run("VACUUM postroom.outbox, postroom.claim, postroom.lane_low, postroom.hold, postroom.aside")
        .await;
    let vacuum = format!("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '{before}')::bigint");
    let vacuum = db.admin().number(&vacuum).await;
    let messages = rounds * 100;
    let each = |bytes: i64| bytes / messages;
    println!(
        "bytes a message: claim {}, complete {}, vacuum {}",
        each(claims),
        each(completions),
        each(vacuum)
    );
    assert!(
        each(claims + completions) <= 150,
        "{}",
        each(claims + completions)
    );
    db.assert_sound().await;
}
