//! Power cuts, device faults and lack of space during a defragmentation.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_check::{CheckOptions, check};
use extant_engine::{Cred, Error, FallocateMode};
use extant_testkit::crash::{Budget, Explorer};
use extant_testkit::{Fault, FaultyDevice, Image, Recorder, Request};

use crate::rig::{PATHS, close, compare, create, find, options, runs, scattered};

/// A volume in memory with a scattered file, and its bytes.
fn base(mkfs: &str, blocks: u64) -> Vec<u8> {
    let image = Image::of_mib(10).args(mkfs).junk().make().unwrap();
    let volume = options("").open(image.path()).unwrap();
    drop(scattered(&volume, "f", blocks));
    volume.unmount().unwrap();
    drop(volume);
    std::fs::read(image.path()).unwrap()
}

fn judge(device: Arc<dyn BlockDevice>, mount: &str, blocks: u64) -> Result<u64, String> {
    let text = |error: Error| error.to_string();
    let volume = options(mount).open_on(device.clone()).map_err(text)?;
    let node = find(&volume, "f");
    compare(&volume, &node, blocks)?;
    let runs = runs(&volume, &node);
    drop(node);
    volume.unmount().map_err(text)?;
    drop(volume);
    let options = CheckOptions {
        threads: 1,
        ..CheckOptions::default()
    };
    let report = check(device, &options).map_err(|error| error.to_string())?;
    match report.findings.first() {
        Some(finding) => Err(finding.to_string()),
        None => Ok(runs),
    }
}

#[test]
fn a_crash_at_any_moment_loses_nothing() {
    const BLOCKS: u64 = 150;
    let base = base("-b 1024", BLOCKS);
    for mount in PATHS {
        let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
        let device: Arc<dyn BlockDevice> = recorder.clone();
        let volume = options(mount).open_on(device).unwrap();
        let node = find(&volume, "f");
        volume.defragment(&node, &Cred::root(), |_, _| {}).unwrap();
        volume.fsync(&node, false).unwrap();
        drop(node);
        volume.unmount().unwrap();
        drop(volume);
        let mut seen = HashSet::new();
        let explorer = Explorer::new(base.clone(), recorder.events(), 3, Budget::SHORT);
        let totals = explorer.run(|state| {
            seen.insert(judge(state.device, mount, BLOCKS)?);
            Ok(())
        });
        totals.unwrap_or_else(|failure| panic!("{mount}, {}: {}", failure.cut, failure.why));
        assert!(seen.contains(&1) && seen.len() > 1, "{mount}: {seen:?}");
    }
}

#[test]
fn a_fault_at_any_request_loses_nothing() {
    const BLOCKS: u64 = 60;
    let base = base("-b 1024", BLOCKS);
    let run = |at: Option<u64>, kind: ErrorKind| {
        let memory = Arc::new(MemoryDevice::from_bytes(&base));
        let count = Arc::new(AtomicU64::new(0));
        let (armed, counted) = (Arc::new(AtomicBool::new(false)), count.clone());
        let watch = armed.clone();
        let device = FaultyDevice::new(memory.clone(), move |_: Request<'_>| {
            if !watch.load(Ordering::Relaxed) {
                return Fault::Pass;
            }
            let number = counted.fetch_add(1, Ordering::Relaxed);
            if at == Some(number) {
                Fault::Fail(kind)
            } else {
                Fault::Pass
            }
        });
        let volume = options("").open_on(Arc::new(device)).unwrap();
        let node = find(&volume, "f");
        armed.store(true, Ordering::Relaxed);
        let done = volume.defragment(&node, &Cred::root(), |_, _| {});
        armed.store(false, Ordering::Relaxed);
        // What is there can be read, whatever went wrong.
        let alive = volume.sync().is_ok();
        if alive {
            compare(&volume, &node, BLOCKS).unwrap();
        }
        drop(node);
        let _ = volume.unmount();
        drop(volume);
        let requests = count.load(Ordering::Relaxed);
        let runs = judge(memory, "", BLOCKS).unwrap_or_else(|why| panic!("{at:?} {kind}: {why}"));
        (done, requests, runs)
    };
    let (done, requests, runs) = run(None, ErrorKind::Other);
    assert_eq!((done.unwrap().runs_after, runs), (1, 1));
    assert!(requests > 10, "{requests}");
    let mut failed = 0;
    for at in 0..requests {
        for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
            failed += u64::from(run(Some(at), kind).0.is_err());
        }
    }
    assert!(failed > 0);
}

/// Hardly any space, or none: what cannot be improved stays, and nothing is kept.
#[test]
fn without_space_nothing_changes() {
    for spare in [0, 40, 300, 700] {
        let image = Image::of_mib(16).args("-b 1024 -m 0").make().unwrap();
        let volume = options("").open(image.path()).unwrap();
        let cred = Cred::root();
        let node = scattered(&volume, "f", 500);
        let filler = create(&volume, "filler");
        let free = volume.statfs().unwrap().blocks_free;
        let keep = FallocateMode::Allocate { keep_size: false };
        let mut want = free.saturating_sub(spare);
        // The map of the filler itself takes some.
        while want > 0
            && volume
                .fallocate(&filler, keep, 0, want * 1024, &cred)
                .is_err()
        {
            want -= 16.min(want);
        }
        volume.sync().unwrap();
        let (before, left) = (runs(&volume, &node), volume.statfs().unwrap().blocks_free);
        match volume.defragment(&node, &cred, |_, _| {}) {
            Ok(done) => assert!(done.runs_after <= before, "{done:?}"),
            Err(Error::NoSpace) => assert_eq!(runs(&volume, &node), before),
            Err(error) => panic!("{spare}: {error}"),
        }
        volume.sync().unwrap();
        compare(&volume, &node, 500).unwrap();
        let now = volume.statfs().unwrap().blocks_free;
        // The map itself may have become smaller.
        assert!(
            now >= left && now - left < 16,
            "{spare}: {left} blocks free, then {now}"
        );
        drop((node, filler));
        close(&image, volume);
    }
}
