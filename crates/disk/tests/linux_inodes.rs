//! Inodes, attributes, ACLs and orphan blocks as Linux writes them: decoded, compared with what
//! Linux says about them, and encoded again to the same bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use extant_disk::acl::Acl;
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::group_desc::{GroupChecksum, GroupDesc};
use extant_disk::inode::{InodeCore, InodeFlags, InodeFormat, InodeTime};
use extant_disk::orphan;
use extant_disk::superblock::Superblock;
use extant_disk::xattr::{BlockHeader, XattrSet, area_entries, block_entries, check_block};
use extant_testkit::{Cmd, Image, Need, Subject, need};
use extant_units::{Group, Ino, Pblk};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};

type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// An image, read from the outside.
struct Disk {
    file: File,
    sb: Superblock,
    format: InodeFormat,
}

impl Disk {
    fn open(path: &Path) -> Disk {
        let file = File::open(path).unwrap();
        let mut bytes = vec![0; 1024];
        file.read_exact_at(&mut bytes, 1024).unwrap();
        let sb = Superblock::parse(&bytes).unwrap();
        let format = InodeFormat {
            inode_size: sb.inode_size().try_into().unwrap(),
            block_size: sb.block_size(),
            huge_file: sb.features().has_ro_compat(RoCompat::HUGE_FILE),
            wide_blocks: sb.features().has_incompat(Incompat::SIXTY_FOUR_BIT),
            large_dir: sb.features().has_incompat(Incompat::LARGEDIR),
            csum_seed: sb.features().metadata_csum().then(|| sb.checksum_seed()),
        };
        Disk { file, sb, format }
    }

