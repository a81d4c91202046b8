//! An upgraded extension is the same as a fresh one, and what a user has stored survives.

use std::time::Duration;

use postroom::worker::{Worker, handler_fn};
use postroom_tests::trace::{finish, leave_trace, prepare, quick, store_inbox, wait_done};
use postroom_tests::{Cluster, Database, Session};

/// Every object of the extension with all that the install scripts say about it, a line each.
const CATALOG: &str = "
SELECT 'member ' || o.type || ' ' || o.identity
  FROM pg_depend d, pg_identify_object(d.classid, d.objid, d.objsubid) o
 WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'postroom')
UNION ALL
SELECT 'function ' || pg_get_functiondef(p.oid) || COALESCE(' acl ' || p.proacl::text, '')
  FROM pg_proc p WHERE p.pronamespace = 'postroom'::regnamespace
UNION ALL
SELECT format('relation %s %s %s options %s acl %s', c.relkind, c.relname, c.relpersistence, c.reloptions, c.relacl)
  FROM pg_class c WHERE c.relnamespace = 'postroom'::regnamespace
UNION ALL
SELECT format('column %s.%s %s %s %s default %s storage %s', c.relname, a.attnum, a.attname,
              format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
              pg_get_expr(f.adbin, f.adrelid), a.attstorage)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
 WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'v')
UNION ALL
SELECT 'index ' || pg_get_indexdef(x.indexrelid)
  FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid WHERE t.relnamespace = 'postroom'::regnamespace
UNION ALL
SELECT format('constraint %s on %s: %s', o.conname, o.conrelid::regclass, pg_get_constraintdef(o.oid))
  FROM pg_constraint o WHERE o.connamespace = 'postroom'::regnamespace
UNION ALL
SELECT 'trigger ' || pg_get_triggerdef(t.oid)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = 'postroom'::regnamespace
UNION ALL
SELECT format('event trigger %s on %s when %s do %s, %s', evtname, evtevent, evttags, evtfoid::regproc, evtenabled)
  FROM pg_event_trigger
UNION ALL
SELECT format('view %s %s', c.relname, pg_get_viewdef(c.oid))
  FROM pg_class c WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind = 'v'
UNION ALL
SELECT format('sequence %s %s', s.seqrelid::regclass, to_jsonb(s) - 'seqrelid')
  FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid WHERE c.relnamespace = 'postroom'::regnamespace
UNION ALL
SELECT format('comment on %s %s: %s', o.type, o.identity, d.description)
  FROM pg_description d, pg_identify_object(d.classoid, d.objoid, d.objsubid) o
 WHERE o.schema = 'postroom' OR o.type = 'schema' AND o.identity = 'postroom'
UNION ALL
SELECT format('dumped %s %s', c.relname, d.condition)
  FROM pg_extension e, unnest(e.extconfig, e.extcondition) AS d (oid, condition) JOIN pg_class c ON c.oid = d.oid
 WHERE e.extname = 'postroom'
UNION ALL
SELECT 'schema acl ' || COALESCE(nspacl::text, '') FROM pg_namespace WHERE nspname = 'postroom'
 ORDER BY 1";

const OLD: &str = "0.1.0";

/// A database whose catalog is of the old version, served by the new library.
async fn old_database(name: &str) -> Database {
    let cluster = Cluster::shared();
    let postgres = Session::connect(&cluster.url("postgres")).await;
    postgres.run(&format!("CREATE DATABASE {name}")).await;
    let db = Database::existing(cluster, name).await;
    db.admin()
        .run(&format!("CREATE EXTENSION postroom VERSION '{OLD}'"))
        .await;
    db
}

#[tokio::test]
async fn upgraded_catalog_is_the_fresh_one() {
    let fresh = Database::create().await;
    let upgraded = old_database("upgraded_catalog").await;
    upgraded
        .admin()
        .run("ALTER EXTENSION postroom UPDATE")
        .await;
    let (fresh, upgraded) = (
        fresh.admin().rows(CATALOG).await,
        upgraded.admin().rows(CATALOG).await,
    );
    let without = |all: &[String], other: &[String]| {
        let lines = all.iter().filter(|line| !other.contains(line));
        lines.cloned().collect::<Vec<_>>().join("\n")
    };
    assert!(
        fresh == upgraded,
        "only in a fresh one:\n{}\nonly in an upgraded one:\n{}",
        without(&fresh, &upgraded),
        without(&upgraded, &fresh)
    );
    assert!(fresh.len() > 100, "{} lines", fresh.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_on_an_old_catalog_polls() {
    let db = old_database("old_worker").await;
    prepare(&db).await;
    let config: tokio_postgres::Config = db.url().parse().expect("a connection string");
    let running = Worker::new(config.clone(), "tests")
        .options(quick())
        .listen(config)
        .handle(
            "c",
            handler_fn(|work, transaction| Box::pin(leave_trace(work, transaction))),
        )
        .start();
    for round in 1..=3 {
        store_inbox(&db, 1, 1).await;
        wait_done(&db, round).await;
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
    finish(&db, running).await;
}
