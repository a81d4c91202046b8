//! Events applied over time, to look at: a line of blocks for a terminal, an SVG for a browser.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const WIDTH: usize = 72;

/// Events applied in each of several equal spans of time since the first one was stored.
pub struct Timeline {
    pub span: f64,
    pub applied: Vec<u64>,
    /// When the worker was killed, in seconds from the same beginning.
    pub killed: Option<f64>,
}

impl Timeline {
    /// `at` are seconds from the beginning.
    pub fn new(at: &[f64], killed: Option<f64>) -> Timeline {
        let end = at.iter().copied().fold(0.0, f64::max);
        let span = (end / WIDTH as f64).max(0.25);
        let mut applied = vec![0; (end / span) as usize + 1];
        for second in at {
            applied[(second.max(0.0) / span) as usize] += 1;
        }
        Timeline {
            span,
            applied,
            killed,
        }
    }

    fn peak(&self) -> u64 {
        self.applied.iter().copied().max().unwrap_or(0).max(1)
    }

    fn per_second(&self, applied: u64) -> f64 {
        applied as f64 / self.span
    }

    /// Two lines: the blocks, and a mark under the kill.
    pub fn line(&self) -> String {
        let peak = self.peak();
        let blocks: String = self
            .applied
            .iter()
            .map(|&n| {
                if n == 0 {
                    ' '
                } else {
                    BLOCKS[((n * 8).div_ceil(peak) - 1) as usize]
                }
            })
            .collect();
        let top = self.per_second(peak);
        let mark = self.killed.map_or_else(String::new, |killed| {
            let place = (killed / self.span) as usize;
            format!("\n{}^ killed at {killed:.1} s", " ".repeat(place))
        });
        format!("{blocks}  up to {top:.0} events/s{mark}")
    }

    pub fn svg(&self) -> String {
        const WIDE: f64 = 900.0;
        const HIGH: f64 = 260.0;
        let (left, base) = (60.0, 220.0);
        let seconds = self.span * self.applied.len() as f64;
        let x = |second: f64| left + (WIDE - left - 20.0) * second / seconds;
        let peak = self.per_second(self.peak());
        let points: Vec<String> = self
            .applied
            .iter()
            .enumerate()
            .map(|(i, &n)| {
                let middle = (i as f64 + 0.5) * self.span;
                let y = base - (base - 20.0) * self.per_second(n) / peak;
                format!("{:.1},{y:.1}", x(middle))
            })
            .collect();
        let kill = self.killed.map_or_else(String::new, |second| {
            let x = x(second);
            format!(
                "<line x1=\"{x:.1}\" y1=\"20\" x2=\"{x:.1}\" y2=\"{base}\" stroke=\"#b00020\"/>\
                 <text x=\"{:.1}\" y=\"32\" fill=\"#b00020\">kill -9 at {second:.1} s</text>",
                x + 5.0
            )
        });
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDE} {HIGH}\" font-family=\"sans-serif\" font-size=\"12\">\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\
             <polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"1.5\" points=\"{}\"/>{kill}\
             <line x1=\"{left}\" y1=\"{base}\" x2=\"{}\" y2=\"{base}\" stroke=\"black\"/>\
             <text x=\"{left}\" y=\"{}\">0 s</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{seconds:.0} s</text>\
             <text x=\"5\" y=\"24\">{peak:.0}/s</text></svg>\n",
            points.join(" "),
            WIDE - 20.0,
            base + 18.0,
            WIDE - 20.0,
            base + 18.0,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kill_is_marked_below_its_moment() {
        let at: Vec<f64> = (0..72).map(f64::from).collect();
        let line = Timeline::new(&at, Some(36.0)).line();
        let mark = line.lines().nth(1).unwrap().find('^').unwrap();
        assert!((35..=37).contains(&mark), "{line}");
    }

    #[test]
    fn a_pause_is_a_gap() {
        let timeline = Timeline::new(&[0.0, 0.1, 1.0, 1.1], None);
        assert_eq!(timeline.applied, [2, 0, 0, 0, 2]);
        assert!(timeline.line().starts_with("█   █"));
        assert!(timeline.svg().ends_with("</svg>\n"));
    }
}
