//! Changes of a package's source, of which no test may miss one.
//!
//! Every place of the source that can be changed (`sites`) is rewritten to choose at run time
//! between what is there and its changes (`rewrite`, `switch`), so that one build has all of them.
//! A place whose changes do not compile is left out (`package`). Each test runs once to learn which
//! places it reaches; then each change runs the tests that reach it, until one fails (`trial`).
//!
//! The lists `noticed`, `timed-out`, `missed`, `unreached` and `untried` of the folder `--out` name
//! each change in a line: `FILE:LINE: CHANGE in FUNCTION`.

#![forbid(unsafe_code)]

mod defaults;
mod options;
mod package;
mod process;
mod rewrite;
mod sites;
mod trial;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use options::Options;
use process::End;
use rewrite::Source;
use trial::{Tests, in_parallel};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mutate: {why}");
            ExitCode::FAILURE
        }
    }
}

/// A change that compiles.
struct Change {
    name: String,
    number: u32,
    /// The first number of its site.
    site: u32,
}

fn run(options: &Options) -> Result<(), String> {
    let begin = Instant::now();
    if !options.lists {
        package::add_switch(options)?;
    }
    let mut sources = package::sources(options)?;
    if options.lists {
        changes(&sources)
            .iter()
            .for_each(|change| println!("{}", change.name));
        return Ok(());
    }
    let binaries = package::build(options, &mut sources)?;
    let mut changes = changes(&sources);
    if !options.only.is_empty() {
        let texts = options.only.iter().map(std::fs::read_to_string);
        let texts = texts.collect::<Result<String, _>>();
        let texts = texts.map_err(|error| error.to_string())?;
        let names: BTreeSet<&str> = texts.lines().collect();
        changes.retain(|change| names.contains(change.name.as_str()));
    }
    let dropped: usize = sources.iter().map(|source| source.dropped.len()).sum();
    let seconds = begin.elapsed().as_secs();
    let count = changes.len();
    println!("mutate: {count} changes, {dropped} sites do not compile, built in {seconds} s");
    std::fs::create_dir_all(&options.out).map_err(|error| error.to_string())?;
    let tests = trial::observe(options, binaries)?;
    let (number, seconds) = (tests.count(), tests.seconds());
    println!("mutate: {number} tests of {seconds:.1} s");
    shuffle(&mut changes, options.seed);
    let lists = try_all(options, &changes, &tests)?;
    let told = |(name, names): &(&str, Vec<String>)| format!("{} {name}", names.len());
    let counts: Vec<String> = lists.iter().map(told).collect();
    let seconds = begin.elapsed().as_secs();
    println!(
        "mutate: {}: {count} changes: {}; {seconds} s",
        options.files,
        counts.join(", ")
    );
    for (name, mut names) in lists {
        names.sort();
        names.push(String::new());
        let path = options.out.join(name);
        std::fs::write(path, names.join("\n")).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The changes that compile, in the order of the source.
fn changes(sources: &[Source]) -> Vec<Change> {
    let mut all = Vec::new();
    for source in sources {
        let sites = source.sites.iter().zip(&source.numbers).enumerate();
        for (_, (site, first)) in sites.filter(|(index, _)| !source.dropped.contains(index)) {
            all.extend(
                site.names
                    .iter()
                    .zip(*first..)
                    .map(|(name, number)| Change {
                        name: format!("{}:{}: {name}", source.path, site.line),
                        number,
                        site: *first,
                    }),
            );
        }
    }
    all
}

/// Tries the changes until the time is over, and returns the lists.
fn try_all(
    options: &Options,
    changes: &[Change],
    tests: &Tests,
) -> Result<Vec<(&'static str, Vec<String>)>, String> {
    const LISTS: [&str; 5] = ["noticed", "timed-out", "missed", "unreached", "untried"];
    let (begin, limit) = (Instant::now(), Duration::from_secs(options.seconds));
    let lists = LISTS.map(|name| (name, Mutex::new(Vec::new())));
    in_parallel(options, changes.len(), |at, dir| {
        let change = &changes[at];
        if at % 200 == 0 {
            println!(
                "mutate: {at} of {} changes, {} s",
                changes.len(),
                begin.elapsed().as_secs()
            );
        }
        let list = if tests.reaching(change.site) == 0 {
            3
        } else if begin.elapsed() > limit {
            4
        } else {
            match tests.attempt(change.site, change.number, dir)? {
                End::Failed => 0,
                End::TimedOut => 1,
                End::Passed => 2,
            }
        };
        if let Ok(mut names) = lists[list].1.lock() {
            names.push(change.name.clone());
        }
        if list == 2 {
            println!("mutate: missed {}: {}", change.number, change.name);
        }
        Ok(())
    })?;
    let lists = lists.into_iter();
    Ok(lists
        .map(|(name, names)| (name, names.into_inner().unwrap_or_default()))
        .collect())
}

/// An order by `seed`, so that a round that ends early has a share of all.
fn shuffle(changes: &mut [Change], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for end in (1..changes.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state % (end as u64 + 1)).unwrap_or(0);
        changes.swap(at, end);
    }
}
