//! Habits of `std::fs` that its users expect of files and paths of a volume.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant::testing::{assert_sound, device, filesystem};
use extant::{Error, Filesystem, OpenOptions, Permissions, XattrMode};
use extant_testkit::Result;

const SIZE: u64 = 16 << 20;

fn both<'a>(fs: &'a Filesystem) -> OpenOptions<'a> {
    let mut options = fs.open_options();
    options.read(true).write(true).create(true);
    options
}

#[test]
fn whole_files_are_read_written_and_copied() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.write("/text", "first")?;
    fs.write("/text", "2nd")?;
    assert_eq!(fs.read_to_string("/text")?, "2nd");
    fs.write("/bytes", [0xff, 0xfe])?;
    let refused = fs.read_to_string("/bytes").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidData);

    // Holes stay holes, also at the end, and permission bits come along.
    let sparse = both(&fs).open("/sparse")?;
    sparse.write_all_at(b"data", 1 << 20)?;
    sparse.set_len(3 << 20)?;
    sparse.set_permissions(Permissions::from_mode(0o4751))?;
    fs.write("/copy", vec![7; 4 << 20])?;
    assert_eq!(fs.copy("/sparse", "/copy")?, 3 << 20);
    fs.sync()?;
    let copy = fs.metadata("/copy")?;
    assert_eq!((copy.len(), copy.permissions().mode()), (3 << 20, 0o4751));
    assert_eq!(copy.blocks(), fs.metadata("/sparse")?.blocks());
    assert!(fs.read("/copy")? == fs.read("/sparse")?);

    // A file that is its own copy stays as it is.
    fs.hard_link("/text", "/name")?;
    assert!(matches!(fs.copy("/text", "/name"), Err(Error::Invalid)));
    assert_eq!(fs.read("/text")?, b"2nd");
    Ok(())
}

#[test]
fn clones_share_a_position_and_other_handles_do_not() -> Result<()> {
    let fs = filesystem(SIZE)?;
    let file = both(&fs).open("/file")?;
    let mut shared = &file;
    shared.write_all(b"0123456789")?;
    let mut clone = file.try_clone()?;
    assert_eq!(clone.stream_position()?, 10);
    clone.seek(SeekFrom::Start(4))?;
    let mut two = [0; 2];
    shared.read_exact(&mut two)?;
    assert_eq!((&two, clone.stream_position()?), (b"45", 6));
    let mut other = fs.open_file("/file")?;
    assert_eq!(other.stream_position()?, 0);
    let (mut one, mut rest) = ([0; 1], [0; 20]);
    let mut bufs = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut rest)];
    assert_eq!(shared.read_vectored(&mut bufs)?, 4);
    assert_eq!((&one, &rest[..3]), (b"6", &b"789"[..]));
    drop(file);
    assert_eq!(
        clone.write_vectored(&[IoSlice::new(b"a"), IoSlice::new(b"bc")])?,
        3
    );
    assert_eq!(fs.read("/file")?, b"0123456789abc");
    other.read_to_end(&mut Vec::new())?;
    assert_eq!(other.stream_position()?, 13);
    Ok(())
}

#[test]
fn exact_calls_at_positions_do_all_or_fail() -> Result<()> {
    let fs = filesystem(SIZE)?;
    let file = both(&fs).open("/file")?;
    file.write_all_at(&[3; 10_000], 5)?;
    let mut buf = vec![0; 10_000];
    file.read_exact_at(&mut buf, 5)?;
    assert!(buf.iter().all(|&byte| byte == 3));
    let short = file.read_exact_at(&mut buf, 6).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    // Positions of their own leave the file's where it was.
    assert_eq!((&file).stream_position()?, 0);
    let block = u64::from(fs.statfs()?.block_size);
    file.write_all_at(b"x", 30 * block)?;
    assert_eq!(file.seek_data(20 * block)?, 30 * block);
    assert_eq!(file.seek_hole(30 * block)?, 30 * block + 1);
    assert!(matches!(
        file.seek_data(31 * block),
        Err(Error::NoSuchAddress)
    ));
    Ok(())
}

#[test]
fn a_volume_without_room_ends_a_whole_write_with_an_error() -> Result<()> {
    let fs = filesystem(4 << 20)?;
    let file = both(&fs).open("/file")?;
    let full = file.write_all_at(&vec![1; 8 << 20], 0);
    assert!(matches!(full, Err(Error::NoSpace)), "{full:?}");
    Ok(())
}

