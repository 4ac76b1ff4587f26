//! Pictures of figures: for each case a bar of each variant, with the least and the largest sample
//! as an error bar and the median beside it.

use std::fmt::Write as _;

use crate::part::plain;
use crate::tables::{Family, Figure, is_throughput};

/// Pixels: of a picture, of the names, of the longest bar; of a line of text, of a bar.
const WIDTH: f64 = 900.0;
const NAMES: f64 = 170.0;
const LONGEST: f64 = 560.0;
const LINE: f64 = 24.0;
const BAR: f64 = 16.0;
/// Figures this far apart are drawn on a logarithmic axis.
const FAR: f64 = 30.0;
/// Colours of the variants, in every picture of every run; others are grey.
const COLOURS: [(&str, &str); 14] = [
    ("iomap", "#1f77b4"),
    ("mount", "#1f77b4"),
    ("mount-uring", "#7bb3dd"),
    ("build", "#1f77b4"),
    ("build-tar", "#7bb3dd"),
    ("io_uring", "#1f77b4"),
    ("io_uring-cached", "#7bb3dd"),
    ("bufferhead", "#2c8c3c"),
    ("base", "#a38f10"),
    ("kernel-ext4", "#e15a1e"),
    ("kernel-xfs", "#f0a37f"),
    ("fuse2fs", "#c2272d"),
    ("passthrough", "#7b4fb0"),
    ("e2fsck", "#c2272d"),
];

/// A drawn picture.
pub(crate) struct Picture {
    /// `BENCH-GROUP`: the name of its file, without an extension.
    pub(crate) name: String,
    pub(crate) svg: String,
}

/// A case in a picture: its name, and each bar with its label and variant.
pub(crate) struct Bars {
    pub(crate) case: String,
    pub(crate) unit: String,
    pub(crate) bars: Vec<(String, String, Figure)>,
}

/// A picture of each group of a family's cases that has figures.
pub(crate) fn groups(family: &Family<'_>) -> Vec<Picture> {
    let mut all: Vec<(String, Vec<Bars>)> = Vec::new();
    for case in family.cases() {
        let (name, unit) = (group_of(case.name), case.unit);
        let shown = |variant: &&str| {
            let figure = family.figure(case.name, variant)?;
            Some(((*variant).to_owned(), (*variant).to_owned(), figure))
        };
        let bars = Bars {
            case: case.name.to_owned(),
            unit: unit.to_owned(),
            bars: family.variants().iter().filter_map(shown).collect(),
        };
        let same = |(known, of): &&mut (String, Vec<Bars>)| known == name && of[0].unit == unit;
        match all.iter_mut().find(same) {
            Some((_, group)) => group.push(bars),
            None => all.push((name.to_owned(), vec![bars])),
        }
    }
    let bench = family.name;
    let drawn = |(at, (group, bars)): (usize, &(String, Vec<Bars>))| {
        let name = group.strip_prefix(&format!("{bench}/")).unwrap_or(group);
        // Two units of one name are two pictures.
        let again = all.iter().take(at).any(|(before, _)| before == group);
        let unit = if again {
            format!("-{}", bars[0].unit)
        } else {
            String::new()
        };
        let name = format!("{bench}-{name}{unit}").replace(['/', ' ', '+'], "-");
        let svg = draw(
            &format!("{bench}, {group}: {}", direction(&bars[0].unit)),
            bars,
        );
        Some(Picture { name, svg: svg? })
    };
    all.iter().enumerate().filter_map(drawn).collect()
}

/// The name that cases of a group share: all but the last part, or the call of several sizes
/// (`write_u1k`, `write_u10k`).
fn group_of(case: &str) -> &str {
    let split = case.rsplit_once('/').or_else(|| case.split_once('_'));
    split.map_or(case, |(group, _)| group)
}

fn direction(unit: &str) -> String {
    let better = if is_throughput(unit) { "more" } else { "less" };
    format!("{unit}, {better} is better")
}

