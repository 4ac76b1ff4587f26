//! `extant defrag`: files in as few pieces as free space allows.

use std::os::unix::ffi::OsStrExt;

use extant::Defragmented;
use serde_json::{Value, json};

use crate::args::Defrag;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{Output, enter, size_word};
use crate::progress::Progress;

pub(crate) fn run(args: &Defrag) -> Outcome {
    let mut failures = Failures::of("defrag");
    let mut images = Images::write().shared_by(&args.paths);
    let mut out = Output::new();
    let mut all = Vec::new();
    for at in &args.paths {
        let Some(done) = failures.note(defragment(args, &mut images, at)) else {
            continue;
        };
        if args.json {
            all.push(as_json(at, &done));
        } else {
            failures.note(as_text(at, &done, &mut out));
        }
    }
    if args.json {
        failures.note(out.json(&Value::Array(all)));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn defragment(args: &Defrag, images: &mut Images, at: &ImagePath) -> Result<Defragmented, Failure> {
    let fs = images.of(at)?;
    let node = fs.node(&at.path, true).at(at)?;
    let bar = Progress::new(args.quiet || args.json);
    bar.begin(|| at.path.display().to_string());
    let progress = |done: u64, total: u64| bar.show(done, total);
    let done = fs.volume().defragment(&node, fs.cred(), progress).at(at);
    bar.finish();
    done
}

fn as_text(at: &ImagePath, done: &Defragmented, out: &mut Output) -> Result<(), Failure> {
    out.name(at.path.as_os_str())?;
    let extents = |count: u64| match count {
        1 => "1 extent".to_owned(),
        count => format!("{count} extents"),
    };
    let moved = match done.moved {
        0 => "nothing moved".to_owned(),
        moved => format!("{} moved", size_word(moved)),
    };
    out.text(format!(
        ": {} before, {} now, {moved}\n",
        extents(done.runs_before),
        extents(done.runs_after)
    ))
}

fn as_json(at: &ImagePath, done: &Defragmented) -> Value {
    let mut value = json!({
        "extents_before": done.runs_before,
        "extents_after": done.runs_after,
        "moved": done.moved,
    });
    enter(&mut value, "path", at.path.as_os_str().as_bytes());
    value
}
