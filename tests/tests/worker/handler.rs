//! Handlers that fail, panic, hang, collide or kill their connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postroom::FailureReason;
use postroom::worker::{Rejection, handler_fn};
use postroom_tests::database::Database;
use postroom_tests::trace::{
    assert_applied_once_in_order, finish, leave_trace, prepare, store_inbox, wait_done,
};
use uuid::Uuid;

use crate::worker;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_message_holds_its_stream_until_it_is_buried() {
    let mut db = Database::create().await;
    prepare(&db).await;
    db.set(&[
        ("postroom.backoff", "100ms"),
        ("postroom.max_attempts", "3"),
    ])
    .await;
    store_inbox(&db, 3, 4).await;
    let victim = db.admin().value("SELECT message_id FROM postroom.inbox WHERE payload = '2' ORDER BY sequence_order LIMIT 1").await;
    let victim: Uuid = victim.parse().expect("an id");
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(move |work, transaction| {
                let counted = counted.clone();
                Box::pin(async move {
                    leave_trace(work, transaction).await?;
                    if work.message_id == victim {
                        counted.fetch_add(1, Ordering::SeqCst);
                        return Err(Rejection {
                            reason: FailureReason::ValidationError,
                            error: "never\0".into(),
                        }
                        .into());
                    }
                    Ok(())
                })
            }),
        )
        .start();
    wait_done(&db, 11).await;
    assert_eq!(tries.load(Ordering::SeqCst), 3);
    let letter = "SELECT message_id, attempts, failure_reason, error FROM postroom.dead_letter";
    assert_eq!(
        db.admin().rows(letter).await,
        [format!("{victim}|3|4|never")]
    );
    assert_eq!(db.admin().number("SELECT count(*) FROM done").await, 11);
    let disorder = "SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY stream_id ORDER BY at) AS before FROM done) AS d WHERE n < before";
    assert_eq!(db.admin().number(disorder).await, 0);
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collisions_are_repeated_within_one_delivery() {
    let db = Database::create().await;
    prepare(&db).await;
    store_inbox(&db, 1, 2).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(move |work, transaction| {
                let counted = counted.clone();
                Box::pin(async move {
                    leave_trace(work, transaction).await?;
                    if counted.fetch_add(1, Ordering::SeqCst) < 2 {
                        transaction
                            .batch_execute(
                                "DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$",
                            )
                            .await?;
                    }
                    Ok(())
                })
            }),
        )
        .start();
    wait_done(&db, 2).await;
    assert_applied_once_in_order(&db, 2).await;
    assert_eq!(tries.load(Ordering::SeqCst), 4);
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_panic_or_hide_an_error_fail_their_message_only() {
    let mut db = Database::create().await;
    prepare(&db).await;
    db.set(&[("postroom.backoff", "50ms"), ("postroom.max_attempts", "2")])
        .await;
    store_inbox(&db, 4, 1).await;
    db.admin().run("UPDATE postroom.inbox SET payload = '7' WHERE message_id = (SELECT min(message_id::text)::uuid FROM postroom.inbox)").await;
    db.admin().run("UPDATE postroom.inbox SET payload = '8' WHERE message_id = (SELECT max(message_id::text)::uuid FROM postroom.inbox)").await;
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(|work, transaction| {
                Box::pin(async move {
                    leave_trace(work, transaction).await?;
                    match work.payload::<i32>()? {
                        7 => panic!("seven"),
                        8 => drop(transaction.batch_execute("SELECT 1 / 0").await),
                        _ => {}
                    }
                    Ok(())
                })
            }),
        )
        .start();
    db.admin()
        .wait_for("SELECT count(*) FROM postroom.dead_letter", "2")
        .await;
    wait_done(&db, 2).await;
    let letters = db
        .admin()
        .rows("SELECT payload, error FROM postroom.dead_letter ORDER BY 1")
        .await;
    assert!(letters[0].starts_with("7|panic: seven"), "{letters:?}");
    assert!(
        letters[1].starts_with("8|") && letters[1].contains("aborted"),
        "{letters:?}"
    );
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_handler_keeps_its_claim_by_renewal() {
    let mut db = Database::create().await;
    prepare(&db).await;
    db.set(&[("postroom.lease", "4s"), ("postroom.max_attempts", "1")])
        .await;
    store_inbox(&db, 1, 2).await;
    let handler = handler_fn(|work, transaction| {
        Box::pin(async move {
            if work.payload::<i32>()? == 1 {
                tokio::time::sleep(Duration::from_secs(7)).await;
            }
            leave_trace(work, transaction).await
        })
    });
    let running = worker(&db).handle("c", handler).start();
    db.admin()
        .wait_for("SELECT max(renewals) >= 1 FROM postroom.claim", "t")
        .await;
    wait_done(&db, 2).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0
    );
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_handler_is_ended_before_its_claim_expires() {
    let mut db = Database::create().await;
    prepare(&db).await;
    db.set(&[
        ("postroom.lease", "1500ms"),
        ("postroom.renewals", "1"),
        ("postroom.max_attempts", "1"),
    ])
    .await;
    store_inbox(&db, 2, 2).await;
    let hung = db
        .admin()
        .value("SELECT message_id FROM postroom.inbox ORDER BY sequence_order LIMIT 1")
        .await;
    let hung: Uuid = hung.parse().expect("an id");
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(move |work, transaction| {
                Box::pin(async move {
                    if work.message_id == hung {
                        std::future::pending::<()>().await;
                    }
                    leave_trace(work, transaction).await
                })
            }),
        )
        .start();
    wait_done(&db, 3).await;
    let letter = "SELECT message_id, attempts, failure_reason FROM postroom.dead_letter";
    assert_eq!(db.admin().rows(letter).await, [format!("{hung}|1|6")]);
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_hangs_is_cancelled_before_its_claim_expires() {
    let mut db = Database::create().await;
    prepare(&db).await;
    db.set(&[
        ("postroom.lease", "1500ms"),
        ("postroom.renewals", "0"),
        ("postroom.max_attempts", "1"),
    ])
    .await;
    store_inbox(&db, 1, 2).await;
    let handler = handler_fn(|work, transaction| {
        Box::pin(async move {
            if work.payload::<i32>()? == 1 {
                transaction.execute("SELECT pg_sleep(600)", &[]).await?;
            }
            leave_trace(work, transaction).await
        })
    });
    let running = worker(&db).handle("c", handler).start();
    wait_done(&db, 1).await;
    assert_eq!(
        db.admin()
            .rows("SELECT payload, failure_reason FROM postroom.dead_letter")
            .await,
        ["1|6"]
    );
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_kills_its_connection_is_buried_and_others_go_on() {
    let mut db = Database::create().await;
    prepare(&db).await;
    db.set(&[("postroom.backoff", "50ms"), ("postroom.max_attempts", "2")])
        .await;
    store_inbox(&db, 2, 2).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = tries.clone();
    let handler = handler_fn(move |work, transaction| {
        let counted = counted.clone();
        Box::pin(async move {
            if work.payload::<i32>()? == 1 {
                counted.fetch_add(1, Ordering::SeqCst);
                transaction
                    .execute("SELECT pg_terminate_backend(pg_backend_pid())", &[])
                    .await?;
            }
            leave_trace(work, transaction).await
        })
    });
    let running = worker(&db).handle("c", handler).start();
    wait_done(&db, 2).await;
    let letters = "SELECT count(*) FROM postroom.dead_letter WHERE payload = '1' AND attempts = 2";
    assert_eq!(db.admin().number(letters).await, 2);
    let tries = tries.load(Ordering::SeqCst);
    assert!((4..=2 * 2 * 5).contains(&tries), "{tries}");
    finish(&db, running).await;
}