/// Draws cases one below the other; nothing, if no figure is above zero.
pub(crate) fn draw(title: &str, cases: &[Bars]) -> Option<String> {
    let figures = || {
        cases
            .iter()
            .flat_map(|case| &case.bars)
            .map(|(_, _, figure)| figure)
    };
    let most = figures().map(|figure| figure.max).fold(0.0, f64::max);
    let above = figures()
        .map(|figure| figure.min)
        .filter(|least| *least > 0.0);
    let least = above.fold(most, f64::min);
    if most <= 0.0 {
        return None;
    }
    let far = most / least > FAR;
    let low = least / 2.0;
    let at = |value: f64| {
        let part = match far {
            true => (value.max(low) / low).ln() / (most / low).ln(),
            false => value / most,
        };
        NAMES + LONGEST * part
    };
    let mut body = String::new();
    let title = if far {
        format!("{title} (logarithmic scale)")
    } else {
        title.to_owned()
    };
    text(&mut body, (8.0, LINE), "start", &title);
    let mut y = 1.5 * LINE;
    for case in cases {
        y += LINE;
        text(
            &mut body,
            (8.0, y),
            "start",
            &format!("{}, {}", case.case, case.unit),
        );
        y += 6.0;
        for (label, variant, figure) in &case.bars {
            bar(&mut body, y, figure.map(at), colour(variant));
            text(&mut body, (NAMES - 6.0, y + BAR - 4.0), "end", label);
            text(
                &mut body,
                (at(figure.max) + 6.0, y + BAR - 4.0),
                "start",
                &figure.shown(),
            );
            y += BAR + 2.0;
        }
    }
    let height = y + 12.0;
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>"
    ))
}

/// A bar up to the median, with a line from the least to the largest sample; all in pixels.
fn bar(out: &mut String, y: f64, [median, least, most]: [f64; 3], colour: &str) {
    let (width, height, middle) = ((median - NAMES).max(1.0), BAR - 2.0, y + BAR / 2.0 - 1.0);
    let _ = writeln!(
        out,
        "<rect x=\"{NAMES}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" \
         fill=\"{colour}\"/>\n<path d=\"M{least:.1} {middle}H{most:.1}\" stroke=\"#000\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = plain(text);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}

fn colour(variant: &str) -> &'static str {
    let known = COLOURS.iter().find(|(name, _)| *name == variant);
    known.map_or("#888", |(_, colour)| colour)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rows(cases: &[(&str, f64)]) -> Vec<Value> {
        let row = |case: &str, variant: &str, median: f64| {
            json!({ "case": case, "variant": variant, "unit": "ns",
                    "median": median, "min": 0.9 * median, "max": 1.2 * median })
        };
        let both = cases.iter().flat_map(|(case, median)| {
            [
                row(case, "iomap", *median),
                row(case, "a-long-name", 2.0 * median),
            ]
        });
        both.collect()
    }

    fn pictures(bench: &str, cases: &[(&str, f64)]) -> Vec<Picture> {
        let rows = rows(cases);
        let mut family = Family::new(bench, &[]);
        rows.iter().for_each(|row| family.add(row));
        groups(&family)
    }

    #[test]
    fn cases_of_a_group_share_a_picture() {
        let cases = [
            "write_u1k",
            "write_u10k",
            "read/hole/4K",
            "read/hole/1M",
            "read/ram/4K",
        ];
        let pictures = pictures("psync", &cases.map(|case| (case, 1.0)));
        let names: Vec<&str> = pictures.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["psync-write", "psync-read-hole", "psync-read-ram"]);
        assert!(
            pictures[1].svg.contains("read/hole/4K, ns"),
            "{}",
            pictures[1].svg
        );
        assert!(
            pictures[1].svg.contains("read/hole/1M, ns"),
            "{}",
            pictures[1].svg
        );
    }

    #[test]
    fn a_logarithmic_scale_is_named() {
        let far = pictures("psync", &[("read/hole/4K", 1.0), ("read/hole/1M", 900.0)]);
        let near = pictures("psync", &[("read/hole/4K", 1.0)]);
        assert!(far[0].svg.contains("logarithmic scale"));
        assert!(!near[0].svg.contains("logarithmic scale"));
        assert!(near[0].svg.contains("less is better"));
    }

    /// Bars are in the order of their figures, from the names to the picture's end.
    #[test]
    fn a_bar_is_as_long_as_its_figure() {
        for cases in [
            &[("read/hole/4K", 50.0)][..],
            &[("a/1", 1.0), ("a/2", 900.0)],
        ] {
            let picture = &pictures("psync", cases)[0].svg;
            let bars = picture.lines().filter(|line| line.starts_with("<rect x="));
            let width = |line: &str| -> f64 {
                let rest = line.split_once(" width=\"").unwrap().1;
                rest.split_once('"').unwrap().0.parse().unwrap()
            };
            let widths: Vec<f64> = bars.map(width).collect();
            assert_eq!(widths.len(), 2 * cases.len(), "{picture}");
            assert!(widths.is_sorted_by(|a, b| a < b), "{widths:?}");
            assert!(
                widths.iter().all(|width| (1.0..=LONGEST).contains(width)),
                "{widths:?}"
            );
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert!(pictures("scale", &[("scale/files/memory/1K", 0.0)]).is_empty());
    }
}
