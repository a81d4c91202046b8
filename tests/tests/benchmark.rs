//! What the documents say of speed is what was measured, and the program that measures still runs.

use std::fs;
use std::path::{Path, PathBuf};

use postroom_tests::bench::options::Options;
use postroom_tests::bench::plan::Cell;
use postroom_tests::bench::report::{self, BEGIN, END};
use postroom_tests::bench::run::{self, Results};
use postroom_tests::bench::side::templates::Template;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn repeated(file: &str) -> String {
    let text = fs::read_to_string(root().join(file)).expect("the document is there");
    let (_, rest) = text.split_once(BEGIN).expect("a place for the benchmark");
    let (lines, _) = rest.split_once(END).expect("its end");
    lines.trim().to_string()
}

#[test]
fn readme_says_of_speed_what_the_benchmark_says() {
    let results = fs::read_to_string(root().join("docs/benchmark/results.json")).expect("results");
    let results: Results = serde_json::from_str(&results).expect("results of this program");
    assert_eq!(repeated("README.md"), report::summary(&results).trim());
    assert_eq!(repeated("README.md"), repeated("docs/benchmark.md"));
}

#[tokio::test(flavor = "multi_thread")]
async fn benchmark_measures_every_kind_of_work_of_its_own_sides() {
    let docs = tempfile::tempdir().expect("a directory");
    let options = Options {
        seconds: 0.4,
        runs: 1,
        cells: vec![
            Cell::Enqueue,
            Cell::Drain100,
            Cell::Order,
            Cell::SmallHeld,
            Cell::Append,
            Cell::Latency,
        ],
        templates: Template::OWN.to_vec(),
        docs: docs.path().to_path_buf(),
    };
    run::run(&options).await.expect("a whole small run");
    let text = fs::read_to_string(docs.path().join("benchmark.md")).expect("the document");
    let results = fs::read_to_string(docs.path().join("benchmark/results.json")).expect("results");
    let results: Results = serde_json::from_str(&results).expect("JSON");
    for sample in &results.samples {
        assert!(sample.messages > 0.0, "{sample:?}");
        assert_eq!(sample.overtaken.unwrap_or(0), 0, "{sample:?}");
        assert!(text.contains(sample.side.name()), "{sample:?}");
        assert!(
            docs.path()
                .join(format!("benchmark/{}.svg", sample.cell.slug()))
                .exists()
        );
    }
}
