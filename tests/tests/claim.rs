//! For a while this work is yours.

use postroom_tests::session::{finish, finish_any};
use postroom_tests::worker::{assert_refused, parse, payloads, receive_sql, send_sql};
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn empty_queue_gives_nothing_and_writes_nothing() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.claim().await, []);
    // In one transaction: ids of the server's other transactions tell nothing.
    worker.session.run("BEGIN").await;
    for _ in 0..5 {
        assert_eq!(worker.claim().await, []);
    }
    let own_id = worker
        .session
        .value("SELECT coalesce(pg_current_xact_id_if_assigned()::text, 'none')")
        .await;
    worker.session.run("COMMIT").await;
    assert_eq!(own_id, "none", "an idle poll takes no transaction id");
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.claim")
            .await,
        0
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn claimed_message_is_mine_and_its_first_delivery_is_attempt_one() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["a"])).await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["a"]);
    assert_eq!(items[0].attempt, 1);
    let row = db
        .admin()
        .value(&format!(
            "SELECT state, claim_id = {}, instance_id = '{}', lease_expiry > clock_timestamp() + interval '4 min'
               FROM postroom.outbox_status",
            items[0].claim, worker.instance
        ))
        .await;
    assert_eq!(row, "in flight|t|t|t");
    db.assert_sound().await;
}

#[tokio::test]
async fn rows_of_one_claim_share_its_id_and_expiry() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for stream in ["s", "t", "u", ""] {
        worker.session.run(&send_sql(stream, &["a", "b"])).await;
    }
    let sql = format!(
        "SELECT count(*), count(DISTINCT claim_id), count(DISTINCT lease_expiry), count(DISTINCT come_back)
           FROM postroom.claim_outbox('{}')",
        worker.instance
    );
    assert_eq!(worker.session.value(&sql).await, "8|1|1|1");
    db.assert_sound().await;
}

#[tokio::test]
async fn messages_come_in_the_order_they_were_stored() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let mut wanted = Vec::new();
    for n in 0..40 {
        let label = format!("{n}");
        worker
            .session
            .run(&send_sql(&format!("s{}", n % 7), &[&label]))
            .await;
        wanted.push(label);
    }
    let items = worker.claim().await;
    assert_eq!(payloads(&items), wanted);
    assert!(items.is_sorted_by_key(|item| item.number));
    db.assert_sound().await;
}

