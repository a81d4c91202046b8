//! The table a run ends with: every number, and whether it is what it must be.

use std::fmt::Write;

use super::figures::Figures;
use super::store;

struct Line {
    name: &'static str,
    value: String,
    note: String,
    sound: Option<bool>,
}

pub struct Report {
    lines: Vec<Line>,
    figures: Figures,
}

impl Report {
    pub fn new(figures: Figures) -> Report {
        let mut report = Report {
            lines: Vec::new(),
            figures: figures.clone(),
        };
        report.way_of_the_events(&figures);
        report.nothing_wrong(&figures);
        report.speed(&figures);
        report
    }

    pub fn sound(&self) -> bool {
        self.lines.iter().all(|line| line.sound != Some(false))
    }

    fn way_of_the_events(&mut self, f: &Figures) {
        let flights = format!("{} aircraft, {} airlines", f.aircraft, f.airlines);
        self.check("flights", f.seen.flights, flights, f.seen.flights > 0);
        self.check(
            "broken lines",
            f.seen.broken_lines,
            "told above, stopped nothing",
            f.seen.broken_lines == 10,
        );
        self.check(
            "events stored",
            f.stored,
            "each command's events in one transaction",
            f.stored == f.seen.events,
        );
        let again = format!("{} of them again after the kill", f.published_again);
        self.check(
            "published",
            f.published,
            again,
            f.published - f.published_again == f.stored,
        );
        let sum = format!("= published {} + repeats {}", f.published, f.seen.repeats);
        self.check(
            "handed to the inbox",
            f.handed_over,
            sum,
            f.handed_over == f.published + f.seen.repeats,
        );
        self.check(
            "received",
            f.received,
            "accepted, each event once",
            f.received == f.stored,
        );
        let sum = format!(
            "= repeats {} + redeliveries {}",
            f.seen.repeats, f.published_again
        );
        self.check(
            "duplicates refused",
            f.refused,
            sum,
            f.refused == f.seen.repeats + f.published_again,
        );
        let once = format!("{} of them twice", f.applied_again);
        self.check(
            "applied",
            f.applied,
            once,
            f.applied == f.stored && f.applied_again == 0,
        );
    }

    fn nothing_wrong(&mut self, f: &Figures) {
        self.check("lost", f.lost, "stored, but not applied", f.lost == 0);
        let violations = f.publish_violations + f.apply_violations;
        let both = format!(
            "{} in the broker's log, {} at the handlers",
            f.publish_violations, f.apply_violations
        );
        self.check("order violations", violations, both, violations == 0);
        self.check(
            "left behind",
            f.left,
            "in outbox, inbox and dead letters",
            f.left == 0,
        );
        let sql = "rows that differ from plain SQL over the file";
        self.check(
            "aircraft wrong",
            f.aircraft_wrong,
            sql,
            f.aircraft_wrong == 0 && f.aircraft > 0,
        );
        self.check(
            "airlines wrong",
            f.airlines_wrong,
            sql,
            f.airlines_wrong == 0 && f.airlines > 0,
        );
        self.check("verify()", f.unsound, "rows", f.unsound == 0);
        let (extra, bound) = (f.extra_deliveries(), f.extra_bound());
        let made_of = format!(
            "≤ {bound} = in the killed worker's claims {} (outbox {}, inbox {}) + repeats {}",
            f.seen.killed_outbox + f.seen.killed_inbox,
            f.seen.killed_outbox,
            f.seen.killed_inbox,
            f.seen.repeats
        );
        self.check("extra deliveries", extra, made_of, extra <= bound);
    }

    fn speed(&mut self, f: &Figures) {
        let rate = f.stored as f64 / f.seconds.max(0.001);
        self.tell(
            "throughput",
            format!("{rate:.0}/s"),
            format!("events, stored to applied, {:.1} s", f.seconds),
        );
        self.tell(
            "p50",
            format!("{:.0} ms", f.p50),
            format!(
                "commit to applied, commands at most {} events ahead",
                store::AHEAD
            ),
        );
        self.tell(
            "p99",
            format!("{:.0} ms", f.p99),
            "the takeover from the killed worker is in it",
        );
    }

    fn check(&mut self, name: &'static str, number: i64, note: impl Into<String>, sound: bool) {
        self.lines.push(Line {
            name,
            value: grouped(number),
            note: note.into(),
            sound: Some(sound),
        });
    }

    fn tell(&mut self, name: &'static str, value: String, note: impl Into<String>) {
        self.lines.push(Line {
            name,
            value,
            note: note.into(),
            sound: None,
        });
    }

    pub fn table(&self) -> String {
        let mut table = String::new();
        for Line {
            name,
            value,
            note,
            sound,
        } in &self.lines
        {
            let mark = match sound {
                Some(true) => "ok",
                Some(false) => "WRONG",
                None => "",
            };
            let _ = writeln!(table, "{name:<20} {value:>12}  {mark:<5}  {note}");
        }
        table
    }

    /// One line for programs.
    pub fn json(&self) -> String {
        let mut json = serde_json::to_value(&self.figures).unwrap_or_default();
        json["extra_deliveries"] = self.figures.extra_deliveries().into();
        json["extra_bound"] = self.figures.extra_bound().into();
        json["sound"] = self.sound().into();
        json.to_string()
    }
}

/// 1234567 as 1,234,567.
fn grouped(number: i64) -> String {
    let digits = number.abs().to_string();
    let mut text = if number < 0 {
        String::from("-")
    } else {
        String::new()
    };
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::figures::Seen;
    use super::*;

    fn figures() -> Figures {
        let seen = Seen {
            flights: 2,
            broken_lines: 10,
            events: 5,
            repeats: 1,
            handled_again: 1,
            killed_outbox: 2,
            killed_inbox: 1,
        };
        Figures {
            seen,
            aircraft: 1,
            airlines: 1,
            stored: 5,
            published: 6,
            published_again: 1,
            handed_over: 7,
            received: 5,
            refused: 2,
            applied: 5,
            applied_again: 0,
            lost: 0,
            left: 0,
            publish_violations: 0,
            apply_violations: 0,
            aircraft_wrong: 0,
            airlines_wrong: 0,
            unsound: 0,
            seconds: 1.0,
            p50: 1.0,
            p99: 1.0,
        }
    }

    #[test]
    fn a_sound_run_passes() {
        let report = Report::new(figures());
        assert!(report.sound(), "{}", report.table());
        assert!(report.json().contains("\"sound\":true"));
    }

    #[test]
    fn each_thing_that_can_go_wrong_fails_the_run() {
        let wrongs: [fn(&mut Figures); 12] = [
            |f| f.seen.broken_lines = 9,
            |f| f.stored = 4,
            |f| f.published = 5,
            |f| f.handed_over = 8,
            |f| f.refused = 1,
            |f| f.applied_again = 1,
            |f| f.lost = 1,
            |f| f.left = 1,
            |f| f.publish_violations = 1,
            |f| f.apply_violations = 1,
            |f| f.aircraft_wrong = 1,
            |f| f.seen.handled_again = 4,
        ];
        for (i, wrong) in wrongs.into_iter().enumerate() {
            let mut figures = figures();
            wrong(&mut figures);
            assert!(!Report::new(figures).sound(), "wrong number {i} passes");
        }
    }

    #[test]
    fn long_numbers_are_grouped() {
        assert_eq!(
            (grouped(7), grouped(1234), grouped(-1234567)),
            ("7".into(), "1,234".into(), "-1,234,567".into())
        );
    }
}
