//! Copies of trees: from the host, to the host, and between volumes.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use extant::testing::{assert_sound, device, filesystem};
use extant::{FileKind, FileTimes, Filesystem, Permissions};
use extant_testkit::{Image, Need, Result, need};

const SIZE: u64 = 16 << 20;

/// A folder of the host, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Folder> {
        let name = format!("extant-copies-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn then() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 5_000)
}

/// A tree of the host with a little of everything that needs no privileges.
fn plant(folder: &Folder) -> Result<()> {
    std::fs::create_dir_all(folder.at("from/sub"))?;
    std::fs::write(folder.at("from/file"), "content")?;
    std::fs::hard_link(folder.at("from/file"), folder.at("from/sub/name"))?;
    symlink("../file", folder.at("from/sub/link"))?;
    let sparse = std::fs::File::create(folder.at("from/sparse"))?;
    sparse.set_len(5 << 20)?;
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 2 << 20)?;
    for (path, mode) in [("from/file", 0o640), ("from/sub", 0o711)] {
        std::fs::set_permissions(folder.at(path), PermissionsExt::from_mode(mode))?;
    }
    let times = std::fs::FileTimes::new().set_modified(then());
    std::fs::File::open(folder.at("from/sub"))?.set_times(times)?;
    std::fs::File::open(folder.at("from/file"))?.set_times(times)?;
    Ok(())
}

#[test]
fn trees_go_into_a_volume_and_out_again() -> Result<()> {
    let folder = Folder::new("round")?;
    plant(&folder)?;
    let device = device(SIZE)?;
    let fs = Filesystem::options()
        .write(true)
        .open_device(device.clone())?;
    let bytes = fs.copy_in(folder.at("from"), "/to", Some((7, 8)))?;
    assert_eq!(bytes, 7 + (5 << 20));
    let file = fs.metadata("/to/file")?;
    assert_eq!((file.uid(), file.gid(), file.nlink()), (7, 8, 2));
    assert_eq!(
        (file.permissions().mode(), file.modified()),
        (0o640, then())
    );
    assert_eq!(file.ino(), fs.metadata("/to/sub/name")?.ino());
    let sub = fs.metadata("/to/sub")?;
    assert_eq!((sub.permissions().mode(), sub.modified()), (0o711, then()));
    assert_eq!(fs.read_link("/to/sub/link")?, Path::new("../file"));
    fs.sync()?;
    let sparse = fs.metadata("/to/sparse")?;
    assert!(
        sparse.len() == 5 << 20 && sparse.blocks() <= 8,
        "{sparse:?}"
    );
    assert_eq!(&fs.read("/to/sparse")?[2 << 20..][..4], b"data");

    fs.set_permissions("/to/file", Permissions::from_mode(0o6755))?;
    assert_eq!(fs.copy_out("/to", folder.at("back"))?, bytes);
    let file = std::fs::metadata(folder.at("back/file"))?;
    assert_eq!(
        (file.mode() & 0o7777, file.nlink()),
        (0o755, 2),
        "no set-id bits"
    );
    assert_eq!(file.modified()?, then());
    assert_eq!(std::fs::read(folder.at("back/sub/name"))?, b"content");
    assert_eq!(
        std::fs::read_link(folder.at("back/sub/link"))?,
        Path::new("../file")
    );
    let sparse = std::fs::metadata(folder.at("back/sparse"))?;
    assert!(
        sparse.len() == 5 << 20 && sparse.blocks() < 2048,
        "holes stay holes"
    );
    assert_eq!(
        std::fs::metadata(folder.at("back/sub"))?.modified()?,
        then()
    );
    fs.unmount()?;
    assert_sound(&device);
    Ok(())
}

