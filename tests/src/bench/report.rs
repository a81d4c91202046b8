//! The document, made of results and of nothing else.

pub mod machine;
mod plot;
pub mod ratio;
mod table;
mod why;
mod words;

use std::fs;
use std::path::Path;

use super::Outcome;
use super::options::SECONDS;
use super::plan::Cell;
use super::run::Results;

/// The README repeats what stands between these.
pub const BEGIN: &str = "<!-- benchmark -->";
pub const END: &str = "<!-- end of benchmark -->";

/// Writes docs/benchmark.md, its plots, and the lines that the README repeats.
pub fn write(results: &Results, docs: &Path) -> Outcome<()> {
    fs::create_dir_all(docs.join("benchmark"))?;
    for cell in &results.cells {
        let svg = plot::draw(results, *cell);
        fs::write(docs.join(format!("benchmark/{}.svg", cell.slug())), svg)?;
    }
    fs::write(docs.join("benchmark.md"), document(results))?;
    let readme = docs.join("../README.md");
    if is_whole(results) && readme.exists() {
        let text = fs::read_to_string(&readme)?;
        fs::write(&readme, repeated(&text, &ratio::lines(results))?)?;
    }
    Ok(())
}

/// Of all cells at full length; the README repeats nothing less.
fn is_whole(results: &Results) -> bool {
    results.seconds == SECONDS && results.cells == Cell::ALL
}

/// The text with the lines in their place.
fn repeated(text: &str, lines: &str) -> Outcome<String> {
    let (before, rest) = text
        .split_once(BEGIN)
        .ok_or("the README has no place for the benchmark")?;
    let (_, after) = rest
        .split_once(END)
        .ok_or("the README's place for the benchmark has no end")?;
    Ok(format!("{before}{BEGIN}\n{lines}{END}{after}"))
}

pub fn summary(results: &Results) -> String {
    ratio::lines(results)
}

fn document(results: &Results) -> String {
    let mut text = format!(
        "# Benchmark\n\nWritten by `make bench` on {}, commit `{}`, {} runs; never by hand. {}\n\n## In short\n\n{BEGIN}\n{}{END}\n\n{}{}",
        results.machine.date,
        results.machine.commit,
        results.runs,
        if is_whole(results) {
            ""
        } else {
            "**This is a try: turns are shortened, or some are left out.**"
        },
        ratio::lines(results),
        why::missed(results),
        words::IN_SHORT,
    );
    text += &format!("\n## Where and with what\n\n{}", table::machine(results));
    text += &format!("\n## How\n\n{}", words::HOW);
    text += &table::plan(results);
    text += "\n## Results\n\nMedians of all runs; behind the rate, its least and its most.\n";
    for cell in &results.cells {
        text += &format!(
            "\n### {}\n\n{}\n\n{}\n![{}](benchmark/{}.svg)\n",
            words::title(*cell),
            words::story(*cell),
            table::cell(results, *cell),
            words::title(*cell),
            cell.slug()
        );
    }
    text + &format!("\n## What cannot be compared\n\n{}", words::NOT_COMPARABLE)
}
