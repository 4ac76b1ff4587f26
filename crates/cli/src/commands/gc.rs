//! `extant gc`: removes what no version of an image in an object store needs.

use std::io::IsTerminal;

use extant_store::{Amount, Collected, Error, GcOptions, Prefix, Store, gc};
use serde_json::{Value, json};

use crate::args::Gc;
use crate::failure::{Failure, caused};
use crate::output::{Output, size_word};
use crate::progress::Steps;

pub(crate) fn run(args: &Gc) -> Result<(), Failure> {
    let text = args.store.to_str();
    let text = text.ok_or_else(|| Failure::at(args.store.display(), "the address is not UTF-8"))?;
    let prefix: Result<Prefix, Error> = text.parse();
    let prefix = prefix.map_err(|error| {
        let what = error.to_string();
        Failure::caused_by(error, what)
    })?;
    let options = GcOptions {
        keep: args.keep,
        dry_run: args.dry_run,
    };
    let shows = !args.quiet && !args.json && std::io::stderr().is_terminal();
    let steps = shows.then(Steps::new);
    let progress = |done, total| {
        if let Some(steps) = &steps {
            steps.show(done, total);
        }
    };
    let collected = Store::open_prefix(&prefix).and_then(|store| gc(&store, options, &progress));
    if let Some(steps) = &steps {
        steps.end();
    }
    show(
        args,
        &collected.map_err(|error| caused(&args.store, error))?,
    )
}

fn show(args: &Gc, collected: &Collected) -> Result<(), Failure> {
    let mut out = Output::new();
    let next = collected.next.map(|next| next.as_secs());
    if args.json {
        out.json(&json!({
            "dry_run": args.dry_run,
            "versions_removed": collected.versions,
            "removed": amount(&collected.removed),
            "waiting": amount(&collected.waiting),
            "next_seconds": next,
            "unfinished": collected.unfinished,
        }))?;
        return out.finish();
    }
    let removed = match args.dry_run {
        true => "would be removed",
        false => "removed",
    };
    if args.keep.is_some() {
        out.text(format!("{} versions {removed}\n", collected.versions))?;
    }
    out.text(format!("{} {removed}\n", words(&collected.removed)))?;
    if collected.waiting != Amount::default() {
        let when = next.map_or(String::new(), |secs| {
            let minutes = secs.div_ceil(60);
            format!(
                ", some until {} h {} min from now",
                minutes / 60,
                minutes % 60
            )
        });
        out.text(format!("{} wait{when}\n", words(&collected.waiting)))?;
    }
    if collected.unfinished {
        out.text("it took too long to remove all: run it again\n")?;
    }
    out.finish()
}

fn amount(amount: &Amount) -> Value {
    json!({
        "chunks": amount.chunks,
        "manifests": amount.manifests,
        "bytes": amount.bytes,
    })
}

fn words(amount: &Amount) -> String {
    let bytes = size_word(amount.bytes);
    format!(
        "{} chunks and {} manifests, {bytes},",
        amount.chunks, amount.manifests
    )
}
