//! From the outbox through a broker into the inbox, in order and once.

use std::time::Duration;

use postroom::transport::in_process::InProcess;
use postroom::transport::{Transport, conformance};
use postroom::worker::{OnRefused, Receive, Running, handler_fn};
use postroom::{OutboxMessage, Postroom};
use postroom_tests::database::Database;
use postroom_tests::trace::{
    BUDGET, assert_applied_once_in_order, finish, leave_trace, messages, prepare, store_outbox,
    wait_done,
};
use serde_json::json;

use crate::worker;

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
