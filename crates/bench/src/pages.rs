//! The pictures and the tables of a run as files: SVG and PNG, and one page that holds them all.
//!
//! The page needs nothing but itself: no network, no script, no font.

use std::fmt::Write as _;
use std::path::Path;

use extant::device::refuse_target_in_use;
use extant_host::{Cmd, Need, Result};

use crate::plan::Bench;
use crate::plot::Picture;
use crate::rows::Rows;
use crate::tables::{EXPLAINED, explained, figures, gains, histograms, ratios};

/// Name of the page with all pictures and tables.
pub const REPORT_PAGE: &str = "report.html";

/// The program that makes a PNG of an SVG.
const CONVERTER: &str = "rsvg-convert";

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Measurements of Extant</title>
<style>
body { font: 16px/1.5 sans-serif; color: #222; }
body { max-width: 1180px; margin: 2em auto; padding: 0 1em; }
h2 { border-top: 1px solid #ccc; padding-top: 1em; margin-top: 2em; }
svg { display: block; max-width: 100%; height: auto; margin: 1em 0; }
.table, pre { overflow-x: auto; }
p, li { overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 14px; margin: 1em 0; }
th, td { padding: 3px 10px; border-bottom: 1px solid #ddd; white-space: nowrap; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.wide td:last-child { white-space: normal; text-align: left; }
</style>
</head>
<body>
<h1>Measurements of Extant</h1>
"#;

/// The page of a run.
pub(crate) struct Page {
    contents: String,
    body: String,
}

impl Page {
    /// A page that begins with what the run was.
    pub(crate) fn new(about: &str) -> Page {
        let about = plain(about);
        Page {
            contents: format!("{HEAD}<p>{about}</p>\n<ul>\n"),
            body: String::new(),
        }
    }

    /// A section: the pictures of a family, and its tables.
    pub(crate) fn family(&mut self, bench: Bench, rows: &Rows, pictures: &[Picture]) {
        let (name, title, about) = (bench.name(), plain(bench.title()), plain(bench.about()));
        let _ = writeln!(self.contents, r##"<li><a href="#{name}">{title}</a></li>"##);
        let _ = writeln!(
            self.body,
            "<h2 id=\"{name}\">{title}</h2>\n<p><code>extant bench {name}</code>, {}: {about}</p>",
            rows.rounds()
        );
        for picture in pictures {
            self.body.push_str(&picture.svg);
            self.body.push('\n');
        }
        self.table("", &figures(rows));
        self.table(
            "Ratios; above 1 the first is better, =: their runs overlap.",
            &ratios(rows),
        );
        self.table("Gain over base, beside the seeds'.", &gains(rows));
        for variant in EXPLAINED {
            let lines = explained(rows, variant);
            if lines.len() > 1 {
                let _ = writeln!(
                    self.body,
                    "<details class=\"wide\">\n\
                     <summary>What was counted meanwhile: {variant}</summary>"
                );
                self.table("", &lines);
                self.body.push_str("</details>\n");
            }
        }
        let times = histograms(rows);
        if !times.is_empty() {
            let _ = writeln!(self.body, "<pre>{}</pre>", plain(times.trim_end()));
        }
    }

    /// A table of lines, the first of which is its head; none, if it has no other line.
    fn table(&mut self, about: &str, lines: &[Vec<String>]) {
        let [head, lines @ ..] = lines else {
            return;
        };
        if lines.is_empty() {
            return;
        }
        let row = |cells: &[String], tag: &str| -> String {
            let cells = cells.iter().map(|cell| plain(cell));
            cells.map(|cell| format!("<{tag}>{cell}</{tag}>")).collect()
        };
        if !about.is_empty() {
            let _ = writeln!(self.body, "<p>{}</p>", plain(about));
        }
        let _ = writeln!(
            self.body,
            "<div class=\"table\"><table>\n<tr>{}</tr>",
            row(head, "th")
        );
        for line in lines {
            let _ = writeln!(self.body, "<tr>{}</tr>", row(line, "td"));
        }
        self.body.push_str("</table></div>\n");
    }

    /// A section with a list, if there is anything in it.
    pub(crate) fn list(&mut self, title: &str, items: impl Iterator<Item = String>) {
        let items: String = items
            .map(|item| format!("<li>{}</li>\n", plain(&item)))
            .collect();
        if !items.is_empty() {
            let _ = write!(self.body, "<h2>{title}</h2>\n<ul>\n{items}</ul>\n");
        }
    }

    /// The whole page.
    pub(crate) fn end(self) -> String {
        format!("{}</ul>\n{}</body>\n</html>\n", self.contents, self.body)
    }
}

/// Text of a table of Markdown as text of a page.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '`' => {}
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            other => out.push(other),
        }
    }
    out
}

/// Writes each picture to `dir`, as SVG and as PNG. Returns what is left out, and why.
pub(crate) fn write_pictures(pictures: &[Picture], dir: &Path) -> Result<Option<String>> {
    let can_convert = Need::Tool(CONVERTER).missing().is_none();
    for Picture { name, svg } in pictures {
        let path = dir.join(format!("{name}.svg"));
        write_file(&path, svg)?;
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
pub(crate) fn write_file(path: &Path, text: &str) -> Result<()> {
    refuse_target_in_use(path)?;
    Ok(std::fs::write(path, text)?)
}

#[cfg(test)]
mod tests {
    use extant_host::TempDir;

    use super::*;
    use crate::plot;
    use crate::rows::Unit;

    fn measured() -> Rows {
        let mut rows = Rows::default();
        for (variant, figure) in [("iomap", 250.0), ("base", 100.0)] {
            for spread in [0.9, 1.0, 1.1] {
                rows.add("read/hole/4K", Unit::MibPerSecond, variant, figure * spread);
            }
        }
        rows
    }

    #[test]
    fn a_page_holds_pictures_and_tables_and_asks_for_nothing_else() {
        let rows = measured();
        let pictures = plot::draw(&rows, "psync").unwrap();
        let mut page = Page::new("by `extant bench psync` <now> & here");
        page.family(Bench::Psync, &rows, &pictures);
        page.list("Remarks", ["a < b".to_owned()].into_iter());
        page.list("Nothing", std::iter::empty());
        let page = page.end();
        for part in [
            "by extant bench psync &lt;now&gt; &amp; here",
            r##"<a href="#psync">"##,
            "<svg width=",
            "<td>read/hole/4K</td><td>MiB/s</td><td>250 (225–275)</td>",
            "<td>2.50</td>",
            "<td>+150 %</td>",
            "<li>a &lt; b</li>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("Nothing"), "{page}");
        // An address that a picture names as its language is not asked for anything.
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for part in ["http", "src=", "@import", "url(", "<script"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn pictures_are_written_as_svg_and_as_png() {
        let dir = TempDir::new("pictures").unwrap();
        let pictures = plot::draw(&measured(), "psync").unwrap();
        let left_out = write_pictures(&pictures, dir.path()).unwrap();
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
