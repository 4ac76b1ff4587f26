//! Times that wait (`lazytime`), and what has them stored.

use super::*;

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
