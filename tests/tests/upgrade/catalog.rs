//! The catalog of an upgraded extension, object by object.

use postroom_tests::Database;

use crate::old_database;

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
SELECT format('extension %s relocatable %s in %s', extversion, extrelocatable, extnamespace::regnamespace)
  FROM pg_extension WHERE extname = 'postroom'
UNION ALL
SELECT format('privileges from the start of %s %s: %s %s', o.type, o.identity, i.privtype, i.initprivs)
  FROM pg_init_privs i, pg_identify_object(i.classoid, i.objoid, i.objsubid) o
 WHERE o.schema = 'postroom' OR o.type = 'schema' AND o.identity = 'postroom'
UNION ALL
SELECT format('of a column %s.%s: acl %s identity %s generated %s statistics %s compression %s options %s',
              c.relname, a.attname, a.attacl, a.attidentity, a.attgenerated, NULLIF(a.attstattarget, -1), a.attcompression, a.attoptions)
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 WHERE c.relnamespace = 'postroom'::regnamespace AND c.relkind IN ('r', 'v')
UNION ALL
SELECT format('toast of %s options %s', c.relname, t.reloptions)
  FROM pg_class c JOIN pg_class t ON t.oid = c.reltoastrelid WHERE c.relnamespace = 'postroom'::regnamespace
UNION ALL
SELECT format('state of index %s: valid %s, ready %s, identity %s, clustered %s',
              x.indexrelid::regclass, x.indisvalid, x.indisready, x.indisreplident, x.indisclustered)
  FROM pg_index x JOIN pg_class t ON t.oid = x.indrelid WHERE t.relnamespace = 'postroom'::regnamespace
UNION ALL
SELECT format('sequence %s belongs to %s.%s', d.objid::regclass, d.refobjid::regclass, d.refobjsubid)
  FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S'
 WHERE c.relnamespace = 'postroom'::regnamespace AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
UNION ALL
SELECT format('rule %s on %s: %s', r.rulename, c.relname, pg_get_ruledef(r.oid))
  FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class WHERE c.relnamespace = 'postroom'::regnamespace
UNION ALL
SELECT 'type ' || format_type(t.oid, NULL) || ' ' || t.typtype::text
  FROM pg_type t WHERE t.typnamespace = 'postroom'::regnamespace
UNION ALL
SELECT 'schema acl ' || COALESCE(nspacl::text, '') FROM pg_namespace WHERE nspname = 'postroom'
 ORDER BY 1";

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
