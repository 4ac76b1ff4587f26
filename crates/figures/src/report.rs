//! The result of a run: its JSON, and the parts that are shown of it.
//!
//! The text is an object with `command`, `machine`, `families` (`name`, `title`, `about`),
//! `variants` (`name`, `about`), `missing`, `notes`, `failures` and `rows`. A row has `bench`,
//! `case`, `variant`, `unit`, `median`, `min`, `max` and `runs`, and where they exist `counters`
//! and the histogram `times`.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

use crate::part::{Part, html, markdown, text};
use crate::picture::{self, Picture};
use crate::seeds::beside_seeds;
use crate::tables::{Family, explained, faults, figures, histograms, ratios};

/// Variants whose counters are listed.
const EXPLAINED: [&str; 8] = [
    "iomap",
    "notrim",
    "noslots",
    "noslots-notrim",
    "bufferhead",
    "bufferhead-fullwalk",
    "base",
    "base-dirty-inode",
];

/// The text in front of ratios.
const RATIOS: &str = "Ratios; above 1 the first is better, `=`: their runs overlap.";

/// The text in front of ratios that a seed has, too.
const BESIDE: &str = "The pairs that the seeds compare, on Linux and on other machines: the ratio \
    of the medians, the least and the largest of a round, and the seed's own. `same code`: both \
    data paths read by the same code. Counters are per call, of throughputs per GiB.";

/// A report that cannot be read, or that is of a run which ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub(crate) String);

