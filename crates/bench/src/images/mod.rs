//! Images made of trees: `extant build` beside the programs that do the same.
//!
//! Trees and images are in RAM, so that the figures are those of the programs. Each maker is a
//! process of its own; rounds go there and back again, and e2fsck checks each image of the first;
//! a sound one has an inode for each entry of its tree, or it is no result. The processor time is
//! that of the process. What the kernel does for Linux's mount in threads of its own is not in it;
//! the time has it.

mod made_tree;
mod maker;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use extant_host::{Cmd, Context, Image, Result, TempDir, ensure};

pub(crate) use self::made_tree::MadeTree;
use self::made_tree::{SHAPES, Shape};
use self::maker::Maker;
use crate::peak::peak_of;
use crate::plan::{Bench, Plan, Size};
use crate::report::Run;
use crate::rows::Unit;

/// Figures that are measured of each maker.
const CALLS: [(&str, Unit); 4] = [
    ("cpu", Unit::Milliseconds),
    ("time", Unit::Milliseconds),
    ("memory", Unit::Mebibytes),
    ("image", Unit::Mebibytes),
];

fn case_of(shape: &Shape, call: &str) -> String {
    format!("build/{}/{call}", shape.name)
}

/// A tree like the root of a small system.
pub(crate) fn root_tree(size: Size) -> Result<MadeTree> {
    MadeTree::make(&SHAPES[0], size)
}

/// The names of all cases.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let shapes = SHAPES.iter();
    shapes.flat_map(|shape| CALLS.iter().map(|(call, _)| case_of(shape, call)))
}

/// The names of all makers.
pub(crate) fn makers() -> impl Iterator<Item = &'static str> {
    maker::ALL.iter().map(|maker| maker.name)
}

/// Measures the makers that are wanted and there.
pub(crate) fn run(plan: &Plan, report: &mut Run, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let mut makers = Vec::new();
    let wanted = |maker: &&Maker| {
        plan.variants.is_empty() || plan.variants.iter().any(|name| name == maker.name)
    };
    for maker in maker::ALL.iter().filter(wanted) {
        match maker.needs.iter().find_map(|need| need.missing()) {
            Some(why) => report.missing(format!("{} in build: {why}", maker.name)),
            None => makers.push(*maker),
        }
        report.variant(maker.name, maker.about);
    }
    let start = Instant::now();
    for shape in SHAPES {
        let is_wanted = CALLS
            .iter()
            .any(|(call, _)| plan.wants(&case_of(shape, call)));
        if makers.is_empty() || !is_wanted {
            continue;
        }
        progress(&format!("build, {}: the tree", shape.name));
        let source = MadeTree::make(shape, plan.size)?;
        let mut makers = makers.clone();
        for round in 0..plan.runs.min(3) {
            let limit = plan.limit_of(Bench::Build);
            if round > 0 && limit.is_some_and(|limit| start.elapsed() > limit) {
                break;
            }
            makers.reverse();
            for maker in makers.clone() {
                let (name, shape_name) = (maker.name, shape.name);
                progress(&format!("build, {shape_name}, round {}: {name}", round + 1));
                match once(&maker, plan, &source, round == 0) {
                    Ok(made) => {
                        if made.damaged {
                            let what = "e2fsck finds its image damaged";
                            report.note(format!("{name} in build/{shape_name}: {what}"));
                        }
                        add(shape, &maker, &made.figures, plan, report);
                    }
                    Err(error) if maker.is_peer => {
                        report.missing(format!("{name} in build/{shape_name}: {error}"));
                        makers.retain(|other| other.name != name);
                    }
                    failed => return failed.map(drop).context(|| name),
                }
            }
        }
    }
    Ok(())
}

fn add(
    shape: &Shape,
    maker: &Maker,
    figures: &[Option<f64>; CALLS.len()],
    plan: &Plan,
    report: &mut Run,
) {
    let rows = report.rows(Bench::Build);
    for ((call, unit), figure) in CALLS.iter().zip(figures) {
        let case = case_of(shape, call);
        if let Some(figure) = figure.filter(|_| plan.wants(&case)) {
            rows.add(&case, *unit, maker.name, figure);
        }
    }
}

/// An image that was made.
struct Made {
    /// Of all calls; the kernel's memory has none.
    figures: [Option<f64>; CALLS.len()],
    /// e2fsck finds faults in it.
    damaged: bool,
}

/// Makes one image, and has e2fsck `check` it: our own must be sound.
fn once(maker: &Maker, plan: &Plan, source: &MadeTree, check: bool) -> Result<Made> {
    const MIB: f64 = 1_048_576.0;
    let dir = TempDir::new("built")?;
    let image = dir.join("image");
    if let Some(prepare) = maker.prepare {
        prepare(source, &image).limit(maker::PATIENCE).ok()?;
    }
    let cmd = (maker.command)(plan, source, &image);
    let (before, start) = (children_ms()?, Instant::now());
    let peak = peak_of(cmd, maker::PATIENCE)?;
    let (time, cpu) = (start.elapsed(), children_ms()? - before);
    let damaged = match check.then(|| Image::fsck_clean_at(&image)) {
        Some(Err(error)) if !maker.is_peer => return Err(error),
        found => found.is_some_and(|found| found.is_err()),
    };
    if check && !damaged {
        let (used, entries) = (used_inodes(&image)?, source.entries());
        ensure!(used >= entries, "{used} inodes for {entries} entries");
    }
    #[expect(clippy::cast_precision_loss, reason = "a figure with three digits")]
    let mib = (image.metadata()?.blocks() * 512) as f64 / MIB;
    let figures = [
        Some(cpu),
        Some(time.as_secs_f64() * 1e3),
        (!maker.is_kernel).then_some(peak),
        Some(mib),
    ];
    Ok(Made { figures, damaged })
}

/// Inodes that a sound image uses.
fn used_inodes(image: &Path) -> Result<u64> {
    let text = Cmd::new("dumpe2fs").arg("-h").arg(image).ok()?.out;
    let field = |label: &str| -> Result<u64> {
        let value = text.lines().find_map(|line| line.strip_prefix(label));
        Ok(value.unwrap_or_default().trim().parse()?)
    };
    Ok(field("Inode count:")? - field("Free inodes:")?)
}

/// Milliseconds of processor time of this process's children that have ended.
fn children_ms() -> Result<f64> {
    // Fields 16 and 17, in hundredths of a second; the second one may have blanks in it.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut ticks = 0.0;
    for field in fields.split_whitespace().skip(13).take(2) {
        let field: f64 = field.parse()?;
        ticks += field;
    }
    Ok(ticks * 10.0)
}
