//! Each kind of role may do exactly what the page for operators says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use postroom_tests::{Database, Session};

use crate::role;

const KINDS: [&str; 4] = ["producer", "worker", "reader", "operator"];

/// What the table of docs/operators.md says of a kind: functions and views.
fn told(kind: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
    let text = fs::read_to_string(path).expect("there is a page for operators");
    let words = |kind: &str| -> Vec<String> {
        let start = format!("| {kind} |");
        let line = text.lines().find(|line| line.starts_with(&start));
        let line = line.unwrap_or_else(|| panic!("no line for {kind}"));
        line.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_string)
            .collect()
    };
    words("everybody").into_iter().chain(words(kind)).collect()
}

async fn granted(session: &Session, role: &str) -> BTreeSet<String> {
    let sql = format!(
        "SELECT DISTINCT proname::text FROM pg_proc
          WHERE pronamespace = 'postroom'::regnamespace AND has_function_privilege('{role}', oid, 'EXECUTE')
         UNION ALL
         SELECT relname FROM pg_class
          WHERE relnamespace = 'postroom'::regnamespace AND relkind IN ('r', 'v', 'S')
            AND has_table_privilege('{role}', oid, 'SELECT')"
    );
    session.rows(&sql).await.into_iter().collect()
}

#[tokio::test]
async fn each_kind_may_do_what_the_page_says_and_nothing_else() {
    let db = Database::create().await;
    let session = db.session().await;
    for kind in KINDS {
        let role = role(&db, kind).await;
        assert_eq!(granted(&session, &role).await, BTreeSet::new());
        session
            .run(&format!("SELECT postroom.grant_usage('{role}', '{kind}')"))
            .await;
        assert_eq!(granted(&session, &role).await, told(kind), "{kind}");
        let more = format!(
            "SELECT relname FROM pg_class
              WHERE relnamespace = 'postroom'::regnamespace AND relkind IN ('r', 'v')
                AND has_table_privilege('{role}', oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
             UNION ALL
             SELECT 'create' WHERE has_schema_privilege('{role}', 'postroom', 'CREATE')
             UNION ALL
             SELECT 'pass on' WHERE has_schema_privilege('{role}', 'postroom', 'USAGE WITH GRANT OPTION')"
        );
        assert_eq!(session.rows(&more).await, Vec::<String>::new(), "{kind}");
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn whole_of_the_surface_is_somebodys() {
    let db = Database::create().await;
    let all: BTreeSet<String> = db
        .admin()
        .rows(
            "SELECT proname::text FROM pg_proc
              WHERE pronamespace = 'postroom'::regnamespace AND prorettype <> 'event_trigger'::regtype
             UNION
             SELECT relname FROM pg_class
              WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'v' AND relname !~ '^_'",
        )
        .await
        .into_iter()
        .collect();
    let given: BTreeSet<String> = KINDS.into_iter().flat_map(told).collect();
    let left: Vec<&String> = all.difference(&given).collect();
    assert_eq!(left, ["grant_usage"]);
    db.assert_sound().await;
}

#[tokio::test]
async fn roles_work_with_what_they_are_granted() {
    let db = Database::create().await;
    let session = db.session().await;
    let mine = [
        "SELECT postroom.send('note', '1', postroom.stream_id_of('s'))",
        "SELECT * FROM postroom.claim_outbox(postroom.register_instance('x'))",
        "SELECT * FROM postroom.lane_status, postroom.message_status, postroom.health(), postroom.read_events()",
        "SELECT * FROM postroom.replay_dead_letters(queue => 'outbox', actor => 'x', reason => 'y'),
                       postroom.outbox_status, postroom.replay_log, postroom.verify()",
    ];
    for (kind, sql) in KINDS.into_iter().zip(mine) {
        let role = role(&db, kind).await;
        session
            .run(&format!("SELECT postroom.grant_usage('{role}', '{kind}')"))
            .await;
        session.run(&format!("SET ROLE {role}")).await;
        session.run(sql).await;
        for other in mine.iter().filter(|other| **other != sql) {
            assert_eq!(session.sqlstate(other).await, "42501", "{kind}: {other}");
        }
        let pass_on = format!("SELECT postroom.grant_usage('{role}', 'operator')");
        assert_eq!(session.sqlstate(&pass_on).await, "42501", "{kind}");
        session.run("RESET ROLE").await;
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn names_of_roles_are_names_and_kinds_are_known() {
    let db = Database::create().await;
    let session = db.session().await;
    let odd = format!("{}; DROP TABLE \"x\"", db.name());
    session
        .run(&format!("CREATE ROLE \"{}\"", odd.replace('"', "\"\"")))
        .await;
    session
        .run(&format!("SELECT postroom.grant_usage('{odd}', 'producer')"))
        .await;
    assert_eq!(granted(&session, &odd).await, told("producer"));
    let code = |role: &str, kind: &str| format!("SELECT postroom.grant_usage('{role}', '{kind}')");
    assert_eq!(
        session.sqlstate(&code("nobody_at_all", "producer")).await,
        "42704"
    );
    assert_eq!(session.sqlstate(&code("public", "producer")).await, "42704");
    assert_eq!(session.sqlstate(&code(&odd, "approver")).await, "22023");
    assert_eq!(
        session
            .sqlstate("SELECT postroom.grant_usage(NULL, 'producer')")
            .await,
        "22004"
    );
    db.assert_sound().await;
}
