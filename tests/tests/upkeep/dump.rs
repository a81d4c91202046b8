//! A dump takes rights and guard along; restoring over undelivered messages is refused like dropping them.

use std::process::Command;

use postroom_tests::worker::{payloads, send_sql};
use postroom_tests::{Database, Worker};

use crate::role;

/// A dump of the database as a script.
fn dump(db: &Database, options: &[&str]) -> Vec<u8> {
    let mut command = db.cluster().program("pg_dump");
    let output = command.args(options).arg(db.name()).output();
    let output = output.expect("pg_dump runs");
    assert!(output.status.success());
    output.stdout
}

/// Runs a script in a database; what psql complains of.
fn restore(mut psql: Command, name: &str, script: &[u8]) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("{name}.{}.sql", std::process::id()));
    std::fs::write(&file, script).expect("a script can be written");
    let options = [
        "-X",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-v",
        "VERBOSITY=verbose",
        "-d",
        name,
        "-f",
    ];
    let output = psql.args(options).arg(&file).output().expect("psql runs");
    let _ = std::fs::remove_file(&file);
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[tokio::test]
async fn restored_database_has_the_rights_and_the_guard() {
    let db = Database::create().await;
    let app = role(&db, "app").await;
    db.admin()
        .run(&format!("SELECT postroom.grant_usage('{app}', 'producer')"))
        .await;
    db.admin().run(&send_sql("s", &["x"])).await;
    let name = format!("{}_restored", db.name());
    db.admin()
        .run(&format!("CREATE DATABASE {name} TEMPLATE template0"))
        .await;
    restore(db.cluster().program("psql"), &name, &dump(&db, &[])).expect("restored");
    let new = Database::existing(db.cluster(), &name).await;
    let error = new.admin().fails("DROP EXTENSION postroom").await;
    assert_eq!(error.code().code(), "55000");
    new.admin().run(&format!("SET ROLE {app}")).await;
    new.admin().run("SELECT postroom.send('note', '1')").await;
    let claim = "SELECT postroom.register_instance('x')";
    assert_eq!(new.admin().sqlstate(claim).await, "42501");
    new.admin().run("RESET ROLE").await;
    new.assert_sound().await;
}

#[tokio::test]
async fn restoring_over_undelivered_messages_wants_the_setting() {
    let db = Database::create().await;
    db.admin().run(&send_sql("s", &["kept"])).await;
    let script = dump(&db, &["--clean", "--if-exists"]);
    db.admin().run(&send_sql("s", &["newer"])).await;
    let refused = restore(db.cluster().program("psql"), db.name(), &script);
    let refused = refused.expect_err("newer would be lost");
    assert!(
        refused.contains("55000") && refused.contains("postroom.allow_drop"),
        "{refused}"
    );
    let mut psql = db.cluster().program("psql");
    psql.env("PGOPTIONS", "-c postroom.allow_drop=on");
    restore(psql, db.name(), &script).expect("restored");
    let worker = Worker::register(&db).await;
    assert_eq!(payloads(&worker.claim_some().await), ["kept"]);
    db.assert_sound().await;
}
