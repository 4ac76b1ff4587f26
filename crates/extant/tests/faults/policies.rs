//! `errors=`: how far a fault stops a file system, which record it leaves, and that other file
//! systems are not affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use extant::{Error, Filesystem, Options, Tuning};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::{Fault, FaultyDevice, Image, Request, RequestKind, wait_until};

use crate::workload::{Base, SETUPS};

/// The failure while the switch is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Trouble {
    None,
    UnreadableMetadata,
    DamagedMetadata,
    /// The commit fails.
    UnwritableLog,
    /// The commit succeeds, and its blocks cannot be checkpointed: at the unmount.
    UnwritableHome,
}

fn open(base: &Base, policy: &str, switch: &Arc<AtomicU8>) -> (Filesystem, Arc<MemoryDevice>) {
    open_tuned(base, policy, switch, Tuning::default())
}

fn open_tuned(
    base: &Base,
    policy: &str,
    switch: &Arc<AtomicU8>,
    tuning: Tuning,
) -> (Filesystem, Arc<MemoryDevice>) {
    let memory = Arc::new(MemoryDevice::from_bytes(&base.bytes));
    let (armed, log, size) = (switch.clone(), base.log_blocks.clone(), base.block_size);
    let plan = move |request: Request<'_>| {
        let trouble = armed.load(Ordering::Relaxed);
        let is = |one: Trouble| trouble == one as u8;
        let in_log = log.contains(&(request.offset.get() / size));
        match request.kind {
            RequestKind::Read if is(Trouble::UnreadableMetadata) => {
                Fault::Fail(std::io::ErrorKind::Other)
            }
            RequestKind::Read if is(Trouble::DamagedMetadata) => Fault::Flip(77),
            RequestKind::Write if is(Trouble::UnwritableLog) && in_log => {
                Fault::Fail(std::io::ErrorKind::Other)
            }
            RequestKind::Write
                if is(Trouble::UnwritableHome) && !in_log && request.offset.get() != 1024 =>
            {
                Fault::Fail(std::io::ErrorKind::Other)
            }
            _ => Fault::Pass,
        }
    };
    let device: Arc<dyn BlockDevice> = Arc::new(FaultyDevice::new(memory.clone(), plan));
    let mut options = Options::new();
    options
        .write(true)
        .tuning(tuning)
        .mount_options(&format!("errors={policy}"));
    (options.open_device(device).unwrap(), memory)
}

/// The errno of a result, zero for success.
fn errno<T>(result: extant::Result<T>) -> i32 {
    result.err().map_or(0, |error: Error| error.errno())
}

#[test]
fn a_fault_stops_as_much_as_its_policy_says() {
    let base = Base::new(&SETUPS[0]);
    let calm = Arc::new(AtomicU8::new(Trouble::None as u8));
    let (bystander, _) = open(&base, "panic", &calm);
    for (policy, trouble, first, change, read) in [
        ("continue", Trouble::UnreadableMetadata, 5, 0, 0),
        ("remount-ro", Trouble::UnreadableMetadata, 5, 30, 0),
        ("panic", Trouble::UnreadableMetadata, 5, 5, 5),
        ("continue", Trouble::DamagedMetadata, 117, 0, 0),
        ("remount-ro", Trouble::DamagedMetadata, 117, 30, 0),
        ("panic", Trouble::DamagedMetadata, 117, 5, 5),
        ("continue", Trouble::UnwritableLog, 5, 30, 0),
        ("remount-ro", Trouble::UnwritableLog, 5, 30, 0),
        ("panic", Trouble::UnwritableLog, 5, 5, 5),
        ("continue", Trouble::UnwritableHome, 0, 0, 0),
        ("remount-ro", Trouble::UnwritableHome, 0, 0, 0),
        ("panic", Trouble::UnwritableHome, 0, 0, 0),
    ] {
        let case = format!("errors={policy}, {trouble:?}");
        let switch = Arc::new(AtomicU8::new(Trouble::None as u8));
        let (fs, memory) = open(&base, policy, &switch);
        fs.read("/old/small").unwrap();
        fs.create_dir("/before").unwrap();
        switch.store(trouble as u8, Ordering::Relaxed);
        let met = match trouble {
            Trouble::UnreadableMetadata | Trouble::DamagedMetadata => {
                let walked = fs.read_dir("/old/many");
                errno(walked.and_then(|mut entries| entries.try_for_each(|entry| entry.map(drop))))
            }
            _ => errno(fs.sync()),
        };
        assert_eq!(met, first, "{case}");
        if trouble != Trouble::UnwritableHome {
            switch.store(Trouble::None as u8, Ordering::Relaxed);
        }
        assert_eq!(errno(fs.create_dir("/after")), change, "{case}: a change");
        assert_eq!(errno(fs.read("/old/small")), read, "{case}: a read");
        let clean = change == 0 && trouble != Trouble::UnwritableHome;
        assert_eq!(errno(fs.unmount()) == 0, clean, "{case}: unmount");
        let image = Image::of_bytes(&memory.to_bytes()).unwrap();
        let state = image.header("Filesystem state").unwrap();
        assert!(state.contains("with errors"), "{case}: {state}");
        assert_ne!(image.header("FS Error count").unwrap(), "0", "{case}");
        let code = if first == 117 { "EFSCORRUPTED" } else { "EIO" };
        assert_eq!(image.header("First error err").unwrap(), code, "{case}");
        assert_eq!(image.needs_recovery().unwrap(), !clean, "{case}");
        bystander
            .create_dir(format!("/{policy}-{trouble:?}"))
            .unwrap();
    }
    bystander.unmount().unwrap();
}

