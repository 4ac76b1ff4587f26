//! Plots: for each group of cases a picture of bars, for each curve one of lines.
//!
//! Bars lie on their side, so that the names of cases have room; the legend stands beside them.
//! What is drawn is the median, with the least and the largest sample as an error bar.

use extant_host::{Error, Result};
use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::rows::{Rows, Summary, Unit, number};

/// Pixels: of a picture, a line of text, a bar, a letter of the text's size.
const WIDTH: i32 = 1100;
const LINE: i32 = 22;
const BAR: i32 = 13;
const LETTER: i32 = 8;
const TEXT: i32 = 16;
/// Room above for the title, below for the axis.
const ABOVE: i32 = 56;
const BELOW: i32 = 34;
/// Height of the field of a picture of lines.
const FIELD: i32 = 380;
/// Figures this far apart are drawn on a logarithmic axis.
const FAR: f64 = 30.0;
/// Colours of the variants, each dark enough for a thin line on white.
const COLOURS: [RGBColor; 18] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xe1, 0x5a, 0x1e),
    RGBColor(0x2c, 0x8c, 0x3c),
    RGBColor(0xc2, 0x27, 0x2d),
    RGBColor(0x7b, 0x4f, 0xb0),
    RGBColor(0x8c, 0x5a, 0x3c),
    RGBColor(0xc9, 0x4f, 0xa8),
    RGBColor(0x55, 0x55, 0x55),
    RGBColor(0xa3, 0x8f, 0x10),
    RGBColor(0x0f, 0x97, 0xa7),
    RGBColor(0x1a, 0x2f, 0x6f),
    RGBColor(0x6b, 0x8e, 0x23),
    RGBColor(0x00, 0x5f, 0x52),
    RGBColor(0x9a, 0x2f, 0x6b),
    RGBColor(0xb8, 0x6b, 0x00),
    RGBColor(0x5b, 0x5b, 0xd6),
    RGBColor(0x7a, 0x10, 0x10),
    RGBColor(0x4d, 0x7a, 0x99),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A group of cases, and the picture of it.
struct Group<'a> {
    name: String,
    unit: Unit,
    cases: Vec<&'a str>,
}

/// A drawn picture.
pub(crate) struct Picture {
    /// `BENCH-GROUP`: the name of its file, without an extension.
    pub(crate) name: String,
    pub(crate) svg: String,
}

/// Draws everything in `rows`: a picture for each group that has figures.
pub(crate) fn draw(rows: &Rows, bench: &str) -> Result<Vec<Picture>> {
    let mut pictures = Vec::new();
    for group in groups(rows) {
        let name = group.name.strip_prefix(&format!("{bench}/"));
        let name = name.unwrap_or(&group.name).replace(['/', ' ', '+'], "-");
        let name = format!("{bench}-{name}");
        let curve = group.cases.iter().all(|case| rows.point_of(case).is_some());
        let drawn = if curve && group.cases.len() > 1 {
            lines(rows, bench, &group)
        } else {
            bars(rows, bench, &group)
        };
        let svg = drawn.map_err(|e| Error::new(format!("{name}: {e}")))?;
        if !svg.is_empty() {
            pictures.push(Picture { name, svg });
        }
    }
    Ok(pictures)
}

/// Cases that belong together: those of one curve, of one name but for its last part, or of one
/// call in several sizes (`write_u1k`, `write_u10k`).
fn groups(rows: &Rows) -> Vec<Group<'_>> {
    let mut all: Vec<Group<'_>> = Vec::new();
    for (case, unit) in rows.cases() {
        let plain = || case.rsplit_once('/').or_else(|| case.split_once('_'));
        let name = match rows.point_of(case) {
            Some((curve, _)) => curve,
            None => plain().map_or(case.as_str(), |(group, _)| group),
        };
        match all.iter_mut().find(|g| g.name == name && g.unit == *unit) {
            Some(group) => group.cases.push(case),
            None => all.push(Group {
                name: name.to_owned(),
                unit: *unit,
                cases: vec![case],
            }),
        }
    }
    // Two units of one name are two pictures.
    for at in 0..all.len() {
        let same = |g: &Group<'_>| g.name == all[at].name;
        if all.iter().take(at).any(same) {
            all[at].name = format!("{} {}", all[at].name, all[at].unit.name());
        }
    }
    all
}

