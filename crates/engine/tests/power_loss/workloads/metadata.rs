//! Everything at once, and attributes.

use extant_engine::{Cred, QuotaKind, QuotaLimits, SetAttr};

use crate::run::Run;

/// Creations, appends, removals, renames, directories, symbolic links; now and then something is
/// made durable.
pub(super) fn storm(run: &mut Run) {
    for step in 0..60 {
        match run.rng.below(10) {
            0..=3 => {
                let len = run.rng.below(9000);
                let path = run.create_any(len);
                if run.rng.chance(40) {
                    run.fsync(&path);
                }
            }
            4 => {
                let path = format!("d{step}");
                run.mkdir(&path);
                let dir = run.node(&path);
                run.volume()
                    .symlink(&dir, b"link", &[b'x'; 90], &run.cred)
                    .unwrap();
            }
            5 => {
                if let Some(path) = run.any_file() {
                    run.unlink(&path);
                }
            }
            6 => {
                if let (Some(old), Some(new)) = (run.any_file(), run.any_file())
                    && old != new
                {
                    run.rename(&old, &new);
                }
            }
            7 => {
                if let Some(path) = run.any_file() {
                    let more = run.rng.between(1, 5000);
                    run.append(&path, more);
                }
            }
            8 => {
                if let Some(path) = run.any_file() {
                    run.fsync(&path);
                }
            }
            _ => {
                if run.rng.chance(30) {
                    run.sync();
                }
            }
        }
    }
}

/// Attributes in inodes and in blocks, set, replaced, removed, shared by files that have the same.
pub(super) fn attributes(run: &mut Run) {
    let files: Vec<String> = (0..6).map(|_| run.create_any(300)).collect();
    for _ in 0..70 {
        let path = &files[run.rng.index(files.len())];
        let key = format!("user.k{}", run.rng.below(4));
        match run.rng.below(10) {
            // Few seeds: files with the same attributes share a block.
            0..=6 => {
                let seed = 1 + run.rng.below(5) * 37;
                run.set_attr(path, &key, Some(seed));
            }
            7 => {
                let there = run.volume().listxattr(&run.node(path)).unwrap();
                if there.contains(&key.clone().into_bytes()) {
                    run.set_attr(path, &key, None);
                }
            }
            _ => run.fsync(path),
        }
    }
}

/// Values in inodes of their own, which come and go with attributes and files, and which several
/// attributes share.
pub(super) fn long_values(run: &mut Run) {
    let mut files: Vec<String> = (0..4).map(|_| run.create_any(300)).collect();
    for _ in 0..60 {
        let at = run.rng.index(files.len());
        let path = &files[at];
        let key = format!("user.k{}", run.rng.below(3));
        match run.rng.below(12) {
            0..=6 => {
                // Elsewhere, several such values do not fit.
                let long = run.rng.chance(75) && run.has_long_values;
                let more = if long { 3000 } else { 0 };
                let seed = 1 + run.rng.below(3) * 37 + (more << 32);
                run.set_attr(path, &key, Some(seed));
            }
            7 => {
                let there = run.volume().listxattr(&run.node(path)).unwrap();
                if there.contains(&key.clone().into_bytes()) {
                    run.set_attr(path, &key, None);
                }
            }
            8 => {
                drop(run.unlink(path));
                files[at] = run.create_any(100);
            }
            _ => run.fsync(path),
        }
    }
}

/// Files of several users and projects, which come, grow, change hands and go: what each id uses is
/// what the inodes say, in every state.
pub(super) fn owners(run: &mut Run) {
    for step in 0..60 {
        let Some(path) = run.any_file().filter(|_| step > 6) else {
            let len = run.rng.below(5000);
            run.cred.uid = u32::try_from(run.rng.below(4)).unwrap_or(0);
            run.create_any(len);
            continue;
        };
        let id = u32::try_from(100 + run.rng.below(40)).unwrap_or(0);
        let node = run.node(&path);
        match run.rng.below(8) {
            0 | 1 => {
                let to = SetAttr {
                    uid: Some(id),
                    gid: Some(id / 4),
                    ..SetAttr::default()
                };
                run.volume().setattr(&node, &to, &Cred::root()).unwrap();
            }
            // Not every volume counts usage, or has projects.
            2 => drop(run.volume().set_xflags(&node, 0, id, &Cred::root())),
            3 => run.append(&path, 3000),
            4 => drop(run.unlink(&path)),
            5 => {
                let limits = QuotaLimits {
                    bytes_soft: u64::from(id) << 10,
                    ..QuotaLimits::default()
                };
                drop(run.volume().set_quota_limits(QuotaKind::User, id, limits));
            }
            6 => run.sync(),
            _ => run.fsync(&path),
        }
    }
}
