//! Tables and pictures in pages of documentation.
//!
//! A page names what it shows in a comment, and has the table behind it up to the next
//! `<!-- figures: end -->`:
//!
//! ```text
//! <!-- figures: full.json
//! picture: overwrites.svg Small overwrites of a cached file
//! columns: mount = this mount | kernel-ext4 = Linux's ext4
//! write_u1k = overwrite 1 KiB
//! create
//! -->
//! ```
//!
//! The first line names the report. `picture:` draws the rows as well, `medians:` leaves out the
//! spreads and the link to the report. Each other line is a case, with a name for the reader
//! or without; a case that several families have is `FAMILY:CASE`. A column `A / B` is the gain of
//! one variant over another, `seed: A / B` that which a seed reports, and `COUNTER of VARIANT` a
//! counter per call, of throughputs per GiB.

use crate::part::{Table, rows};
use crate::picture::{Bars, draw};
use crate::report::{Fault, Report};
use crate::seeds;
use crate::tables::{Case, Family, Figure, number, pair_cell};

/// Marks around the part of a page that a run replaces.
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// Marks of a table.
const TABLE: &str = "<!-- figures: ";
const TABLE_END: &str = "<!-- figures: end -->";

/// The beginning of a column of what a seed reports.
const SEED: &str = "seed: ";

/// Figures of nanoseconds that are all above this are shown in microseconds.
const MANY_NS: f64 = 10_000.0;

/// A page with its tables, and the pictures that it shows.
#[derive(Debug)]
pub struct Filled {
    /// The page.
    pub page: String,
    /// Name and SVG of each picture.
    pub pictures: Vec<(String, String)>,
}

/// Makes the tables of `page` anew. `read` returns the report of a name; `folder` is the way from
/// the page to the reports and pictures.
///
/// # Errors
/// A comment that cannot be read, or names a case or a report that is not there.
pub fn fill(
    page: &str,
    folder: &str,
    read: &dyn Fn(&str) -> Result<Report, Fault>,
) -> Result<Filled, Fault> {
    let mut filled = Filled {
        page: String::new(),
        pictures: Vec::new(),
    };
    let mut rest = page;
    while let Some((before, behind)) = rest.split_once(TABLE) {
        let without_end = || Fault(format!("no {TABLE_END} behind {}", first_line(behind)));
        let (shown, behind) = behind.split_once("\n-->\n").ok_or_else(without_end)?;
        let (_, after) = behind.split_once(TABLE_END).ok_or_else(without_end)?;
        let table = Shown::parse(shown)?.table(folder, read, &mut filled.pictures);
        let table = table.map_err(|fault| Fault(format!("{}: {fault}", first_line(shown))))?;
        filled.page += &format!("{before}{TABLE}{shown}\n-->\n\n{table}\n{TABLE_END}");
        rest = after;
    }
    filled.page += rest;
    Ok(filled)
}

/// Returns `page` with `text` instead of what stands between its marks of a run.
///
/// # Errors
/// A page without the marks, or with two pairs.
pub fn between_marks(page: &str, text: &str) -> Result<String, Fault> {
    let without = |mark: &str| Fault(format!("the page has no line {mark}"));
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| without(BEGIN))?;
    let (old, after) = rest.split_once(END).ok_or_else(|| without(END))?;
    if old.contains(BEGIN) {
        return Err(Fault(format!("the page has two lines {BEGIN}")));
    }
    let text = text.trim_end();
    Ok(format!("{before}{BEGIN}\n\n{text}\n\n{END}{after}"))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A name and what the reader sees in its place.
struct Named<'a> {
    name: &'a str,
    label: &'a str,
}

impl<'a> Named<'a> {
    fn parse(text: &'a str) -> Named<'a> {
        let text = text.trim();
        let (name, label) = text.split_once(" = ").unwrap_or((text, ""));
        Named { name, label }
    }

    fn shown(&self) -> String {
        if self.label.is_empty() {
            format!("`{}`", self.name)
        } else {
            self.label.to_owned()
        }
    }
}

/// A comment that says what is shown.
struct Shown<'a> {
    file: &'a str,
    picture: Option<(&'a str, &'a str)>,
    columns: Vec<Named<'a>>,
    cases: Vec<Named<'a>>,
    medians: bool,
}

