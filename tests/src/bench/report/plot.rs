//! One plot a cell: a bar as long as the median, a line over it from the least to the most.

use super::super::plan::Cell;
use super::super::run::Results;
use super::super::sample::Middle;
use super::super::side::Side;
use super::ratio::{samples, thousands};
use super::{table, words};

const WIDE: f64 = 860.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 130.0;
const ROW: f64 = 30.0;
const TOP: f64 = 46.0;

/// What a cell's plot shows: rates, or the times that the cell is about.
fn shown(results: &Results, cell: Cell, side: Side) -> Option<Middle> {
    let samples = samples(results, cell, side);
    match cell {
        Cell::Latency => Middle::of(samples.iter().filter_map(|sample| sample.p99)),
        Cell::Small | Cell::Large | Cell::SmallHeld | Cell::LargeHeld => {
            Middle::of(samples.iter().filter_map(|sample| sample.late))
        }
        _ => Middle::of(samples.iter().map(|sample| sample.rate())),
    }
}

fn unit(cell: Cell) -> &'static str {
    match cell {
        Cell::Latency => "milliseconds, 99th percentile: shorter is better",
        Cell::Small | Cell::Large | Cell::SmallHeld | Cell::LargeHeld => {
            "milliseconds of a call that takes 100, median of the last tenth: shorter is better"
        }
        _ => "messages a second: longer is better",
    }
}

fn figure(cell: Cell, value: f64) -> String {
    match unit(cell).starts_with("milli") {
        true => format!("{value:.2}"),
        false => thousands(value),
    }
}

pub fn draw(results: &Results, cell: Cell) -> String {
    let bars: Vec<(Side, Middle)> = table::present(results, cell)
        .into_iter()
        .filter_map(|side| Some((side, shown(results, cell, side)?)))
        .collect();
    let most = bars
        .iter()
        .map(|(_, bar)| bar.most)
        .fold(f64::MIN_POSITIVE, f64::max);
    let high = TOP + ROW * bars.len() as f64 + 10.0;
    let rows: String = bars
        .iter()
        .enumerate()
        .map(|(place, (side, middle))| bar(cell, *side, *middle, place, most))
        .collect();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDE} {high}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"18\" font-weight=\"bold\">{}</text>\n<text x=\"10\" y=\"36\" fill=\"#555\">{}</text>\n{rows}</svg>\n",
        words::title(cell),
        unit(cell)
    )
}

fn bar(cell: Cell, side: Side, middle: Middle, place: usize, most: f64) -> String {
    let at = |value: f64| LEFT + (WIDE - LEFT - RIGHT) * value / most;
    let y = TOP + ROW * place as f64;
    let (middle_y, text_y) = (y + ROW / 2.0, y + ROW / 2.0 + 4.0);
    let colour = match side {
        Side::Postroom | Side::PostroomBatch => "#1f5fa8",
        Side::SkipLocked | Side::Bare | Side::Copy => "#9a9a9a",
        _ => "#c8792b",
    };
    format!(
        "<text x=\"{:.1}\" y=\"{text_y:.1}\" text-anchor=\"end\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>\
         <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle_y:.1}\" y2=\"{middle_y:.1}\" stroke=\"black\"/>\
         <text x=\"{:.1}\" y=\"{text_y:.1}\">{}</text>\n",
        LEFT - 8.0,
        side.name(),
        y + 5.0,
        at(middle.median) - LEFT,
        ROW - 10.0,
        at(middle.least),
        at(middle.most),
        at(middle.most) + 8.0,
        figure(cell, middle.median)
    )
}
