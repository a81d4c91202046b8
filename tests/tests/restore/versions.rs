//! From each version of Postgres to each that is not older, from each release of the extension to this
//! one. `POSTROOM_VERSIONS` names the servers; the extension must be installed into all of them.

use postroom_tests::contents::assert_forgotten;
use postroom_tests::story::{check, fill};
use postroom_tests::{Cluster, Database, Session};

use crate::restored_into;

const RELEASES: [&str; 2] = ["0.1.0", env!("CARGO_PKG_VERSION")];

fn servers() -> Vec<&'static Cluster> {
    let Ok(versions) = std::env::var("POSTROOM_VERSIONS") else {
        return vec![Cluster::shared()];
    };
    let versions = versions.split_whitespace();
    let versions = versions.map(|major| major.parse().expect("a major version"));
    let start = |major| -> &'static Cluster { Box::leak(Box::new(Cluster::start_version(major))) };
    let mut servers: Vec<_> = versions.map(start).collect();
    servers.sort_by_key(|server| server.major());
    servers
}

#[tokio::test]
async fn dump_of_each_version_goes_on_in_each_that_is_not_older() {
    let servers = servers();
    for (n, old) in servers.iter().enumerate() {
        for (r, release) in RELEASES.iter().enumerate() {
            let name = format!("of_{}_{r}", old.major());
            let postgres = Session::connect(&old.url("postgres")).await;
            postgres.run(&format!("CREATE DATABASE {name}")).await;
            let source = Database::existing(old, &name).await;
            let create = format!("CREATE EXTENSION postroom VERSION '{release}'");
            source.admin().run(&create).await;
            let before = fill(&source).await;
            for new in &servers[n..] {
                println!("{release} on {} to {}", old.major(), new.major());
                let copy = restored_into(&source, new, &format!("{name}_restored")).await;
                let version = "SELECT extversion FROM pg_extension WHERE extname = 'postroom'";
                assert_eq!(
                    copy.admin().value(version).await,
                    RELEASES[1],
                    "a dump names no version"
                );
                assert_forgotten(&copy).await;
                check(&copy, &before).await;
            }
            source.assert_sound().await;
        }
    }
}
