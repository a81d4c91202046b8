//! The extension is not dropped by mistake, and nothing else is hindered.

use postroom_tests::worker::send_sql;
use postroom_tests::{Database, Session};

use crate::role;

const DROP: &str = "DROP EXTENSION postroom CASCADE";
const THERE: &str = "SELECT count(*) FROM pg_extension WHERE extname = 'postroom'";

async fn refused(session: &Session, sql: &str, tables: &str) {
    let error = session.fails(sql).await;
    assert_eq!(error.code().code(), "55000", "{}", error.message());
    assert_eq!(error.detail(), Some(format!("tables={tables}").as_str()));
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("postroom.allow_drop"))
    );
    assert_eq!(session.value(THERE).await, "1");
}

#[tokio::test]
async fn extension_with_undelivered_messages_is_not_dropped() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&send_sql("s", &["x"])).await;
    refused(&session, DROP, "outbox").await;
    refused(
        &session,
        "DROP EXTENSION IF EXISTS plpgsql, postroom",
        "outbox",
    )
    .await;
    session
        .run("SELECT postroom.bury('outbox', NULL, message_id, 'ada', 'x') FROM postroom.outbox")
        .await;
    refused(&session, DROP, "dead_letter").await;
    session
        .run("SELECT postroom.purge_dead_letters(queue => 'outbox', actor => 'ada', reason => 'x')")
        .await;
    session.run(DROP).await;
    assert_eq!(session.value(THERE).await, "0");
}

#[tokio::test]
async fn way_round_the_guard_is_a_setting() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&send_sql("s", &["x"])).await;
    session
        .run(&format!(
            "BEGIN; SET LOCAL postroom.allow_drop = on; {DROP}; ROLLBACK"
        ))
        .await;
    refused(&session, DROP, "outbox").await;
    // In a session that has not loaded the library yet.
    let fresh = db.session().await;
    fresh
        .run(&format!("SET postroom.allow_drop = on; {DROP}"))
        .await;
    assert_eq!(session.value(THERE).await, "0");
    fresh.run("CREATE EXTENSION postroom").await;
    db.assert_sound().await;
}

#[tokio::test]
async fn other_ways_to_lose_the_extension() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run(&send_sql("s", &["x"])).await;
    // The schema is the extension's: the server itself says no.
    assert_eq!(
        session.sqlstate("DROP SCHEMA postroom CASCADE").await,
        "2BP01"
    );
    assert_eq!(
        session.sqlstate("DROP TABLE postroom.outbox CASCADE").await,
        "2BP01"
    );
    session.run("ALTER EXTENSION postroom UPDATE").await;
    // Somebody else's things are dropped as ever.
    let other = role(&db, "other").await;
    session
        .run(&format!("DROP OWNED BY {other}; DROP ROLE {other}"))
        .await;
    session
        .run("CREATE SCHEMA other; DROP SCHEMA other CASCADE")
        .await;
    db.assert_sound().await;
}

#[tokio::test]
async fn trusted_installation_is_guarded_and_usable_by_its_owner() {
    let db = Database::create().await;
    let admin = db.admin();
    let owner = role(&db, "owner").await;
    let app = role(&db, "app").await;
    admin
        .run(&format!(
            "{DROP}; GRANT CREATE ON DATABASE {} TO {owner}",
            db.name()
        ))
        .await;
    let session = db.session().await;
    session
        .run(&format!("SET ROLE {owner}; CREATE EXTENSION postroom"))
        .await;
    session.run(&send_sql("s", &["x"])).await;
    let write = "INSERT INTO postroom.upkeep VALUES ('x', now(), now())";
    assert_eq!(session.sqlstate(write).await, "42501");
    session
        .run(&format!("SELECT postroom.grant_usage('{app}', 'producer')"))
        .await;
    refused(&session, DROP, "outbox").await;
    admin.run(&format!("SET ROLE {app}")).await;
    admin.run("SELECT postroom.send('note', '1')").await;
    let upkeep = "SELECT postroom.run_upkeep()";
    assert_eq!(admin.sqlstate(upkeep).await, "42501");
    admin.run("RESET ROLE").await;
    refused(admin, &format!("DROP OWNED BY {owner}"), "outbox").await;
    db.assert_sound().await;
    session
        .run(&format!("SET postroom.allow_drop = on; {DROP}"))
        .await;
    assert_eq!(admin.value(THERE).await, "0");
    admin
        .run(&format!(
            "DROP OWNED BY {owner}, {app}; DROP ROLE {owner}, {app}"
        ))
        .await;
}