impl Fault {
    /// A fault that says `text`.
    pub fn new(text: impl Into<String>) -> Fault {
        Fault(text.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// Everything that a run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report(Value);

impl Report {
    /// The report that is `json`.
    pub fn new(json: Value) -> Report {
        Report(json)
    }

    /// Reads the text of a report.
    ///
    /// # Errors
    /// A text that is no JSON or has no rows.
    pub fn read(text: &str) -> Result<Report, Fault> {
        let json: Value = serde_json::from_str(text).map_err(|e| Fault(e.to_string()))?;
        if json["rows"].is_array() {
            Ok(Report(json))
        } else {
            Err(Fault("no rows".into()))
        }
    }

    /// Returns the JSON.
    pub fn json(&self) -> &Value {
        &self.0
    }

    /// Returns the JSON as text, a line for each row.
    pub fn json_text(&self) -> String {
        let empty = Map::new();
        let mut out = String::from("{");
        for (name, value) in self.0.as_object().unwrap_or(&empty) {
            let _ = match value.as_array() {
                Some(all) => write!(out, "\n\"{name}\": [{}],", lines(all)),
                None => write!(out, "\n\"{name}\": {value},"),
            };
        }
        out.trim_end_matches(',').to_owned() + "\n}\n"
    }

    /// Returns the report of a run in which every family came to its end.
    ///
    /// # Errors
    /// The families that did not, and why.
    pub fn complete(self) -> Result<Report, Fault> {
        self.check()?;
        Ok(self)
    }

    /// Fails as [`Report::complete`] does.
    ///
    /// # Errors
    /// The families that ended early, and why.
    pub fn check(&self) -> Result<(), Fault> {
        let failures = self.list("failures");
        if failures.is_empty() {
            Ok(())
        } else {
            Err(Fault(failures.join("; ")))
        }
    }

    /// Returns what could not be measured, and why.
    pub fn not_measured(&self) -> Vec<&str> {
        self.list("missing")
    }

    /// Returns tables for a terminal.
    pub fn text(&self) -> String {
        text(&self.parts())
    }

    /// Returns the same as Markdown, with the counters that explain the figures.
    pub fn markdown(&self) -> String {
        markdown(&self.parts())
    }

    /// Returns a page of HTML with all tables and pictures. It needs nothing but itself: no
    /// network, no script, no font.
    pub fn html(&self) -> String {
        html(&self.parts())
    }

    /// Returns a picture of each group of cases: its name (`BENCH-GROUP`), and its SVG.
    pub fn pictures(&self) -> Vec<(String, String)> {
        let families = self.families();
        let all = families.iter().flat_map(picture::groups);
        all.map(|Picture { name, svg }| (name, svg)).collect()
    }

    /// The family of this name that has a case; any, where the name is empty.
    pub(crate) fn family_of(&self, name: &str, case: &str) -> Option<Family<'_>> {
        let families = self.families().into_iter();
        let mut families = families.filter(|family| name.is_empty() || family.name == name);
        families.find(|family| family.cases().iter().any(|known| known.name == case))
    }

    fn list(&self, name: &str) -> Vec<&str> {
        self.objects(name)
            .iter()
            .filter_map(Value::as_str)
            .collect()
    }

    fn objects(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// The families that have rows, in the order of these.
    fn families(&self) -> Vec<Family<'_>> {
        let order = self.objects("variants").iter();
        let order: Vec<&str> = order
            .filter_map(|variant| variant["name"].as_str())
            .collect();
        let mut all: Vec<Family<'_>> = Vec::new();
        for row in self.objects("rows") {
            let name = row["bench"].as_str().unwrap_or_default();
            let at = all.iter().position(|family| family.name == name);
            let at = at.unwrap_or_else(|| {
                all.push(Family::new(name, &order));
                all.len() - 1
            });
            all[at].add(row);
        }
        all
    }

    fn parts(&self) -> Vec<Part> {
        let mut all = Vec::new();
        if !self.command().is_empty() {
            all.push(Part::Text(self.about()));
        }
        for family in self.families() {
            self.add_family(&family, &mut all);
        }
        let measured = |name: &str| {
            self.objects("rows")
                .iter()
                .any(|row| row["variant"] == name)
        };
        let variants = self.objects("variants").iter().filter_map(|variant| {
            let name = variant["name"].as_str().filter(|name| measured(name))?;
            Some(format!("`{name}`: {}", variant["about"].as_str()?))
        });
        for (title, items) in [
            ("The variants", variants.collect()),
            ("Remarks", self.remarks()),
        ] {
            if !items.is_empty() {
                all.push(Part::Heading(title.to_lowercase(), title.into()));
                all.push(Part::List(items));
            }
        }
        all
    }

    fn add_family(&self, family: &Family<'_>, all: &mut Vec<Part>) {
        let mut known = self.objects("families").iter();
        let known = known.find(|known| known["name"] == family.name);
        let word = |name: &str| known.and_then(|known| known[name].as_str());
        let title = word("title").unwrap_or(family.name);
        all.push(Part::Heading(family.name.into(), title.into()));
        if let Some(about) = word("about") {
            let measured = family.rounds().map(|rounds| {
                let name = family.name;
                format!("`extant bench {name}`, {rounds}: ")
            });
            all.push(Part::Text(measured.unwrap_or_default() + about));
        }
        let pictures = picture::groups(family).into_iter();
        all.extend(pictures.map(|picture| Part::Picture(picture.svg)));
        all.push(Part::Table(figures(family)));
        let table = ratios(family);
        if table.len() > 1 {
            all.extend([Part::Text(RATIOS.into()), Part::Table(table)]);
        }
        let table = beside_seeds(family);
        if table.len() > 1 {
            all.extend([Part::Text(BESIDE.into()), Part::Table(table)]);
        }
        for variant in EXPLAINED {
            let table = explained(family, variant);
            if table.len() > 1 {
                let title = format!("What was counted meanwhile: {variant}");
                all.push(Part::Folded(title, table));
            }
        }
        let times = histograms(family);
        if !times.is_empty() {
            all.push(Part::Verbatim(times));
        }
    }

    /// Everything to know beside the figures: failures, gaps, notes, faults of the bench.
    fn remarks(&self) -> Vec<String> {
        let failures = self.list("failures").into_iter();
        let failures = failures.map(|what| format!("ended early: {what}"));
        let missing = self.not_measured().into_iter();
        let missing = missing.map(|what| format!("not measured: {what}"));
        let notes = self.list("notes").into_iter().map(str::to_owned);
        let families = self.families();
        let faults = families.iter().flat_map(faults);
        failures.chain(missing).chain(notes).chain(faults).collect()
    }

    /// The place, the time and the command of the measurement, as far as they are known.
    fn about(&self) -> String {
        let machine = &self.0["machine"];
        let word = |name: &str| machine[name].as_str();
        let mut about = format!("Measured {} by `{}`", self.program(), self.command());
        if let Some(date) = word("date") {
            let _ = write!(about, " on {date}");
        }
        if let Some(cpu) = word("cpu") {
            let _ = write!(about, ", on {} processors ({cpu})", machine["cores"]);
        }
        if machine["memory_gib"].is_number() {
            let _ = write!(about, ", {} GiB", machine["memory_gib"]);
        }
        if let Some(kernel) = word("kernel") {
            let _ = write!(about, ", Linux {kernel}");
        }
        if machine["load"].is_number() {
            let _ = write!(about, "; their load before was {}", machine["load"]);
        }
        about + ". A figure is the median of all rounds, with the least and the largest."
    }

    fn command(&self) -> &str {
        self.0["command"].as_str().unwrap_or_default()
    }

    /// The program that was measured: a commit, or else the version, which is all that an installed
    /// one knows.
    fn program(&self) -> String {
        let machine = &self.0["machine"];
        match (machine["commit"].as_str(), machine["version"].as_str()) {
            (Some(commit), _) => format!("at commit {commit}"),
            (None, version) => format!("with version {}", version.unwrap_or("unknown")),
        }
    }
}

fn lines(all: &[Value]) -> String {
    let lines: Vec<String> = all.iter().map(|value| format!("\n{value}")).collect();
    lines.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_program_without_a_checkout_is_known_by_its_version() {
        let at = |machine: Value| Report::new(json!({ "machine": machine })).program();
        assert_eq!(
            at(json!({ "commit": "0123456789+", "version": "1" })),
            "at commit 0123456789+"
        );
        assert_eq!(
            at(json!({ "commit": null, "version": "0.1.0" })),
            "with version 0.1.0"
        );
    }

    #[test]
    fn a_text_is_read_as_it_was_written() {
        let row = json!({ "bench": "b", "case": "a", "median": 1.5 });
        let report = Report::new(json!({ "command": "x", "rows": [row, row], "notes": [] }));
        assert_eq!(Report::read(&report.json_text()), Ok(report.clone()));
        assert_eq!(
            report.json_text().lines().count(),
            7,
            "{}",
            report.json_text()
        );
        assert!(Report::read("{}").is_err() && Report::read("no").is_err());
    }

    #[test]
    fn a_run_that_ended_early_is_not_complete() {
        let report = |failures: Value| Report::new(json!({ "failures": failures })).complete();
        assert!(report(json!([])).is_ok());
        assert_eq!(
            report(json!(["a: no", "b: no"])),
            Err(Fault("a: no; b: no".into()))
        );
    }
}