#[test]
fn options_follow_links_and_sync_as_asked() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.write("/file", "x")?;
    fs.symlink("file", "/link")?;
    assert_eq!(fs.open_file("/link")?.metadata()?.len(), 1);
    let mut options = fs.open_options();
    let refused = options.read(true).no_follow(true).open("/link");
    assert!(matches!(refused, Err(Error::TooManySymlinks)));
    assert!(options.open("/file").is_ok());

    // No commit by time.
    drop(fs);
    let mut rare = Filesystem::options();
    rare.write(true).mount_options("commit=300");
    let fs = rare.open_device(device(SIZE)?)?;
    let commits = || {
        let all = fs.volume().stats();
        let commits = all.iter().find(|(name, _)| *name == "commits");
        commits.map(|(_, count)| *count)
    };
    let plain = both(&fs).open("/plain")?;
    let synced = both(&fs).sync(true).open("/synced")?;
    let data_synced = both(&fs)
        .data_sync(true)
        .sync(false)
        .append(true)
        .open("/data_synced")?;
    fs.sync()?;
    let before = commits();
    plain.write_all_at(b"x", 0)?;
    assert_eq!(commits(), before, "a plain write waits for no commit");
    synced.write_all_at(b"x", 0)?;
    let after = commits();
    assert!(after > before);
    data_synced.append_vectored(&[IoSlice::new(b"y")])?;
    assert!(commits() > after);
    Ok(())
}

#[test]
fn attributes_are_all_there_and_can_be_set_by_handle() -> Result<()> {
    let fs = filesystem(SIZE)?;
    let file = both(&fs).open("/file")?;
    file.set_owner(Some(3), Some(4))?;
    file.set_xattr("user.a", b"1", XattrMode::Create)?;
    let again = file.set_xattr("user.a", b"2", XattrMode::Create);
    assert!(matches!(again, Err(Error::Exists)));
    let missing = fs.set_xattr_with("/file", "user.b", b"2", XattrMode::Replace);
    assert!(matches!(missing, Err(Error::NoAttribute)));
    fs.set_xattr_with("/file", "user.a", b"3", XattrMode::Replace)?;
    assert_eq!(
        (file.xattr("user.a")?, file.xattrs()?),
        (b"3".into(), vec![b"user.a".into()])
    );
    file.remove_xattr("user.a")?;
    assert!(file.xattrs()?.is_empty());

    let found = file.metadata()?;
    assert_eq!((found.uid(), found.gid(), found.nlink()), (3, 4, 1));
    assert_eq!(found.blksize(), fs.statfs()?.block_size);
    assert!(found.changed() >= found.modified() && found.created().is_some());
    assert!(!found.is_immutable() && !found.is_append_only());
    let volume = fs.volume();
    volume.set_flags(file.node(), found.flags() | 0x30, fs.cred())?;
    let found = file.metadata()?;
    assert!(found.is_immutable() && found.is_append_only());
    assert_eq!(found.flags(), volume.flags(file.node())?);
    let refused = file.write_at(b"x", 0);
    assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
    let kind = found.file_type();
    assert!(kind.is_file() && !kind.is_dir() && !kind.is_symlink() && !kind.is_fifo());
    Ok(())
}

#[test]
fn canonical_paths_have_no_links_and_no_dots() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.create_dir_all("/a/b")?;
    fs.write("/a/b/file", "")?;
    fs.symlink("/a/b", "/abs")?;
    fs.symlink("../a/./b/../b", "/a/rel")?;
    fs.symlink("/a/b", "/a/b/whole")?;
    for (path, whole) in [
        ("/", "/"),
        ("/..", "/"),
        ("abs/file", "/a/b/file"),
        ("/a/rel/file", "/a/b/file"),
        ("/a/b/whole/file", "/a/b/file"),
        ("/a/rel/../rel/", "/a/b"),
        ("//a/b/../b/file", "/a/b/file"),
    ] {
        // Twice: the second time memory knows the names.
        for _ in 0..2 {
            assert_eq!(fs.canonicalize(path)?, Path::new(whole), "{path}");
        }
    }
    assert!(matches!(fs.canonicalize("/a/none"), Err(Error::NotFound)));
    assert!(matches!(fs.canonicalize("/abs/file/"), Err(Error::NotDir)));
    Ok(())
}

#[test]
fn walks_enter_directories_unless_told_otherwise() -> Result<()> {
    let fs = filesystem(SIZE)?;
    for path in ["/top/a/deep/er", "/top/b"] {
        fs.create_dir_all(path)?;
    }
    fs.write("/top/a/file", "")?;
    fs.symlink("/top", "/top/b/link")?;
    let mut seen = Vec::new();
    let mut walk = fs.walk_dir("/top")?;
    while let Some(entry) = walk.next() {
        let entry = entry?;
        if entry.name() == "deep" {
            walk.skip_directory();
        }
        seen.push((walk.depth(), entry.path()));
    }
    seen.sort();
    let expected = [
        (1, "/top/a"),
        (1, "/top/b"),
        (2, "/top/a/deep"),
        (2, "/top/a/file"),
        (2, "/top/b/link"),
    ];
    assert_eq!(
        seen,
        expected.map(|(depth, path)| (depth, PathBuf::from(path)))
    );
    assert!(matches!(fs.walk_dir("/top/a/file"), Err(Error::NotDir)));
    Ok(())
}

