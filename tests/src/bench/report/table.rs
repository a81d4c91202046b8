//! The tables of the document.

use super::super::plan::Cell;
use super::super::run::Results;
use super::super::sample::{Middle, Sample};
use super::super::side::Side;
use super::ratio::{rate, samples, thousands};
use super::words;

pub fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let settings: String = machine
        .settings
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect();
    let versions: String = machine
        .versions
        .iter()
        .map(|version| format!("* {}\n", version.trim()))
        .collect();
    format!(
        "{} cores of {}, {:.0} GiB of memory, {}, Linux {}. A page written and brought to disk by fdatasync, before the runs: \
         {} times a second. Server and the program that measures share the machine, at niceness {}. The run took \
         {} min {} s.{}\n\nVersions, as each says itself:\n\n{versions}\nSettings that are not Postgres' defaults, for all \
         sides the same:\n\n```text\n{settings}```\n",
        machine.cores,
        machine.processor,
        machine.memory_gib,
        machine.system,
        machine.kernel,
        machine.fdatasync,
        machine.niceness,
        machine.took / 60,
        machine.took % 60,
        if machine.note.is_empty() {
            String::new()
        } else {
            format!(" {}", machine.note)
        },
    )
}

/// Which turns there are, and how long each may take.
pub fn plan(results: &Results) -> String {
    let mut text = format!(
        "\n{} runs; seconds of a turn:\n\n| cell | `ONLY=` | turns |\n|---|---|---|\n",
        results.runs
    );
    for cell in &results.cells {
        let turns: Vec<String> = present(results, *cell)
            .into_iter()
            .map(|side| format!("{} {:.0}", side.name(), results.seconds * cell.part(side)))
            .collect();
        text += &format!(
            "| {} | `{}` | {} |\n",
            words::title(*cell),
            cell.slug(),
            turns.join(", ")
        );
    }
    text
}

/// The sides that took part, in the order of the plan.
pub fn present(results: &Results, cell: Cell) -> Vec<Side> {
    let took_part = |side: &&Side| !samples(results, cell, **side).is_empty();
    cell.sides().iter().filter(took_part).copied().collect()
}

type Column = (&'static str, fn(&Sample) -> Option<f64>, usize);

const COSTS: [Column; 6] = [
    (
        "sessions' CPU, µs",
        |s| s.per_message(s.spent.sessions * 1e6),
        1,
    ),
    (
        "rest of server, µs",
        |s| s.per_message(s.spent.others * 1e6),
        1,
    ),
    ("client, µs", |s| s.per_message(s.spent.client * 1e6), 1),
    ("WAL, bytes", |s| s.per_message(s.spent.wal), 0),
    ("row versions that died", |s| s.per_message(s.spent.died), 2),
    ("growth, bytes", |s| s.per_message(s.spent.growth), 0),
];
const DEAD: Column = ("dead rows at the end", |s| Some(s.spent.dead), 0);
const TIMES: [Column; 2] = [("p50, ms", |s| s.p50, 2), ("p99, ms", |s| s.p99, 2)];
const LATE: Column = ("p50 of the last tenth, ms", |s| s.late, 2);
const OVERTAKEN: Column = ("overtaken", |s| s.overtaken.map(|n| n as f64), 0);

fn columns(cell: Cell) -> Vec<Column> {
    let mut columns = Vec::new();
    if !matches!(
        cell,
        Cell::Enqueue | Cell::Append | Cell::AppendMany | Cell::Together
    ) {
        columns.extend(TIMES);
    }
    if matches!(
        cell,
        Cell::Small | Cell::Large | Cell::SmallHeld | Cell::LargeHeld
    ) {
        columns.push(LATE);
    }
    if cell == Cell::Order {
        columns.push(OVERTAKEN);
    }
    columns.extend(COSTS);
    columns.push(DEAD);
    columns
}

/// One line a side; costs are per message.
pub fn cell(results: &Results, cell: Cell) -> String {
    let columns = columns(cell);
    let names: Vec<&str> = columns.iter().map(|(name, ..)| *name).collect();
    let mut text = format!("| side | messages/s | {} |\n", names.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(columns.len() + 1));
    for side in present(results, cell) {
        let Some(rate) = rate(results, cell, side) else {
            continue;
        };
        let of_side = samples(results, cell, side);
        let values: Vec<String> = columns
            .iter()
            .map(|column| median(&of_side, column))
            .collect();
        text += &format!(
            "| {} | {} ({} to {}) | {} |\n",
            side.name(),
            thousands(rate.median),
            thousands(rate.least),
            thousands(rate.most),
            values.join(" | ")
        );
    }
    text
}

fn median(samples: &[&Sample], (_, value, digits): &Column) -> String {
    match Middle::of(samples.iter().filter_map(|sample| value(sample))) {
        Some(middle) if *digits == 0 => thousands(middle.median),
        Some(middle) => format!("{:.*}", *digits, middle.median),
        None => "–".into(),
    }
}
