use super::{Compare, Tree};
use crate::TempDir;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

fn small(dir: &std::path::Path) {
    fs::create_dir(dir.join("d")).unwrap();
    fs::write(dir.join("d/f"), b"abc").unwrap();
    fs::hard_link(dir.join("d/f"), dir.join("g")).unwrap();
    symlink("d/f", dir.join("s")).unwrap();
    let t = SystemTime::UNIX_EPOCH + Duration::new(5_000_000_000, 7);
    for n in ["d/f", "d"] {
        fs::File::open(dir.join(n))
            .unwrap()
            .set_modified(t)
            .unwrap();
    }
}

fn differences(change: impl FnOnce(&std::path::Path)) -> Vec<String> {
    let (a, b) = (TempDir::new("a").unwrap(), TempDir::new("b").unwrap());
    small(a.path());
    small(b.path());
    let plain = Compare {
        skip_root: true,
        ..Compare::default()
    };
    change(b.path());
    // The symlinks were made one after the other.
    let all = Tree::take(a.path())
        .unwrap()
        .differences(&Tree::take(b.path()).unwrap(), plain);
    all.into_iter()
        .filter(|d| !d.starts_with("s: mtime"))
        .collect()
}

#[test]
fn equal_trees_are_equal() {
    assert_eq!(differences(|_| ()), Vec::<String>::new());
}

#[test]
fn every_kind_of_difference_is_seen() {
    let seen = |what: &str, change: &dyn Fn(&std::path::Path)| {
        let all = differences(change);
        assert!(
            all.iter().any(|d| d.contains(what)),
            "{what} not in {all:?}"
        );
    };
    seen("kind or content", &|d| {
        fs::write(d.join("d/f"), b"abd").unwrap()
    });
    seen("only in the second", &|d| {
        fs::write(d.join("new"), b"").unwrap()
    });
    seen("only in the first", &|d| {
        fs::remove_file(d.join("s")).unwrap()
    });
    seen("mode", &|d| {
        fs::set_permissions(d.join("g"), fs::Permissions::from_mode(0o600)).unwrap()
    });
    seen("mtime", &|d| {
        let t = SystemTime::UNIX_EPOCH + Duration::new(5_000_000_000, 8);
        fs::File::open(d.join("g"))
            .unwrap()
            .set_modified(t)
            .unwrap();
    });
    seen("hard-link group", &|d| {
        fs::remove_file(d.join("g")).unwrap();
        fs::write(d.join("g"), b"abc").unwrap();
    });
    seen("kind or content", &|d| {
        fs::remove_file(d.join("s")).unwrap();
        symlink("d/g", d.join("s")).unwrap();
    });
}