#[test]
fn an_unmount_gives_the_device_back_while_files_are_open() -> Result<()> {
    let device = device(SIZE)?;
    let mut options = Filesystem::options();
    options.write(true);
    let fs = options.open_device(device.clone())?;
    let file = both(&fs).open("/file")?;
    file.write_all_at(b"kept", 0)?;
    let listing = fs.read_dir("/")?;
    let counters = fs.volume().clone();
    fs.unmount()?;
    assert_eq!(Arc::strong_count(&device), 1);
    let gone = file.read_at(&mut [0; 4], 0);
    assert!(matches!(gone, Err(Error::Shutdown(_))), "{gone:?}");
    assert!(!counters.stats().is_empty());
    assert!(listing.count() <= 1);

    // And a second mount finds what the first one wrote.
    let fs = options.open_device(device.clone())?;
    assert_eq!(fs.read("/file")?, b"kept");
    drop((file, fs));
    assert_sound(&device);
    Ok(())
}

#[test]
fn an_unmounted_image_can_be_opened_again_while_files_are_open() -> Result<()> {
    let name = format!("extant-again-{}", std::process::id());
    let image = std::env::temp_dir().join(name);
    extant::mkfs::make(&image, Some(SIZE), &extant::mkfs::Options::default())?;
    let mut options = Filesystem::options();
    options.write(true);
    let fs = options.open(&image)?;
    let file = both(&fs).open("/file")?;
    assert!(matches!(options.open(&image), Err(Error::InUse { .. })));
    fs.unmount()?;
    let again = options.open(&image);
    std::fs::remove_file(&image)?;
    again?.unmount()?;
    drop(file);
    Ok(())
}

#[test]
fn errors_reach_std_and_come_back() -> Result<()> {
    let fs = filesystem(SIZE)?;
    let file = fs.create("/file")?;
    let refused = (&file).read(&mut [0]).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(9));
    assert!(matches!(Error::of_call(refused), Error::BadHandle));
    let unknown = Filesystem::options()
        .mount_options("nonsense")
        .open_device(device(SIZE)?);
    let told = io::Error::from(unknown.unwrap_err());
    assert_eq!(
        (told.kind(), Error::errno_of(&told)),
        (ErrorKind::InvalidInput, Some(22))
    );
    assert!(told.to_string().contains("nonsense"), "{told}");
    Ok(())
}

#[test]
fn public_values_say_what_they_are() -> Result<()> {
    let fs = filesystem(SIZE)?;
    let file = fs.create("/file")?;
    let entry = fs
        .read_dir("/")?
        .find(|entry| entry.as_ref().is_ok_and(|entry| entry.name() == "file"));
    for (text, part) in [
        (format!("{fs:?}"), "read_only: false"),
        (format!("{:?}", fs.volume()), "block_size"),
        (format!("{file:?}"), "write: true"),
        (format!("{:?}", fs.open_options()), "0o666"),
        (format!("{:?}", fs.read_dir("/")?), "ReadDir(\"/\")"),
        (format!("{entry:?}"), "/file"),
        (format!("{:?}", fs.walk_dir("/")?), "WalkDir"),
        (format!("{:?}", Permissions::from_mode(0o640)), "0o640"),
        (format!("{:?}", fs.direct_queue(4)), "depth: 4"),
        (format!("{:?}", file.extents()), "Extents"),
    ] {
        assert!(text.contains(part), "{text}");
    }
    Ok(())
}

/// The errors of making, building and resizing become those of `std::io` by `?`, as all others do.
#[test]
fn errors_of_makers_become_those_of_io() -> Result<()> {
    use extant::build::{self, Source};
    use extant::{mkfs, resize};

    fn made(path: &Path, size: Option<u64>) -> io::Result<()> {
        mkfs::make(path, size, &mkfs::Options::default())?;
        Ok(())
    }
    fn built(source: &Path, path: &Path) -> io::Result<()> {
        let sources = [Source::Path(source.to_owned())];
        build::build(&sources, path, &build::Options::default(), &build::Silent)?;
        Ok(())
    }
    fn resized(path: &Path) -> io::Result<()> {
        let options = resize::ResizeOptions::default();
        resize::resize_image(path, resize::Target::Bytes(SIZE), &options)?;
        Ok(())
    }
    let dir = extant_testkit::TempDir::new("errors")?;
    let (image, none) = (dir.join("disk.img"), dir.join("none"));
    made(&image, Some(SIZE))?;
    for (result, kind) in [
        (made(&image, None), ErrorKind::AlreadyExists),
        (made(&none, None), ErrorKind::NotFound),
        (made(dir.path(), None), ErrorKind::IsADirectory),
        (made(&none, Some(1 << 10)), ErrorKind::InvalidInput),
        (built(&dir.join("missing"), &none), ErrorKind::NotFound),
        (built(dir.path(), &image), ErrorKind::AlreadyExists),
        (resized(&none), ErrorKind::NotFound),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    // Words and causes stay.
    let error = made(&image, None).unwrap_err();
    assert!(error.to_string().contains("holds an ext2"), "{error}");
    Ok(())
}