/// Title of a picture: which figures are better, and how the axis goes.
fn title(bench: &str, group: &Group<'_>, axis: &Axis) -> String {
    let what = match group.unit {
        Unit::MibPerSecond => "throughput in MiB/s: more is better",
        Unit::Nanoseconds => "nanoseconds of each: less is better",
        Unit::Milliseconds => "milliseconds: less is better",
        Unit::Mebibytes => "peak memory in MiB: less is better",
        Unit::RoundTrips => "requests of each: less is better",
    };
    let scale = match axis.logarithmic {
        true => " (logarithmic scale)",
        false => "",
    };
    format!("{bench}, {}: {what}{scale}", group.name)
}

/// Figures along a line of pixels.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
    /// The pixels of both ends.
    from: i32,
    to: i32,
}

impl Axis {
    /// An axis that holds all of `figures`.
    fn over(figures: &[f64], from: i32, to: i32) -> Axis {
        let least = figures
            .iter()
            .copied()
            .filter(|f| *f > 0.0)
            .fold(f64::INFINITY, f64::min);
        let most = figures.iter().copied().fold(0.0, f64::max).max(1e-9);
        let logarithmic = least.is_finite() && most / least > FAR;
        Axis {
            low: if logarithmic { least / 1.6 } else { 0.0 },
            high: most * if logarithmic { 1.4 } else { 1.06 },
            logarithmic,
            from,
            to,
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "pixels of a picture")]
    fn at(&self, figure: f64) -> i32 {
        let part = if self.logarithmic {
            (figure.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            figure / self.high
        };
        self.from + (f64::from(self.to - self.from) * part).round() as i32
    }

    /// Round figures to be written beside the axis.
    fn ticks(&self) -> Vec<f64> {
        let mut all = Vec::new();
        if self.logarithmic {
            let mut decade = 10f64.powf(self.low.log10().floor());
            while decade <= self.high {
                all.extend([decade, decade * 3.0]);
                decade *= 10.0;
            }
        } else {
            let raw = self.high / 6.0;
            let power = 10f64.powf(raw.log10().floor());
            let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
            // Rounding may leave even the largest step below `raw`.
            let step = steps.into_iter().find(|s| *s >= raw).unwrap_or(raw);
            let mut tick = 0.0;
            while tick <= self.high {
                all.push(tick);
                tick += step;
            }
        }
        all.retain(|tick| (self.low..=self.high).contains(tick));
        all
    }
}

fn style(size: i32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font())
}

fn anchored(horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    style(TEXT).pos(Pos::new(horizontal, vertical))
}

/// A figure beside an axis: long ones in thousands and millions.
fn tick_text(figure: f64) -> String {
    match figure {
        f if f >= 1e6 => format!("{}M", f / 1e6),
        f if f >= 1e4 => format!("{}k", f / 1e3),
        f if f >= 10.0 || f == 0.0 => format!("{f:.0}"),
        f => number(f),
    }
}

