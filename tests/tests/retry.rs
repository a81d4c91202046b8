//! Work that waits returns in order, and is finally buried.

use std::collections::HashSet;

use postroom_tests::worker::{Item, assert_refused, payloads, receive_sql, send_sql};
use postroom_tests::{Database, Worker};

/// Lapses the claim of `items` and calls until its messages come again.
async fn lapse(db: &Database, items: &[Item]) {
    let claims: HashSet<&String> = items.iter().map(|item| &item.claim).collect();
    for claim in claims {
        db.lapse(claim).await;
    }
}

#[tokio::test]
async fn failed_message_holds_its_stream_and_only_its_stream() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["s1", "s2", "s3"]))
        .await;
    worker.session.run(&send_sql("t", &["t1"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["s1", "s2", "s3", "t1"]);
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    // What follows a failed message left the claim with it.
    assert_refused(&worker.complete(&items[1..3]).await);
    assert_eq!(worker.complete(&items[3..]).await, ["applied"]);
    worker.session.run(&send_sql("s", &["s4"])).await;
    worker.session.run(&send_sql("t", &["t2"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["t2"]);
    worker.complete(&items).await;
    assert_eq!(worker.claim().await, []);
    db.pass_time().await;
    let items = worker.claim_some().await;
    assert_eq!(payloads(&items), ["s1", "s2", "s3", "s4"]);
    let attempts: Vec<i32> = items.iter().map(|item| item.attempt).collect();
    assert_eq!(attempts, [2, 1, 1, 1]);
    assert_eq!(worker.complete(&items).await, ["applied"; 4]);
    assert_eq!(worker.claim().await, []);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.hold")
            .await,
        0,
        "the hold goes when nothing waits"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn what_precedes_a_failed_message_stays_in_the_claim() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    db.pass_time().await;
    assert_eq!(worker.claim().await, [], "the first is still in flight");
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    assert_eq!(payloads(&worker.claim_some().await), ["2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn failure_is_recorded_as_it_was_told() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(r#"SELECT postroom.send('e', '1', '22222222-2222-4222-8222-222222222222', 'd', is_event => true)"#)
        .await;
    let items = worker.claim().await;
    let text = r#"it's \"quoted\",\nand ünïcödé 🎉 {1}"#;
    assert_eq!(
        worker
            .fail_with(
                &items[0],
                &format!(r#""error": "{text}", "failure_reason": 4"#)
            )
            .await,
        "applied"
    );
    let row = db
        .admin()
        .value("SELECT status, attempts, failure_reason, error FROM postroom.outbox")
        .await;
    assert_eq!(
        row, "32771|1|4|it's \"quoted\",\nand ünïcödé 🎉 {1}",
        "bits are added, never replaced"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn backoff_doubles_up_to_its_cap() {
    let db = Database::create_with(&[("postroom.max_attempts", "60")]).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    for (attempts, full) in [
        (1, 30),
        (2, 60),
        (3, 120),
        (4, 240),
        (5, 300),
        (6, 300),
        (50, 300),
    ] {
        db.admin()
            .run(&format!(
                "UPDATE postroom.outbox SET attempts = {}",
                attempts - 1
            ))
            .await;
        let items = worker.claim_some().await;
        assert_eq!(items[0].attempt, attempts);
        assert_eq!(worker.fail(&items[0], "boom").await, "applied");
        let seconds: f64 = db
            .admin()
            .value("SELECT extract(epoch FROM due - clock_timestamp()) FROM postroom.hold")
            .await
            .parse()
            .expect("seconds");
        let least = f64::from(full) * 0.8 - 2.0;
        assert!(
            seconds > least && seconds <= f64::from(full),
            "attempt {attempts}: {seconds} s, not {least} to {full}"
        );
        db.pass_time().await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn transport_that_was_not_ready_costs_no_attempt() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    for _ in 0..15 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(payloads(&items), ["1", "2"]);
        assert_eq!(items[0].attempt, 1);
        assert_eq!(
            worker
                .fail_with(&items[0], r#""error": "broker away", "failure_reason": 1"#)
                .await,
            "applied"
        );
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn last_attempt_buries_the_message_and_frees_its_stream() {
    let db = Database::create_with(&[("postroom.max_attempts", "3")]).await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    for attempt in 1..=3 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(payloads(&items), ["poison", "next"]);
        assert_eq!(
            items[0].attempt, attempt,
            "the last allowed delivery is the third"
        );
        assert_eq!(
            worker.fail(&items[0], &format!("boom {attempt}")).await,
            "applied"
        );
    }
    let row = db
        .admin()
        .value("SELECT queue, payload, attempts, error, status & 32768, reason <> '' FROM postroom.dead_letter")
        .await;
    assert_eq!(row, "outbox|\"poison\"|3|boom 3|32768|t");
    let items = worker.claim_some().await;
    assert_eq!((payloads(&items), items[0].attempt), (vec!["next"], 1));
    worker.complete(&items).await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn exhausted_message_can_hold_its_stream_for_an_operator() {
    let db = Database::create_with(&[
        ("postroom.max_attempts", "1"),
        ("postroom.exhausted", "hold"),
    ])
    .await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    worker.session.run(&send_sql("t", &["other"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    db.pass_time().await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        1
    );
    assert_eq!(
        db.admin().value("SELECT due FROM postroom.hold").await,
        "infinity"
    );
    assert_eq!(worker.complete(&items[2..]).await, ["applied"]);
    assert_eq!(worker.claim().await, []);
    db.admin()
        .run("UPDATE postroom.hold SET due = clock_timestamp()")
        .await;
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn hold_of_an_operator_is_lowered_by_nobody() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[2], "boom").await, "applied");
    db.admin()
        .run("UPDATE postroom.hold SET due = 'infinity', reason = 'operator'")
        .await;
    assert_eq!(worker.fail(&items[1], "boom").await, "applied");
    assert_eq!(worker.release(&items[0]).await, "applied");
    assert_eq!(
        db.admin().value("SELECT due FROM postroom.hold").await,
        "infinity"
    );
    assert_eq!(worker.claim().await, []);
    db.pass_time().await;
    db.admin()
        .run("UPDATE postroom.hold SET due = clock_timestamp()")
        .await;
    assert_eq!(payloads(&worker.claim_some().await), ["1", "2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn client_that_never_reports_still_ends() {
    let db = Database::create_with(&[("postroom.max_attempts", "2")]).await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    for attempt in 1..=2 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(
            (items[0].payload.as_str(), items[0].attempt),
            ("poison", attempt)
        );
        lapse(&db, &items).await;
    }
    let items = worker.claim_some().await;
    assert_eq!((payloads(&items), items[0].attempt), (vec!["next"], 1));
    let row = db
        .admin()
        .value("SELECT payload, attempts, failure_reason, error <> '' FROM postroom.dead_letter")
        .await;
    assert_eq!(row, "\"poison\"|2|6|t", "the reaper says why");
    db.assert_sound().await;
}

#[tokio::test]
async fn crash_on_the_only_attempt_buries_and_frees_the_stream() {
    let db = Database::create_with(&[("postroom.max_attempts", "1")]).await;
    let worker = Worker::register(&db).await;
    worker
        .session
        .run(&send_sql("s", &["poison", "next"]))
        .await;
    let items = worker.claim().await;
    lapse(&db, &items).await;
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        1
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn lapse_does_not_overwrite_the_recorded_error() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    let items = worker.claim().await;
    worker
        .fail_with(
            &items[0],
            r#""error": "the real error", "failure_reason": 4"#,
        )
        .await;
    db.pass_time().await;
    let items = worker.claim_some().await;
    lapse(&db, &items).await;
    assert_eq!(
        worker.claim().await,
        [],
        "from its second lapse on it waits"
    );
    db.pass_time().await;
    let items = worker.claim_some().await;
    assert_eq!(items[0].attempt, 3);
    let row = db
        .admin()
        .value("SELECT attempts, error FROM postroom.outbox")
        .await;
    assert!(
        row.starts_with("2|") && row.contains("the real error"),
        "{row}"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn suspects_travel_alone_so_that_the_poison_is_buried_without_its_neighbours() {
    let db = Database::create_with(&[("postroom.max_attempts", "4")]).await;
    let worker = Worker::register(&db).await;
    for n in 0..20 {
        let label = if n == 7 {
            "poison".to_string()
        } else {
            format!("m{n}")
        };
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &[&label]))
            .await;
    }
    let mut done = HashSet::new();
    let mut crashes = 0;
    loop {
        db.pass_time().await;
        let items = worker.claim().await;
        if items.is_empty() {
            break;
        }
        if items.iter().any(|item| item.payload == "poison") {
            // The process dies before anything of this claim is reported.
            crashes += 1;
            assert!(crashes < 20, "it never ends");
            if crashes > 1 {
                assert_eq!(items.len(), 1, "after its first lapse it travels alone");
            }
            lapse(&db, &items).await;
            continue;
        }
        worker.complete(&items).await;
        done.extend(items.into_iter().map(|item| item.payload));
    }
    assert_eq!(crashes, 4);
    assert_eq!(done.len(), 19, "the innocents survive");
    assert_eq!(
        db.admin()
            .rows("SELECT payload FROM postroom.dead_letter")
            .await,
        ["\"poison\""]
    );
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        0
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn one_suspect_at_a_time_is_out() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..5 {
        worker
            .session
            .run(&send_sql(
                &format!("s{n}"),
                &[&format!("a{n}"), &format!("b{n}")],
            ))
            .await;
    }
    let items = worker.claim().await;
    assert_eq!(items.len(), 10);
    lapse(&db, &items).await;
    let suspect = worker.claim_some().await;
    assert_eq!(suspect.len(), 1, "its head alone, without its followers");
    assert_eq!(suspect[0].attempt, 2);
    worker.session.run(&send_sql("fresh", &["fresh"])).await;
    assert_eq!(
        payloads(&worker.claim().await),
        ["fresh"],
        "others go on, no second suspect"
    );
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.complete(&suspect).await, ["applied"]);
    let mut done = 1;
    while done < 10 {
        let items = worker.claim_some().await;
        done += worker.complete(&items).await.len();
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn message_scheduled_by_its_backoff_does_not_hide_those_behind() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    worker
        .session
        .run(
            "SELECT postroom.store_outbox_messages(jsonb_agg(jsonb_build_object('message_type', 'note',
                'payload', 'f' || n, 'destination', 'desk', 'stream_id', postroom.stream_id_of('s'))))
               FROM generate_series(1, 3000) AS n",
        )
        .await;
    worker.session.run(&send_sql("t", &["innocent"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["innocent"]);
    worker.complete(&items).await;
    db.pass_time().await;
    let done = worker.work_off(3001).await;
    let mut wanted = vec!["1".to_string()];
    wanted.extend((1..=3000).map(|n| format!("f{n}")));
    assert_eq!(done, wanted);
    db.assert_sound().await;
}

#[tokio::test]
async fn late_lower_message_of_a_waiting_stream_is_served_first() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let late = db.session().await;
    late.run(&format!("BEGIN; {}", send_sql("s", &["late"])))
        .await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    worker.fail(&items[0], "boom").await;
    assert_eq!(worker.claim().await, []);
    late.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.pass_time().await;
    assert_eq!(payloads(&worker.claim_some().await), ["late", "1", "2"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn fresh_work_and_retries_share_the_batch() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..40 {
        worker
            .session
            .run(&send_sql(&format!("old{n}"), &["retry"]))
            .await;
    }
    let items = worker.claim().await;
    assert_eq!(items.len(), 40);
    for item in &items {
        worker.fail(item, "boom").await;
    }
    for n in 0..40 {
        worker
            .session
            .run(&send_sql(&format!("new{n}"), &["fresh"]))
            .await;
    }
    db.pass_time().await;
    let items = worker.claim_with("max_messages => 20").await;
    let fresh = items.iter().filter(|item| item.payload == "fresh").count();
    assert_eq!((items.len(), fresh), (20, 10));
    db.assert_sound().await;
}

#[tokio::test]
async fn fresh_lanes_are_served_oldest_head_first() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let mut order = Vec::new();
    for n in 0..300 {
        worker.session.run(&send_sql("", &[&n.to_string()])).await;
    }
    while order.len() < 300 {
        let items = worker.claim_with("max_messages => 10").await;
        worker.complete(&items).await;
        order.extend(
            items
                .into_iter()
                .map(|item| item.payload.parse::<i64>().expect("a number")),
        );
    }
    let late = order
        .iter()
        .enumerate()
        .map(|(at, n)| at as i64 - n)
        .max()
        .unwrap_or_default();
    assert!(late < 150, "a message was overtaken by {late} younger ones");
    db.assert_sound().await;
}

#[tokio::test]
async fn inbox_retries_and_buries_like_the_outbox() {
    let db = Database::create_with(&[("postroom.max_attempts", "2")]).await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker
        .session
        .run(&receive_sql("c", "s", &["poison", "next"]))
        .await;
    for attempt in 1..=2 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        assert_eq!(
            (items[0].payload.as_str(), items[0].attempt),
            ("poison", attempt)
        );
        assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    }
    assert_eq!(payloads(&worker.claim_some().await), ["next"]);
    assert_eq!(
        db.admin()
            .value("SELECT queue, consumer_id, payload FROM postroom.dead_letter")
            .await,
        "inbox|c|\"poison\""
    );
    assert_eq!(
        worker
            .session
            .rows(&receive_sql("c", "s", &["poison"]))
            .await,
        ["duplicate"],
        "buried is not forgotten"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn settings_of_today_do_not_decide_what_is_dead() {
    let mut db = Database::create_with(&[("postroom.max_attempts", "5")]).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["x"])).await;
    for _ in 0..3 {
        db.pass_time().await;
        let items = worker.claim_some().await;
        worker.fail(&items[0], "boom").await;
    }
    // A lower limit buries at the next end of a delivery, not by itself.
    db.set(&[("postroom.max_attempts", "2")]).await;
    let worker = Worker::with(db.session().await, None).await;
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.dead_letter")
            .await,
        0
    );
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        1
    );
    drop(worker);
    db.assert_sound().await;
}

#[tokio::test]
async fn failure_then_success_and_success_then_failure_end_with_the_message_done() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    // It left the claim.
    assert_refused(&worker.complete(&items).await);
    // And it is not charged twice.
    assert_ne!(worker.fail(&items[0], "boom").await, "applied");
    db.pass_time().await;
    let items = worker.claim_some().await;
    assert_eq!(items[0].attempt, 2);
    assert_eq!(worker.complete(&items).await, ["applied"]);
    assert_ne!(worker.fail(&items[0], "boom").await, "applied");
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.outbox")
            .await,
        0
    );
    db.assert_sound().await;
}
