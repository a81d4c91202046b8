//! Every cell of docs/isolation.md, and every function in it: the document is the table of this test.

mod scene;

use std::collections::BTreeSet;

use postroom_tests::{Database, Session};

use scene::Scene;

const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

fn document() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/isolation.md");
    std::fs::read_to_string(path).expect("the document is there")
}

/// The rows of the document: a call, and what it does at each level.
fn table() -> Vec<(String, [String; 3])> {
    document()
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let cell = |n: usize| cells[n].to_string();
            (cell(1).replace('`', ""), [cell(2), cell(3), cell(4)])
        })
        .collect()
}

/// What a call does in a transaction of that level whose snapshot is older than `meanwhile`.
async fn outcome(
    session: &Session,
    other: &Session,
    level: &str,
    call: &str,
    meanwhile: &str,
) -> String {
    session
        .run(&format!("BEGIN ISOLATION LEVEL {level}; SELECT 1"))
        .await;
    other.run(meanwhile).await;
    let answer = session.try_rows(call).await;
    session.run("ROLLBACK").await;
    match answer {
        Ok(_) => "works".to_string(),
        Err(error) => error
            .code()
            .map_or_else(|| panic!("{error:?}"), |code| code.code().to_string()),
    }
}

#[tokio::test]
async fn every_call_does_at_each_level_what_the_document_says() {
    let db = Database::create_with(&[("postroom.instance_lease", "1h")]).await;
    let (session, other) = (db.session().await, db.session().await);
    let mut wrong = Vec::new();
    for (call, cells) in table() {
        for (level, told) in LEVELS.iter().zip(cells) {
            let scene = Scene::set(&db, &call).await;
            session.run(&format!("LISTEN {}", scene.channel())).await;
            let outcome = |meanwhile| outcome(&session, &other, level, &scene.call, meanwhile);
            let (alone, raced) = (outcome("").await, outcome(&scene.meanwhile).await);
            let wanted = match told.as_str() {
                "0A000" => ["0A000", "0A000"],
                told => ["works", told],
            };
            if [alone.as_str(), raced.as_str()] != wanted {
                wrong.push(format!(
                    "{call} at {level}: {alone}, in a race {raced}; told: {told}"
                ));
            }
            scene.end(&db).await;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    db.assert_sound().await;
}

#[tokio::test]
async fn every_function_is_in_the_document() {
    let db = Database::create().await;
    let there: BTreeSet<String> = db
        .admin()
        .rows(
            "SELECT DISTINCT p.proname FROM pg_proc p
              WHERE p.pronamespace = 'postroom'::regnamespace AND NOT starts_with(p.proname, '_')
                AND p.prorettype <> ALL ('{trigger,event_trigger}'::regtype[])",
        )
        .await
        .into_iter()
        .collect();
    let told: BTreeSet<String> = table().into_iter().map(|(call, _)| call).collect();
    assert_eq!(told, there);
}

#[test]
fn every_interleaving_is_in_the_document() {
    let specs = concat!(env!("CARGO_MANIFEST_DIR"), "/../pg_regress/specs");
    let specs = std::fs::read_dir(specs).expect("there are interleavings");
    let there: BTreeSet<String> = specs
        .map(|entry| entry.expect("a file").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_string()))
        .collect();
    let text = document();
    let (_, pairs) = text
        .split_once("| interleavings |")
        .expect("the table of pairs");
    let names = pairs.lines().filter_map(|line| line.rsplit('|').nth(1));
    let told: BTreeSet<String> = names
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_string)
        .collect();
    assert_eq!(told, there);
}
