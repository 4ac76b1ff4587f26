//! The report of a run: tables for a terminal, JSON for scripts, Markdown for documents.

use std::fmt::Write as _;
use std::path::Path;

use extant_host::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::pages::{Page, REPORT_PAGE, write_file, write_pictures};
use crate::plan::{Bench, Plan};
use crate::rows::{Rows, align};
use crate::tables::{EXPLAINED, explained, faults, figures, gains, histograms, markdown, ratios};
use crate::{machine, plot};

/// Everything that was measured.
#[derive(Debug)]
pub struct Report {
    /// The command that measured it.
    command: String,
    /// The machine, as it was before.
    machine: Value,
    benches: Vec<(Bench, Rows)>,
    variants: Vec<(&'static str, &'static str)>,
    missing: Vec<String>,
    /// What to know beside the figures.
    notes: Vec<String>,
    /// Families that ended with an error, and which.
    failures: Vec<String>,
}

/// What stands around the part of a page that a run replaces.
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

impl Report {
    pub(crate) fn new(plan: &Plan) -> Report {
        Report {
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

    /// Puts everything into the order in which the variants were named.
    pub(crate) fn order(&mut self) {
        let names: Vec<&str> = self.variants.iter().map(|(name, _)| *name).collect();
        for (_, rows) in &mut self.benches {
            rows.order(&names);
        }
    }

    /// Notes what could not be measured, and why.
    pub(crate) fn missing(&mut self, what: String) {
        if !self.missing.contains(&what) {
            self.missing.push(what);
        }
    }

    /// Notes what to know beside the figures.
    pub(crate) fn note(&mut self, what: String) {
        if !self.notes.contains(&what) {
            self.notes.push(what);
        }
    }

    /// Notes that a family ended early. Its figures up to then stay.
    pub(crate) fn failed(&mut self, bench: Bench, error: &extant_host::Error) {
        self.failures.push(format!("{}: {error}", bench.name()));
    }

    /// The report of a run in which every family came to its end.
    ///
    /// # Errors
    /// The families that did not, and why.
    pub fn complete(self) -> Result<Report> {
        self.check()?;
        Ok(self)
    }

    /// Fails as [`Report::complete`] does.
    ///
    /// # Errors
    /// The families that ended early, and why.
    pub fn check(&self) -> Result<()> {
        ensure!(self.failures.is_empty(), "{}", self.failures.join("; "));
        Ok(())
    }

    /// What could not be measured, and why.
    pub fn not_measured(&self) -> &[String] {
        &self.missing
    }

    /// `{"machine":{..},"command":"..","rows":[..],"missing":[..],"notes":[..]}`.
    pub fn json(&self) -> Value {
        let benches = self.benches.iter();
        let rows: Vec<Value> = benches
            .flat_map(|(bench, rows)| rows.json(bench.name()))
            .collect();
        json!({
            "machine": self.machine,
            "command": self.command,
            "rows": rows,
            "missing": self.missing,
            "notes": self.notes,
        })
    }

    /// Tables for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (bench, rows) in self.families() {
            let (name, rounds) = (bench.name(), rows.rounds());
            let _ = writeln!(out, "{name}, {rounds}\n\n{}", rows.table());
            out.push_str(&align(&ratios(rows)).replace('`', ""));
            out.push('\n');
            out.push_str(&histograms(rows));
        }
        for (name, about) in self.measured() {
            let _ = writeln!(out, "{name}: {about}");
        }
        for what in self.remarks() {
            let _ = writeln!(out, "{what}");
        }
        out
    }

    /// The same as Markdown, with the counters that explain the figures.
    pub fn markdown(&self) -> String {
        let mut out = paragraph(&self.about());
        for (bench, rows) in self.families() {
            let (name, about, rounds) = (bench.name(), bench.about(), rows.rounds());
            let about = format!("`extant bench {name}`, {rounds}: {about}");
            let _ = writeln!(out, "\n### {}\n\n{}", bench.title(), paragraph(&about));
            out.push_str(&markdown(&figures(rows)));
            for (about, lines) in [
                (
                    "Ratios; above 1 the first is better, `=`: their runs overlap.",
                    ratios(rows),
                ),
                ("Gain over `base`, beside the seeds'.", gains(rows)),
            ] {
                if lines.len() > 1 {
                    let _ = writeln!(out, "\n{about}\n\n{}", markdown(&lines).trim_end());
                }
            }
            for variant in EXPLAINED {
                let lines = explained(rows, variant);
                if lines.len() > 1 {
                    let _ = writeln!(
                        out,
                        "\n<details><summary>What was counted meanwhile: {variant}</summary>\n\n\
                         {}\n</details>",
                        markdown(&lines)
                    );
                }
            }
            let times = histograms(rows);
            if !times.is_empty() {
                let _ = writeln!(out, "\n```\n{}\n```", times.trim_end());
            }
        }
        out.push_str("\nThe variants:\n\n");
        for (name, about) in self.measured() {
            let _ = writeln!(out, "- `{name}`: {about}");
        }
        for what in self.remarks() {
            let _ = writeln!(out, "- {what}");
        }
        out
    }

