//! Who holds readers and claims back.

use postroom_tests::Database;
use postroom_tests::worker::send_sql;

use crate::append;

const FENCE: &str =
    "SELECT holds_readers, drawn_since, pid, gid, user_name, application_name, state,
    since <= clock_timestamp() AND since > clock_timestamp() - interval '1 minute'
  FROM postroom.append_fence";

#[tokio::test]
async fn fence_names_who_holds_readers_and_claims_back() {
    let db = Database::create().await;
    let (appender, storer, other) = (db.session().await, db.session().await, db.session().await);
    assert_eq!(db.admin().rows(FENCE).await, Vec::<String>::new());
    appender
        .run(&format!(
            "SET application_name = 'shop'; BEGIN; {}",
            append("s")
        ))
        .await;
    storer
        .run(&format!("BEGIN; {}", send_sql("t", &["1", "2"])))
        .await;
    other.run(&append("u")).await;
    let wanted = [
        format!(
            "t|4|{}||postgres|shop|idle in transaction|t",
            appender.pid()
        ),
        format!("f|3|{}||postgres||idle in transaction|t", storer.pid()),
    ];
    assert_eq!(db.admin().rows(FENCE).await, wanted);
    let announced = "SELECT min(announced) = postroom.stable_position() FROM postroom.append_fence";
    assert_eq!(db.admin().value(announced).await, "t");
    appender.run("COMMIT").await;
    storer.run("ROLLBACK").await;
    assert_eq!(db.admin().rows(FENCE).await, Vec::<String>::new());
    db.assert_sound().await;
}

#[tokio::test]
async fn fence_names_prepared_transactions() {
    let db = Database::create().await;
    let (session, elsewhere) = (db.session().await, Database::create().await);
    session
        .run(&format!(
            "BEGIN; {}; PREPARE TRANSACTION 'fence'",
            append("s")
        ))
        .await;
    assert_eq!(
        db.admin().rows(FENCE).await,
        ["t|1||fence|postgres||prepared|t"]
    );
    assert_eq!(
        elsewhere.admin().rows(FENCE).await,
        Vec::<String>::new(),
        "of another database"
    );
    session.run("COMMIT PREPARED 'fence'").await;
    assert_eq!(db.admin().rows(FENCE).await, Vec::<String>::new());
    db.assert_sound().await;
    elsewhere.assert_sound().await;
}

#[tokio::test]
async fn fence_shows_an_operator_whose_transaction_it_is() {
    let db = Database::create().await;
    let appender = db.session().await;
    appender.run(&format!("BEGIN; {}", append("s"))).await;
    let operator = db.session().await;
    operator
        .run(
            "CREATE ROLE watcher; SELECT postroom.grant_usage('watcher', 'operator');
             SET ROLE watcher",
        )
        .await;
    let shown = operator.value(FENCE).await;
    assert!(
        shown.ends_with("postgres||idle in transaction|t"),
        "{shown}"
    );
    // Users' advisory locks, and those of the same class in another database, are none.
    appender
        .run("COMMIT; BEGIN; SELECT pg_advisory_xact_lock_shared(20483)")
        .await;
    assert_eq!(operator.rows(FENCE).await, Vec::<String>::new());
    appender.run("COMMIT").await;
    operator
        .run("RESET ROLE; DROP OWNED BY watcher; DROP ROLE watcher")
        .await;
    db.assert_sound().await;
}
