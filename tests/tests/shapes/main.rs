//! docs/messages.md is the contract of the JSON shapes: its tables are held against the server, key by
//! key, and against the catalog, function by function.

mod page;
mod shape;

use std::collections::BTreeSet;

use postroom_tests::{Database, Session};

use page::{page, table};
use shape::{Call, Key, SHAPES, Shape, values};

/// An object with the required keys, `key`, and whatever keeps it company.
fn object(shape: &Shape, keys: &[Key], key: &Key, value: &str) -> String {
    let wanted = |other: &Key| {
        other.required
            || shape
                .company
                .iter()
                .any(|(one, friend)| *one == key.name && *friend == other.name)
    };
    let others = keys
        .iter()
        .filter(|other| other.name != key.name && wanted(other));
    let mut fields: Vec<String> = others
        .map(|other| format!(r#""{}": {}"#, other.name, values(&other.kind).0[0]))
        .collect();
    fields.push(format!(r#""{}": {value}"#, key.name));
    format!("[{{{}}}]", fields.join(", "))
}

/// Runs the call and takes everything back.
async fn outcome(session: &Session, call: &Call, array: &str) -> Result<(), (String, String)> {
    let sql = call.0.replace('$', array);
    session.run("BEGIN").await;
    let result = session.try_rows(&sql).await;
    session.run("ROLLBACK").await;
    result.map(drop).map_err(|error| {
        let error = error
            .as_db_error()
            .unwrap_or_else(|| panic!("{sql}: {error:?}"));
        let told = format!("{} {}", error.message(), error.detail().unwrap_or_default());
        (error.code().code().to_string(), told)
    })
}

#[tokio::test]
async fn envelopes_have_the_keys_of_the_page() {
    let db = Database::create().await;
    let session = db.session().await;
    for shape in SHAPES {
        let told: BTreeSet<String> = table(&page(), shape.heading)
            .into_iter()
            .map(|cells| cells[0].clone())
            .collect();
        for call in shape.calls {
            let (code, message) = outcome(&session, call, r#"[{"surprise": 1}]"#)
                .await
                .expect_err("an unknown key is refused");
            assert_eq!(code, "22023");
            assert!(
                message.contains(&format!("argument={}[0]", call.1)),
                "{message}"
            );
            let (_, list) = message.split_once("expected ").expect("a list of keys");
            let known: BTreeSet<String> = list
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_string)
                .collect();
            assert_eq!(told, known, "{}: {}", shape.heading, call.0);
        }
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn keys_take_what_the_page_says_and_nothing_else() {
    let db = Database::create().await;
    let session = db.session().await;
    for shape in SHAPES {
        for call in shape.calls {
            let keys = shape.keys(call);
            for key in &keys {
                let at = |value: &str| format!("{}: {} = {value}", call.0, key.name);
                let (taken, refused) = values(&key.kind);
                for value in taken {
                    let result = outcome(&session, call, &object(shape, &keys, key, value)).await;
                    assert_eq!(result, Ok(()), "{}", at(value));
                }
                for (value, code) in refused {
                    let result = outcome(&session, call, &object(shape, &keys, key, value)).await;
                    let (got, message) = result.expect_err(&at(value));
                    assert_eq!(got, *code, "{}: {message}", at(value));
                    let placed = message.contains(&format!("argument={}[0]", call.1));
                    assert!(placed || got != "22023", "{}: {message}", at(value));
                }
            }
        }
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn keys_may_be_left_out_unless_they_are_required() {
    let db = Database::create().await;
    let session = db.session().await;
    for shape in SHAPES {
        for call in shape.calls {
            let keys = shape.keys(call);
            let required: Vec<&Key> = keys.iter().filter(|key| key.required).collect();
            let without = |left_out: &str| {
                let kept = required.iter().filter(|key| key.name != left_out);
                let fields =
                    kept.map(|key| format!(r#""{}": {}"#, key.name, values(&key.kind).0[0]));
                format!("[{{{}}}]", fields.collect::<Vec<_>>().join(", "))
            };
            assert_eq!(
                outcome(&session, call, &without("")).await,
                Ok(()),
                "{}",
                call.0
            );
            for key in &required {
                let result = outcome(&session, call, &without(&key.name)).await;
                let (code, message) = result.expect_err(&key.name);
                assert!(
                    ["22023", "22004"].contains(&code.as_str()),
                    "{}: {code} {message}",
                    key.name
                );
            }
        }
    }
    db.assert_sound().await;
}

#[tokio::test]
async fn claim_ids_beyond_what_a_double_holds_may_be_text() {
    let db = Database::create().await;
    let session = db.session().await;
    session
        .run("SELECT setval('postroom.claim_id', 9007199254740993)")
        .await;
    session
        .run("SELECT postroom.send('note', '1'), postroom.send('note', '2')")
        .await;
    let me = session
        .value("SELECT postroom.register_instance('s')")
        .await;
    let claimed = session
        .rows(&format!(
            "SELECT claim_id, message_id FROM postroom.claim_outbox('{me}')"
        ))
        .await;
    for (row, quote) in claimed.iter().zip([r#"""#, ""]) {
        let (claim, message) = row.split_once('|').expect("two columns");
        let batch = format!(
            r#"SELECT outcome FROM postroom.process_work_batch('{me}', 's', claims => '{{}}',
               outbox_completions => '[{{"claim_id": {quote}{claim}{quote}, "message_id": "{message}"}}]')"#
        );
        assert_eq!(session.rows(&batch).await, ["applied"]);
    }
    db.assert_sound().await;
}

/// What the page says of a function, as `in name` and `out name` lines.
fn told() -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    for cells in table(&page(), "Where JSON goes in and comes out") {
        for (way, cell) in [("in", &cells[1]), ("out", &cells[2])] {
            // "a, b: what they are; c, of whom": the names stand before the explanations.
            for part in cell.split(';') {
                let names = part
                    .split(':')
                    .next()
                    .unwrap_or_default()
                    .split(',')
                    .map(str::trim);
                let names = names.filter(|name| !name.is_empty() && !name.contains(' '));
                told.extend(names.map(|name| format!("{} {way} {name}", cells[0])));
            }
        }
    }
    told
}

#[tokio::test]
async fn every_function_with_json_is_on_the_page() {
    let db = Database::create().await;
    let catalog = "
        SELECT p.proname || CASE WHEN a.mode IN ('i', 'v') THEN ' in ' ELSE ' out ' END || a.name
          FROM pg_proc p,
               unnest(COALESCE(p.proallargtypes, p.proargtypes::oid[]), p.proargnames,
                      COALESCE(p.proargmodes, array_fill('i'::\"char\", ARRAY[p.pronargs::int]))) AS a (type, name, mode)
         WHERE p.pronamespace = 'postroom'::regnamespace AND a.type IN ('jsonb'::regtype, 'jsonb[]'::regtype)
        UNION ALL
        SELECT proname || ' out ' || proname FROM pg_proc
         WHERE pronamespace = 'postroom'::regnamespace AND prorettype = 'jsonb'::regtype";
    let catalog: BTreeSet<String> = db.admin().rows(catalog).await.into_iter().collect();
    let wrong: Vec<String> = told().symmetric_difference(&catalog).cloned().collect();
    assert_eq!(wrong, Vec::<String>::new(), "on one side only");
    db.assert_sound().await;
}
