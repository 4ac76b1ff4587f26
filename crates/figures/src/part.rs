//! The parts of a report, and how each is shown: on a terminal, in Markdown, in HTML.

use std::fmt::Write as _;

/// Lines of cells; the first line is the head.
pub(crate) type Table = Vec<Vec<String>>;

/// A part of a report. Text is Markdown, of which only backticks are used.
pub(crate) enum Part {
    /// The anchor and the text of a heading.
    Heading(String, String),
    Text(String),
    Table(Table),
    /// A table below a title that opens it.
    Folded(String, Table),
    /// A picture as SVG.
    Picture(String),
    Verbatim(String),
    List(Vec<String>),
}

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
details td:last-child { white-space: normal; text-align: left; }
</style>
</head>
<body>
<h1>Measurements of Extant</h1>
"#;

/// Shows parts on a terminal. Counters and pictures are left out.
pub(crate) fn text(parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        let _ = match part {
            Part::Heading(name, _) => writeln!(out, "{name}\n"),
            Part::Text(text) => writeln!(out, "{}", paragraph(text)),
            Part::Table(table) => writeln!(out, "{}", aligned(table)),
            Part::Verbatim(text) => writeln!(out, "{text}"),
            Part::List(items) => writeln!(out, "{}\n", items.join("\n")),
            Part::Folded(..) | Part::Picture(_) => Ok(()),
        };
    }
    out.replace('`', "").trim_end().to_owned() + "\n"
}

/// Shows parts as Markdown. Pictures are left out.
pub(crate) fn markdown(parts: &[Part]) -> String {
    let mut out = String::new();
    for part in parts {
        let _ = match part {
            Part::Heading(_, title) => writeln!(out, "### {title}\n"),
            Part::Text(text) => writeln!(out, "{}", paragraph(text)),
            Part::Table(table) => writeln!(out, "{}", rows(table)),
            Part::Folded(title, table) => writeln!(
                out,
                "<details><summary>{title}</summary>\n\n{}\n</details>\n",
                rows(table)
            ),
            Part::Verbatim(text) => writeln!(out, "```\n{}\n```\n", text.trim_end()),
            Part::List(items) => {
                let items: Vec<String> =
                    items.iter().map(|item| wrapped(item, "- ", "  ")).collect();
                writeln!(out, "{}", items.concat())
            }
            Part::Picture(_) => Ok(()),
        };
    }
    out.trim_end().to_owned() + "\n"
}

/// Shows parts as a page of HTML.
pub(crate) fn html(parts: &[Part]) -> String {
    let mut out = HEAD.to_owned();
    for part in parts {
        let _ = match part {
            Part::Heading(name, title) => {
                writeln!(out, "<h2 id=\"{}\">{}</h2>", plain(name), plain(title))
            }
            Part::Text(text) => writeln!(out, "<p>{}</p>", plain(text)),
            Part::Table(table) => writeln!(out, "{}", html_table(table)),
            Part::Folded(title, table) => writeln!(
                out,
                "<details>\n<summary>{}</summary>\n{}</details>",
                plain(title),
                html_table(table)
            ),
            Part::Picture(svg) => writeln!(out, "{svg}"),
            Part::Verbatim(text) => writeln!(out, "<pre>{}</pre>", plain(text.trim_end())),
            Part::List(items) => {
                let items: Vec<String> = items.iter().map(|item| plain(item)).collect();
                writeln!(out, "<ul>\n<li>{}</li>\n</ul>", items.join("</li>\n<li>"))
            }
        };
    }
    out + "</body>\n</html>\n"
}

/// A table of Markdown.
pub(crate) fn rows(table: &Table) -> String {
    let mut out = String::new();
    for (i, line) in table.iter().enumerate() {
        let _ = writeln!(out, "| {} |", line.join(" | "));
        if i == 0 {
            let _ = writeln!(out, "|{}", "---|".repeat(line.len()));
        }
    }
    out
}

fn html_table(table: &Table) -> String {
    let mut out = "<div class=\"table\"><table>\n".to_owned();
    for (i, line) in table.iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        let cells = line
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", plain(cell)));
        let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
    out + "</table></div>\n"
}

/// Text of Markdown as text of HTML.
pub(crate) fn plain(text: &str) -> String {
    let text = text.replace('`', "").replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Text in lines of at most 100 columns, each with its end.
fn paragraph(text: &str) -> String {
    wrapped(text, "", "")
}

/// The same with something before the first line, and before the others.
fn wrapped(text: &str, first: &str, others: &str) -> String {
    let mut lines = vec![first.to_owned()];
    for (at, word) in text.split_whitespace().enumerate() {
        let line = lines.len() - 1;
        if at == 0 {
            lines[line] += word;
        } else if lines[line].chars().count() + 1 + word.chars().count() > 100 {
            lines.push(format!("{others}{word}"));
        } else {
            lines[line] += &format!(" {word}");
        }
    }
    lines.join("\n") + "\n"
}

/// Lines of cells as text, in columns: names to the left, figures to the right.
fn aligned(table: &Table) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let width = |c: usize| {
        let cells = table.iter().filter_map(|line| line.get(c));
        cells
            .map(|cell| cell.replace('`', "").chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    let mut out = String::new();
    for line in table {
        let mut shown = String::new();
        for (i, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let cell = cell.replace('`', "");
            let _ = match i {
                0 | 1 => write!(shown, "{cell:<width$}  "),
                _ => write!(shown, "{cell:>width$}  "),
            };
        }
        out.push_str(shown.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<Part> {
        let table = [
            ["case", "unit", "iomap"],
            ["`read`", "ns", "2.00 (1.00–3.00)"],
        ];
        let table: Table = table.map(|line| line.map(str::to_owned).to_vec()).to_vec();
        vec![
            Part::Text("by `extant bench psync` <now> & here".into()),
            Part::Heading("psync".into(), "Streams".into()),
            Part::Picture("<svg></svg>".into()),
            Part::Table(table.clone()),
            Part::Folded("counted".into(), table),
            Part::List(vec!["a < b".into()]),
        ]
    }

    #[test]
    fn a_terminal_gets_columns() {
        let text = text(&parts());
        assert!(text.contains("\nread  ns    2.00 (1.00–3.00)\n"), "{text}");
        assert!(!text.contains('`') && !text.contains("counted"), "{text}");
    }

    #[test]
    fn markdown_has_tables_of_its_own() {
        let text = markdown(&parts());
        assert!(
            text.contains("| case | unit | iomap |\n|---|---|---|\n| `read` |"),
            "{text}"
        );
        assert!(
            text.contains("<summary>counted") && !text.contains("svg"),
            "{text}"
        );
    }

    #[test]
    fn a_page_holds_pictures_and_tables_and_asks_for_nothing_else() {
        let page = html(&parts());
        for part in [
            "by extant bench psync &lt;now&gt; &amp; here",
            "<svg",
            "<td>read</td><td>ns</td><td>2.00 (1.00–3.00)</td>",
            "<li>a &lt; b</li>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for part in ["http", "src=", "@import", "url(", "<script"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
    }

    #[test]
    fn a_paragraph_has_lines_of_at_most_100_columns() {
        let text = "word ".repeat(50) + &"x".repeat(120);
        let lines = paragraph(&text);
        let mut lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.pop(), Some(&*"x".repeat(120)));
        let fits = |line: &&str| (90..=100).contains(&line.len()) || line.len() < 60;
        assert!(lines.iter().all(fits));
        assert_eq!(lines.join(" ") + " ", "word ".repeat(50));
    }
}
