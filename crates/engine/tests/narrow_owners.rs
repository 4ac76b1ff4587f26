//! Owners of 16 bits (`nouid32`): what is read and stored is what Linux reads and stores.

use extant_engine::{Cred, SetAttr, VolumeOptions};
use extant_testkit::mount::Subject;
use extant_testkit::{Error, Image, Need, Result, ensure, need};

const NEEDS: &[Need] = &[Need::Tool("mke2fs"), Need::Tool("debugfs")];

fn told(error: impl std::fmt::Display) -> Error {
    Error::new(error.to_string())
}

/// Files with owners of more than 16 bits.
fn image() -> Result<Image> {
    let image = Image::of_mib(8).make()?;
    for name in ["kept", "changed", "touched"] {
        image.debugfs_write(&format!("write /dev/null {name}"))?;
        image.debugfs_write(&format!("sif {name} uid 0x20005"))?;
        image.debugfs_write(&format!("sif {name} gid 0x30006"))?;
    }
    Ok(image)
}

/// The owners that an image has, as debugfs reads them.
fn owners(image: &Image) -> Result<Vec<String>> {
    let owner = |name: &str| -> Result<String> {
        let stat = image.debugfs(&format!("stat {name}"))?;
        let line = stat.lines().find(|line| line.starts_with("User:"));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        Ok(format!("{name} {:?}", words.get(..4)))
    };
    ["kept", "changed", "touched", "new"]
        .into_iter()
        .map(owner)
        .collect()
}

#[test]
fn owners_of_16_bits_are_read_and_stored_as_by_linux() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = image()?;
    let by_linux = image.copy()?;
    let mut how = VolumeOptions::new();
    how.write(true).mount_options("nouid32");
    let volume = how.open(image.path()).map_err(told)?;
    let (root, cred) = (volume.root().map_err(told)?, Cred::root());
    let lookup = |name: &[u8]| volume.lookup(&root, name).map_err(told);
    for name in [&b"kept"[..], b"changed", b"touched"] {
        let attr = volume.getattr(&lookup(name)?).map_err(told)?;
        ensure!((attr.uid, attr.gid) == (5, 6), "{attr:?}");
    }
    let owner = |uid, gid| SetAttr {
        uid: Some(uid),
        gid: Some(gid),
        ..SetAttr::default()
    };
    let set = |name: &[u8], how: &SetAttr| -> Result<()> {
        volume
            .setattr(&lookup(name)?, how, &cred)
            .map(drop)
            .map_err(told)
    };
    set(b"changed", &owner(100_000, 70))?;
    let mode = SetAttr {
        perm: Some(0o600),
        ..SetAttr::default()
    };
    set(b"touched", &mode)?;
    volume.create(&root, b"new", 0o644, &cred).map_err(told)?;
    set(b"new", &owner(65_535, 65_536))?;
    // In memory an owner has all of its bits until the inode is read again.
    let attr = volume.getattr(&lookup(b"changed")?).map_err(told)?;
    ensure!((attr.uid, attr.gid) == (100_000, 70), "{attr:?}");
    drop(root);
    volume.unmount().map_err(told)?;
    image.fsck_clean()?;
    let found = owners(&image)?;
    ensure!(
        found[0].contains("131077") && found[1].contains("65534"),
        "{found:?}"
    );
    if need(&[Need::Root, Need::Loop]) {
        let mount = Subject::Ext4.mount(by_linux.path(), "nouid32")?;
        let chown =
            |name: &str, uid, gid| std::os::unix::fs::chown(mount.join(name), Some(uid), Some(gid));
        chown("changed", 100_000, 70)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(mount.join("touched"), mode)?;
        std::fs::write(mount.join("new"), b"")?;
        chown("new", 65_535, 65_536)?;
        mount.unmount()?;
        let theirs = owners(&by_linux)?;
        ensure!(found == theirs, "{found:?}, Linux has {theirs:?}");
    }
    Ok(())
}
