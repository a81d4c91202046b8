//! Does a part of the work cost producers anything? Two ways of storing, in turns, with the server's own
//! pgbench; of each pair the ratio, of the ratios the median.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::cluster::Cluster;

/// How many producers, pairs, and seconds of each run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub clients: u32,
    pub pairs: usize,
    pub seconds: u32,
}

/// A way of storing: statements of a pgbench transaction, and settings of its sessions.
#[derive(Clone, Debug)]
pub struct Way {
    pub script: String,
    pub settings: String,
    pub beside: Option<Beside>,
}

/// What others do meanwhile: so many clients, so often a second in all.
#[derive(Clone, Debug)]
pub struct Beside {
    pub clients: u32,
    pub rate: u32,
    pub script: String,
}

/// Transactions a second: with, without.
pub type Pair = (f64, f64);

/// Runs the pairs; `tell` hears of each.
pub fn measure(
    cluster: &Cluster,
    database: &str,
    plan: Plan,
    (with, without): (&Way, &Way),
    mut tell: impl FnMut(usize, Pair),
) -> Vec<Pair> {
    let run = |way: &Way, name: &str| pgbench(cluster, database, plan, way, name);
    // The first run fills caches and is not counted.
    run(without, "warm");
    (0..plan.pairs)
        .map(|number| {
            // Whoever comes second finds larger tables.
            let pair = if number % 2 == 0 {
                let first = run(with, "with");
                (first, run(without, "without"))
            } else {
                let first = run(without, "without");
                (run(with, "with"), first)
            };
            tell(number + 1, pair);
            pair
        })
        .collect()
}

/// The median of what the pairs' quotients are.
pub fn median_ratio(pairs: &[Pair]) -> f64 {
    let mut ratios: Vec<f64> = pairs.iter().map(|(with, without)| with / without).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn pgbench(cluster: &Cluster, database: &str, plan: Plan, way: &Way, name: &str) -> f64 {
    let beside = way.beside.as_ref().map(|beside| {
        let file = script(&beside.script, "beside");
        let mut command = command(cluster, database, beside.clients, plan.seconds, &file);
        command.args(["-R", &beside.rate.to_string()]);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (child.expect("pgbench runs"), file)
    });
    let file = script(&way.script, name);
    let output = command(cluster, database, plan.clients, plan.seconds, &file)
        .args(["-j", "2"])
        .env("PGOPTIONS", &way.settings)
        .output()
        .expect("pgbench runs");
    let _ = std::fs::remove_file(&file);
    if let (Some((child, file)), Some(wanted)) = (beside, &way.beside) {
        let rate = tps(&child.wait_with_output().expect("pgbench ends"));
        let _ = std::fs::remove_file(&file);
        let is_kept = rate > 0.8 * f64::from(wanted.rate);
        assert!(is_kept, "only {rate} a second beside it");
    }
    tps(&output)
}

fn script(text: &str, name: &str) -> PathBuf {
    let file = format!("pairs-{}-{name}.sql", std::process::id());
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, text).expect("a file for the script");
    file
}

fn command(cluster: &Cluster, database: &str, clients: u32, seconds: u32, file: &Path) -> Command {
    let mut command = cluster.program("pgbench");
    command
        .args(["-n", "-M", "prepared", "-c", &clients.to_string()])
        .args(["-T", &seconds.to_string(), "-f"])
        .arg(file)
        .arg(database);
    command
}

fn tps(output: &Output) -> f64 {
    let said = String::from_utf8_lossy(&output.stdout);
    let tps = said.lines().find_map(|line| line.strip_prefix("tps = "));
    tps.and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| {
            let complained = String::from_utf8_lossy(&output.stderr);
            panic!("pgbench said: {said}{complained}")
        })
}

/// How long all of it takes.
pub fn duration(plan: Plan) -> Duration {
    Duration::from_secs(u64::from(plan.seconds) * (2 * plan.pairs as u64 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_the_ratios() {
        let pairs = [(1.0, 2.0), (30.0, 10.0), (9.0, 10.0)];
        assert!((median_ratio(&pairs) - 0.9).abs() < 1e-9);
    }
}