    fn block(&self, pblk: Pblk) -> Vec<u8> {
        let mut bytes = vec![0; self.sb.block_size().bytes()];
        let at = pblk.get() * self.sb.block_size().bytes_u64();
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn record(&self, ino: u64) -> Vec<u8> {
        let index = u32::try_from(ino - 1).unwrap();
        let group = index / self.sb.inodes_per_group();
        let size = self.sb.desc_size();
        let table = self.sb.first_data_block().get() + 1;
        let per_block = self.sb.block_size().bytes() / size;
        let block = self.block(Pblk::new(table + u64::from(group) / per_block as u64));
        let at = group as usize % per_block * size;
        let checksum = GroupChecksum::of(&self.sb);
        let desc = GroupDesc::parse(&block[at..at + size], Group::new(group), &checksum).unwrap();
        let inside = u64::from(index % self.sb.inodes_per_group()) * self.sb.inode_size() as u64;
        let at = desc.inode_table.get() * self.sb.block_size().bytes_u64() + inside;
        let mut bytes = vec![0; self.sb.inode_size()];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    /// Decodes an inode and sees that it is encoded again to the same bytes.
    fn inode(&self, ino: u64) -> InodeCore {
        let number = Ino::new(ino.try_into().unwrap()).unwrap();
        let record = self.record(ino);
        let core = InodeCore::decode(&self.format, number, &record).unwrap();
        let mut again = record.clone();
        core.encode(&self.format, number, &mut again).unwrap();
        // An inode that mke2fs made before it knew better may say that its extra part is unused: we
        // take it.
        if self.format.inode_size == 128 || record[128..130] != [0; 2] {
            assert_eq!(again, record, "inode {ino} is encoded as Linux did");
        }
        core
    }

    /// All attributes: full name and stored value.
    fn xattrs(&self, core: &InodeCore) -> Attributes {
        let mut all = Vec::new();
        for entry in area_entries(&core.xattrs).unwrap() {
            let entry = entry.unwrap();
            all.push((entry.name.full().unwrap(), entry.value.to_vec()));
        }
        if core.file_acl != Pblk::ZERO {
            let block = self.block(core.file_acl);
            check_block(self.format.csum_seed, core.file_acl, &block).unwrap();
            for entry in block_entries(&block).unwrap() {
                let entry = entry.unwrap();
                all.push((entry.name.full().unwrap(), entry.value.to_vec()));
            }
            let set = XattrSet::read(block_entries(&block).unwrap()).unwrap();
            let mut ours = vec![0; block.len()];
            set.write_block(&mut ours);
            let hash = |bytes: &[u8]| BlockHeader::of(bytes).unwrap().hash.get();
            assert_eq!(hash(&ours), hash(&block), "the hash of a block");
            let entries = |bytes: &[u8]| -> Vec<_> {
                let all = block_entries(bytes).unwrap().map(Result::unwrap);
                all.map(|e| (e.name.full(), e.hash)).collect()
            };
            assert_eq!(entries(&ours), entries(&block), "order and hashes");
        }
        all.sort();
        all
    }
}

const CONFIGURATIONS: [&str; 5] = [
    "-b 4096 -I 256",
    "-b 1024 -I 128",
    "-b 1024 -I 256 -O ^metadata_csum,^64bit",
    "-b 4096 -I 1024",
    "-b 4096 -I 128 -O ^metadata_csum,^huge_file",
];

const LIMITS: [i64; 7] = [
    -0x8000_0000,
    -1,
    0,
    0x7fff_ffff,
    0x8000_0000,
    0x1_8000_0000,
    0x3_7fff_fffe,
];

fn set_times(path: &Path, secs: i64) {
    let time = |tv_nsec| Timespec {
        tv_sec: secs,
        tv_nsec,
    };
    let times = Timestamps {
        last_access: time(1),
        last_modification: time(999_999_999),
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn set_acl(path: &Path, args: &[&str]) {
    Cmd::new("setfacl").args(args).arg(path).ok().unwrap();
}

/// Makes inodes of every kind; their paths.
fn populate(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    let mut file = |name: &str| {
        let path = root.join(name);
        fs::write(&path, name).unwrap();
        all.push(path.clone());
        path
    };
    let owned = file("owned");
    std::os::unix::fs::chown(&owned, Some(70_001), Some(4_000_000_000)).unwrap();
    fs::set_permissions(&owned, fs::Permissions::from_mode(0o6751)).unwrap();
    for (i, secs) in LIMITS.into_iter().enumerate() {
        set_times(&file(&format!("time{i}")), secs);
    }
    let small = file("small");
    set_xattr(&small, "user.a", b"1");
    set_xattr(&small, "user.empty", b"");
    let large = file("large");
    set_xattr(&large, "user.note", &[7; 700]);
    set_xattr(&large, "user.z", b"zz");
    set_xattr(&large, "trusted.t", b"odd");
    set_xattr(&large, "security.x", &[1; 5]);
    set_acl(&file("listed"), &["-m", "u:1234:r,g:5678:rw,m::rw"]);
    let sparse = File::options().write(true).open(file("sparse")).unwrap();
    sparse.set_len(1 << 33).unwrap();

    let dir = root.join("dir");
    fs::create_dir(&dir).unwrap();
    set_acl(&dir, &["-d", "-m", "u:1234:rwx"]);
    all.push(dir);
    for (name, target) in [("fast", "x".repeat(59)), ("slow", "y".repeat(60))] {
        let path = root.join(name);
        std::os::unix::fs::symlink(target, &path).unwrap();
        all.push(path);
    }
    for (name, major, minor) in [("dev1", "8", "1"), ("dev2", "300", "70000")] {
        let path = root.join(name);
        let node = Cmd::new("mknod").arg(&path).args(["b", major, minor]);
        node.ok().unwrap();
        all.push(path);
    }
    all
}

/// An inode as Linux shows it.
struct Seen {
    path: PathBuf,
    meta: fs::Metadata,
    xattrs: Attributes,
}

fn look(path: &Path) -> Seen {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut xattrs: Attributes = names[..len]
        .split(|b| *b == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let c = CString::new(name).unwrap();
            let mut value = vec![0; 65536];
            let len = rustix::fs::lgetxattr(path, &c, &mut value[..]).unwrap();
            value.truncate(len);
            (name.to_vec(), value)
        })
        .collect();
    xattrs.sort();
    Seen {
        path: path.to_owned(),
        meta: fs::symlink_metadata(path).unwrap(),
        xattrs,
    }
}

fn compare(disk: &Disk, seen: &Seen) {
    let Seen { path, meta, xattrs } = seen;
    let core = disk.inode(meta.ino());
    assert_eq!(u32::from(core.mode), meta.mode(), "{path:?}");
    assert_eq!((core.uid, core.gid), (meta.uid(), meta.gid()), "{path:?}");
    assert_eq!(u64::from(core.links), meta.nlink(), "{path:?}");
    assert_eq!(core.disk_size, meta.size(), "{path:?}");
    assert_eq!(core.sectors, meta.blocks(), "{path:?}");
    let time = |secs, nanos: i64| InodeTime {
        secs,
        nanos: nanos.try_into().unwrap(),
    };
    assert_eq!(
        core.mtime,
        time(meta.mtime(), meta.mtime_nsec()),
        "{path:?}"
    );
    assert_eq!(
        core.ctime,
        time(meta.ctime(), meta.ctime_nsec()),
        "{path:?}"
    );
    assert_eq!(
        core.atime,
        time(meta.atime(), meta.atime_nsec()),
        "{path:?}"
    );
    if let Some(crtime) = core.crtime {
        let born = meta.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(crtime.nanos, born.subsec_nanos());
        assert_eq!(crtime.secs, i64::try_from(born.as_secs()).unwrap());
    } else {
        assert_eq!(disk.format.inode_size, 128);
    }
    if meta.file_type().is_symlink() && meta.size() < 60 {
        assert_eq!(core.i_block[..59], [b'x'; 59]);
        assert!(!core.flags.contains(InodeFlags::EXTENTS));
    }
    let ours: Attributes = disk
        .xattrs(&core)
        .into_iter()
        .map(|(name, value)| {
            if !name.starts_with(b"system.posix_acl") {
                return (name, value);
            }
            let acl = Acl::from_stored(&value).unwrap();
            assert_eq!(acl.validate(), Ok(()));
            assert_eq!(acl.to_stored(), value);
            (name, acl.to_posix())
        })
        .collect();
    assert_eq!(&ours, xattrs, "{path:?}");
}

#[test]
fn linux_inodes_decode_and_encode() {
    if !need(&[Need::Loop, Need::Tool("setfacl")]) {
        return;
    }
    for args in CONFIGURATIONS {
        let image = Image::of_mib(32).args(args).make().unwrap();
        let mount = Subject::Ext4.mount(image.path(), "").unwrap();
        let paths = populate(mount.dir());
        // Delayed blocks count once they are allocated.
        rustix::fs::syncfs(File::open(mount.dir()).unwrap()).unwrap();
        let seen: Vec<_> = paths.iter().map(|path| look(path)).collect();
        mount.unmount().unwrap();
        let disk = Disk::open(image.path());
        for seen in &seen {
            compare(&disk, seen);
        }
        // The format's own inodes, whatever they are.
        for ino in 1..u64::from(disk.sb.first_inode()) {
            disk.inode(ino);
        }
    }
}

#[test]
fn linux_orphan_blocks_check() {
    if !need(&[Need::Loop]) {
        return;
    }
    let maker = Image::of_mib(32).args("-b 1024 -O orphan_file");
    let image = maker.make().unwrap();
    let mount = Subject::Ext4.mount(image.path(), "").unwrap();
    let open: Vec<_> = (0..5)
        .map(|i| {
            let path = mount.join(format!("gone{i}"));
            let file = File::create_new(&path).unwrap();
            fs::remove_file(&path).unwrap();
            file
        })
        .collect();
    let mut numbers: Vec<_> = open.iter().map(|f| f.metadata().unwrap().ino()).collect();
    rustix::fs::syncfs(File::open(mount.dir()).unwrap()).unwrap();
    // The newest blocks are in the copy's journal: replayed, without finishing the orphans.
    let copy = image.copy().unwrap();
    copy.debugfs_write("journal_run").unwrap();
    drop(open);
    mount.unmount().unwrap();

    let disk = Disk::open(copy.path());
    let file = disk.sb.orphan_file_inode().unwrap();
    let core = disk.inode(file.get().into());
    let seed = disk.format.inode_seed(file, core.generation);
    let mut found = Vec::new();
    let blocks = copy.debugfs(&format!("blocks <{file}>")).unwrap();
    for number in blocks.split_whitespace() {
        let pblk = Pblk::new(number.parse().unwrap());
        let block = disk.block(pblk);
        assert_eq!(orphan::check(seed, pblk, &block), Ok(()));
        let orphans = orphan::orphans(&block).unwrap();
        found.extend(orphans.map(|(_, ino)| u64::from(ino.get())));
    }
    numbers.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, numbers);
}
