//! Any client: the producers and workers of examples/, in Python and in Node, on one database. What one
//! language stores the other brings out, in order and without a loss, also when workers die or hang.
//!
//! Needs what `setup.sh clients` installs, hence ignored by a plain run.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use postroom_tests::Database;
use postroom_tests::cluster::{self, DEADLINE};
use rustix::process::Signal;

const ACCOUNTS: [&str; 6] = ["ada", "bob", "cleo", "dan", "eve", "fay"];

/// Every fifth change is refused at its first delivery. The client must report that, or the second one
/// would not be told apart.
const REFUSALS: &str = "
CREATE FUNCTION refuse_first() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.number % 5 = 3 AND EXISTS (
        SELECT FROM postroom.outbox WHERE payload = jsonb_build_object('account', NEW.account_id, 'number', NEW.number) AND attempts = 0)
    THEN RAISE 'not at home: %', NEW.number; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse_first BEFORE INSERT ON delivery FOR EACH ROW EXECUTE FUNCTION refuse_first()";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A program of a language, with the libraries that setup.sh put into the cache.
fn interpreter(language: &str) -> Command {
    let libraries = std::env::var("POSTROOM_CLIENTS").expect("POSTROOM_CLIENTS: see setup.sh");
    let mut command = Command::new(if language == "node" {
        "node"
    } else {
        "python3"
    });
    command
        .env("PYTHONPATH", format!("{libraries}/python"))
        .env("NODE_PATH", format!("{libraries}/node/node_modules"));
    command
}

fn example(db: &Database, language: &str, program: &str) -> Command {
    let suffix = if language == "node" { "js" } else { "py" };
    let mut command = interpreter(language);
    command
        .arg(root().join(format!("examples/{language}/{program}.{suffix}")))
        .env_remove("DATABASE_URL")
        .env_remove("PGPORT")
        .env("PGHOST", db.cluster().host())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", db.name())
        .stdin(Stdio::null());
    command
}

/// A worker process; killed when dropped.
struct Worker(Child);

impl Worker {
    fn start(db: &Database, language: &str) -> Worker {
        let mut command = example(db, language, "worker");
        Worker(command.spawn().expect("the worker starts"))
    }

    fn signal(&self, signal: Signal) {
        cluster::signal(self.0.id().cast_signed(), signal);
    }

