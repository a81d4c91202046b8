//! Upkeep forgets what has ended and nothing else; probes, views, rights; the guard against DROP EXTENSION.

mod cost;
mod drop;
mod dump;
mod forget;
mod grant;
mod health;
mod instance;

use postroom_tests::{Database, Session};

/// `removed` of one task, called until there is no more to look at.
async fn upkeep(session: &Session, task: &str, batch: u32) -> i64 {
    let mut removed = 0;
    for _ in 0..1000 {
        let row = session
            .value(&format!(
                "SELECT removed, come_back FROM postroom.run_upkeep({batch}) WHERE task = '{task}'"
            ))
            .await;
        let (some, more) = row.split_once('|').expect("two columns");
        removed += some.parse::<i64>().expect("a number");
        if more == "f" {
            return removed;
        }
    }
    panic!("{task}: upkeep comes to no end");
}

/// A role of this database alone; its name.
async fn role(db: &Database, name: &str) -> String {
    let role = format!("{}_{name}", db.name());
    db.admin().run(&format!("CREATE ROLE {role}")).await;
    role
}
