//! The crate's workers against the real extension, with brokers that fail and servers that die.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use postroom::transport::in_process::InProcess;
use postroom::transport::{Transport, conformance};
use postroom::worker::{OnRefused, Receive, Rejection, Running, Worker, handler_fn};
use postroom::{FailureReason, OutboxMessage, Postroom};
use postroom_tests::cluster::{self, Cluster};
use postroom_tests::database::Database;
use postroom_tests::trace::{
    BUDGET, assert_applied_once_in_order, finish, leave_trace, messages, prepare, quick,
    store_inbox, store_outbox, wait_done,
};
use serde_json::json;
use tokio_postgres::Config;
use uuid::Uuid;

/// A worker of that database, without loops.
fn worker(db: &Database) -> Worker {
    let config: Config = db.url().parse().expect("a connection string");
    Worker::new(config, "tests").options(quick())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outbox_to_handler_through_a_broker_once_and_in_order() {
    let db = Database::create().await;
    prepare(&db).await;
    let broker = InProcess::new();
    broker.lose_messages(3);
    broker.lose_confirmations(5);
    let mut db = db;
    db.set(&[("postroom.backoff", "100ms")]).await;
    let running = worker(&db)
        .publish(broker.clone())
        .receive(Receive::new("c", broker.clone(), "d"))
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    store_outbox(&db, &messages(20, 15)).await;
    db.admin()
        .wait_for("SELECT count(*) > 20 FROM done", "t")
        .await;
    broker.redeliver(0);
    store_outbox(&db, &messages(7, 5)).await;
    wait_done(&db, 335).await;
    assert_applied_once_in_order(&db, 335).await;
    db.admin()
        .wait_for("SELECT count(*) FROM postroom.outbox", "0")
        .await;
    assert!(broker.published().len() >= 335);
    finish(&db, running).await;
    assert_eq!(
        db.admin()
            .value("SELECT position FROM postroom.consumer_checkpoint")
            .await,
        broker.published().len().to_string()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_context_travels_with_the_message() {
    let db = Database::create().await;
    db.admin().run("CREATE TABLE seen (traceparent text, tracestate text, correlation text, causation text)").await;
    let broker = InProcess::new();
    let running = worker(&db)
        .publish(broker.clone())
        .receive(Receive::new("c", broker, "d"))
        .handle(
            "c",
            handler_fn(|work, transaction| {
                Box::pin(async move {
                    let effect = OutboxMessage::new("effect", &1)?
                        .destination("elsewhere")
                        .caused_by(work)?;
                    Postroom::new(transaction)
                        .store_outbox_messages(&[effect])
                        .await?;
                    let insert = "INSERT INTO seen VALUES ($1, $2, $3, $4)";
                    transaction
                        .execute(
                            insert,
                            &[
                                &work.traceparent,
                                &work.tracestate,
                                &work.correlation_id,
                                &work.causation_id,
                            ],
                        )
                        .await?;
                    Ok(())
                })
            }),
        )
        .start();
    let message = OutboxMessage::new("t", &1)
        .expect("JSON")
        .destination("d")
        .correlation_id("r")
        .causation_id("q");
    let message = message.traced("00-aa-bb-01", Some("k=v")).expect("JSON");
    store_outbox(&db, &[message]).await;
    db.admin().wait_for("SELECT count(*) FROM seen", "1").await;
    assert_eq!(
        db.admin().rows("SELECT * FROM seen").await,
        ["00-aa-bb-01|k=v|r|q"]
    );
    finish(&db, running).await;
}

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absent_broker_costs_no_attempt() {
    let db = Database::create().await;
    let broker = InProcess::new();
    let running = worker(&db).publish(broker.clone()).start();
    store_outbox(&db, &messages(3, 3)).await;
    db.admin()
        .wait_for("SELECT count(*) FROM postroom.outbox", "0")
        .await;
    broker.set_ready(false);
    store_outbox(&db, &messages(3, 3)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox WHERE attempts = 0")
            .await,
        9
    );
    broker.set_ready(true);
    db.admin()
        .wait_for("SELECT count(*) FROM postroom.outbox", "0")
        .await;
    assert_eq!(broker.published().len(), 18);
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_inbox_cannot_hold_waits_or_is_skipped() {
    let db = Database::create().await;
    let broker = InProcess::new();
    let mut ids = Vec::new();
    for payload in [json!(1), json!("nul: \0"), json!(3)] {
        let mut message = conformance::sample("d", 1);
        message.payload = serde_json::value::to_raw_value(&payload).expect("JSON");
        broker.publish(&message).await.expect("confirmed");
        ids.push(message.message_id.to_string());
    }
    let running = worker(&db)
        .receive(Receive::new("waiting", broker.clone(), "d"))
        .receive(Receive::new("skipping", broker.clone(), "d").on_refused(OnRefused::Skip))
        .start();
    let position = "SELECT position FROM postroom.consumer_checkpoint WHERE consumer_id =";
    db.admin()
        .wait_for(&format!("{position} 'skipping'"), "3")
        .await;
    db.admin()
        .wait_for(&format!("{position} 'waiting'"), "1")
        .await;
    let stored = "SELECT message_id FROM postroom.inbox WHERE consumer_id = 'skipping' ORDER BY sequence_order";
    assert_eq!(db.admin().rows(stored).await, [ids[0].as_str(), &ids[2]]);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.inbox WHERE consumer_id = 'waiting'")
            .await,
        1
    );
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_receivers_receives_and_order_is_the_brokers() {
    let db = Database::create().await;
    let broker = InProcess::new();
    let running: Vec<Running> = (0..3)
        .map(|_| {
            worker(&db)
                .receive(Receive::new("c", broker.clone(), "d"))
                .start()
        })
        .collect();
    let publisher = worker(&db).publish(broker.clone()).start();
    let mut expected = 0;
    for round in 0..6 {
        let batch = messages(5, 4);
        expected += batch.len();
        store_outbox(&db, &batch).await;
        if round == 3 {
            broker.redeliver(0);
        }
        db.admin()
            .wait_for("SELECT count(*) FROM postroom.inbox", &expected.to_string())
            .await;
    }
    let stored = db
        .admin()
        .rows("SELECT message_id FROM postroom.inbox ORDER BY sequence_order")
        .await;
    let published: Vec<String> = broker
        .published()
        .iter()
        .map(|message| message.message_id.to_string())
        .collect();
    assert_eq!(stored, published);
    for one in running {
        assert!(one.shutdown(BUDGET).await);
    }
    finish(&db, publisher).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_goes_on_where_the_stored_position_says() {
    let db = Database::create().await;
    let broker = InProcess::new();
    for n in 0..10 {
        broker
            .publish(&conformance::sample("d", n))
            .await
            .expect("confirmed");
    }
    let running = worker(&db)
        .receive(Receive::new("c", broker.clone(), "d"))
        .start();
    let position = "SELECT position FROM postroom.consumer_checkpoint";
    db.admin().wait_for(position, "10").await;
    db.admin().run("DELETE FROM postroom.inbox; DELETE FROM postroom.inbox_seen; SELECT postroom.set_checkpoint('c', '5')").await;
    broker
        .publish(&conformance::sample("d", 10))
        .await
        .expect("confirmed");
    db.admin().wait_for(position, "11").await;
    let stored = db
        .admin()
        .rows("SELECT message_id FROM postroom.inbox ORDER BY sequence_order")
        .await;
    let published: Vec<String> = broker
        .published()
        .iter()
        .map(|one| one.message_id.to_string())
        .collect();
    assert_eq!(stored, published[5..]);
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_worker_goes_on_as_a_new_instance() {
    let db = Database::create().await;
    prepare(&db).await;
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    store_inbox(&db, 3, 2).await;
    wait_done(&db, 6).await;
    let first = running.instance_id().expect("an instance");
    db.admin()
        .run(&format!("SELECT postroom.deregister_instance('{first}')"))
        .await;
    store_inbox(&db, 3, 2).await;
    wait_done(&db, 12).await;
    let second = running.instance_id().expect("an instance");
    assert_ne!(first, second);
    finish(&db, running).await;
    db.admin()
        .wait_for(
            "SELECT count(*) FROM postroom.instance WHERE evicted_at IS NULL",
            "0",
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_finishes_what_runs_and_gives_back_the_rest() {
    let db = Database::create().await;
    prepare(&db).await;
    store_inbox(&db, 2, 50).await;
    let running = worker(&db)
        .handle(
            "c",
            handler_fn(|work, transaction| {
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    leave_trace(work, transaction).await
                })
            }),
        )
        .start();
    db.admin()
        .wait_for("SELECT count(*) > 3 FROM done", "t")
        .await;
    finish(&db, running).await;
    let (done, left) = (
        db.admin().number("SELECT count(*) FROM done").await,
        db.admin()
            .number("SELECT count(*) FROM postroom.inbox WHERE attempts = 0")
            .await,
    );
    assert_eq!(done + left, 100);
    assert!(left > 0);
    let successor = worker(&db)
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    wait_done(&db, 100).await;
    assert_applied_once_in_order(&db, 100).await;
    finish(&db, successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_after_the_death_of_the_server() {
    let server: &'static Cluster = Box::leak(Box::new(Cluster::start(cluster::DURABLE)));
    let mut db = Database::create_on(server).await;
    prepare(&db).await;
    let broker = InProcess::new();
    let running = worker(&db)
        .publish(broker.clone())
        .receive(Receive::new("c", broker.clone(), "d"))
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    store_outbox(&db, &messages(10, 30)).await;
    db.admin()
        .wait_for("SELECT count(*) > 20 FROM done", "t")
        .await;
    server.crash();
    server.start_server();
    db.reconnect().await;
    store_outbox(&db, &messages(5, 4)).await;
    wait_done(&db, 320).await;
    assert_applied_once_in_order(&db, 320).await;
    finish(&db, running).await;
}
