//! The short round of the fuzz targets: the committed inputs, and mutations drawn from a seed, on
//! any compiler.
//!
//! `EXTANT_SEED` changes what is drawn, `EXTANT_HOSTILE` how many inputs each target is given, and
//! `EXTANT_HOSTILE_TARGET` names the only target.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use extant_hostile::{MEMORY, SECONDS, Target, meter::Meter, run, samples, totals};
use extant_testkit::{Context, Need, Result, Rng, ensure, need, patience, report, tools};

#[global_allocator]
static METER: Meter = Meter;

/// Panics of any thread, the engine's own included: it catches those of its journal's threads.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Of so many states of sound images after power cuts e2fsck judges one.
const E2FSCK_EVERY: u64 = 40;

/// Of targets whose runs are long, this part of the inputs is drawn.
const LONG: u64 = 8;

/// Inputs drawn for a target: few where an image is mounted for each.
fn drawn(target: Target) -> u64 {
    let each = std::env::var("EXTANT_HOSTILE").ok();
    let each = each.and_then(|n| n.parse().ok()).unwrap_or(200);
    match target {
        Target::Structures | Target::FastCommit | Target::Names => each * 20,
        target if target.is_long() => each / LONG,
        _ => each,
    }
}

/// One test, since memory is measured of the whole process.
#[test]
fn hostile_inputs_cost_no_panic_and_little_memory() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return Ok(());
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    let seed = std::env::var("EXTANT_SEED").ok();
    let seed = seed.and_then(|n| n.parse().ok()).unwrap_or(1u64);
    extant_hostile::e2fsck_every(E2FSCK_EVERY);
    let (send, receive) = channel();
    // The runs have a thread of their own, so that one which does not end is noticed.
    let worker = std::thread::spawn(move || {
        let only = std::env::var("EXTANT_HOSTILE_TARGET").ok();
        let is_wanted = |target: &Target| only.as_ref().is_none_or(|name| name == target.name());
        for target in Target::ALL.into_iter().filter(is_wanted) {
            let samples = samples::of(target);
            let mut rng = Rng::new(seed);
            let drawn = (0..drawn(target)).map(|_| samples::random(target, &mut rng, &samples));
            let all = kept(target)?.into_iter().chain(samples.iter().cloned());
            for input in all.chain(drawn) {
                // The waiting thread may have given up.
                let _ = send.send((target, input.clone()));
                run(target, &input);
                let panics = PANICS.load(Ordering::Relaxed);
                ensure!(panics == 0, "{panics} panics in threads of the engine");
            }
        }
        Ok::<(), extant_testkit::Error>(())
    });
    let mut last: Option<(Target, Vec<u8>)> = None;
    loop {
        // Slow machines get some more; what hangs, hangs.
        match receive.recv_timeout(patience(Duration::from_secs(6 * SECONDS))) {
            Ok(now) => last = Some(now),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => ensure!(false, "no end: {}", describe(&last, seed)),
        }
    }
    match worker.join() {
        Ok(done) => done.context(|| describe(&last, seed))?,
        Err(_) => ensure!(false, "panicked: {}", describe(&last, seed)),
    }
    let panics = PANICS.load(Ordering::Relaxed);
    ensure!(panics == 0, "{panics} panics after the last input");
    let t = totals();
    report(&format!(
        "{} hostile inputs, at most {} KiB of {} KiB beyond the image, {} % of it read",
        t.runs,
        t.peak_memory >> 10,
        MEMORY >> 10,
        t.peak_reads
    ));
    Ok(())
}

/// The inputs in the repository: the minimised corpus.
fn kept(target: Target) -> Result<Vec<Vec<u8>>> {
    let dir = tools::workspace().join("fuzz/corpus").join(target.name());
    let mut paths: Vec<_> = std::fs::read_dir(&dir)
        .context(|| dir.display())?
        .collect::<std::io::Result<Vec<_>>>()?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).context(|| path.display()))
        .collect()
}

/// The input as the fuzzer's tools take it, and the seed that it was drawn from.
fn describe(last: &Option<(Target, Vec<u8>)>, seed: u64) -> String {
    let Some((target, input)) = last else {
        return "before the first input".to_owned();
    };
    let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
    let target = target.name();
    format!("{target} with the input {hex} (EXTANT_SEED={seed})")
}
