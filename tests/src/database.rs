//! A database of one's own, with the extension, and what tests do to it from outside.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cluster::Cluster;
use crate::session::Session;

/// A fresh database with the extension.
pub struct Database {
    name: String,
    cluster: &'static Cluster,
    admin: Session,
}

impl Database {
    /// On the server that all tests of the binary share.
    pub async fn create() -> Database {
        Database::create_on(Cluster::shared()).await
    }

    /// With settings of its own: `[("postroom.lease", "5s")]`.
    pub async fn create_with(settings: &[(&str, &str)]) -> Database {
        let mut db = Database::create().await;
        db.set(settings).await;
        db
    }

    pub async fn create_on(cluster: &'static Cluster) -> Database {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        make_template(cluster).await;
        let postgres = Session::connect(&cluster.url("postgres")).await;
        postgres
            .run(&format!("CREATE DATABASE {name} TEMPLATE with_postroom"))
            .await;
        let admin = Session::connect(&cluster.url(&name)).await;
        Database {
            name,
            cluster,
            admin,
        }
    }

    /// One that was made in another way.
    pub async fn existing(cluster: &'static Cluster, name: &str) -> Database {
        let admin = Session::connect(&cluster.url(name)).await;
        Database {
            name: name.to_string(),
            cluster,
            admin,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// A new connection.
    pub async fn session(&self) -> Session {
        Session::connect(&self.url()).await
    }

    /// The connection the helpers use, free for a test's own questions.
    pub fn admin(&self) -> &Session {
        &self.admin
    }

    /// Settings of the database, for every session opened from now on.
    pub async fn set(&mut self, settings: &[(&str, &str)]) {
        for (name, value) in settings {
            self.admin
                .run(&format!(
                    "ALTER DATABASE {} SET {name} = '{value}'",
                    self.name
                ))
                .await;
        }
        self.admin = self.session().await;
    }

    /// After a crash of the server: the helpers need a new connection.
    pub async fn reconnect(&mut self) {
        self.admin = self.session().await;
    }

    /// Nothing of the rules is broken, and no session of this database met a bug.
    #[track_caller]
    pub fn assert_sound(&self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let broken = self.admin.rows("SELECT * FROM postroom.verify()").await;
            assert!(
                broken.is_empty(),
                "{caller}: verify() says:\n{}",
                broken.join("\n")
            );
            let mark = format!(" {} XX", self.name);
            let log = self.cluster.log();
            let bugs: Vec<&str> = log.lines().filter(|line| line.contains(&mark)).collect();
            assert!(
                bugs.is_empty(),
                "{caller}: the server's log says:\n{}",
                bugs.join("\n")
            );
        }
    }

    /// Waits until a session waits for a heavyweight lock.
    pub async fn wait_blocked(&self, session: &Session) {
        let sql = format!(
            "SELECT wait_event_type = 'Lock' OR cardinality(pg_blocking_pids(pid)) > 0
               FROM pg_stat_activity WHERE pid = {}",
            session.pid()
        );
        self.admin.wait_for(&sql, "t").await;
    }

    /// Waits until a session waits for exactly this other one.
    pub async fn wait_blocked_by(&self, session: &Session, holder: &Session) {
        let sql = format!(
            "SELECT {} = ANY (pg_blocking_pids({}))",
            holder.pid(),
            session.pid()
        );
        self.admin.wait_for(&sql, "t").await;
    }

    /// Ends a session from outside and waits until its process is gone.
    pub async fn terminate(&self, session: &Session) {
        self.admin
            .run(&format!("SELECT pg_terminate_backend({})", session.pid()))
            .await;
        self.wait_gone(session).await;
    }

    /// Waits until a session's process is gone and its locks with it.
    pub async fn wait_gone(&self, session: &Session) {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid = {}",
            session.pid()
        );
        self.admin.wait_for(&sql, "0").await;
    }

    /// The instance has not been heard for `seconds`.
    pub async fn silence(&self, instance: &str, seconds: u32) {
        self.admin
            .run(&format!(
                "UPDATE postroom.instance
                    SET lease_expiry = clock_timestamp() - interval '{seconds} s',
                        heartbeat_at = clock_timestamp() - interval '{seconds} s'
                  WHERE instance_id = '{instance}'"
            ))
            .await;
    }

    /// The instance has been alive for an hour and will be for another: it may evict others.
    pub async fn season(&self, instance: &str) {
        self.admin
            .run(&format!(
                "UPDATE postroom.instance
                    SET lease_expiry = clock_timestamp() + interval '1 hour',
                        live_since = clock_timestamp() - interval '1 hour'
                  WHERE instance_id = '{instance}'"
            ))
            .await;
        self.wait_old_enough().await;
    }

    /// Nobody is evicted before the server itself has been up for one instance lease.
    pub async fn wait_old_enough(&self) {
        self.admin
            .wait_for(
                "SELECT clock_timestamp() > pg_postmaster_start_time()
                      + current_setting('postroom.instance_lease')::interval",
                "t",
            )
            .await;
    }

    /// The claim ran out a second ago.
    pub async fn lapse(&self, claim: &str) {
        self.admin
            .run(&format!(
                "UPDATE postroom.claim SET lease_expiry = clock_timestamp() - interval '1 s' WHERE claim_id = {claim}"
            ))
            .await;
    }

    /// Every waiting stream may be served now, operators' holds excepted; every schedule is due.
    pub async fn pass_time(&self) {
        self.admin
            .run(
                "UPDATE postroom.hold SET due = clock_timestamp() - interval '1 s'
                  WHERE due > clock_timestamp() AND due <> 'infinity';
                 UPDATE postroom.outbox SET scheduled_for = clock_timestamp() - interval '1 s'
                  WHERE scheduled_for > clock_timestamp();
                 UPDATE postroom.inbox SET scheduled_for = clock_timestamp() - interval '1 s'
                  WHERE scheduled_for > clock_timestamp()",
            )
            .await;
    }
}

/// Makes the database that all others are copied from, once per server.
async fn make_template(cluster: &Cluster) {
    static MADE: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    static MAKING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let key = cluster.host().display().to_string();
    let _making = MAKING.lock().await;
    if MADE
        .lock()
        .expect("no panic while held")
        .get_or_insert_default()
        .contains(&key)
    {
        return;
    }
    let postgres = Session::connect(&cluster.url("postgres")).await;
    postgres.run("CREATE DATABASE with_postroom").await;
    let session = Session::connect(&cluster.url("with_postroom")).await;
    // Another release's catalog, if a run asks for it: the library serves that too.
    let catalog = std::env::var("POSTROOM_CATALOG").ok();
    let version = catalog.map(|version| format!(" VERSION '{version}'"));
    let version = version.unwrap_or_default();
    session
        .run(&format!("CREATE EXTENSION postroom{version}"))
        .await;
    let pid = session.pid();
    drop(session);
    // A database with a session cannot be copied.
    postgres
        .wait_for(
            &format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}"),
            "0",
        )
        .await;
    MADE.lock()
        .expect("no panic while held")
        .get_or_insert_default()
        .insert(key);
}