/// Pixels that a text takes at most.
fn width_of(text: &str) -> i32 {
    i32::try_from(text.chars().count()).map_or(WIDTH, |letters| letters * LETTER)
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> i32 {
    texts.map(width_of).max().unwrap_or(0)
}

/// Variants that share pictures, each by its own colour: file systems and their limits, devices,
/// programs that make images. What is in two lists has the colour of the first.
pub(crate) const PALETTES: [&[&str]; 3] = [
    &[
        "memcpy",
        "memset",
        "iomap",
        "notrim",
        "noslots",
        "nofronts",
        "iomap-order0",
        "bufferhead",
        "bufferhead-fullwalk",
        "base",
        "base-dirty-inode",
        "mount",
        "mount-uring",
        "kernel-ext4",
        "kernel-xfs",
        "fuse2fs",
        "passthrough",
        "e2fsck",
    ],
    &["threads", "io_uring", "threads-cached", "io_uring-cached"],
    &["build", "build-tar", "mke2fs", "genext2fs", "tar2ext4"],
];

/// The colour of a variant, in every picture of every run.
pub(crate) fn colour(variant: &str) -> Option<RGBColor> {
    let in_list = |list: &&[&str]| list.iter().position(|name| *name == variant);
    let at = PALETTES.iter().find_map(in_list)?;
    COLOURS.get(at).copied()
}

fn colour_or_black(variant: &str) -> RGBColor {
    colour(variant).unwrap_or(BLACK)
}

/// The variants that the group has figures of.
fn shown<'a>(rows: &'a Rows, group: &Group<'_>) -> Vec<&'a str> {
    let has = |v: &&str| group.cases.iter().any(|c| rows.summary(c, v).is_some());
    rows.variants()
        .iter()
        .map(String::as_str)
        .filter(has)
        .collect()
}

fn figures(rows: &Rows, group: &Group<'_>, variants: &[&str]) -> Vec<f64> {
    let all = group.cases.iter().flat_map(|case| {
        let of = variants.iter().filter_map(|v| rows.summary(case, v));
        of.flat_map(|s| [s.min, s.median, s.max])
    });
    all.collect()
}

/// A white picture with a title.
fn canvas<'a>(svg: &'a mut String, height: i32, title: &str) -> Result<Area<'a>> {
    let size = (u32::try_from(WIDTH)?, u32::try_from(height)?);
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    let drawn = || -> Drawn {
        area.fill(&WHITE)?;
        area.draw(&Text::new(title.to_owned(), (16, 16), style(18)))
    };
    drawn().map_err(|e| Error::new(e.to_string()))?;
    Ok(area)
}

/// The names of the variants, to the right of everything.
fn legend(area: &Area<'_>, variants: &[&str], left: i32) -> Drawn {
    for (variant, line) in variants.iter().zip(0..) {
        let y = ABOVE + line * LINE;
        let square = [(left, y), (left + 14, y + 14)];
        area.draw(&Rectangle::new(square, colour_or_black(variant).filled()))?;
        let text = anchored(HPos::Left, VPos::Center);
        area.draw(&Text::new((*variant).to_owned(), (left + 22, y + 7), text))?;
    }
    Ok(())
}

fn stroke(area: &Area<'_>, from: (i32, i32), to: (i32, i32), colour: RGBColor) -> Drawn {
    area.draw(&PathElement::new([from, to], colour.stroke_width(1)))
}

const GRID: RGBColor = RGBColor(222, 222, 222);

/// The legend's and the labels' room: where the field begins, ends, and the legend begins.
fn columns(labels: i32, variants: &[&str]) -> (i32, i32, i32) {
    let legend = WIDTH - widest(variants.iter().copied()) - 40;
    (labels + 28, legend - 24, legend)
}

/// No text, if there is nothing to draw.
fn bars(rows: &Rows, bench: &str, group: &Group<'_>) -> Result<String> {
    let variants = shown(rows, group);
    let figures = figures(rows, group, &variants);
    let mut svg = String::new();
    if figures.iter().all(|figure| *figure <= 0.0) {
        return Ok(svg);
    }
    let count = i32::try_from(variants.len())?;
    let cases = i32::try_from(group.cases.len())?;
    let block = count * BAR + 16;
    let bottom = ABOVE + cases * block;
    let height = bottom.max(ABOVE + count * LINE) + BELOW;
    let (left, right, legend_at) = columns(widest(group.cases.iter().copied()), &variants);
    let axis = Axis::over(&figures, left, right);
    let area = canvas(&mut svg, height, &title(bench, group, &axis))?;
    let drawn = || -> Drawn {
        for tick in axis.ticks() {
            let x = axis.at(tick);
            stroke(&area, (x, ABOVE - 6), (x, bottom), GRID)?;
            let text = anchored(HPos::Center, VPos::Top);
            area.draw(&Text::new(tick_text(tick), (x, bottom + 6), text))?;
        }
        for (case, line) in group.cases.iter().zip(0..) {
            let top = ABOVE + line * block;
            let text = anchored(HPos::Right, VPos::Center);
            let middle = top + count * BAR / 2;
            area.draw(&Text::new((*case).to_owned(), (left - 10, middle), text))?;
            for (variant, at) in variants.iter().zip(0..) {
                if let Some(figure) = rows.summary(case, variant) {
                    let y = top + at * BAR;
                    let to = (axis.at(figure.median), y + BAR - 2);
                    let fill = colour_or_black(variant).filled();
                    area.draw(&Rectangle::new([(left, y), to], fill))?;
                    error_bar(&area, &axis, &figure, y + BAR / 2 - 1)?;
                }
            }
        }
        stroke(&area, (left, ABOVE - 6), (left, bottom), BLACK)?;
        legend(&area, &variants, legend_at)?;
        area.present()
    };
    drawn().map_err(|e| Error::new(e.to_string()))?;
    drop(area);
    Ok(svg)
}

