//! Shared blocks under many threads, and attributes after power cuts.

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_testkit::crash::{Budget, Explorer};
use extant_testkit::{Image, Recorder, Rng};

use super::{all, put};
use crate::namei;
use crate::test_support::test_mount::TestFs;
use crate::types::Cred;
use crate::xattr;
use extant_check::{CheckOptions, check};

#[test]
fn many_threads_share_and_unshare() {
    let image = Image::of_mib(16).args("-b 1024").make().unwrap();
    let fs = TestFs::mount(image.path(), "");
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let fs = &fs;
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for i in 0..150 {
                    let name = format!("t{thread}-{}", i % 12);
                    if namei::lookup(fs, &fs.root(), name.as_bytes()).is_err() {
                        fs.create(&name);
                    }
                    // Three contents for all threads: most blocks are shared, and come and go.
                    let value = vec![u8::try_from(rng.below(3)).unwrap(); 400];
                    let file = fs.find(&name);
                    put(fs, &file, "user.v", &value).unwrap();
                    assert_eq!(all(fs, &file)["user.v"], value);
                    match rng.below(4) {
                        0 => xattr::remove(fs, &file, b"user.v", &Cred::root()).unwrap(),
                        1 => fs.unlink(&name),
                        _ => {}
                    }
                }
            });
        }
    });
    assert!(fs.stats.xattr_blocks_shared.get() > 100);
    fs.unmount();
    image.fsck_clean().unwrap();
}

/// Whatever a power cut leaves is consistent after replay: counts of shared blocks, orphans, free
/// space.
#[test]
fn power_cuts_leave_counts_right() {
    let maker = Image::of_mib(8).args("-b 1024 -J size=1 -O orphan_file");
    let image = maker.make().unwrap();
    let base = std::fs::read(image.path()).unwrap();
    let dev = Arc::new(Recorder::new(MemoryDevice::from_bytes(&base)));
    let fs = TestFs::on(dev.clone(), "").unwrap();
    let mut rng = Rng::new(8);
    for step in 0..60 {
        let name = format!("f{}", rng.below(8));
        match namei::lookup(&fs, &fs.root(), name.as_bytes()) {
            Err(_) => drop(fs.create(&name)),
            Ok(file) if rng.chance(75) => {
                let value = vec![u8::try_from(rng.below(2)).unwrap(); 500];
                put(&fs, &file, "user.v", &value).unwrap();
            }
            Ok(held) => {
                // Deleted with its last reference, perhaps in a later transaction.
                fs.unlink(&name);
                if step % 3 == 0 {
                    fs.journal.force_commit().unwrap();
                }
                drop(held);
                fs.reap_all();
            }
        }
        if rng.chance(20) {
            fs.journal.force_commit().unwrap();
        }
    }
    fs.unmount();

    let budget = Budget {
        exhaustive_below: 2,
        samples: 1,
        torn: 0,
        cut_stride: 4,
    };
    let explorer = Explorer::new(base, dev.events(), 1, budget);
    let totals = explorer.run(|state| {
        let fs = TestFs::on(state.device.clone(), "").map_err(|e| e.to_string())?;
        fs.unmount();
        let options = CheckOptions::default();
        let report = check(state.device.clone(), &options).map_err(|e| e.to_string())?;
        match report.findings.first() {
            None => Ok(()),
            Some(finding) => Err(finding.to_string()),
        }
    });
    assert!(totals.unwrap().all() > 50);
}