#[tokio::test]
async fn messages_of_one_call_keep_the_order_of_the_call() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    // Ids fall while the input rises; equal times.
    worker
        .session
        .run(
            "SELECT postroom.store_outbox_messages(jsonb_agg(jsonb_build_object(
                 'message_id', lpad((100 - n)::text, 32, '0')::uuid, 'stream_id', postroom.stream_id_of('s'),
                 'message_type', 'note', 'destination', 'desk', 'payload', n) ORDER BY n))
               FROM generate_series(1, 10) AS n",
        )
        .await;
    assert_eq!(
        payloads(&worker.claim().await),
        ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn two_calls_of_one_instance_never_share_a_message_and_never_wait() {
    let db = Database::create().await;
    let first = Worker::register(&db).await;
    let second = first.second_session(&db).await;
    first.session.run(&send_sql("s", &["1", "2", "3"])).await;
    first.session.run("BEGIN").await;
    assert_eq!(payloads(&first.claim().await), ["1", "2", "3"]);
    // The first is not committed: the second must neither wait for it nor read what it took.
    let meanwhile = parse(&finish(second.start_claim()).await);
    assert_eq!(meanwhile.items, []);
    first.session.run("COMMIT").await;
    assert_eq!(second.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn rolled_back_claim_leaves_its_messages_to_the_next_call() {
    let db = Database::create().await;
    let first = Worker::register(&db).await;
    let second = first.second_session(&db).await;
    first.session.run(&send_sql("s", &["1", "2"])).await;
    first.session.run("BEGIN").await;
    assert_eq!(first.claim().await.len(), 2);
    first.session.run("ROLLBACK").await;
    let items = second.claim().await;
    assert_eq!(payloads(&items), ["1", "2"]);
    assert_eq!(
        items[0].attempt, 1,
        "what was never committed is no delivery"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn message_being_completed_is_not_offered_again() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let other = worker.second_session(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.complete(&items).await, ["applied", "applied"]);
    assert_eq!(other.claim().await, []);
    worker.session.run("COMMIT").await;
    assert_eq!(other.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn stream_in_flight_is_offered_to_nobody() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let first = worker.claim().await;
    worker.session.run(&send_sql("s", &["2", "3"])).await;
    worker.session.run(&send_sql("t", &["x"])).await;
    assert_eq!(payloads(&worker.claim().await), ["x"]);
    assert_eq!(worker.claim().await, []);
    worker.complete(&first).await;
    assert_eq!(payloads(&worker.claim().await), ["2", "3"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn many_messages_of_one_stream_are_one_unit() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let other = Worker::register(&db).await;
    let labels: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    worker.session.run(&send_sql("s", &labels)).await;
    let items = worker.claim_with("max_messages => 10").await;
    assert_eq!(payloads(&items), labels[..10]);
    assert_eq!(worker.claim_with("max_messages => 10").await, []);
    assert_eq!(other.claim_with("max_messages => 10").await, []);
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    assert_eq!(
        worker.claim_with("max_messages => 10").await,
        [],
        "nine of the run are still in flight"
    );
    worker.complete(&items[1..]).await;
    assert_eq!(
        payloads(&worker.claim_with("max_messages => 10").await),
        ["11", "12"]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn limits_bound_the_batch_and_nothing_is_lost_behind_them() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..20 {
        worker
            .session
            .run(&send_sql(
                &format!("s{n}"),
                &[&format!("{n}a"), &format!("{n}b")],
            ))
            .await;
    }
    let mut done = 0;
    let items = worker.claim_with("max_messages => 7").await;
    assert_eq!(items.len(), 7);
    done += items.len();
    worker.complete(&items).await;
    let items = worker.claim_with("max_streams => 3").await;
    let streams: std::collections::HashSet<_> = items.iter().map(|item| &item.stream).collect();
    assert!(streams.len() <= 3 && !items.is_empty());
    done += items.len();
    worker.complete(&items).await;
    done += worker.work_off(40 - done).await.len();
    assert_eq!(done, 40);
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_that_left_work_says_come_back() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for n in 0..10 {
        worker
            .session
            .run(&send_sql(&format!("s{n}"), &["x"]))
            .await;
    }
    let claimed = worker
        .try_claim("max_messages => 4")
        .await
        .expect("a claim");
    assert_eq!((claimed.items.len(), claimed.come_back), (4, true));
    let claimed = worker
        .try_claim("max_messages => 100")
        .await
        .expect("a claim");
    assert_eq!((claimed.items.len(), claimed.come_back), (6, false));
    db.assert_sound().await;
}

#[tokio::test]
async fn messages_without_a_stream_do_not_wait_for_each_other() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("", &["a", "b", "c"])).await;
    let items = worker.claim_with("max_messages => 1").await;
    assert_eq!(payloads(&items), ["a"]);
    assert_eq!(payloads(&worker.claim().await), ["b", "c"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn message_without_a_stream_is_apart_from_a_stream_of_its_id() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let id = "22222222-2222-4222-8222-222222222222";
    worker
        .session
        .run(&format!(
            r#"SELECT postroom.store_outbox_messages('[
                {{"message_id": "{id}", "message_type": "note", "destination": "desk", "payload": "alone"}},
                {{"stream_id": "{id}", "message_type": "note", "destination": "desk", "payload": "of the stream"}}]')"#
        ))
        .await;
    let items = worker.claim().await;
    assert_eq!(payloads(&items), ["alone", "of the stream"]);
    assert_eq!(worker.fail(&items[0], "boom").await, "applied");
    // The stream of that name does not wait for the message of that name.
    worker.complete(&items[1..]).await;
    worker
        .session
        .run(&format!(
            "SELECT postroom.send('note', '\"next\"', '{id}', 'desk')"
        ))
        .await;
    assert_eq!(payloads(&worker.claim().await), ["next"]);
    db.pass_time().await;
    assert_eq!(payloads(&worker.claim().await), ["alone"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn lapsed_claim_is_offered_again_and_the_head_of_each_stream_is_charged() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["s1", "s2"])).await;
    worker.session.run(&send_sql("t", &["t1", "t2"])).await;
    let items = worker.claim().await;
    assert_eq!(items.len(), 4);
    worker.complete(&items[..1]).await;
    db.lapse(&items[0].claim).await;
    let mut again = Vec::new();
    while again.len() < 3 {
        let items = worker.claim_some().await;
        worker.complete(&items).await;
        again.extend(items);
    }
    let attempt = |label: &str| {
        again
            .iter()
            .find(|item| item.payload == label)
            .expect("delivered again")
            .attempt
    };
    assert_eq!(
        attempt("s2"),
        2,
        "the head of what was left of s is charged"
    );
    assert_eq!(attempt("t1"), 2);
    assert_eq!(attempt("t2"), 1, "those behind the head cost nothing");
    let row = |label: &str| again.iter().position(|item| item.payload == label);
    assert!(row("t1") < row("t2"));
    db.assert_sound().await;
}

#[tokio::test]
async fn report_after_the_lapse_is_stale_once_the_claim_was_reaped() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    // Lapsed, but nobody took it away: the work is done and counts.
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    let again = worker.claim_some().await;
    assert_eq!(payloads(&again), ["2"]);
    assert_eq!(again[0].attempt, 2);
    assert_eq!(worker.complete(&items[1..]).await, ["stale"]);
    assert_eq!(worker.fail(&items[1], "late").await, "stale");
    assert_eq!(worker.release(&items[1]).await, "stale");
    assert_eq!(worker.renew(&items[1].claim).await, "stale");
    assert_eq!(worker.complete(&again).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn unknown_ids_are_said_so() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let other = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    worker.session.run(&send_sql("t", &["2"])).await;
    let mut items = worker.claim_with("max_messages => 1").await;
    items.extend(worker.claim_with("max_messages => 1").await);
    assert_eq!(items.len(), 2);
    let mut crossed = items[0].clone();
    crossed.message = items[1].message.clone();
    assert_eq!(
        worker.complete(&[crossed.clone()]).await,
        ["unknown"],
        "another claim's message"
    );
    assert_eq!(worker.complete(&items).await, ["applied", "applied"]);
    assert_eq!(
        worker.complete(&items[..1]).await,
        ["unknown"],
        "done before"
    );
    assert_eq!(
        worker.session.value("SELECT outcome FROM postroom.complete_outbox(4711, '{22222222-2222-4222-8222-222222222222}')").await,
        "stale"
    );
    // A report in the wrong queue changes nothing and says so.
    assert_eq!(
        other
            .session
            .value(&format!(
                "SELECT outcome FROM postroom.complete_inbox({}, '{{{}}}')",
                items[0].claim, items[0].message
            ))
            .await,
        "unknown"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn completion_answers_once_per_id_in_the_order_asked() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    let (a, c) = (&items[0].message, &items[2].message);
    let none = "22222222-2222-4222-8222-222222222222";
    let rows = worker
        .session
        .rows(&format!(
            "SELECT * FROM postroom.complete_outbox({}, '{{{c},{none},{a}}}')",
            items[0].claim
        ))
        .await;
    assert_eq!(
        rows,
        [
            format!("{c}|applied"),
            format!("{none}|unknown"),
            format!("{a}|applied")
        ]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn renewal_extends_a_claim_until_the_cap() {
    let db = Database::create_with(&[("postroom.renewals", "2")]).await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    assert_eq!(
        worker.renew(&items[0].claim).await,
        "applied",
        "nobody has it yet"
    );
    assert_eq!(worker.claim().await, []);
    assert_eq!(worker.renew(&items[0].claim).await, "applied");
    assert_eq!(worker.renew(&items[0].claim).await, "refused");
    db.lapse(&items[0].claim).await;
    assert_eq!(worker.claim_some().await[0].attempt, 2);
    db.assert_sound().await;
}

#[tokio::test]
async fn live_claim_of_a_slow_handler_is_taken_by_nobody() {
    let mut db = Database::create().await;
    db.set(&[("postroom.instance_lease", "1s")]).await;
    let (slow, other) = (Worker::register(&db).await, Worker::register(&db).await);
    slow.session.run(&send_sql("s", &["1", "2"])).await;
    db.season(&slow.instance).await;
    db.season(&other.instance).await;
    let items = slow.claim_some().await;
    // It has not claimed for long, but it lives and its claim runs.
    db.admin()
        .run("UPDATE postroom.member SET seen_at = clock_timestamp() - interval '1 min'")
        .await;
    for _ in 0..5 {
        assert_eq!(other.claim().await, []);
        db.admin()
            .run(&format!("UPDATE postroom.member SET seen_at = clock_timestamp() - interval '1 min' WHERE instance_id = '{}'", slow.instance))
            .await;
    }
    assert_eq!(slow.complete(&items).await, ["applied", "applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn released_messages_cost_nothing_and_come_again_in_order() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2", "3"])).await;
    let items = worker.claim().await;
    assert_eq!(worker.release(&items[1]).await, "applied");
    assert_eq!(worker.complete(&items[..1]).await, ["applied"]);
    // What follows a released message left the claim with it.
    assert_refused(&worker.complete(&items[2..]).await);
    let again = worker.claim_some().await;
    assert_eq!(payloads(&again), ["2", "3"]);
    assert_eq!((again[0].attempt, again[1].attempt), (1, 1));
    worker.complete(&again).await;
    db.assert_sound().await;
}

#[tokio::test]
async fn lost_answer_of_a_claim_is_given_again_without_charge() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    let lost = worker.claim().await;
    worker.session.run(&send_sql("t", &["3"])).await;
    let again = worker.claim_with("holding => '{}'").await;
    assert_eq!(
        again, lost,
        "the same claim, the same messages, the same attempt"
    );
    let held = format!("holding => '{{{}}}'", lost[0].claim);
    assert_eq!(payloads(&worker.claim_with(&held).await), ["3"]);
    let known = worker
        .session
        .rows(&format!(
            "SELECT claim_id, cardinality(message_ids) FROM postroom.read_claims('{}') ORDER BY 1",
            worker.instance
        ))
        .await;
    assert_eq!(known.len(), 2);
    assert_eq!(known[0], format!("{}|2", lost[0].claim));
    db.assert_sound().await;
}

#[tokio::test]
async fn connection_killed_after_the_commit_costs_one_poll() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let lost = worker.claim().await;
    db.terminate(&worker.session).await;
    let back = worker.second_session(&db).await;
    let again = back.claim_with("holding => '{}'").await;
    assert_eq!(again, lost);
    assert_eq!(back.complete(&again).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn connection_killed_before_the_commit_leaves_the_work() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    worker.session.run("BEGIN").await;
    assert_eq!(worker.claim().await.len(), 1);
    db.terminate(&worker.session).await;
    let back = worker.second_session(&db).await;
    let again = back.claim().await;
    assert_eq!((again.len(), again[0].attempt), (1, 1));
    db.assert_sound().await;
}

#[tokio::test]
async fn acting_calls_above_read_committed_are_refused() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let consumer = Worker::register_consumer(&db, "c").await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for sql in [
            worker.claim_sql(""),
            consumer.claim_sql(""),
            worker.report_sql("release", &items[0]),
            format!(
                "SELECT * FROM postroom.renew_claims('{{{}}}')",
                items[0].claim
            ),
            format!(
                "SELECT * FROM postroom.fail_outbox({}, '[{{\"message_id\": \"{}\", \"error\": \"x\"}}]')",
                items[0].claim, items[0].message
            ),
            format!(
                "SELECT * FROM postroom.process_work_batch('{}', 'tests')",
                worker.instance
            ),
        ] {
            worker
                .session
                .run(&format!("BEGIN ISOLATION LEVEL {level}"))
                .await;
            assert_eq!(
                worker.session.sqlstate(&sql).await,
                "0A000",
                "{level} {sql}"
            );
            worker.session.run("ROLLBACK").await;
        }
    }
    assert_eq!(worker.complete(&items).await, ["applied"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn late_message_of_a_stream_in_flight_waits_for_it() {
    // The overlapping store commits while its later neighbour is already in flight.
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let (late, early) = (db.session().await, db.session().await);
    late.run(&format!("BEGIN; {}", send_sql("s", &["4"]))).await;
    early.run(&send_sql("s", &["5"])).await;
    let first = worker.claim().await;
    assert_eq!(
        payloads(&first),
        ["5"],
        "overlapping stores are delivered as they become visible"
    );
    late.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    worker.complete(&first).await;
    assert_eq!(payloads(&worker.claim().await), ["4"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn late_message_below_what_is_done_comes_at_the_next_claim() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let late = db.session().await;
    late.run(&format!("BEGIN; {}", send_sql("s", &["late"])))
        .await;
    for round in 0..20 {
        let labels: Vec<String> = (0..50).map(|n| format!("{round}.{n}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        worker.session.run(&send_sql("", &labels)).await;
        worker.work_off(50).await;
        if round == 10 {
            // Low-waters move at most once a second.
            db.admin()
                .run("UPDATE postroom.lane_low SET moved_at = '-infinity'")
                .await;
        }
    }
    late.run("COMMIT").await;
    assert_eq!(payloads(&worker.claim().await), ["late"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn inbox_of_one_consumer_is_apart_from_others_and_from_the_outbox() {
    let db = Database::create().await;
    let (a, b) = (
        Worker::register_consumer(&db, "a").await,
        Worker::register_consumer(&db, "b").await,
    );
    let publisher = Worker::register(&db).await;
    a.session.run(&receive_sql("a", "s", &["m1", "m2"])).await;
    b.session.run(&receive_sql("b", "s", &["m1"])).await;
    let mine = a.claim().await;
    assert_eq!(payloads(&mine), ["m1", "m2"]);
    assert_eq!(payloads(&b.claim().await), ["m1"]);
    assert_eq!(publisher.claim().await, []);
    assert_eq!(a.complete(&mine).await, ["applied", "applied"]);
    assert_eq!(
        db.admin()
            .rows("SELECT consumer_id FROM postroom.inbox")
            .await,
        ["b"]
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn two_handlers_of_one_claim_do_not_wait_for_each_other() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run(&receive_sql("c", "s", &["1"])).await;
    worker.session.run(&receive_sql("c", "t", &["2"])).await;
    let items = worker.claim().await;
    let (one, two) = (db.session().await, db.session().await);
    let now = |item: &postroom_tests::worker::Item| {
        format!(
            "SELECT postroom.complete_inbox_now({}, '{}')",
            item.claim, item.message
        )
    };
    one.run(&format!("BEGIN; {}", now(&items[0]))).await;
    // The first handler's transaction is open; the second begins, ends and is not held up.
    finish(two.start(&format!("BEGIN; {}; COMMIT", now(&items[1])))).await;
    one.run("COMMIT").await;
    assert_eq!(worker.claim().await, []);
    db.assert_sound().await;
}

#[tokio::test]
async fn handlers_that_also_append_to_one_stream_do_not_deadlock() {
    let db = Database::create().await;
    let worker = Worker::register_consumer(&db, "c").await;
    worker.session.run(&receive_sql("c", "s", &["1"])).await;
    worker.session.run(&receive_sql("c", "t", &["2"])).await;
    let items = worker.claim().await;
    let (one, two) = (db.session().await, db.session().await);
    let now = |n: usize| {
        format!(
            "SELECT postroom.complete_inbox_now({}, '{}')",
            items[n].claim, items[n].message
        )
    };
    let append = r#"SELECT postroom.append_events(postroom.stream_id_of('ledger'), '[{"event_type": "e", "payload": 1}]')"#;
    one.run(&format!("BEGIN; {}", now(0))).await;
    two.run(&format!("BEGIN; {append}")).await;
    let waiting = one.start(append);
    db.wait_blocked_by(&one, &two).await;
    finish(two.start(&format!("{}; COMMIT", now(1)))).await;
    finish(waiting).await;
    one.run("COMMIT").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn second_handler_of_a_message_taken_over_fails() {
    let db = Database::create().await;
    let first = Worker::register_consumer(&db, "c").await;
    first.session.run("CREATE TABLE effect (n int)").await;
    first.session.run(&receive_sql("c", "s", &["1"])).await;
    let items = first.claim().await;
    let handler = db.session().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        items[0].claim, items[0].message
    );
    handler
        .run(&format!("BEGIN; {now}; INSERT INTO effect VALUES (1)"))
        .await;
    db.lapse(&items[0].claim).await;
    // The reaper gives the message out again while the first handler is still at work.
    let again = first.claim_some().await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].attempt, 1, "somebody is completing it: no charge");
    let late = db.session().await;
    let now = format!(
        "SELECT postroom.complete_inbox_now({}, '{}')",
        again[0].claim, again[0].message
    );
    let waiting = late.start(&format!(
        "BEGIN; {now}; INSERT INTO effect VALUES (2); COMMIT"
    ));
    db.wait_blocked_by(&late, &handler).await;
    handler.run("COMMIT").await;
    let error = finish_any(waiting)
        .await
        .expect_err("the effects of the second must not be committed");
    let error = error.as_db_error().expect("an error of the server").clone();
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("outcome=unknown")),
        "{error:?}"
    );
    assert_eq!(db.admin().rows("SELECT n FROM effect").await, ["1"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn report_under_way_keeps_no_claim_waiting() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let reporter = worker.second_session(&db).await;
    worker.session.run(&send_sql("s", &["1", "2"])).await;
    worker.session.run(&send_sql("t", &["x"])).await;
    let items = worker.claim_with("max_messages => 1").await;
    assert_eq!(payloads(&items), ["1"]);
    assert_eq!(payloads(&worker.claim().await), ["x"]);
    for verb in ["release", "fail", "complete"] {
        let items = if verb == "release" {
            items.clone()
        } else {
            worker.claim_some().await
        };
        reporter.session.run("BEGIN").await;
        match verb {
            "release" => reporter.release(&items[0]).await,
            "fail" => reporter.fail(&items[0], "boom").await,
            _ => reporter.complete(&items[..1]).await.remove(0),
        };
        worker.session.run(&send_sql("s", &[verb])).await;
        let meanwhile =
            tokio::time::timeout(std::time::Duration::from_secs(5), worker.try_claim("")).await;
        let meanwhile = meanwhile.expect("no waiting").expect("no error");
        assert_eq!(meanwhile.items, [], "{verb}");
        reporter.session.run("COMMIT").await;
        db.pass_time().await;
        db.assert_sound().await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn completion_overlapping_the_reaper_wins_or_is_told() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    worker.session.run(&send_sql("s", &["1"])).await;
    let items = worker.claim().await;
    db.lapse(&items[0].claim).await;
    let reaper = worker.second_session(&db).await;
    reaper.session.run("BEGIN").await;
    let again = reaper.claim().await;
    // The reap is open. The completion either waits for it or is answered at once; never both win.
    let completing = worker
        .session
        .start(&worker.report_sql("complete", &items[0]));
    reaper.session.run("COMMIT").await;
    let outcome = finish(completing).await.remove(0);
    let more = if again.is_empty() {
        worker.claim().await
    } else {
        again
    };
    if outcome == "applied" {
        let left: Vec<String> = worker.complete(&more).await;
        assert!(left.iter().all(|outcome| outcome == "unknown"), "{left:?}");
    } else {
        assert_eq!(worker.complete(&more).await, ["applied"]);
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn reaped_claims_leave_no_locks_behind() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    for _ in 0..100 {
        worker.session.run(&send_sql("", &["x"])).await;
        worker.work_off(1).await;
    }
    let locks = db
        .admin()
        .number(&format!(
            "SELECT count(*) FROM pg_locks WHERE pid = {}",
            worker.session.pid()
        ))
        .await;
    assert_eq!(locks, 0);
    db.assert_sound().await;
}