impl<'a> Shown<'a> {
    fn parse(text: &'a str) -> Result<Shown<'a>, Fault> {
        let mut lines = text.lines();
        let mut shown = Shown {
            file: lines.next().unwrap_or_default().trim(),
            picture: None,
            columns: Vec::new(),
            cases: Vec::new(),
            medians: false,
        };
        for line in lines {
            if let Some(picture) = line.strip_prefix("picture: ") {
                shown.picture = picture.split_once(' ');
            } else if let Some(columns) = line.strip_prefix("columns: ") {
                shown.columns.extend(columns.split('|').map(Named::parse));
            } else if let Some(columns) = line.strip_prefix("medians: ") {
                shown.columns.extend(columns.split('|').map(Named::parse));
                shown.medians = true;
            } else {
                shown.cases.push(Named::parse(line));
            }
        }
        if shown.columns.is_empty() || shown.cases.is_empty() {
            return Err(Fault(format!("{}: no columns or no cases", shown.file)));
        }
        Ok(shown)
    }

    fn table(
        &self,
        folder: &str,
        read: &dyn Fn(&str) -> Result<Report, Fault>,
        pictures: &mut Vec<(String, String)>,
    ) -> Result<String, Fault> {
        let report = read(self.file)?;
        let link = format!("[{}]({folder}{})", self.file, self.file);
        let head = if self.medians { String::new() } else { link };
        let mut table: Table = vec![vec![head, "unit".into()]];
        table[0].extend(self.columns.iter().map(|c| c.shown().replace('`', "")));
        let mut bars = Vec::new();
        for case in &self.cases {
            let (family, name) = found(&report, case)?;
            let of = self.bars(&family, &name, case);
            let line = self.line(&of, &family, &name);
            let cells = self.columns.iter().zip(&line[2..]);
            let mut measured = cells.filter(|(column, _)| !column.name.starts_with(SEED));
            if measured.all(|(_, cell)| cell.is_empty()) {
                return Err(missing(case));
            }
            table.push(line);
            bars.push(of);
        }
        let mut out = rows(&table);
        if let Some((file, title)) = self.picture {
            out = format!("![{title}]({folder}{file})\n\n{out}");
            pictures.extend(draw(title, &bars).map(|svg| (file.to_owned(), svg)));
        }
        Ok(out)
    }

    /// The figures of a case.
    fn bars(&self, family: &Family<'_>, of: &Case<'_>, case: &Named<'_>) -> Bars {
        let figures = self.columns.iter().filter_map(|column| {
            let figure = family.figure(of.name, column.name)?;
            let label = column.shown().replace('`', "");
            Some((label, column.name.to_owned(), figure))
        });
        let mut bars = Bars {
            case: case.shown(),
            unit: of.unit.to_owned(),
            bars: figures.collect(),
        };
        if bars.unit == "ns"
            && !bars.bars.is_empty()
            && bars.bars.iter().all(|(.., f)| f.middle() > MANY_NS)
        {
            bars.unit = "µs".into();
            for (.., figure) in &mut bars.bars {
                let [_, min, max] = figure.map(|ns| ns / 1000.0);
                let median = figure.median.map(|ns| ns / 1000.0);
                let whole = false;
                *figure = Figure {
                    median,
                    min,
                    max,
                    whole,
                };
            }
        }
        bars
    }

    fn line(&self, bars: &Bars, family: &Family<'_>, case: &Case<'_>) -> Vec<String> {
        let cell = |column: &Named<'_>| {
            if let Some(cell) = made_cell(column.name, family, case) {
                return cell;
            }
            let found = bars
                .bars
                .iter()
                .find(|(_, variant, _)| variant == column.name);
            found.map_or(String::new(), |(.., figure)| match self.medians {
                true => figure.alone().shown(),
                false => figure.shown(),
            })
        };
        let cells = self.columns.iter().map(cell);
        [bars.case.clone(), bars.unit.clone()]
            .into_iter()
            .chain(cells)
            .collect()
    }
}

fn missing(case: &Named<'_>) -> Fault {
    Fault(format!("no figures of {}", case.name))
}

/// The family and the case that a line of a comment names. A case without figures is a mistake, one
/// without some is not.
fn found<'a>(report: &'a Report, case: &Named<'a>) -> Result<(Family<'a>, Case<'a>), Fault> {
    let (family, name) = case.name.split_once(':').unwrap_or(("", case.name));
    let family = report.family_of(family, name);
    let family = family.ok_or_else(|| missing(case))?;
    let found = family.cases().into_iter().find(|known| known.name == name);
    Ok((family, found.ok_or_else(|| missing(case))?))
}

