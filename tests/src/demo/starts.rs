//! What workers write down before each handler: one record per start, in a file that outlives a
//! killed process. So the run knows its progress, and how often a message was handed out, without
//! a question to the database.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use uuid::Uuid;

const RECORD: u64 = 16;

/// The file of one worker.
pub struct Starts(File);

impl Starts {
    pub fn open(path: &Path) -> io::Result<Starts> {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map(Starts)
    }

    /// One write of a few bytes in append mode: whole or not at all, also from several tasks.
    pub fn record(&self, message: Uuid) -> io::Result<()> {
        (&self.0).write_all(message.as_bytes())
    }
}

/// The files of all workers of a run.
#[derive(Default)]
pub struct AllStarts(Vec<PathBuf>);

impl AllStarts {
    pub fn add(&mut self, path: PathBuf) {
        self.0.push(path);
    }

    pub fn count(&self) -> u64 {
        self.0
            .iter()
            .filter_map(|path| path.metadata().ok())
            .map(|file| file.len() / RECORD)
            .sum()
    }

    /// Starts beyond the first one of each message.
    pub fn repeated(&self) -> io::Result<u64> {
        let mut seen = HashSet::new();
        let mut repeated = 0;
        for path in &self.0 {
            if !path.exists() {
                continue;
            }
            for id in std::fs::read(path)?.chunks_exact(RECORD as usize) {
                repeated += u64::from(!seen.insert(id.to_vec()));
            }
        }
        Ok(repeated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted_over_all_workers() {
        let dir = tempfile::tempdir().unwrap();
        let mut all = AllStarts::default();
        let (shared, own) = (Uuid::now_v7(), Uuid::now_v7());
        for (name, ids) in [("one", vec![shared, own]), ("two", vec![shared])] {
            let path = dir.path().join(name);
            let starts = Starts::open(&path).unwrap();
            ids.into_iter().for_each(|id| starts.record(id).unwrap());
            all.add(path);
        }
        assert_eq!(all.count(), 3);
        assert_eq!(all.repeated().unwrap(), 1);
    }
}