/// From the least to the largest sample.
fn error_bar(area: &Area<'_>, axis: &Axis, figure: &Summary, y: i32) -> Drawn {
    let (least, most) = (axis.at(figure.min), axis.at(figure.max));
    stroke(area, (least, y), (most, y), BLACK)?;
    stroke(area, (least, y - 3), (least, y + 3), BLACK)?;
    stroke(area, (most, y - 3), (most, y + 3), BLACK)
}

/// No text, if there is nothing to draw.
fn lines(rows: &Rows, bench: &str, group: &Group<'_>) -> Result<String> {
    let variants = shown(rows, group);
    let figures = figures(rows, group, &variants);
    let sizes = group.cases.iter().filter_map(|c| rows.point_of(c));
    let sizes: Vec<f64> = sizes.map(|(_, size)| f64::from(size)).collect();
    let mut svg = String::new();
    if figures.iter().all(|figure| *figure <= 0.0) {
        return Ok(svg);
    }
    let bottom = ABOVE + FIELD;
    let (left, right, legend_at) = columns(70, &variants);
    let across = Axis {
        logarithmic: true,
        ..Axis::over(&sizes, left, right)
    };
    let low = sizes.iter().copied().fold(f64::INFINITY, f64::min);
    let across = Axis {
        low: low / 1.6,
        ..across
    };
    let up = Axis::over(&figures, bottom, ABOVE);
    let area = canvas(&mut svg, bottom + BELOW, &title(bench, group, &up))?;
    let drawn = || -> Drawn {
        for tick in up.ticks() {
            let y = up.at(tick);
            stroke(&area, (left, y), (right, y), GRID)?;
            let text = anchored(HPos::Right, VPos::Center);
            area.draw(&Text::new(tick_text(tick), (left - 8, y), text))?;
        }
        for (case, size) in group.cases.iter().zip(&sizes) {
            let word = case.rsplit('/').next().unwrap_or(case);
            let text = anchored(HPos::Center, VPos::Top);
            let at = (across.at(*size), bottom + 8);
            area.draw(&Text::new(word.to_owned(), at, text))?;
        }
        for variant in &variants {
            let known = group.cases.iter().zip(&sizes);
            let points = known.filter_map(|(case, size)| {
                let figure = rows.summary(case, variant)?;
                Some((across.at(*size), figure))
            });
            curve(&area, &up, points.collect(), colour_or_black(variant))?;
        }
        stroke(&area, (left, ABOVE), (left, bottom), BLACK)?;
        stroke(&area, (left, bottom), (right, bottom), BLACK)?;
        legend(&area, &variants, legend_at)?;
        area.present()
    };
    drawn().map_err(|e| Error::new(e.to_string()))?;
    drop(area);
    Ok(svg)
}