/// The cell of a column that is made of more than one variant's figure; `None` for other columns.
fn made_cell(column: &str, family: &Family<'_>, case: &Case<'_>) -> Option<String> {
    if let Some((counter, variant)) = column.split_once(" of ") {
        let counted = family.counted(case, variant, counter);
        return Some(counted.map_or(String::new(), number));
    }
    let (pair, is_of_seed) = match column.strip_prefix(SEED) {
        Some(pair) => (pair, true),
        None => (column, false),
    };
    let pair = pair.split_once(" / ")?;
    if is_of_seed {
        let gain = seeds::gain(case.name, pair);
        return Some(gain.map_or(String::new(), number));
    }
    Some(pair_cell(family, case, pair))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str) -> Result<Report, Fault> {
        let row = |case: &str, variant: &str, figure: f64| {
            json!({ "bench": "b", "case": case, "variant": variant, "unit": "ns",
                    "median": figure, "min": figure, "max": 2.0 * figure })
        };
        let rows = [
            row("a", "x", 2.0),
            row("a", "y", 3.0),
            row("b", "x", 20_000.0),
        ];
        match name {
            "there.json" => Ok(Report::new(json!({ "command": "c", "rows": rows }))),
            _ => Err(Fault("not there".into())),
        }
    }

    const PAGE: &str = "before\n<!-- figures: there.json\npicture: p.svg Title here\n\
        columns: x = ours | y\na = the first\nb\n-->\nold\n<!-- figures: end -->\nafter\n";

    #[test]
    fn a_table_is_made_from_the_report_that_it_names() {
        let filled = fill(PAGE, "figures/", &read).unwrap();
        let line = "\n| the first | ns | 2.00 (2.00–4.00) | 3.00 (3.00–6.00) |\n\
            | `b` | µs | 20.0 (20.0–40.0) |  |\n";
        for part in [
            "before\n",
            "| [there.json](figures/there.json) | unit | ours | y |",
            line,
            "![Title here](figures/p.svg)",
            "-->\nafter\n",
        ] {
            assert!(filled.page.contains(part), "{part}: {}", filled.page);
        }
        assert!(!filled.page.contains("old"), "{}", filled.page);
        assert_eq!(
            fill(&filled.page, "figures/", &read).unwrap().page,
            filled.page
        );
        let [(name, svg)] = &filled.pictures[..] else {
            panic!("{} pictures", filled.pictures.len());
        };
        assert!(
            name == "p.svg" && svg.contains("ours") && svg.contains("the first, ns"),
            "{svg}"
        );
    }

    #[test]
    fn medians_stand_alone() {
        let page = PAGE
            .replace("columns:", "medians:")
            .replace("picture: p.svg Title here\n", "");
        let filled = fill(&page, "", &read).unwrap();
        assert!(
            filled.page.contains("| the first | ns | 2.00 | 3.00 |"),
            "{}",
            filled.page
        );
        assert!(filled.pictures.is_empty() && filled.page.contains("|  | unit |"));
    }

    #[test]
    fn gains_have_the_seeds_and_counters_beside_them() {
        let row = |variant: &str, ns: f64, visits: u32| {
            json!({ "bench": "b", "case": "write_u1k", "variant": variant, "unit": "ns",
                    "median": ns, "counters": { "calls": 10, "commit_visits": visits } })
        };
        let rows = [
            row("bufferhead", 100.0, 10),
            row("bufferhead-fullwalk", 300.0, 2560),
        ];
        let read = |_: &str| Ok(Report::new(json!({ "rows": rows })));
        let pair = "bufferhead / bufferhead-fullwalk";
        let counter = "commit_visits of bufferhead-fullwalk = visits";
        let page = format!(
            "<!-- figures: r.json\ncolumns: {pair} | seed: {pair} = the seed | {counter}\n\
             write_u1k\n-->\n<!-- figures: end -->"
        );
        let page = fill(&page, "", &read).unwrap().page;
        let head = format!("| unit | {pair} | the seed | visits |");
        assert!(page.contains(&head), "{page}");
        assert!(
            page.contains("| `write_u1k` | ns | 3.00 | 4.16 | 256 |"),
            "{page}"
        );
    }

    #[test]
    fn a_table_of_nothing_is_a_mistake() {
        for (from, to) in [
            ("there.json", "nowhere.json"),
            ("\nb\n", "\nc\n"),
            ("\nb\n", "\nother:b\n"),
            ("columns: x = ours | y", "columns: z"),
            ("columns: x = ours | y\n", ""),
            ("columns: x = ours | y", "columns: seed: iomap / base"),
            ("<!-- figures: end -->", ""),
            ("\n-->", ""),
        ] {
            assert!(fill(&PAGE.replace(from, to), "", &read).is_err(), "{from}");
        }
        assert_eq!(fill("no tables\n", "", &read).unwrap().page, "no tables\n");
    }

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
}
