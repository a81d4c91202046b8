//! usage: pairs [working | beside | hung | readers]...
//!
//! What wake-ups cost those who store: 32 clients, 15 pairs of 5 s, with `postroom.wake` on and off.
//! `working`: one worker that listens takes what they store. `beside`: nobody takes it, and a worker that
//! serves other lanes sleeps all the time, so that each store looks up the owner of its lane. `hung`: the
//! owner of all lanes has been rung for and never comes, the worst that can be.
//! `readers`: what those who append events lose while four sessions ask for the stable position a hundred
//! times a second each.
//! PAIRS, SECONDS_EACH and CLIENTS set other sizes; SYNC=off leaves out the wait for the disk.

use std::env;
use std::process::ExitCode;

use postroom::transport::in_process::InProcess;
use postroom::worker::{Running, Worker};
use postroom_tests::cluster::DURABLE;
use postroom_tests::pairs::{Beside, Plan, Way, duration, measure, median_ratio};
use postroom_tests::{Cluster, Database, Sleeper};
use tokio_postgres::Config;

/// What is asked of the median.
const ENOUGH: f64 = 0.95;
const SCRIPT: &str = "\\set s random(1, 10000)
SELECT postroom.send('note', jsonb_build_object('text', repeat('x', 200)), postroom.stream_id_of('s' || :s), 'desk');
";

const APPEND: &str = "\\set s random(1, 10000)
SELECT position FROM postroom.append_events(postroom.stream_id_of('s' || :s),
    jsonb_build_array(jsonb_build_object('event_type', 'noted', 'payload', repeat('x', 200))));
";
const ASK: &str = "SELECT postroom.stable_position();\n";

/// Whoever is there to be rung for.
enum Listener {
    Nobody,
    Working(Running),
    Sleeping(Sleeper),
}

#[tokio::main]
async fn main() -> ExitCode {
    let plan = Plan {
        clients: number("CLIENTS", 32),
        pairs: number("PAIRS", 15) as usize,
        seconds: number("SECONDS_EACH", 5),
    };
    let mut names: Vec<String> = env::args().skip(1).collect();
    if names.is_empty() {
        names = ["working", "beside", "hung", "readers"]
            .map(String::from)
            .into();
    }
    let mut is_enough = true;
    for name in names {
        // The worst is for information.
        is_enough &= one(&name, plan).await || name == "hung";
    }
    if is_enough {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn number(name: &str, default: u32) -> u32 {
    let given = env::var(name).ok();
    given.map_or(default, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number"))
    })
}

async fn one(name: &str, plan: Plan) -> bool {
    let sync = env::var("SYNC").unwrap_or_else(|_| "on".into());
    let mut settings = DURABLE.to_vec();
    settings.retain(|(name, _)| *name != "synchronous_commit");
    settings.extend([
        ("synchronous_commit", sync.as_str()),
        ("shared_buffers", "'512MB'"),
        ("max_wal_size", "'8GB'"),
    ]);
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start(&settings)));
    let db = Database::create_on(cluster).await;
    println!(
        "{name}: {} clients, {} pairs of {} s, synchronous_commit {sync}; about {} s",
        plan.clients,
        plan.pairs,
        plan.seconds,
        duration(plan).as_secs()
    );
    let listener = listener(name, &db).await;
    let database = db.name().to_string();
    let (with, without) = ways(name);
    let pairs = tokio::task::spawn_blocking(move || {
        measure(
            cluster,
            &database,
            plan,
            (&with, &without),
            |number, (with, without)| {
                println!(
                    "{number:>3}  with {with:>8.0}/s  without {without:>8.0}/s  ratio {:.3}",
                    with / without
                );
            },
        )
    });
    let pairs = pairs.await.expect("no panic");
    stop(listener).await;
    let ratio = median_ratio(&pairs);
    println!("{name}: median ratio {ratio:.3} (at least {ENOUGH})");
    ratio >= ENOUGH
}

fn ways(name: &str) -> (Way, Way) {
    if name != "readers" {
        return (storing("on"), storing("off"));
    }
    let readers = Beside {
        clients: 4,
        rate: 400,
        script: ASK.into(),
    };
    (appending(Some(readers)), appending(None))
}

fn storing(wake: &str) -> Way {
    Way {
        script: SCRIPT.into(),
        settings: format!("-c postroom.wake={wake}"),
        beside: None,
    }
}

fn appending(beside: Option<Beside>) -> Way {
    Way {
        script: APPEND.into(),
        settings: String::new(),
        beside,
    }
}

async fn listener(name: &str, db: &Database) -> Listener {
    if name == "readers" {
        return Listener::Nobody;
    }
    if name != "working" {
        let sleeper = Sleeper::register(db).await;
        sleeper.sleep().await;
        if name == "beside" {
            // Somebody who is awake owns all that is stored into.
            db.admin()
                .run("UPDATE postroom.lane SET owner = postroom.new_id()")
                .await;
        }
        return Listener::Sleeping(sleeper);
    }
    let config: Config = db.url().parse().expect("a connection string");
    let worker = Worker::new(config.clone(), "pairs")
        .listen(config)
        .publish(InProcess::new());
    Listener::Working(worker.start())
}

async fn stop(listener: Listener) {
    match listener {
        Listener::Nobody => {}
        Listener::Sleeping(sleeper) => sleeper.wake_up().await,
        Listener::Working(running) => {
            running.shutdown(std::time::Duration::from_secs(10)).await;
        }
    }
}