fn curve(area: &Area<'_>, up: &Axis, points: Vec<(i32, Summary)>, colour: RGBColor) -> Drawn {
    let line: Vec<(i32, i32)> = points.iter().map(|(x, f)| (*x, up.at(f.median))).collect();
    area.draw(&PathElement::new(line, colour.stroke_width(2)))?;
    for (x, figure) in &points {
        stroke(
            area,
            (*x, up.at(figure.min)),
            (*x, up.at(figure.max)),
            colour,
        )?;
        area.draw(&Circle::new((*x, up.at(figure.median)), 4, colour.filled()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(cases: &[(&str, f64)]) -> Rows {
        let mut rows = Rows::default();
        for (case, figure) in cases {
            for (variant, factor) in [("iomap", 1.0), ("a-long-name-of-a-variant", 2.0)] {
                for spread in [0.9, 1.0, 1.2] {
                    rows.add(case, Unit::Nanoseconds, variant, figure * factor * spread);
                }
            }
        }
        rows
    }

    #[test]
    fn cases_of_a_group_share_a_picture() {
        let rows = rows(&[
            ("write_u1k", 1.0),
            ("write_u10k", 1.0),
            ("read/hole/4K", 1.0),
            ("read/hole/1M", 1.0),
            ("read/ram/4K", 1.0),
        ]);
        let groups = groups(&rows);
        let names: Vec<&str> = groups.iter().map(|g| g.name.as_str()).collect();
        assert_eq!(names, ["write", "read/hole", "read/ram"]);
        assert_eq!(groups[1].cases, ["read/hole/4K", "read/hole/1M"]);
    }

    #[test]
    fn long_figures_are_short() {
        let texts = [0.0, 0.5, 30.0, 3000.0, 30_000.0, 3e6].map(tick_text);
        assert_eq!(texts, ["0", "0.50", "30", "3000", "30k", "3M"]);
    }

    #[test]
    fn an_axis_has_round_ticks_and_keeps_order() {
        let axis = Axis::over(&[40.0, 90.0], 100, 900);
        assert!(!axis.logarithmic);
        assert_eq!(axis.ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        let far = Axis::over(&[1.0, 3000.0], 100, 900);
        assert!(far.logarithmic && far.at(1.0) > 100 && far.at(3000.0) < 900);
        assert!(far.at(10.0) < far.at(20.0));
        assert_eq!(
            far.ticks(),
            [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]
        );
    }

    #[test]
    fn a_logarithmic_axis_is_named() {
        let far = draw(
            &rows(&[("read/hole/4K", 1.0), ("read/hole/1M", 900.0)]),
            "psync",
        );
        let near = draw(&rows(&[("read/hole/4K", 1.0)]), "psync");
        assert!(far.unwrap()[0].svg.contains("logarithmic scale"));
        assert!(!near.unwrap()[0].svg.contains("logarithmic scale"));
    }

    /// Nothing is drawn outside of the picture, and the legend stands right of every bar.
    #[test]
    fn the_legend_is_beside_the_bars() {
        let pictures = draw(&rows(&[("read/hole/4K", 50.0)]), "psync").unwrap();
        let [Picture { name, svg }] = &pictures[..] else {
            panic!("{} pictures", pictures.len())
        };
        assert_eq!(name, "psync-read-hole");
        assert!(svg.contains("less is better") && svg.contains("a-long-name-of-a-variant"));
        let number = |line: &str, name: &str| -> i32 {
            let rest = line.split_once(&format!(" {name}=\"")).unwrap().1;
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let rects = svg
            .lines()
            .filter(|l| l.starts_with("<rect") && !l.contains("#FFFFFF"));
        let rects: Vec<(i32, i32)> = rects
            .map(|l| (number(l, "x"), number(l, "x") + number(l, "width")))
            .collect();
        // Two bars, then the two squares of the legend.
        let [bars @ .., one, other] = &rects[..] else {
            panic!("{svg}")
        };
        assert_eq!(bars.len(), 2, "{svg}");
        let legend = one.0.min(other.0);
        assert!(bars.iter().all(|(_, end)| *end < legend), "{rects:?}");
        assert!(
            rects.iter().all(|(from, to)| *from >= 0 && *to <= WIDTH),
            "{rects:?}"
        );
    }
}