#[test]
fn what_is_in_the_way_is_replaced_and_never_written_through() -> Result<()> {
    let folder = Folder::new("way")?;
    std::fs::write(folder.at("victim"), "kept")?;
    let fs = filesystem(SIZE)?;
    fs.write("/file", "new")?;
    symlink("victim", folder.at("file"))?;
    fs.copy_out("/file", folder.at("file"))?;
    assert_eq!(std::fs::read(folder.at("file"))?, b"new");
    assert_eq!(std::fs::read(folder.at("victim"))?, b"kept");

    // A directory is no file, and a file is no directory; a pipe of the host stays.
    std::fs::create_dir(folder.at("dir"))?;
    let refused = fs.copy_out("/file", folder.at("dir")).unwrap_err();
    assert_eq!(
        (refused.errno(), refused.path()),
        (Some(21), &*folder.at("dir"))
    );
    let refused = fs.copy_in(folder.at("dir"), "/file", None).unwrap_err();
    assert_eq!(
        (refused.errno(), refused.path()),
        (Some(20), Path::new("/file"))
    );
    fs.make_node("/pipe", FileKind::Fifo, 0o600, 0)?;
    fs.copy_out("/pipe", folder.at("pipe"))?;
    let refused = fs.copy_out("/file", folder.at("pipe")).unwrap_err();
    assert_eq!(
        std::io::Error::from(refused).kind(),
        ErrorKind::AlreadyExists
    );
    // A source that is not there removes nothing.
    let missing = fs.copy_out("/none", folder.at("file")).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "/none: No such file or directory (os error 2)"
    );
    assert!(folder.at("file").exists());
    // What is there already keeps its attributes, and is filled.
    fs.create_dir("/there")?;
    fs.set_permissions("/there", Permissions::from_mode(0o700))?;
    fs.write("/there/old", "")?;
    std::fs::write(folder.at("dir/new"), "")?;
    fs.copy_in(folder.at("dir"), "/there", None)?;
    assert_eq!(fs.metadata("/there")?.permissions().mode(), 0o700);
    assert!(fs.exists("/there/old")? && fs.exists("/there/new")?);
    Ok(())
}

#[test]
fn volumes_exchange_everything() -> Result<()> {
    let (one, device) = (filesystem(SIZE)?, device(SIZE)?);
    let two = Filesystem::options()
        .write(true)
        .open_device(device.clone())?;
    one.create_dir_all("/a/dev")?;
    one.make_node("/a/dev/disk", FileKind::BlockDevice, 0o660, 0x12_0835)?;
    one.write("/a/tool", "elf")?;
    one.set_owner("/a/tool", Some(10), Some(20))?;
    one.set_permissions("/a/tool", Permissions::from_mode(0o4755))?;
    one.set_xattr(
        "/a/tool",
        "security.capability",
        &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0],
    )?;
    one.set_xattr("/a", "user.note", b"kept")?;
    one.set_times("/a/tool", FileTimes::new().set_modified(then()))?;
    assert_eq!(one.copy_tree("/a", &two, "/b")?, 3);
    // Paths begin at the root.
    assert_eq!(one.copy_tree("a", &two, "c")?, 3);
    assert_eq!(two.read_to_string("/c/tool")?, "elf");
    let (old, new) = (one.metadata("/a/tool")?, two.metadata("/b/tool")?);
    assert_eq!((new.uid(), new.gid(), new.mode()), (10, 20, 0o104_755));
    assert_eq!(new.modified(), old.modified());
    assert_eq!(two.metadata("/b/dev/disk")?.rdev(), 0x12_0835);
    assert_eq!(two.xattr("/b", "user.note")?, b"kept");
    let capability = "security.capability";
    assert_eq!(
        two.xattr("/b/tool", capability)?,
        one.xattr("/a/tool", capability)?
    );
    two.unmount()?;
    assert_sound(&device);
    Ok(())
}

#[test]
fn nothing_is_copied_into_itself() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.create_dir_all("/a/b")?;
    fs.write("/a/file", "kept")?;
    for (from, to) in [
        ("/a", "/a/b/c"),
        ("/a", "/a"),
        ("/a/file", "/a/file"),
        ("/", "/a/b"),
    ] {
        let refused = fs.copy_tree(from, &fs, to).unwrap_err();
        assert_eq!(refused.errno(), Some(22), "{from} {to}: {refused}");
        assert_eq!(fs.read("/a/file")?, b"kept", "{from} {to}");
    }
    assert_eq!(fs.copy_tree("/a/file", &fs, "/other")?, 4);
    Ok(())
}

