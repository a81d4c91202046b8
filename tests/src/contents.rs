//! What is registered for pg_dump, row by row: it must survive a restore and an update.

use std::collections::BTreeMap;

use crate::database::Database;

/// Of each registered table its columns and the condition of its rows, from the catalog.
const REGISTERED: &str = "
SELECT c.relname, c.relkind, COALESCE(d.condition, ''), string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
  FROM pg_extension e, unnest(e.extconfig, e.extcondition) AS d (oid, condition)
  JOIN pg_class c ON c.oid = d.oid
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE e.extname = 'postroom'
 GROUP BY 1, 2, 3";

/// Tables whose rows are worth nothing in another cluster.
const TRANSIENT: &str = "
SELECT c.relname FROM pg_class c
 WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind = 'r'
   AND NOT EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'postroom' AND c.oid = ANY (e.extconfig))";

/// A question per registered table and sequence, and what this database answers.
pub type Contents = BTreeMap<String, Vec<String>>;

pub async fn contents(db: &Database) -> Contents {
    let mut contents = Contents::new();
    for row in db.admin().rows(REGISTERED).await {
        let columns: Vec<&str> = row.splitn(4, '|').collect();
        let [name, kind, condition, columns] = columns[..] else {
            panic!("not a registered table: {row}")
        };
        let question = if kind == "S" {
            format!("SELECT last_value, is_called FROM postroom.{name}")
        } else {
            format!("SELECT {columns} FROM postroom.{name} {condition}")
        };
        let answer = sorted(db.admin().rows(&question).await);
        assert!(!answer.is_empty(), "the story puts nothing into {name}");
        contents.insert(question, answer);
    }
    contents
}

/// A database has what it had, or what the one had that it was restored from. Columns that are new are
/// not looked at.
pub async fn assert_kept(db: &Database, before: &Contents) {
    for (question, answer) in before {
        let now = sorted(db.admin().rows(question).await);
        assert_eq!(&now, answer, "{question}");
    }
}

/// Nothing else has rows: a restored database has forgotten who worked on what.
pub async fn assert_forgotten(db: &Database) {
    for table in db.admin().rows(TRANSIENT).await {
        let count = format!("SELECT count(*) FROM postroom.{table}");
        assert_eq!(db.admin().number(&count).await, 0, "{table}");
    }
    let short = "SELECT count(*) FROM postroom.hold WHERE due <> 'infinity'";
    assert_eq!(db.admin().number(short).await, 0, "holds that will be over");
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}