    /// Writes the Markdown to `path`: between the marks of a page that has them, or as a new file.
    ///
    /// # Errors
    /// A page without marks, or those of reading and writing.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = if path.is_file() {
            between_marks(&std::fs::read_to_string(path)?, &self.markdown())?
        } else {
            self.markdown()
        };
        write_file(path, &text)
    }

    /// Fails where [`Report::write`] would, as far as the page at `path` is to blame.
    ///
    /// # Errors
    /// A page without marks, or that of reading it.
    pub fn check_page(path: &Path) -> Result<()> {
        if path.is_file() {
            between_marks(&std::fs::read_to_string(path)?, "")?;
        }
        Ok(())
    }

    /// The families that have figures.
    fn families(&self) -> impl Iterator<Item = &(Bench, Rows)> {
        self.benches
            .iter()
            .filter(|(_, rows)| !rows.cases().is_empty())
    }

    /// What could not be measured, what to know of the rest, and what was measured wrongly.
    fn remarks(&self) -> Vec<String> {
        let missing = self
            .missing
            .iter()
            .map(|what| format!("not measured: {what}"));
        let faults = self.benches.iter().flat_map(|(_, rows)| faults(rows));
        let failures = self
            .failures
            .iter()
            .map(|what| format!("ended early: {what}"));
        let notes = self.notes.iter().cloned();
        failures.chain(missing).chain(notes).chain(faults).collect()
    }

    /// The variants that there are figures of.
    fn measured(&self) -> impl Iterator<Item = &(&'static str, &'static str)> {
        let has = |name: &str| {
            let mut benches = self.benches.iter();
            benches.any(|(_, rows)| rows.variants().iter().any(|v| v == name))
        };
        self.variants.iter().filter(move |(name, _)| has(name))
    }

    /// Draws a picture of each group of cases below `dir`, as SVG and PNG, and writes the page
    /// [`REPORT_PAGE`] with all of them and the tables. Returns what is left out, and why.
    ///
    /// # Errors
    /// Those of writing.
    pub fn plot(&self, dir: &Path) -> Result<Option<String>> {
        std::fs::create_dir_all(dir)?;
        let mut page = Page::new(&self.about());
        let mut pictures = Vec::new();
        for (bench, rows) in self.families() {
            let drawn = plot::draw(rows, bench.name())?;
            page.family(*bench, rows, &drawn);
            pictures.extend(drawn);
        }
        let variants = self
            .measured()
            .map(|(name, about)| format!("{name}: {about}"));
        page.list("The variants", variants);
        page.list("Remarks", self.remarks().into_iter());
        write_file(&dir.join(REPORT_PAGE), &page.end())?;
        write_pictures(&pictures, dir)
    }

    /// Where, when and by which command it was measured.
    fn about(&self) -> String {
        let machine = &self.machine;
        let word = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
        format!(
            "Measured {} by `{}` on {}, on {} processors ({}), {} GiB, Linux {}; their load before \
             was {}. A figure is the median of all rounds, with the least and the largest.",
            program(machine),
            self.command,
            word("date"),
            machine["cores"],
            word("cpu"),
            machine["memory_gib"],
            word("kernel"),
            machine["load"],
        )
    }
}

/// What was measured: a commit, or else the version, which is all that an installed program knows.
fn program(machine: &Value) -> String {
    match machine["commit"].as_str() {
        Some(commit) => format!("at commit {commit}"),
        None => format!("with version {}", env!("CARGO_PKG_VERSION")),
    }
}

/// `page` with `text` instead of what stands between its marks.
fn between_marks(page: &str, text: &str) -> Result<String> {
    let Some((before, rest)) = page.split_once(BEGIN) else {
        bail!("the page has no line {BEGIN}");
    };
    let Some((old, after)) = rest.split_once(END) else {
        bail!("the page has no line {END} after {BEGIN}");
    };
    ensure!(!old.contains(BEGIN), "the page has two lines {BEGIN}");
    Ok(format!(
        "{before}{BEGIN}\n\n{}\n\n{END}{after}",
        text.trim_end()
    ))
}

/// Text in lines of at most 100 columns, each with its end.
fn paragraph(text: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > 100 {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out += word;
        column += width;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let page = format!("# Title\n{BEGIN}\nold\n{END}\nafter\n");
        let new = between_marks(&page, "new\n").unwrap();
        assert_eq!(new, format!("# Title\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between_marks(&new, "new\n").unwrap(), new);
        for bad in ["no marks", BEGIN, &format!("{BEGIN}{BEGIN}{END}"), END] {
            assert!(between_marks(bad, "new").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_program_without_a_checkout_is_known_by_its_version() {
        let at = |commit: Option<&str>| program(&json!({ "commit": commit }));
        assert_eq!(at(Some("0123456789+")), "at commit 0123456789+");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(at(None), format!("with version {version}"));
    }

    #[test]
    fn a_paragraph_has_lines_of_at_most_100_columns() {
        let text = "word ".repeat(50) + &"x".repeat(120);
        let lines = paragraph(&text);
        let mut lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.pop(), Some(&*"x".repeat(120)));
        assert!(
            lines
                .iter()
                .all(|line| (90..=100).contains(&line.len()) || line.len() < 60)
        );
        assert_eq!(lines.join(" ") + " ", "word ".repeat(50));
    }
}