/// Files of the host that have content and no length.
#[test]
fn files_without_a_length_are_copied_to_their_end() -> Result<()> {
    let fs = filesystem(SIZE)?;
    for path in [
        "/proc/version",
        "/proc/sys/kernel/ostype",
        "/proc/filesystems",
    ] {
        let right = std::fs::read(path)?;
        assert_eq!(std::fs::metadata(path)?.len(), 0, "{path} has a length");
        assert_eq!(fs.copy_in(path, "/copy", None)?, right.len() as u64);
        assert!(!right.is_empty() && fs.read("/copy")? == right, "{path}");
    }
    let folder = Folder::new("empty")?;
    std::fs::write(folder.at("empty"), "")?;
    assert_eq!(fs.copy_in(folder.at("empty"), "/copy", None)?, 0);
    assert_eq!(fs.read("/copy")?, b"");
    Ok(())
}

/// As chown(2): what a file may do as its owner, it may not do as another one.
#[test]
fn set_id_bits_are_not_given_to_another_owner() -> Result<()> {
    let folder = Folder::new("setid")?;
    std::fs::create_dir(folder.at("tree"))?;
    std::fs::write(folder.at("tree/tool"), "elf")?;
    let found = std::fs::metadata(folder.at("tree/tool"))?;
    let own = (found.uid(), found.gid());
    for (path, mode) in [("tree/tool", 0o6755), ("tree", 0o2775)] {
        std::fs::set_permissions(folder.at(path), PermissionsExt::from_mode(mode))?;
    }
    let fs = filesystem(SIZE)?;
    for (to, owner, tool) in [
        ("/kept", None, 0o6755),
        ("/same", Some(own), 0o6755),
        ("/user", Some((own.0 + 1, own.1)), 0o755),
        ("/group", Some((own.0, own.1 + 1)), 0o755),
    ] {
        fs.copy_in(folder.at("tree"), to, owner)?;
        let mode = |path: &str| Ok::<_, extant::Error>(fs.metadata(path)?.permissions().mode());
        assert_eq!(mode(&format!("{to}/tool"))?, tool, "{to}");
        // Of a directory they say whose files are made in it.
        assert_eq!(mode(to)?, 0o2775, "{to}");
    }
    Ok(())
}

/// Files whose maps name the same blocks again and again have no more data than the volume.
#[test]
fn a_copy_of_a_damaged_volume_ends() -> Result<()> {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("debugfs")]) {
        return Ok(());
    }
    let disk = Image::of_mib(16).args("-b 4096 -O ^metadata_csum").make()?;
    for name in ["f", "g", "h"] {
        disk.debugfs_write(&format!("write /dev/null {name}"))?;
        // One extent of 1,900 blocks from 2,100 on.
        for (field, value) in [
            (0, 0x0001_f30a),
            (1, 4),
            (2, 0),
            (3, 0),
            (4, 1900),
            (5, 2100),
        ] {
            disk.debugfs_write(&format!("sif /{name} block[{field}] {value}"))?;
        }
        disk.debugfs_write(&format!("sif /{name} flags 0x80000"))?;
        disk.debugfs_write(&format!("sif /{name} size {}", 1900 * 4096))?;
    }
    let folder = Folder::new("damaged")?;
    let fs = Filesystem::options().open(disk.path())?;
    let Err(failed) = fs.copy_out("/", folder.at("to")) else {
        extant_testkit::bail!("it was copied");
    };
    assert!(
        failed.to_string().contains("more data than the volume"),
        "{failed}"
    );
    let copied = ["f", "g", "h"].map(|name| folder.at("to").join(name).metadata());
    let copied: u64 = copied.into_iter().flatten().map(|found| found.len()).sum();
    assert!(copied <= 16 << 20, "{copied} bytes were copied");
    Ok(())
}
