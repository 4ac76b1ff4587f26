//! A run as it is measured: its rows, and what to know beside them; at its end a report.

use std::path::Path;

use extant::device::refuse_target_in_use;
use extant_figures::Report;
use extant_host::{Cmd, Error, Need, Result};
use serde_json::{Value, json};

use crate::plan::{Bench, Plan};
use crate::rows::Rows;
use crate::{machine, times};

/// Name of the page with all pictures and tables.
pub const REPORT_PAGE: &str = "report.html";

/// The program that makes a PNG of an SVG.
const CONVERTER: &str = "rsvg-convert";

/// A run under way.
pub(crate) struct Run {
    /// The command that measures.
    command: String,
    /// The machine, as it was before.
    machine: Value,
    benches: Vec<(Bench, Rows)>,
    variants: Vec<(&'static str, &'static str)>,
    missing: Vec<String>,
    notes: Vec<String>,
    failures: Vec<String>,
}

impl Run {
    pub(crate) fn new(plan: &Plan) -> Run {
        Run {
            command: plan.command(),
            machine: machine::describe(),
            benches: plan.benches.iter().map(|b| (*b, Rows::default())).collect(),
            variants: Vec::new(),
            missing: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
        }
    }

    pub(crate) fn rows(&mut self, bench: Bench) -> &mut Rows {
        let at = self.benches.iter().position(|(b, _)| *b == bench);
        let at = at.unwrap_or_else(|| {
            self.benches.push((bench, Rows::default()));
            self.benches.len() - 1
        });
        &mut self.benches[at].1
    }

    pub(crate) fn variant(&mut self, name: &'static str, about: &'static str) {
        if !self.variants.iter().any(|(known, _)| *known == name) {
            self.variants.push((name, about));
        }
    }

    /// Notes what could not be measured, and why.
    pub(crate) fn missing(&mut self, what: String) {
        add_once(&mut self.missing, what);
    }

    /// Notes what to know beside the figures.
    pub(crate) fn note(&mut self, what: String) {
        add_once(&mut self.notes, what);
    }

    /// Notes that a family ended early. Its figures up to then stay.
    pub(crate) fn failed(&mut self, bench: Bench, error: &Error) {
        self.failures.push(format!("{}: {error}", bench.name()));
    }

    /// Returns the report.
    pub(crate) fn end(mut self) -> Report {
        if self.benches.iter().any(|(_, rows)| rows.has_times()) {
            let clock = times::clock_cost();
            self.note(format!(
                "Reading the clock takes {clock:.1} ns of each time of a clear."
            ));
        }
        let families = self.benches.iter();
        let families = families.map(|(bench, _)| {
            json!({ "name": bench.name(), "title": bench.title(), "about": bench.about() })
        });
        let variants = self.variants.iter();
        let variants = variants.map(|(name, about)| json!({ "name": name, "about": about }));
        let rows = self.benches.iter();
        let rows = rows.flat_map(|(bench, rows)| rows.json(bench.name()));
        Report::new(json!({
            "machine": self.machine,
            "command": self.command,
            "families": families.collect::<Vec<Value>>(),
            "variants": variants.collect::<Vec<Value>>(),
            "rows": rows.collect::<Vec<Value>>(),
            "missing": self.missing,
            "notes": self.notes,
            "failures": self.failures,
        }))
    }
}

fn add_once(all: &mut Vec<String>, what: String) {
    if !all.contains(&what) {
        all.push(what);
    }
}

/// Draws a picture of each group of cases below `dir`, as SVG and PNG, and writes the page
/// [`REPORT_PAGE`] with all of them and the tables. Returns what is left out, and why.
///
/// # Errors
/// Those of writing.
pub fn plot(report: &Report, dir: &Path) -> Result<Option<String>> {
    std::fs::create_dir_all(dir)?;
    write_file(&dir.join(REPORT_PAGE), &report.html())?;
    let can_convert = Need::Tool(CONVERTER).missing().is_none();
    for (name, svg) in report.pictures() {
        let path = dir.join(format!("{name}.svg"));
        write_file(&path, &svg)?;
        if can_convert {
            let png = dir.join(format!("{name}.png"));
            refuse_target_in_use(&png)?;
            Cmd::new(CONVERTER).arg("-o").arg(png).arg(path).ok()?;
        }
    }
    let why = format!("no PNG: there is no {CONVERTER} (Debian: librsvg2-bin)");
    Ok((!can_convert).then_some(why))
}

/// Writes a file of a report, unless it is in use.
fn write_file(path: &Path, text: &str) -> Result<()> {
    refuse_target_in_use(path)?;
    Ok(std::fs::write(path, text)?)
}

#[cfg(test)]
mod tests {
    use extant_host::TempDir;

    use super::*;

    #[test]
    fn pictures_are_written_as_svg_and_as_png() {
        let dir = TempDir::new("pictures").unwrap();
        let row = json!({ "bench": "psync", "case": "read/hole/4K", "variant": "iomap",
                          "unit": "MiB/s", "median": 250.0 });
        let report = Report::new(json!({ "rows": [row] }));
        let left_out = plot(&report, dir.path()).unwrap();
        let svg = std::fs::read_to_string(dir.join("psync-read-hole.svg")).unwrap();
        assert!(svg.contains("more is better"));
        match left_out {
            Some(why) => assert!(why.contains("librsvg2-bin"), "{why}"),
            None => {
                let png = std::fs::read(dir.join("psync-read-hole.png")).unwrap();
                assert_eq!(png[1..4], *b"PNG");
            }
        }
    }
}
