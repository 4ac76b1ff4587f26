//! The path-level API on a real image, with the habits of `std::fs`.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use extant::{Error, FallocateMode, FileKind, FileTimes, Filesystem, Permissions, SeekTarget};
use extant_blockdev::MemoryDevice;
use extant_testkit::{Image, Need, Result, ensure, need};
use rustix::io::Errno;

const NEEDS: &[Need] = &[Need::Tool("mke2fs")];

fn open(image: &Image) -> Filesystem {
    Filesystem::options()
        .write(true)
        .open(image.path())
        .unwrap()
}

#[test]
fn files_behave_as_in_std() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let fs = open(&image);
    let mut f = fs
        .open_options()
        .create_new(true)
        .read(true)
        .write(true)
        .open("/f")
        .unwrap();
    f.write_all(b"hello world").unwrap();
    f.seek(SeekFrom::Start(6)).unwrap();
    let mut rest = String::new();
    f.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "world");
    assert_eq!(f.seek(SeekFrom::End(-5)).unwrap(), 6);
    assert_eq!(
        f.seek(SeekFrom::Current(-100)).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    f.write_at(b"W", 6).unwrap();
    f.set_len(1 << 20).unwrap();
    assert_eq!(
        f.find(SeekTarget::Hole(0)).unwrap(),
        u64::from(fs.statfs().unwrap().block_size)
    );
    assert!(matches!(
        f.find(SeekTarget::Data(1 << 19)),
        Err(Error::NoSuchAddress)
    ));
    f.sync_all().unwrap();
    drop(f);
    fs.unmount().unwrap();
    image.fsck_clean()
}

#[test]
fn open_options_and_attributes_behave_as_in_std() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let fs = open(&image);
    fs.write("/f", b"hello world").unwrap();
    let mut a = fs.open_options().append(true).open("/f").unwrap();
    a.set_len(3).unwrap();
    a.write_all(b"p!").unwrap();
    assert_eq!(a.stream_position().unwrap(), 5);
    assert_eq!(fs.read("/f").unwrap(), b"help!");
    assert_eq!(
        a.read(&mut [0]).unwrap_err().raw_os_error(),
        Some(9),
        "EBADF"
    );
    assert!(matches!(
        fs.open_file("/f").unwrap().write_at(b"x", 0),
        Err(Error::BadHandle)
    ));
    assert!(matches!(
        fs.open_options().create_new(true).write(true).open("/f"),
        Err(Error::Exists)
    ));
    assert!(matches!(
        fs.open_options().create(true).open("/g"),
        Err(Error::Invalid)
    ));
    assert!(matches!(fs.open_file("/"), Err(Error::IsDir)));

    let then = UNIX_EPOCH - Duration::new(5, 7);
    fs.set_times("/f", FileTimes::new().set_modified(then))
        .unwrap();
    fs.set_permissions("/f", Permissions::from_mode(0o4711))
        .unwrap();
    let metadata = fs.metadata("/f").unwrap();
    assert_eq!((metadata.modified(), metadata.mode()), (then, 0o104_711));
    // An open file outlives its name, and ends with the file system.
    fs.remove_file("/f").unwrap();
    assert_eq!(a.metadata().unwrap().nlink(), 0);
    fs.unmount().unwrap();
    assert!(matches!(a.metadata(), Err(Error::Shutdown(_))));
    image.fsck_clean()
}

#[test]
fn paths_follow_links_inside_of_the_image() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let fs = open(&image);
    fs.create_dir_all("/a/b/c").unwrap();
    fs.create_dir_all("a/b/c").unwrap();
    fs.write("/a/b/file", b"x").unwrap();
    fs.symlink("/a/b", "/abs").unwrap();
    fs.symlink("../b/file", "/a/b/rel").unwrap();
    fs.symlink("new", "/a/dangling").unwrap();
    for path in [
        "/abs/file",
        "/a/b/rel",
        "/abs/../b/./file",
        "//a//b/file",
        "/../a/b/file",
        "/abs/rel",
    ] {
        assert_eq!(fs.read(path).unwrap(), b"x", "{path}");
    }
    assert!(fs.symlink_metadata("/abs").unwrap().is_symlink());
    assert!(
        fs.symlink_metadata("/abs/").unwrap().is_dir(),
        "a slash at the end follows"
    );
    assert!(matches!(fs.metadata("/a/b/file/"), Err(Error::NotDir)));
    assert!(matches!(fs.metadata("/a/b/file/x"), Err(Error::NotDir)));
    assert!(matches!(fs.metadata(""), Err(Error::NotFound)));
    assert!(!fs.exists("/a/dangling").unwrap());
    // As open(2): creating through a link whose target is missing creates the target, in the
    // directory of the link.
    assert!(matches!(
        fs.open_options()
            .create_new(true)
            .write(true)
            .open("/a/dangling"),
        Err(Error::Exists)
    ));
    fs.write("/a/dangling", b"made").unwrap();
    assert_eq!(fs.read("/a/new").unwrap(), b"made");
    // A circle ends.
    fs.symlink("loop", "/loop").unwrap();
    assert!(matches!(fs.metadata("/loop"), Err(Error::TooManySymlinks)));
    for i in 0..45 {
        fs.symlink(format!("chain{}", i + 1), format!("/chain{i}"))
            .unwrap();
    }
    fs.write("/chain45", b"end").unwrap();
    assert!(matches!(fs.read("/chain0"), Err(Error::TooManySymlinks)));
    assert_eq!(fs.read("/chain6").unwrap(), b"end");

    assert!(matches!(fs.create_dir("/"), Err(Error::Exists)));
    assert!(matches!(fs.remove_dir("/a"), Err(Error::NotEmpty)));
    fs.remove_dir_all("/a").unwrap();
    assert!(
        fs.symlink_metadata("/abs").unwrap().is_symlink(),
        "only the link's target is gone"
    );
    fs.remove_dir_all("/abs").unwrap();
    fs.unmount().unwrap();
    image.fsck_clean()
}

