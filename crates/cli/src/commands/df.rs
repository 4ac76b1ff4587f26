//! `extant df`: the space of volumes.

use extant::FsStat;
use serde_json::{Value, json};

use crate::args::Df;
use crate::failure::{At, Failures, Outcome};
use crate::images::Images;
use crate::output::{Output, enter};
use crate::size;

pub(crate) fn run(args: &Df) -> Outcome {
    let mut failures = Failures::of("df");
    let mut images = Images::read().shared_by(&args.images);
    let mut out = Output::new();
    let mut list = Vec::new();
    if !args.json {
        let unit = if args.human_readable {
            "Size"
        } else {
            "1K-blocks"
        };
        let title = format!(
            "{unit:>11} {:>11} {:>11} Use% {:>9} Image\n",
            "Used", "Avail", "Inodes"
        );
        failures.note(out.text(title));
    }
    for at in &args.images {
        let stat = images
            .of(at)
            .and_then(|fs| fs.statfs().at(at.image.display()));
        let Some(stat) = failures.note(stat) else {
            continue;
        };
        let name = at.image.as_os_str();
        if args.json {
            let mut object = object(&stat);
            enter(&mut object, "image", name.as_encoded_bytes());
            list.push(object);
            continue;
        }
        let shown = out.text(line(args, &stat));
        failures.note(
            shown
                .and_then(|()| out.name(name))
                .and_then(|()| out.text("\n")),
        );
    }
    if args.json {
        failures.note(out.json(&Value::Array(list)));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

/// Bytes: of all, used, and for users.
fn bytes(stat: &FsStat) -> (u64, u64, u64) {
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(stat.block_size));
    let used = stat.blocks.saturating_sub(stat.blocks_free);
    (
        bytes(stat.blocks),
        bytes(used),
        bytes(stat.blocks_available),
    )
}

fn object(stat: &FsStat) -> Value {
    let (size, used, available) = bytes(stat);
    json!({
        "size": size,
        "used": used,
        "available": available,
        "inodes": stat.inodes,
        "inodes_free": stat.inodes_free,
    })
}

fn line(args: &Df, stat: &FsStat) -> String {
    let (all, used, available) = bytes(stat);
    let word = |bytes: u64| match args.human_readable {
        true => size::human(bytes),
        false => (bytes / 1024).to_string(),
    };
    // Of what users can have: the reserve is neither used nor theirs.
    let whole = used.saturating_add(available).max(1);
    let percent = u128::from(used) * 100;
    let percent = percent.div_ceil(u128::from(whole));
    let inodes = stat.inodes.saturating_sub(stat.inodes_free);
    let (all, used, available) = (word(all), word(used), word(available));
    format!("{all:>11} {used:>11} {available:>11} {percent:>3}% {inodes:>9} ")
}
