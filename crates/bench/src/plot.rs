//! Plots: a picture per bench and unit, a group of bars per case, a bar per variant.

use std::path::Path;

use extant_host::{Error, Result};
use plotters::prelude::*;

use crate::rows::{Rows, Unit};

/// Cases in one picture.
const PER_PICTURE: usize = 9;
const WIDTH: u32 = 1200;
const HEIGHT: u32 = 600;

/// Draws everything in `rows` into files `BENCH-N.svg` below `dir`.
pub(crate) fn draw(rows: &Rows, bench: &str, dir: &Path) -> Result<()> {
    let mut number = 0;
    for unit in [Unit::Nanoseconds, Unit::MibPerSecond, Unit::Milliseconds] {
        let cases: Vec<&str> = rows
            .cases()
            .iter()
            .filter(|(_, u)| *u == unit)
            .map(|(case, _)| case.as_str())
            .collect();
        for cases in cases.chunks(PER_PICTURE) {
            number += 1;
            let path = dir.join(format!("{bench}-{number}.svg"));
            picture(rows, bench, unit, cases, &path)
                .map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
        }
    }
    Ok(())
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn picture(rows: &Rows, bench: &str, unit: Unit, cases: &[&str], path: &Path) -> Drawn {
    let variants: Vec<&String> = rows
        .variants()
        .iter()
        .filter(|v| cases.iter().any(|c| rows.summary(c, v).is_some()))
        .collect();
    let all = cases
        .iter()
        .flat_map(|c| variants.iter().filter_map(|v| rows.median(c, v)));
    let (low, high) = all.fold((f64::INFINITY, 0.0f64), |(l, h), m| (l.min(m), h.max(m)));
    if high <= 0.0 {
        return Ok(());
    }
    let (low, high) = ((low / 2.0).max(1e-3), high * 1.5);
    // A group is as wide as its bars and a gap.
    let group = f64::from(u32::try_from(variants.len() + 1)?);
    let end = group * f64::from(u32::try_from(cases.len())?);
    let area = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(
            format!("{bench} ({}, logarithmic)", unit.name()),
            ("sans-serif", 20),
        )
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, (low..high).log_scale())?;
    let name_of = |at: &f64| {
        cases
            .iter()
            .zip(0u32..)
            .find(|(_, i)| (*at - (f64::from(*i) + 0.5) * group).abs() < group / 2.0)
            .map_or_else(String::new, |(case, _)| (*case).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(cases.len() * 2 + 1)
        .x_label_formatter(&|_| String::new())
        .y_desc(unit.name())
        .draw()?;
    let plain = TextStyle::from(("sans-serif", 12).into_font());
    for i in 0..u32::try_from(cases.len())? {
        let middle = (f64::from(i) + 0.5) * group;
        let label = name_of(&middle);
        let (x, y) = chart.backend_coord(&(middle, low));
        let half = i32::try_from(label.len() * 3).unwrap_or(0);
        area.draw(&Text::new(label, (x - half, y + 8), plain.clone()))?;
    }
    for (variant, i) in variants.iter().zip(0u32..) {
        let colour = Palette99::pick(usize::try_from(i)?).to_rgba();
        let bars = cases.iter().zip(0u32..).filter_map(|(case, at)| {
            let median = rows.median(case, variant)?;
            let left = f64::from(at) * group + f64::from(i) + 0.5;
            Some(Rectangle::new(
                [(left, low), (left + 0.9, median)],
                colour.filled(),
            ))
        });
        chart
            .draw_series(bars)?
            .label(variant.as_str())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    area.present()?;
    Ok(())
}