    /// The orderly end.
    fn end(mut self) {
        self.signal(Signal::TERM);
        let status = self.0.wait().expect("it is ours");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn produce(db: &Database, language: &str, changes: u32) -> Child {
    let mut command = example(db, language, "producer");
    command.arg(changes.to_string()).args(ACCOUNTS);
    command.spawn().expect("the producer starts")
}

fn done(mut producer: Child) {
    assert!(producer.wait().expect("it is ours").success());
}

async fn bank() -> Database {
    let settings = [
        ("postroom.instance_lease", "3s"),
        ("postroom.backoff", "200ms"),
    ];
    let db = Database::create_with(&settings).await;
    let schema = fs::read_to_string(root().join("examples/schema.sql")).expect("a schema");
    let accounts: Vec<String> = ACCOUNTS.iter().map(|name| format!("('{name}')")).collect();
    let admin = db.admin();
    admin.run(&schema).await;
    admin.run(REFUSALS).await;
    admin
        .run(&format!(
            "INSERT INTO account VALUES {}",
            accounts.join(", ")
        ))
        .await;
    // Numbers that a double cannot hold: a client that makes them its own numbers reports wrong claims.
    admin
        .run("SELECT setval('postroom.claim_id', 9007199254740993)")
        .await;
    db
}

/// Waits until every change so far has been brought out and reported.
async fn delivered(db: &Database) {
    let start = Instant::now();
    let left = "SELECT count(*) FROM postroom.outbox";
    while db.admin().number(left).await > 0 {
        let why =
            "SELECT state, attempts, error, count(*) FROM postroom.outbox_status GROUP BY 1, 2, 3";
        if start.elapsed() > 3 * DEADLINE {
            panic!("not brought out: {:#?}", db.admin().rows(why).await);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Per account every number came, and none before the one below it had come. A repeat is the last one
/// again. Returns the number of repeats.
async fn check_order(db: &Database) -> usize {
    let mut reached: HashMap<String, i64> = HashMap::new();
    let mut repeats = 0;
    let rows = "SELECT account_id, number FROM delivery ORDER BY delivery_id";
    for row in db.admin().rows(rows).await {
        let (account, number) = row.split_once('|').expect("two columns");
        let number: i64 = number.parse().expect("a number");
        let last = reached.entry(account.to_string()).or_default();
        assert!(number == *last || number == *last + 1, "{row} after {last}");
        repeats += usize::from(number == *last);
        *last = number;
    }
    for row in db.admin().rows("SELECT * FROM account").await {
        let (account, changes) = row.split_once('|').expect("two columns");
        assert_eq!(reached[account].to_string(), changes, "{account}");
    }
    repeats
}

async fn brought_out_by(db: &Database, worker: &str) -> i64 {
    let count = format!("SELECT count(*) FROM delivery WHERE worker = '{worker}'");
    db.admin().number(&count).await
}

#[tokio::test]
#[ignore = "needs Python and Node with their libraries: setup.sh clients"]
async fn each_language_brings_out_what_the_other_stored() {
    for (producer, worker) in [("python", "node"), ("node", "python")] {
        let db = bank().await;
        let running = Worker::start(&db, worker);
        done(produce(&db, producer, 10));
        delivered(&db).await;
        assert_eq!(check_order(&db).await, 0);
        assert_eq!(brought_out_by(&db, worker).await, 60);
        running.end();
        let left = "SELECT (SELECT count(*) FROM postroom.member), (SELECT count(*) FROM postroom.lane WHERE owner IS NOT NULL)";
        assert_eq!(db.admin().value(left).await, "0|0", "it deregistered");
        db.assert_sound().await;
    }
}

#[tokio::test]
#[ignore = "needs Python and Node with their libraries: setup.sh clients"]
async fn languages_mix_and_a_killed_worker_is_replaced_by_one_of_the_other() {
    let db = bank().await;
    let python = Worker::start(&db, "python");
    let node = Worker::start(&db, "node");
    let producers = [produce(&db, "python", 40), produce(&db, "node", 40)];
    let both = "SELECT count(DISTINCT worker) FROM delivery";
    db.admin().wait_for(both, "2").await;
    drop(python);
    let heir = Worker::start(&db, "python");
    producers.into_iter().for_each(done);
    drop(node);
    delivered(&db).await;
    let repeats = check_order(&db).await;
    assert!(repeats <= 2, "{repeats} repeats of two messages in hand");
    heir.end();
    db.assert_sound().await;
}

#[tokio::test]
#[ignore = "needs Python and Node with their libraries: setup.sh clients"]
async fn worker_presumed_gone_drops_its_work_and_registers_anew() {
    for (hanging, other) in [("python", "node"), ("node", "python")] {
        let db = bank().await;
        let sleeper = Worker::start(&db, hanging);
        done(produce(&db, other, 1));
        delivered(&db).await;
        // It sends a message out, and hangs before it hears of that.
        let gate = db.session().await;
        gate.run("BEGIN; LOCK TABLE delivery IN SHARE MODE").await;
        done(produce(&db, other, 4));
        let at_the_gate =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'delivery'::regclass";
        db.admin().wait_for(at_the_gate, "1").await;
        sleeper.signal(Signal::STOP);
        gate.run("COMMIT").await;
        let helper = Worker::start(&db, other);
        delivered(&db).await;
        let gone = format!(
            "SELECT count(*) FROM postroom.instance WHERE service_name = '{hanging}' AND evicted_at IS NOT NULL"
        );
        assert_eq!(db.admin().number(&gone).await, 1);
        helper.end();
        sleeper.signal(Signal::CONT);
        let before = brought_out_by(&db, hanging).await;
        done(produce(&db, other, 2));
        delivered(&db).await;
        assert_eq!(brought_out_by(&db, hanging).await, before + 12);
        assert_eq!(check_order(&db).await, 1, "the one in its hand");
        sleeper.end();
        db.assert_sound().await;
    }
}

/// Runs the one block of a language in docs/messages.md, and prints what its function says.
fn told(language: &str, print: &str) -> String {
    let text = fs::read_to_string(root().join("docs/messages.md")).expect("the page exists");
    let mark = format!("```{language}\n");
    let block = text.split(&mark).nth(1).expect("a block of the language");
    let block = block.split("\n```").next().expect("a block ends");
    let option = if language == "js" { "-e" } else { "-c" };
    let mut command = interpreter(if language == "js" { "node" } else { "python" });
    let Output { status, stdout, .. } = command
        .args([option, &format!("{block}\n{print}")])
        .stderr(Stdio::inherit())
        .output()
        .expect("the interpreter runs");
    assert!(status.success(), "{status}");
    String::from_utf8(stdout).expect("text")
}

#[tokio::test]
#[ignore = "needs Python and Node with their libraries: setup.sh clients"]
async fn stream_ids_are_the_same_in_every_language() {
    let db = Database::create().await;
    let sql = "SELECT postroom.stream_id_of(key) FROM unnest(ARRAY['N14228', '', 'Zoë 🛩']) AS key";
    let server = db.admin().rows(sql).await.join("\n") + "\n";
    let python = told(
        "python",
        "for key in ['N14228', '', 'Zoë 🛩']: print(stream_id_of(key))",
    );
    let node = told(
        "js",
        "for (const key of ['N14228', '', 'Zoë 🛩']) console.log(stream_id_of(key));",
    );
    assert_eq!((python, node), (server.clone(), server));
    db.assert_sound().await;
}