#[test]
fn listings_and_memory_devices() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path())?));
    let fs = Filesystem::options()
        .write(true)
        .open_device(device.clone())
        .unwrap();
    for i in 0..700 {
        fs.write(format!("/n{i:04}"), i.to_string()).unwrap();
    }
    let mut names = Vec::new();
    for entry in fs.read_dir("/").unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap() == FileKind::Regular {
            let name = entry.file_name().into_string().unwrap();
            assert_eq!(
                entry.metadata().unwrap().len(),
                name.trim_start_matches('n')
                    .parse::<u32>()
                    .unwrap()
                    .to_string()
                    .len() as u64
            );
            names.push(name);
        }
    }
    names.sort();
    assert!(
        names.len() == 700
            && names
                .iter()
                .enumerate()
                .all(|(i, name)| *name == format!("n{i:04}"))
    );
    drop(fs);
    // The drop leaves a clean image.
    let copy = Image::of_bytes(&device.to_bytes())?;
    ensure!(!copy.needs_recovery()?, "not unmounted");
    copy.fsck_clean()
}

#[test]
fn extents_follow_data_from_promise_to_place() {
    if !need(NEEDS) {
        return;
    }
    use extant::{Extent, ExtentState};
    let image = Image::of_mib(16).args("-b 4096").make().unwrap();
    let fs = open(&image);
    let f = fs.create("/f").unwrap();
    f.write_at(&[1; 5000], 0).unwrap();
    f.write_at(&[2; 4096], 40_960).unwrap();
    f.set_len(100_000).unwrap();
    let list = || {
        f.extents()
            .collect::<extant::Result<Vec<Extent>>>()
            .unwrap()
    };
    let shape = |list: &[Extent]| {
        list.iter()
            .map(|e| (e.logical, e.len, e.state))
            .collect::<Vec<_>>()
    };
    use ExtentState::{Delayed, Hole, Written};
    let before = list();
    assert_eq!(
        shape(&before),
        [
            (0, 8192, Delayed),
            (8192, 32_768, Hole),
            (40_960, 4096, Delayed),
            (45_056, 57_344, Hole)
        ]
    );
    assert!(before.iter().all(|e| e.physical.is_none()));
    f.sync_all().unwrap();
    let after = list();
    let stored: Vec<_> = shape(&before)
        .into_iter()
        .map(|(at, len, state)| (at, len, if state == Delayed { Written } else { state }))
        .collect();
    assert_eq!(shape(&after), stored);
    for e in &after {
        assert_eq!(e.physical.is_some(), e.state == Written);
    }
    // The bytes are where it says.
    let start = after[2].physical.unwrap();
    assert_eq!(image.bytes(start, 4096).unwrap(), [2; 4096]);
    // From the middle of a range on.
    let rest: Vec<_> = fs
        .volume()
        .map(f.node(), 20_000)
        .map(|e| e.unwrap().logical)
        .collect();
    assert_eq!(rest, [16_384, 40_960, 45_056]);
    fs.unmount().unwrap();
    assert!(matches!(f.extents().next(), Some(Err(Error::Shutdown(_)))));
}

#[test]
fn files_that_are_not_open_for_writing_refuse_range_operations() {
    if !need(NEEDS) {
        return;
    }
    let image = Image::of_mib(16).args("-b 1024").make().unwrap();
    let fs = open(&image);
    fs.write("/plain", [7; 40_000]).unwrap();
    let file = fs.open_options().read(true).open("/plain").unwrap();
    for mode in [
        FallocateMode::Allocate { keep_size: false },
        FallocateMode::Allocate { keep_size: true },
        FallocateMode::PunchHole,
        FallocateMode::ZeroRange { keep_size: false },
        FallocateMode::ZeroRange { keep_size: true },
        FallocateMode::CollapseRange,
        FallocateMode::InsertRange,
    ] {
        let error = file.fallocate(mode, 0..1024).unwrap_err();
        assert_eq!(error.errno(), Errno::BADF.raw_os_error(), "{mode:?}");
    }
}

#[test]
fn a_write_that_has_begun_gets_the_space_of_removed_files() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    const MIB: usize = 1 << 20;
    let image = Image::of_mib(32).args("-m 0").make()?;
    let fs = open(&image);
    let data = vec![7; MIB];
    for round in 0..10 {
        // They wait for their eviction before the large one.
        let small: Vec<_> = (0..400)
            .map(|nr| {
                let name = format!("/small{nr}");
                let file = fs.create(&name).unwrap();
                file.write_at(&[7], 0).unwrap();
                fs.remove_file(&name).unwrap();
                file
            })
            .collect();
        let old = format!("/{round}");
        let file = fs.create(&old).unwrap();
        // All but half of what is free: a write finds a part of its space, and then none.
        let space = fs.statfs().unwrap();
        let free = space.blocks_available * u64::from(space.block_size);
        let size = free - MIB as u64 / 2;
        file.set_len(size).unwrap();
        file.fallocate(FallocateMode::Allocate { keep_size: true }, 0..size)
            .unwrap();
        let new = fs.create("/new").unwrap();
        fs.remove_file(&old).unwrap();
        drop((small, file));
        let done = new.write_at(&data, 0).unwrap();
        assert_eq!(done, MIB, "in round {round}");
        drop(new);
        fs.remove_file("/new").unwrap();
        fs.sync().unwrap();
    }
    fs.unmount().unwrap();
    image.fsck_clean()
}
