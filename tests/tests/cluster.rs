//! The harness itself: what the other tests rely on.

use postroom_tests::cluster::{self, Cluster};
use postroom_tests::session::{Session, finish, finish_any};

#[tokio::test]
async fn killed_server_comes_back_with_its_commits() {
    let server = Cluster::start(cluster::DURABLE);
    let session = Session::connect(&server.url("postgres")).await;
    session
        .run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        .await;
    session.run("BEGIN; INSERT INTO t VALUES (2)").await;
    server.crash();
    assert!(session.try_rows("SELECT 1").await.is_err());
    server.start_server();
    let session = Session::connect(&server.url("postgres")).await;
    assert_eq!(session.rows("SELECT a FROM t").await, ["1"]);
}

#[tokio::test]
async fn waiting_sessions_are_seen_and_backends_can_be_killed() {
    let server = Cluster::start(cluster::DURABLE);
    let url = server.url("postgres");
    let (watcher, first, second) = (
        Session::connect(&url).await,
        Session::connect(&url).await,
        Session::connect(&url).await,
    );
    watcher
        .run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        .await;
    first.run("BEGIN; SELECT * FROM t FOR UPDATE").await;
    let waiting = second.start("UPDATE t SET a = 2 RETURNING a");
    watcher
        .wait_for(
            &format!(
                "SELECT {} = ANY (pg_blocking_pids({}))",
                first.pid(),
                second.pid()
            ),
            "t",
        )
        .await;
    watcher
        .run(&format!("SELECT pg_terminate_backend({})", first.pid()))
        .await;
    assert_eq!(finish(waiting).await, ["2"]);

    let sleeping = second.start("SELECT pg_sleep(60)");
    cluster::kill_9(watcher.pid());
    assert!(
        finish_any(sleeping).await.is_err(),
        "a killed backend takes the others with it"
    );
    cluster::wait("the server is up again", || {
        server.log().matches("ready to accept connections").count() == 2
    });
    assert_eq!(
        Session::connect(&url).await.value("SELECT a FROM t").await,
        "2"
    );
}

#[test]
fn dropped_server_leaves_nothing() {
    let server = Cluster::start(&[]);
    let (dir, postmaster) = (server.host().to_path_buf(), server.postmaster());
    drop(server);
    assert!(!dir.exists());
    assert!(cluster::gone(postmaster));
}
