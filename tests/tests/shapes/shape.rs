//! The shapes: who takes them, and values for their types.

use crate::page::{page, table};

/// A heading of the page, the calls that take the shape, and what else its objects need.
pub struct Shape {
    pub heading: &'static str,
    pub calls: &'static [Call],
    /// What must be there, or an optional key would be refused for another reason.
    pub company: &'static [(&'static str, &'static str)],
}

/// SQL with $ for the array, the argument's name, and keys that only this call requires.
pub type Call = (&'static str, &'static str, &'static [&'static str]);

pub const SHAPES: &[Shape] = &[
    Shape {
        heading: "Outbox message",
        calls: &[
            (
                "SELECT * FROM postroom.store_outbox_messages('$')",
                "messages",
                &[],
            ),
            (
                "SELECT * FROM postroom.process_work_batch(postroom.new_id(), 's', new_outbox_messages => '$', claims => '{}')",
                "new_outbox_messages",
                &["message_id"],
            ),
        ],
        company: &[
            ("is_event", "stream_id"),
            ("expected_version", "stream_id"),
            ("expected_version", "is_event"),
        ],
    },
    Shape {
        heading: "Event",
        calls: &[
            (
                "SELECT * FROM postroom.append_events(postroom.new_id(), '$')",
                "events",
                &[],
            ),
            (
                "SELECT * FROM postroom.try_append_events(postroom.new_id(), '$')",
                "events",
                &[],
            ),
        ],
        company: &[],
    },
    Shape {
        heading: "Inbox message",
        calls: &[
            // The call names the consumer.
            (
                "SELECT * FROM postroom.store_inbox_messages('$', 'c')",
                "messages",
                &["-consumer_id"],
            ),
            (
                "SELECT * FROM postroom.process_work_batch(postroom.new_id(), 's', new_inbox_messages => '$', claims => '{}')",
                "new_inbox_messages",
                &["consumer_id"],
            ),
        ],
        company: &[],
    },
    Shape {
        heading: "Failure",
        calls: &[
            (
                "SELECT * FROM postroom.fail_outbox(0, '$')",
                "failures",
                &[],
            ),
            ("SELECT * FROM postroom.fail_inbox(0, '$')", "failures", &[]),
            (
                "SELECT * FROM postroom.process_work_batch(postroom.new_id(), 's', outbox_failures => '$', claims => '{}')",
                "outbox_failures",
                &["claim_id"],
            ),
            (
                "SELECT * FROM postroom.process_work_batch(postroom.new_id(), 's', inbox_failures => '$', claims => '{}')",
                "inbox_failures",
                &["claim_id"],
            ),
        ],
        company: &[],
    },
    Shape {
        heading: "Completion",
        calls: &[
            (
                "SELECT * FROM postroom.process_work_batch(postroom.new_id(), 's', outbox_completions => '$', claims => '{}')",
                "outbox_completions",
                &[],
            ),
            (
                "SELECT * FROM postroom.process_work_batch(postroom.new_id(), 's', inbox_completions => '$', claims => '{}')",
                "inbox_completions",
                &[],
            ),
        ],
        company: &[],
    },
];

/// Values of a type: some that are taken, and some that are refused, with the SQLSTATE.
pub type Values = (
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

pub fn values(kind: &str) -> Values {
    match kind {
        "text" => (
            &[r#""some words""#, r#""Zoë \"quoted\" 🛩""#],
            &[("7", "22023"), (r#"["a"]"#, "22023")],
        ),
        "uuid" => (
            &[r#""01890000-0000-7000-8000-00000000000a""#],
            &[
                (r#""no uuid""#, "22023"),
                ("7", "22023"),
                (r#""00000000-0000-0000-0000-000000000000""#, "22023"),
            ],
        ),
        "any JSON" => (
            &["null", "0", r#""text""#, r#"[{"a": [1.50, null]}]"#],
            &[(r#""\u0000""#, "22P05")],
        ),
        "boolean" => (
            &["true", "false"],
            &[(r#""true""#, "22023"), ("1", "22023")],
        ),
        "integer" => (
            &["2"],
            &[(r#""2""#, "22023"), ("1e30", "22023"), ("2.5", "22023")],
        ),
        "bigint" => (
            &["0", r#""0""#],
            &[
                ("true", "22023"),
                (r#""0x7""#, "22023"),
                ("9223372036854775808", "22023"),
            ],
        ),
        "timestamptz" => (
            &[r#""2001-02-03T04:05:06.789Z""#, r#""2001-02-03 04:05+02""#],
            &[(r#""soonish""#, "22007"), (r#""2001-02-30""#, "22008")],
        ),
        "hexadecimal" => (
            &[r#""00fF""#, r#""""#],
            &[(r#""0""#, "22023"), (r#""xy""#, "22023")],
        ),
        other => panic!("the page names a type without values: {other}"),
    }
}

pub struct Key {
    pub name: String,
    pub kind: String,
    pub required: bool,
}

impl Shape {
    /// The keys the page gives, as far as this call takes them.
    pub fn keys(&self, call: &Call) -> Vec<Key> {
        let rows = table(&page(), self.heading).into_iter();
        rows.map(|cells| Key {
            required: call.2.contains(&cells[0].as_str())
                || cells[2].starts_with("required") && !cells[2].starts_with("required in"),
            name: cells[0].clone(),
            kind: cells[1].clone(),
        })
        .filter(|key| !call.2.contains(&format!("-{}", key.name).as_str()))
        .collect()
    }
}
