//! Times that wait (`lazytime`), and what has them stored.

use super::*;
use crate::state::inode::InodeRef;

/// A file that was read, and the time that shows.
fn read_once(fs: &TestFs) -> (InodeRef, Timestamp) {
    let file = fs.create("f");
    let old = SetAttr {
        atime: Some(at(1000, 0)),
        ..SetAttr::default()
    };
    setattr(fs, &file, &old, &Cred::root()).unwrap();
    touch_atime(fs, &file);
    let shown = getattr(fs, &file).atime;
    assert_ne!(shown.secs, 1000);
    (file, shown)
}

/// A round of the reaper leaves the times of files that are in use, and stores those of the others:
/// these would leave memory.
#[test]
fn lazy_times_are_stored_with_the_last_reference() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "lazytime");
    let (file, _) = read_once(&fs);
    flush_all_times(&fs, false).unwrap();
    assert!(file.has_deferred(), "in use");
    let inode = file.shared().clone();
    drop(file);
    flush_all_times(&fs, false).unwrap();
    assert!(!inode.has_deferred());
}

/// Times that one thread is storing are not stored yet for another: a sync that commits before them
/// would lose them in a crash.
///
/// The first thread is stopped after it has emptied the list: a handle of the test's keeps a
/// transaction from ending, so no other can start.
#[test]
fn a_thread_that_stores_all_times_waits_for_one_that_has_begun() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "lazytime");
    let (file, _) = read_once(&fs);
    let mut open = fs.start(credits::INODE_UPDATE).unwrap();
    fs.journal.request_commit(open.tid());
    wait_until("the commit begins", || !open.extend(0).unwrap());
    std::thread::scope(|scope| {
        let open = open;
        let store = || {
            flush_all_times(&fs, true).unwrap();
            assert!(!file.has_deferred(), "a time is left");
        };
        let first = scope.spawn(store);
        wait_until("the list is empty", || fs.inodes.late.lock().is_empty());
        assert!(file.has_deferred());
        // Nothing tells that a thread waits. One that does not is over by then.
        let second = scope.spawn(store);
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(!second.is_finished(), "it did not wait");
        drop(open);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn a_shutdown_that_saves_stores_lazy_times() {
    let image = Image::of_mib(8).make().unwrap();
    let fs = TestFs::mount(image.path(), "lazytime");
    let (file, shown) = read_once(&fs);
    mount::shutdown(&fs, mount::ShutdownMode::Flush).unwrap();
    drop(file);
    drop(fs);
    let fs = TestFs::mount(image.path(), "noatime");
    assert_eq!(getattr(&fs, &fs.find("f")).atime, shown);
}
