//! Bits that flip between the device and the reader, and slow requests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant::{Error, Filesystem, Options, Result};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::{Fault, FaultyDevice, Request, RequestKind};

use crate::units::id_in;
use crate::workload::{Base, SETUPS, TARGET};

/// Everything that a walk sees: names, attributes, contents.
type Sight = Vec<(String, Vec<u8>)>;

fn walk(fs: &Filesystem, dir: &Path, seen: &mut Sight) -> Result<()> {
    for entry in fs.read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let meta = fs.symlink_metadata(&path)?;
        let mut what = format!("{:?} {:?}", meta.attr(), fs.xattrs(&path)?).into_bytes();
        if meta.is_dir() {
            walk(fs, &path, seen)?;
        } else if meta.is_file() {
            what.extend(fs.read(&path)?);
        } else {
            what.extend(fs.read_link(&path)?.as_os_str().as_encoded_bytes());
        }
        seen.push((path.display().to_string(), what));
    }
    Ok(())
}

/// Mounts read-only and walks.
fn sight(device: Arc<dyn BlockDevice>) -> Result<Sight> {
    let mut options = Options::new();
    options.mount_options("ro,noatime");
    let fs = options.open_device(device)?;
    let mut seen = Sight::new();
    walk(&fs, Path::new("/"), &mut seen)?;
    Ok(seen)
}

/// A bit of request `at` flips, unless it reads file data or the target of a link, which have no
/// checksum.
fn flipped(base: &Base, at: u64, bit: u64) -> (Result<Sight>, u64) {
    let memory = Arc::new(MemoryDevice::from_bytes(&base.bytes));
    let (inner, count) = (memory.clone(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    let plan = move |request: Request<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        if request.index != at || request.kind != RequestKind::Read {
            return Fault::Pass;
        }
        let mut bytes = vec![0; usize::try_from(request.len).unwrap()];
        let _ = inner.read_at(request.offset, &mut bytes);
        match id_in(&bytes) {
            Some(_) => Fault::Pass,
            None if bytes.starts_with(TARGET.as_bytes()) => Fault::Pass,
            None => Fault::Flip(bit),
        }
    };
    let seen = sight(Arc::new(FaultyDevice::new(memory, plan)));
    (seen, count.load(Ordering::Relaxed))
}

#[test]
fn a_flipped_bit_of_metadata_is_never_believed() {
    let base = Base::new(&SETUPS[0]);
    let (expected, requests) = flipped(&base, u64::MAX, 0);
    let expected = expected.unwrap();
    let (mut reported, mut harmless) = (0, 0);
    for at in 0..requests {
        for round in 0..6 {
            // Anywhere in the request; the plan takes it modulo the length.
            let bit = (at * 6 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            match flipped(&base, at, bit).0 {
                Ok(seen) => {
                    assert!(
                        seen == expected,
                        "request {at}, bit {bit}: something else is seen"
                    );
                    harmless += 1;
                }
                Err(Error::Corrupt { kind, .. }) => {
                    assert!(!kind.to_string().is_empty());
                    reported += 1;
                }
                // A superblock without its magic or features is another file system.
                Err(Error::NotExt4(_) | Error::UnsupportedFeature(_)) => reported += 1,
                Err(other) => panic!("request {at}, bit {bit}: {other}"),
            }
        }
    }
    extant_testkit::report(&format!(
        "flipped bits: {requests} requests, {reported} reported, {harmless} without effect"
    ));
    assert!(reported > 20, "{reported} reported, {harmless} not");
}

#[test]
fn late_requests_change_nothing() {
    let base = Base::new(&SETUPS[0]);
    let expected = flipped(&base, u64::MAX, 0).0.unwrap();
    let memory = Arc::new(MemoryDevice::from_bytes(&base.bytes));
    let late = |request: Request<'_>| Fault::Delay(Duration::from_millis(request.index % 7));
    assert!(sight(Arc::new(FaultyDevice::new(memory, late))).unwrap() == expected);
}
