//! For each call: what must be there, the call itself, and what others commit meanwhile.

use postroom_tests::Database;
use uuid::Uuid;

/// A call with what it is about, made anew for each cell.
pub struct Scene {
    pub call: String,
    /// What another session commits after the snapshot and before the call.
    pub meanwhile: String,
    instance: String,
}

/// The call, what is stored and claimed for it beforehand, and what happens meanwhile. `{claim}` stands
/// for the claim of message `{id}` of the outbox or of consumer `{c}`, `{me}` for a new instance.
struct Script {
    claimed_from: &'static str,
    call: &'static str,
    meanwhile: &'static str,
}

const fn script(call: &'static str, meanwhile: &'static str) -> Script {
    Script {
        claimed_from: "",
        call,
        meanwhile,
    }
}

const fn claimed(from: &'static str, call: &'static str, meanwhile: &'static str) -> Script {
    Script {
        claimed_from: from,
        call,
        meanwhile,
    }
}

const STORE: &str =
    r#"store_outbox_messages('[{"message_id": "{id}", "message_type": "n", "payload": 1}]')"#;
const ACCEPT: &str =
    r#"store_inbox_messages('[{"message_id": "{id}", "message_type": "n", "payload": 1}]', '{c}')"#;
const APPEND: &str = r#"append_events('{stream}', '[{"event_type": "e", "payload": 1}]')"#;

const BURY: &str = "bury('outbox', NULL, '{id}', 'me', 'why')";
const HOLD: &str = "hold_stream('outbox', NULL, '{stream}', 'why')";

fn producing(name: &str) -> Option<Script> {
    Some(match name {
        "send" => script("send('n', '1', message_id => '{id}')", STORE),
        "store_outbox_messages" => script(STORE, STORE),
        "store_outbox_arrays" => script(
            "store_outbox_arrays('{n}', ARRAY['1']::jsonb[], message_ids => '{{id}}')",
            STORE,
        ),
        "append_events" => script(APPEND, APPEND),
        "try_append_events" => script(
            r#"try_append_events('{stream}', '[{"event_type": "e", "payload": 1}]')"#,
            APPEND,
        ),
        "store_inbox_messages" => script(ACCEPT, ACCEPT),
        "store_inbox_arrays" => script(
            "store_inbox_arrays('{c}', '{{id}}', '{n}', ARRAY['1']::jsonb[])",
            ACCEPT,
        ),
        "set_checkpoint" => script("set_checkpoint('{c}', '1')", "set_checkpoint('{c}', '2')"),
        "get_checkpoint" => script("get_checkpoint('{c}')", "set_checkpoint('{c}', '2')"),
        "read_stream" => script("read_stream('{stream}')", APPEND),
        "stream_version" => script("stream_version('{stream}')", APPEND),
        "stable_position" => script("stable_position()", APPEND),
        "read_events" => script("read_events(0)", APPEND),
        _ => return None,
    })
}

fn working(name: &str) -> Option<Script> {
    Some(match name {
        "register_instance" => script(
            "register_instance('tests', '{id}')",
            "register_instance('tests', '{id}')",
        ),
        "heartbeat_instance" => script("heartbeat_instance('{me}')", "heartbeat_instance('{me}')"),
        "deregister_instance" => {
            script("deregister_instance('{me}')", "heartbeat_instance('{me}')")
        }
        "claim_outbox" => script("claim_outbox('{me}')", STORE),
        "claim_inbox" => script("claim_inbox('{me}', '{c}')", ACCEPT),
        "read_claims" => claimed("inbox", "read_claims('{me}')", "renew_claims('{{claim}}')"),
        "process_work_batch" => script(
            "process_work_batch('{me}', 'tests')",
            "heartbeat_instance('{me}')",
        ),
        "mark_idle" => script("mark_idle('{me}')", "heartbeat_instance('{me}')"),
        "mark_busy" => script("mark_busy('{me}')", "heartbeat_instance('{me}')"),
        "renew_claims" => claimed(
            "inbox",
            "renew_claims('{{claim}}')",
            "renew_claims('{{claim}}')",
        ),
        "complete_outbox" => claimed(
            "outbox",
            "complete_outbox({claim}, '{{id}}')",
            "complete_outbox({claim}, '{{id}}')",
        ),
        "complete_inbox" => claimed(
            "inbox",
            "complete_inbox({claim}, '{{id}}')",
            "complete_inbox({claim}, '{{id}}')",
        ),
        "complete_inbox_now" => claimed(
            "inbox",
            "complete_inbox_now({claim}, '{id}')",
            "complete_inbox({claim}, '{{id}}')",
        ),
        "fail_outbox" => claimed(
            "outbox",
            r#"fail_outbox({claim}, '[{"message_id": "{id}"}]')"#,
            "complete_outbox({claim}, '{{id}}')",
        ),
        "fail_inbox" => claimed(
            "inbox",
            r#"fail_inbox({claim}, '[{"message_id": "{id}"}]')"#,
            "complete_inbox({claim}, '{{id}}')",
        ),
        "release_outbox" => claimed(
            "outbox",
            "release_outbox({claim}, '{{id}}')",
            "complete_outbox({claim}, '{{id}}')",
        ),
        "release_inbox" => claimed(
            "inbox",
            "release_inbox({claim}, '{{id}}')",
            "complete_inbox({claim}, '{{id}}')",
        ),
        _ => return None,
    })
}

