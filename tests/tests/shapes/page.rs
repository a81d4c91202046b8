//! The page, and its tables.

use std::fs;
use std::path::Path;

pub fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/messages.md");
    fs::read_to_string(path).expect("the page can be read")
}

/// The cells of the table below a heading, without backquotes.
pub fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let section = page.split(&format!("# {heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("no heading: {heading}"));
    let lines = section.lines().skip_while(|line| !line.starts_with("| "));
    lines
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().replace('`', ""))
                .collect()
        })
        .collect()
}
