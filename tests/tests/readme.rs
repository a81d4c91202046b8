//! What the documents say is so: every SQL block runs, every table of the README is the catalog's.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use postroom_tests::cluster::Cluster;
use postroom_tests::database::Database;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).expect("there is a README")
}

/// README and everything in docs/.
fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).into_iter().flatten();
    let mut found: Vec<PathBuf> = docs
        .map(|entry| entry.expect("docs can be read").path())
        .collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.push(root().join("README.md"));
    found.sort();
    found
}

fn sql_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match &mut block {
            None if line == "```sql" => block = Some(String::new()),
            Some(_) if line == "```" => blocks.extend(block.take()),
            Some(open) => *open += &format!("{line}\n"),
            None => {}
        }
    }
    blocks
}

/// Runs a script through psql, as a reader would; an error ends it.
fn psql(cluster: &Cluster, database: &str, script: &str) -> Result<String, String> {
    let file = std::env::temp_dir().join(format!("{database}.{}.sql", std::process::id()));
    fs::write(&file, script).expect("a script can be written");
    let output = cluster
        .program("psql")
        .args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
            "-f",
        ])
        .arg(&file)
        .output()
        .expect("psql runs");
    let _ = fs::remove_file(&file);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// The first cells of the table below a heading, without their backquotes.
fn first_cells(document: &str, heading: &str) -> Vec<Vec<String>> {
    let section = document
        .split(&format!("\n## {heading}\n"))
        .nth(1)
        .expect("the heading exists");
    let section = section.split("\n## ").next().expect("a section ends");
    section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("|---"))
        .skip(1)
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().replace('`', ""))
                .collect()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sql_block_of_the_documents_runs() {
    for document in documents() {
        let db = Database::create().await;
        let text = fs::read_to_string(&document).expect("a document can be read");
        let blocks = sql_blocks(&text);
        let script = format!("DROP EXTENSION IF EXISTS postroom;\n{}", blocks.join("\n"));
        let script = if script.contains("CREATE EXTENSION postroom") {
            script
        } else {
            blocks.join("\n")
        };
        if let Err(error) = psql(db.cluster(), db.name(), &script) {
            panic!("{}: {error}", document.display());
        }
        let unsound = psql(db.cluster(), db.name(), "SELECT * FROM postroom.verify();");
        assert_eq!(unsound.as_deref(), Ok(""), "{}", document.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_session_answers_what_it_says() {
    let db = Database::create().await;
    let blocks = sql_blocks(&readme());
    let script = format!("DROP EXTENSION postroom;\n{}", blocks.join("\n"));
    let answer = psql(db.cluster(), db.name(), &script).expect("the blocks run");
    let lines: Vec<&str> = answer.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "applied",
            "1",
            "conflict|1",
            "1|opened|{\"owner\": \"Ada\"}",
            "new",
            "duplicate"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_settings_is_the_servers() {
    let db = Database::create().await;
    let session = db.session().await;
    session.run("SELECT postroom.version()").await;
    let server: BTreeSet<String> = session
        .rows(
            "SELECT name || '|' || current_setting(name) || '|' || short_desc
               FROM pg_settings WHERE name LIKE 'postroom.%' ORDER BY name",
        )
        .await
        .into_iter()
        .collect();
    let told: BTreeSet<String> = first_cells(&readme(), "Settings")
        .into_iter()
        .map(|cells| cells.join("|"))
        .collect();
    assert_eq!(told, server);
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_functions_is_the_catalogs() {
    let db = Database::create().await;
    let catalog: BTreeSet<String> = db
        .session()
        .await
        .rows(
            "SELECT proname FROM pg_proc
              WHERE pronamespace = 'postroom'::regnamespace AND proname NOT LIKE '\\_%'",
        )
        .await
        .into_iter()
        .collect();
    let text = readme();
    let told: BTreeSet<String> = first_cells(&text, "Functions")
        .into_iter()
        .flat_map(|cells| {
            let words = cells[1].split(|c: char| !(c.is_alphanumeric() || c == '_'));
            words.map(str::to_string).collect::<Vec<_>>()
        })
        .filter(|word| catalog.contains(word))
        .collect();
    assert_eq!(told, catalog);
    db.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_has_a_comment() {
    let db = Database::create().await;
    let bare = db
        .session()
        .await
        .rows(
            "SELECT p.oid::regprocedure::text FROM pg_proc p
              WHERE pronamespace = 'postroom'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL
             UNION ALL
             SELECT c.oid::regclass::text FROM pg_class c
              WHERE relnamespace = 'postroom'::regnamespace AND relkind IN ('r', 'v')
                AND obj_description(oid, 'pg_class') IS NULL
             UNION ALL
             SELECT name FROM pg_settings WHERE name LIKE 'postroom.%' AND (short_desc = '' OR extra_desc = '')",
        )
        .await;
    assert_eq!(bare, Vec::<String>::new());
    db.assert_sound().await;
}
