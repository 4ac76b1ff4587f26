//! Two unmounts of one file system: the second waits for the first, and has its result.

use std::fs::{read_link, read_to_string};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use extant_blockdev::MemoryDevice;
use extant_disk::superblock::SUPERBLOCK_OFFSET;
use extant_testkit::{GatedDevice, Image, RequestKind, Watchdog, wait_until};
use extant_units::DevOff;

use crate::config::{MountOptions, Tuning};
use crate::mount::unmount::end_once;
use crate::mount::{ShutdownMode, is_unmounted, mount, shutdown, unmount};
use crate::types::error::Error;
use crate::volume::Fs;

/// Returns whether a thread sleeps, by its folder in `/proc`. Once it has ended, it does not.
fn is_asleep(task: &Path) -> bool {
    let stat = read_to_string(task.join("stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, state)| state);
    state.is_some_and(|state| state.starts_with('S'))
}

/// An empty volume on a device with a gate.
fn mounted() -> (Arc<Fs>, Arc<GatedDevice<MemoryDevice>>) {
    let image = Image::of_mib(8).make().unwrap();
    let memory = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let dev = Arc::new(GatedDevice::new(memory));
    let options = MountOptions::parse("").unwrap();
    let fs = mount(dev.clone(), options, Tuning::default()).unwrap();
    (fs, dev)
}

#[test]
fn a_second_unmount_waits_for_the_first() {
    let _limit = Watchdog::new(Duration::from_secs(120));
    let (fs, dev) = mounted();
    // The last write of an unmount: the mark of a clean volume.
    let last = |kind, at| kind == RequestKind::Write && at == DevOff::new(SUPERBLOCK_OFFSET);
    let closed = dev
        .gate()
        .close(move |request| last(request.kind, request.offset));
    let (say, heard) = channel();
    thread::scope(|scope| {
        let first = scope.spawn(|| unmount(&fs));
        closed.wait_for(1);
        assert!(!is_unmounted(&fs));
        let second = scope.spawn(|| {
            let task: PathBuf = read_link("/proc/thread-self").unwrap();
            say.send(Path::new("/proc").join(task)).unwrap();
            unmount(&fs)
        });
        let task = heard.recv().unwrap();
        wait_until("the second waits, or has ended", || {
            is_asleep(&task) || second.is_finished()
        });
        let waits = !second.is_finished();
        // A first that is held for ever would keep the test from its end.
        drop(closed);
        assert!(waits, "the first was still writing");
        second.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
    });
    assert!(is_unmounted(&fs));
}

#[test]
fn a_second_unmount_has_the_result_of_the_first() {
    let (fs, _dev) = mounted();
    shutdown(&fs, ShutdownMode::Now).unwrap();
    for _ in 0..2 {
        assert!(matches!(unmount(&fs), Err(Error::Shutdown(_))));
    }
}

#[test]
fn a_panic_is_the_result_of_an_unmount() {
    let (fs, _dev) = mounted();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        end_once(&fs, || panic!("planted in an unmount"))
    }));
    assert!(ended.is_err(), "it goes on to the caller");
    assert!(is_unmounted(&fs), "the mount's owner does not end it again");
    assert!(matches!(unmount(&fs), Err(Error::Shutdown(_))));
}
