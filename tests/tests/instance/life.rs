//! Registering, heartbeats, leaving.

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Worker};

#[tokio::test]
async fn registration_returns_an_id_and_keeps_what_it_was_told() {
    let db = Database::create().await;
    let session = db.session().await;
    let id = session.value("SELECT postroom.register_instance('desk', host_name => 'h', process_id => 7, metadata => '{\"a\": 1}')").await;
    let row = session
        .value("SELECT instance_id, service_name, host_name, process_id, metadata, evicted_at, lease_expiry > clock_timestamp() FROM postroom.instance")
        .await;
    assert_eq!(row, format!("{id}|desk|h|7|{{\"a\": 1}}||t"));
    db.assert_sound().await;
}

#[tokio::test]
async fn id_is_used_by_one_start_only() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let again = format!(
        "SELECT postroom.register_instance('tests', '{}')",
        worker.instance
    );
    assert_eq!(worker.session.sqlstate(&again).await, "55000", "live");
    assert_eq!(worker.deregister().await, "deregistered");
    assert_eq!(
        worker.session.sqlstate(&again).await,
        "55000",
        "deregistered"
    );
    assert_eq!(worker.deregister().await, "unknown");
    db.assert_sound().await;
}

#[tokio::test]
async fn heartbeat_extends_the_lease_and_unknown_instances_are_evicted() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    db.admin()
        .run("UPDATE postroom.instance SET lease_expiry = clock_timestamp() + interval '1 s'")
        .await;
    assert_eq!(worker.heartbeat().await, "alive");
    let left = "SELECT lease_expiry > clock_timestamp() + interval '25 s' FROM postroom.instance";
    assert_eq!(db.admin().value(left).await, "t");
    let unknown = "SELECT postroom.heartbeat_instance('22222222-2222-4222-8222-222222222222')";
    assert_eq!(worker.session.value(unknown).await, "evicted");
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.instance")
            .await,
        1,
        "and is not revived"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_needs_a_live_instance() {
    let db = Database::create().await;
    let worker = Worker::register(&db).await;
    let unknown = "SELECT * FROM postroom.claim_outbox('22222222-2222-4222-8222-222222222222')";
    let error = worker.session.fails(unknown).await;
    assert_eq!(error.code().code(), "55000");
    let detail = error.detail().expect("a detail");
    assert!(
        detail.contains("instance_id=22222222-2222-4222-8222-222222222222")
            && detail.contains("state=unknown"),
        "{detail}"
    );
    assert!(error.hint().is_some());

    db.silence(&worker.instance, 5).await;
    let error = worker.session.fails(&worker.claim_sql("")).await;
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("state=lapsed")),
        "{error:?}"
    );
    assert_eq!(worker.heartbeat().await, "alive");
    assert_eq!(worker.claim().await, []);

    worker.deregister().await;
    let error = worker.session.fails(&worker.claim_sql("")).await;
    assert_eq!(error.code().code(), "55000");
    assert!(
        error
            .detail()
            .is_some_and(|detail| detail.contains("state=evicted")),
        "{error:?}"
    );
    db.assert_sound().await;
}

#[tokio::test]
async fn deregistered_instance_gives_everything_back_at_no_charge() {
    let db = Database::create().await;
    let (leaver, heir) = (Worker::register(&db).await, Worker::register(&db).await);
    leaver.session.run(&send_sql("s", &["1", "2"])).await;
    leaver.session.run(&send_sql("t", &["3"])).await;
    let items = leaver.claim().await;
    assert_eq!(items.len(), 3);
    assert_eq!(leaver.deregister().await, "deregistered");
    let owned = format!(
        "SELECT count(*) FROM postroom.lane WHERE owner = '{}'",
        leaver.instance
    );
    assert_eq!(db.admin().number(&owned).await, 0);
    assert_eq!(
        db.admin()
            .number("SELECT count(*) FROM postroom.claim")
            .await,
        0
    );
    let taken = heir.claim_some().await;
    assert_eq!(taken.len(), 3);
    assert!(taken.iter().all(|item| item.attempt == 1));
    assert_eq!(leaver.complete(&items).await, ["stale", "stale", "stale"]);
    heir.complete(&taken).await;
    db.assert_sound().await;
}
