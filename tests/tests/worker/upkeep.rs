//! Workers do the server's upkeep, unless they may not.

use std::time::Duration;

use postroom::worker::{Options, Worker};
use postroom_tests::database::Database;
use postroom_tests::trace::{finish, quick};
use postroom_tests::worker::receive_sql;
use tokio_postgres::Config;

const OLD: &str = "
DELETE FROM postroom.inbox;
UPDATE postroom.inbox_seen SET seen_at = seen_at - interval '31 days'";

fn often() -> Options {
    Options {
        upkeep: Some(Duration::from_millis(50)),
        ..quick()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_forgets_what_has_ended() {
    let db = Database::create().await;
    db.admin().run(&receive_sql("c", "s", &["x", "y"])).await;
    db.admin().run(OLD).await;
    let config: Config = db.url().parse().expect("a connection string");
    let running = Worker::new(config, "tests").options(often()).start();
    let seen = "SELECT count(*) FROM postroom.inbox_seen";
    db.admin().wait_for(seen, "0").await;
    finish(&db, running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_may_not_leaves_it_and_lives() {
    let db = Database::create().await;
    let role = format!("{}_worker", db.name());
    db.admin()
        .run(&format!(
            "CREATE ROLE {role} LOGIN; SELECT postroom.grant_usage('{role}', 'worker');
             REVOKE EXECUTE ON FUNCTION postroom.run_upkeep FROM {role}"
        ))
        .await;
    let mut config: Config = db.url().parse().expect("a connection string");
    config.user(&role);
    let running = Worker::new(config, "tests").options(often()).start();
    let denied = format!(
        "SELECT count(*) > 0 FROM postroom.instance WHERE evicted_at IS NULL AND '{}' <> ''",
        db.name()
    );
    db.admin().wait_for(&denied, "t").await;
    let told = || {
        db.cluster()
            .log()
            .contains("permission denied for function run_upkeep")
    };
    postroom_tests::cluster::wait("upkeep to be refused", told);
    finish(&db, running).await;
    let ran = "SELECT count(*) FROM postroom.upkeep";
    assert_eq!(db.admin().number(ran).await, 0);
}
