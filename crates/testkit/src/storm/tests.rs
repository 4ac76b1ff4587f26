use super::{Storm, check_noise};
use crate::TempDir;
use crate::content::JUNK;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The storm on the machine's own file system: what it promises must hold there, and what it checks
/// must notice damage.
#[test]
fn keeps_its_promises_and_notices_when_broken() {
    // Not /dev/shm: older tmpfs lacks user xattrs.
    let d = TempDir::new_in(&crate::tools::target_dir(), "storm").unwrap();
    let s = Storm::default();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while s.operations.load(Ordering::Relaxed) < 2000 && !s.stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            s.stop.store(true, Ordering::Relaxed);
        });
        let end = s.rage(d.path(), 3, 42);
        s.stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
        end.unwrap();
    });
    assert!(s.ledger.check(d.path()).unwrap() > 5);
    assert!(check_noise(d.path()).unwrap() > 5);

    let noise = find(d.path(), "n-");
    std::fs::File::options()
        .write(true)
        .open(noise)
        .unwrap()
        .write_all_at(&[JUNK], 0)
        .unwrap();
    assert!(check_noise(d.path()).is_err());
    let count = s.ledger.len();
    let promised = find(d.path(), "k");
    std::fs::File::options()
        .write(true)
        .open(promised)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let why = s.ledger.check(d.path()).unwrap_err().to_string();
    assert!(why.starts_with(&format!("1 of {count}")), "{why}");
}

fn find(root: &std::path::Path, prefix: &str) -> std::path::PathBuf {
    for dir in std::fs::read_dir(root).unwrap() {
        for e in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            let e = e.unwrap();
            if e.file_name().to_string_lossy().starts_with(prefix) {
                return e.path();
            }
        }
    }
    panic!("no {prefix}* below {}", root.display());
}