/// Waits until a thread of the file system meets the prepared fault.
fn faults(fs: &Filesystem) {
    let count = || {
        let counters = fs.volume().stats();
        let faults = counters.iter().find(|(name, _)| *name == "faults");
        faults.map_or(0, |(_, count)| *count)
    };
    wait_until("a fault", || count() > 0);
}

/// No call fails at first: a flusher cannot read a bitmap.
#[test]
fn a_flushers_fault_stops_as_much_as_its_policy_says() {
    let base = Base::new(&SETUPS[0]);
    for (policy, change, read) in [("continue", 0, 0), ("remount-ro", 30, 0), ("panic", 5, 5)] {
        let switch = Arc::new(AtomicU8::new(Trouble::None as u8));
        let mut tuning = Tuning::default();
        tuning.flushers = 1;
        tuning.page_cache_bytes = Some(1 << 20);
        let (fs, memory) = open_tuned(&base, policy, &switch, tuning);
        fs.read("/old/small").unwrap();
        let file = fs
            .open_options()
            .create(true)
            .write(true)
            .open("/new")
            .unwrap();
        switch.store(Trouble::UnreadableMetadata as u8, Ordering::Relaxed);
        // Enough data for writeback in the background.
        for piece in 0..160 {
            if file.write_at(&[7; 4096], piece * 4096).is_err() {
                break;
            }
        }
        faults(&fs);
        switch.store(Trouble::None as u8, Ordering::Relaxed);
        assert_eq!(errno(fs.create_dir("/after")), change, "{policy}: a change");
        assert_eq!(errno(fs.read("/old/small")), read, "{policy}: a read");
        drop(file);
        let ended = errno(fs.unmount());
        assert!(change == 0 || ended != 0, "{policy}: unmount");
        let image = Image::of_bytes(&memory.to_bytes()).unwrap();
        let state = image.header("Filesystem state").unwrap();
        assert!(state.contains("with errors"), "{policy}: {state}");
        assert_eq!(image.header("First error err").unwrap(), "EIO", "{policy}");
    }
}

/// A checkpoint that cannot write stops the journal, whatever the policy.
#[test]
fn a_checkpoints_fault_stops_changes_whatever_the_policy() {
    let base = Base::new(&SETUPS[0]);
    for (policy, change, read) in [("continue", 30, 0), ("remount-ro", 30, 0), ("panic", 5, 5)] {
        let switch = Arc::new(AtomicU8::new(Trouble::None as u8));
        let (fs, memory) = open(&base, policy, &switch);
        fs.create_dir("/before").unwrap();
        fs.sync().unwrap();
        switch.store(Trouble::UnwritableHome as u8, Ordering::Relaxed);
        let work = |round: u32| {
            let mode = 0o700 | (round & 0o7);
            fs.set_permissions("/before", extant::Permissions::from_mode(mode))?;
            fs.sync()
        };
        let met = (0..20_000).find_map(|round| work(round).err());
        assert!(
            met.is_some(),
            "{policy}: the log went round without a checkpoint"
        );
        faults(&fs);
        assert_eq!(errno(fs.create_dir("/after")), change, "{policy}: a change");
        assert_eq!(errno(fs.read("/old/small")), read, "{policy}: a read");
        assert_ne!(errno(fs.unmount()), 0, "{policy}: unmount");
        let image = Image::of_bytes(&memory.to_bytes()).unwrap();
        let state = image.header("Filesystem state").unwrap();
        assert!(state.contains("with errors"), "{policy}: {state}");
        assert!(image.needs_recovery().unwrap(), "{policy}");
        // Committed blocks are in the log.
        let again = Options::new().write(true).open_device(memory).unwrap();
        assert!(again.metadata("/before").is_ok(), "{policy}");
    }
}