fn operating(name: &str) -> Option<Script> {
    Some(match name {
        "read_dead_letters" => script("read_dead_letters()", BURY),
        "replay_dead_letters" => script("replay_dead_letters('{{id}}', 'me', 'why')", BURY),
        "purge_dead_letters" => script("purge_dead_letters('{{id}}', 'me', 'why')", BURY),
        "bury" => script(BURY, BURY),
        "hold_stream" => script(HOLD, HOLD),
        "resume_stream" => script("resume_stream('outbox', NULL, '{stream}')", HOLD),
        "run_upkeep" => script("run_upkeep()", "run_upkeep()"),
        "health" => script("health()", "run_upkeep()"),
        "grant_usage" => script(
            "grant_usage('postgres', 'worker')",
            "grant_usage('postgres', 'worker')",
        ),
        "verify" => script("verify()", STORE),
        _ => return None,
    })
}

fn pure(name: &str) -> Option<Script> {
    Some(match name {
        "stream_id_of" => script("stream_id_of('a')", ""),
        "new_id" => script("new_id()", ""),
        "partition_of" => script("partition_of('{id}')", ""),
        "lane_of" => script("lane_of(1)", ""),
        "version" => script("version()", ""),
        _ => return None,
    })
}

impl Scene {
    pub async fn set(db: &Database, name: &str) -> Scene {
        let script = producing(name)
            .or_else(|| working(name))
            .or_else(|| operating(name))
            .or_else(|| pure(name));
        let script = script.unwrap_or_else(|| panic!("no scene for {name}"));
        let me = db
            .admin()
            .value("SELECT postroom.register_instance('tests')")
            .await;
        let names = [
            ("{id}", Uuid::now_v7().to_string()),
            ("{stream}", Uuid::now_v7().to_string()),
            ("{c}", Uuid::now_v7().to_string()),
            ("{me}", me.clone()),
        ];
        let fill = |text: &str| {
            let fill = |text: String, (name, value): &(&str, String)| text.replace(name, value);
            names.iter().fold(text.to_string(), fill)
        };
        let claim = match script.claimed_from {
            "" => String::new(),
            from => claim(db, from, &fill).await,
        };
        let statement = |text: &str| match text {
            "" => String::new(),
            text => format!("SELECT postroom.{}", fill(text).replace("{claim}", &claim)),
        };
        Scene {
            call: statement(script.call),
            meanwhile: statement(script.meanwhile),
            instance: me,
        }
    }

    /// The channel that a session must listen on before it may sleep.
    pub fn channel(&self) -> String {
        format!("postroom_{}", self.instance.replace('-', ""))
    }

    pub async fn end(self, db: &Database) {
        db.admin()
            .run(&format!(
                "SELECT postroom.deregister_instance('{}')",
                self.instance
            ))
            .await;
    }
}

/// Stores a message and claims it; the claim. The outbox has one owner, who keeps all its lanes.
async fn claim(db: &Database, from: &str, fill: &impl Fn(&str) -> String) -> String {
    let (store, claim) = match from {
        "outbox" => (STORE, "claim_outbox('{owner}', 10000)"),
        _ => (ACCEPT, "claim_inbox('{me}', '{c}')"),
    };
    let owner = db
        .admin()
        .value(
            "SELECT COALESCE((SELECT instance_id FROM postroom.member WHERE queue = 'outbox' LIMIT 1),
                             postroom.register_instance('tests'))",
        )
        .await;
    let claim = fill(claim).replace("{owner}", &owner);
    db.admin()
        .run(&format!(
            "SELECT postroom.{}; SELECT postroom.{claim}",
            fill(store)
        ))
        .await;
    db.admin()
        .value(&fill(
            "SELECT claim_id FROM postroom.claim WHERE '{id}' = ANY (message_ids)",
        ))
        .await
}
