//! Files that Linux encrypted are decrypted, and encrypted again to the same bytes.
//!
//! A script for any kernel makes a tree of files, names and links of each policy. The host's kernel
//! runs it; `scripts/guest-suites encrypt` has the suite run it under Debian's as well, which knows
//! more ciphers and folds case.

mod raw;

use extant_blockdev::{FileDevice, OpenMode};
use extant_check::{CheckOptions, check};
use extant_crypt::{ContentsMode, Context, Ivs, KeyId, MasterKey, NamesMode, Padding, Policy};
use extant_testkit::encryption::{self, EncryptionPolicy, KeyStatus};
use extant_testkit::need::Need;
use extant_testkit::{Cmd, Image, Mount, TempDir, need};
use raw::{Node, Raw};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Text whose beginnings are names and targets.
const LONG: &str = concat!(
    "a-name.of-which_any+beginning=is,a-name|that%has&other~bytes!from(the)first[to]the{last}",
    "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefgh",
    "ijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmn",
);
const NAMES: [usize; 12] = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 100, 255];
const TARGETS: [usize; 6] = [1, 16, 17, 57, 100, 255];
/// The descriptor of policies of version 1.
const DESCRIPTOR: &str = "00112233445566ff";

/// A folder of the script, and its policy: modes of contents and names, flags, version.
struct Row(&'static str, u8, u8, u8, u8);

/// Policies that each kernel with the feature takes.
const OF_XTS: [Row; 8] = [
    Row("xts4", 1, 4, 0, 2),
    Row("xts8", 1, 4, 1, 2),
    Row("xts16", 1, 4, 2, 2),
    Row("xts32", 1, 4, 3, 2),
    Row("first4", 1, 4, 0, 1),
    Row("first32", 1, 4, 3, 1),
    Row("inode64", 1, 4, 8 | 3, 2),
    Row("inode32", 1, 4, 16 | 3, 2),
];
/// Policies of other ciphers.
const OF_OTHERS: [Row; 6] = [
    Row("adiantum4", 9, 9, 0, 2),
    Row("adiantum_first", 9, 9, 1, 1),
    Row("direct", 9, 9, 4 | 3, 2),
    Row("direct_first", 9, 9, 4 | 2, 1),
    Row("essiv", 5, 6, 3, 2),
    Row("essiv_first", 5, 6, 0, 1),
];

fn key_bytes() -> Vec<u8> {
    (0..64).map(|at: u8| at.wrapping_mul(37) ^ 0x5a).collect()
}

/// A script that makes the trees of `rows` below `root`, where the keys have been added.
fn script(root: &str, rows: &[Row]) -> String {
    let identifier = MasterKey::new(&key_bytes()).unwrap().identifier();
    let mut text = format!("set -e\nlong='{LONG}'\ncd {root}\n");
    let beginning = |bytes: &usize| format!("\"$(printf %.{bytes}s \"$long\")\"");
    for Row(name, contents, names, flags, version) in rows {
        let key = match version {
            1 => DESCRIPTOR.to_owned(),
            _ => identifier.to_string(),
        };
        text += &format!(
            "mkdir {name}\n$XFS_IO -r -c 'set_encpolicy -c {contents} -n {names} -f {flags} \
             -v {version} {key}' {name}\nmkdir {name}/names {name}/links\n\
             seq 1 4000 >{name}/contents\n"
        );
        for bytes in &NAMES {
            text += &format!(": >{name}/names/{}\n", beginning(bytes));
        }
        for bytes in &TARGETS {
            text += &format!("ln -s {} {name}/links/{bytes}\n", beginning(bytes));
        }
    }
    text + "cd /\nsync\n"
}

/// The decrypted names of a directory and their inodes, each encrypted to the stored bytes again.
fn names_of(raw: &Raw<'_>, key: &MasterKey, dir: &Node) -> BTreeMap<String, u32> {
    let cipher = key.names(&dir.context, dir.ino, &raw.uuid()).unwrap();
    let all = raw.entries(dir).into_iter().map(|(stored, entry)| {
        let name = cipher.decrypt(&stored).unwrap();
        let length = cipher.encrypted_len(name.len(), 255).unwrap();
        assert_eq!(cipher.encrypt(&name, length), stored);
        (String::from_utf8(name).unwrap(), entry.ino)
    });
    all.collect()
}

fn judge_contents(raw: &Raw<'_>, key: &MasterKey, mut file: Node, unit: usize) {
    let text: String = (1..=4000).map(|number| format!("{number}\n")).collect();
    assert_eq!(file.size, text.len());
    let cipher = key.contents(&file.context, file.ino, &raw.uuid()).unwrap();
    let stored = file.data.clone();
    cipher.decrypt_units(0, unit, &mut file.data);
    assert_eq!(file.data[..text.len()], *text.as_bytes());
    assert!(file.data[text.len()..].iter().all(|byte| *byte == 0));
    cipher.encrypt_units(0, unit, &mut file.data);
    assert_eq!(file.data, stored);
    // From another unit on, as a read of a part does.
    let mut last = stored[unit..].to_vec();
    cipher.decrypt_units(1, unit, &mut last);
    assert_eq!(last[..100], text.as_bytes()[unit..unit + 100]);
}

fn judge_link(raw: &Raw<'_>, key: &MasterKey, link: &Node, target: usize) {
    let length = usize::from(u16::from_le_bytes([link.data[0], link.data[1]]));
    let stored = &link.data[2..2 + length];
    let cipher = key.names(&link.context, link.ino, &raw.uuid()).unwrap();
    let text = cipher.decrypt(stored).unwrap();
    assert_eq!(text, &LONG.as_bytes()[..target]);
    assert_eq!(cipher.encrypt(&text, length), stored);
    let block = 4096 - 2 - 1;
    assert_eq!(cipher.encrypted_len(target, block), Some(length));
    assert_eq!(link.size, length + 2);
}

/// Looks at the trees that [`script`] made.
fn judge(image: &Image, rows: &[Row]) {
    let raw = Raw::of(image);
    let key = MasterKey::new(&key_bytes()).unwrap();
    for Row(name, contents, names, flags, version) in rows {
        println!("{name}");
        let dir = raw.node(raw.ino(name));
        let id = match version {
            1 => DESCRIPTOR.parse().unwrap(),
            _ => key.identifier(),
        };
        let policy = dir.context.policy;
        let modes = (policy.contents.number(), policy.names.number());
        assert_eq!((modes, policy.key), ((*contents, *names), id));
        assert_eq!(dir.context.to_bytes()[3], *flags);

        let found = names_of(&raw, &key, &dir);
        let mut all: Vec<&str> = found.keys().map(String::as_str).collect();
        all.sort_unstable();
        assert_eq!(all, ["contents", "links", "names"]);
        let child = |name: &str| raw.node(found[name]);
        assert_eq!(child("names").context.policy, policy);
        let below: Vec<usize> = names_of(&raw, &key, &child("names"))
            .into_keys()
            .inspect(|name| assert!(LONG.starts_with(name)))
            .map(|name| name.len())
            .collect();
        assert_eq!(below, NAMES);
        let block = image.block_size().unwrap().try_into().unwrap();
        let unit = policy.unit_bytes(block).try_into().unwrap();
        judge_contents(&raw, &key, child("contents"), unit);
        let links = names_of(&raw, &key, &child("links"));
        assert_eq!(links.len(), TARGETS.len());
        for (target, ino) in links {
            judge_link(&raw, &key, &raw.node(ino), target.parse().unwrap());
        }
    }
}

/// Returns whether this kernel encrypts, through tools that are there.
fn can_encrypt() -> bool {
    let tools = ["xfs_io", "debugfs", "mke2fs"].map(Need::Tool);
    need(&[Need::Loop, tools[0], tools[1], tools[2]])
}

fn has_run(mount: &Path, rows: &[Row]) {
    let text = script(mount.to_str().unwrap(), rows);
    let shell = Cmd::new("sh").env("XFS_IO", "xfs_io");
    shell.args(["-c", &text]).ok().unwrap();
}

#[test]
fn files_of_this_kernel_are_decrypted_and_encrypted() {
    if !can_encrypt() {
        return;
    }
    for block in [1024, 4096] {
        let args = format!("-b {block} -O encrypt,stable_inodes,^dir_index");
        let image = Image::of_mib(64).args(&args).make().unwrap();
        let mount = Mount::by_linux("ext4", image.path(), "").unwrap();
        let key = encryption::add_key(mount.dir(), &key_bytes()).unwrap();
        let own = MasterKey::new(&key_bytes()).unwrap().identifier();
        assert_eq!(key.parse(), Ok(own));
        encryption::add_key_v1(mount.dir(), DESCRIPTOR, &key_bytes()).unwrap();
        has_run(mount.dir(), &OF_XTS);
        mount.unmount().unwrap();
        judge(&image, &OF_XTS);
    }
}

/// Units smaller than a block, which Linux has since 6.7 and no option of `xfs_io` asks for.
#[test]
fn units_of_contents_are_those_of_this_kernel() {
    let needs = [Need::Linux(6, 7), Need::Tool("python3")];
    if !can_encrypt() || !need(&needs) {
        return;
    }
    let args = "-b 4096 -O encrypt,stable_inodes,^dir_index";
    let image = Image::of_mib(64).args(args).make().unwrap();
    let mount = Mount::by_linux("ext4", image.path(), "").unwrap();
    encryption::add_key(mount.dir(), &key_bytes()).unwrap();
    let key = MasterKey::new(&key_bytes()).unwrap();
    let policy = |ivs, log2_data_unit| Policy {
        contents: ContentsMode::Aes256Xts,
        names: NamesMode::Aes256Cts,
        padding: Padding::Four,
        key: key.identifier(),
        ivs,
        log2_data_unit,
    };
    let text: String = (1..=4000).map(|number| format!("{number}\n")).collect();
    let mut made = Vec::new();
    for ivs in [Ivs::PerFileKey, Ivs::InoLblk64, Ivs::InoLblk32] {
        for log2 in [9, 10, 11, 12, 13] {
            let dir = mount.join(format!("{ivs:?}{log2}"));
            std::fs::create_dir(&dir).unwrap();
            let policy = policy(ivs, log2);
            let taken = set_by_ioctl(&dir, &policy.to_bytes());
            assert_eq!(taken, policy.fits(4096), "{ivs:?}, {log2}");
            if taken {
                std::fs::write(dir.join("contents"), &text).unwrap();
                made.push((format!("{ivs:?}{log2}"), 1 << log2));
            }
        }
    }
    assert_eq!(made.len(), 4 + 1 + 1);
    mount.unmount().unwrap();
    let raw = Raw::of(&image);
    for (name, unit) in made {
        let dir = raw.node(raw.ino(&name));
        let file = raw.node(names_of(&raw, &key, &dir)["contents"]);
        assert_eq!(file.context.policy.unit_bytes(4096) as usize, unit);
        judge_contents(&raw, &key, file, unit);
    }
}

/// Returns whether the kernel takes the policy of these bytes.
fn set_by_ioctl(dir: &Path, policy: &[u8]) -> bool {
    let program = "import fcntl, os, sys\n\
        fd = os.open(sys.argv[1], os.O_RDONLY)\n\
        fcntl.ioctl(fd, 0x800c6613, sys.stdin.buffer.read())\n";
    let python = Cmd::new("python3").args(["-c", program]).arg(dir);
    let said = python.stdin(policy).run().unwrap();
    assert!(
        said.code == Some(0) || said.err.contains("Invalid argument"),
        "{}",
        said.describe()
    );
    said.code == Some(0)
}

/// Identifiers of keys of all lengths are those of the kernel.
#[test]
fn identifiers_are_those_of_this_kernel() {
    if !can_encrypt() {
        return;
    }
    let image = Image::of_mib(16).args("-O encrypt").make().unwrap();
    let mount = Mount::by_linux("ext4", image.path(), "").unwrap();
    for bytes in [16, 17, 32, 63, 64] {
        let bytes: Vec<u8> = (0..bytes).collect();
        let id = MasterKey::new(&bytes).unwrap().identifier().to_string();
        assert_eq!(
            encryption::key_status(mount.dir(), &id).unwrap(),
            KeyStatus::Absent
        );
        assert_eq!(encryption::add_key(mount.dir(), &bytes).unwrap(), id);
        assert_eq!(
            encryption::key_status(mount.dir(), &id).unwrap(),
            KeyStatus::Present
        );
        encryption::remove_key(mount.dir(), &id).unwrap();
        assert_eq!(
            encryption::key_status(mount.dir(), &id).unwrap(),
            KeyStatus::Absent
        );
    }
    assert!(encryption::add_key(mount.dir(), &[0; 15]).is_err());
    mount.unmount().unwrap();
}

/// This kernel takes a policy, by its numbers, where [`Context::parse`] takes the context of it.
#[test]
fn policies_are_refused_as_this_kernel_refuses_them() {
    if !can_encrypt() {
        return;
    }
    let args = "-N 4096 -O encrypt,stable_inodes";
    let image = Image::of_mib(64).args(args).make().unwrap();
    let mount = Mount::by_linux("ext4", image.path(), "").unwrap();
    let mut taken = 0;
    for (number, key) in ["0123456789abcdef", "0123456789abcdef0123456789abcdef"]
        .into_iter()
        .enumerate()
    {
        let id: KeyId = key.parse().unwrap();
        for contents in 0..=11_u8 {
            for names in 0..=11_u8 {
                let flags = [0, 3, 4, 8, 0x10, 0xc, 0x14, 0x18, 0x20];
                // One pair tells of all flags, others of the first.
                let every = matches!((contents, names), (1, 4) | (9, 9));
                for flags in flags.into_iter().take(if every { 9 } else { 1 }) {
                    let dir = mount
                        .dir()
                        .join(format!("{number}-{contents}-{names}-{flags}"));
                    std::fs::create_dir(&dir).unwrap();
                    let policy = EncryptionPolicy {
                        contents,
                        names,
                        flags,
                        key,
                    };
                    let linux = encryption::set_policy(&dir, policy);
                    let version = u8::try_from(number).unwrap() + 1;
                    let mut bytes = vec![version, contents, names, flags];
                    bytes.resize(if number == 0 { 4 } else { 8 }, 0);
                    bytes.extend_from_slice(id.bytes());
                    bytes.extend([0; 16]);
                    let ours = Context::parse(&bytes);
                    let is_sm4 = (contents, names) == (7, 8);
                    assert_eq!(
                        linux.is_ok() && !is_sm4,
                        ours.is_ok(),
                        "{dir:?}: {linux:?}, {ours:?}"
                    );
                    taken += usize::from(ours.is_ok());
                }
            }
        }
    }
    assert!(taken > 10, "{taken}");
    mount.unmount().unwrap();
}

/// The program, its loader and its libraries in `dir`; the command that runs it from `/mnt/tools`.
fn bring(program: &str, dir: &Path) -> String {
    let path = Cmd::new("which").arg(program).ok().unwrap().out;
    let said = Cmd::new("ldd").arg(path.trim()).ok().unwrap().out;
    let libraries = said.split_whitespace().filter(|word| word.starts_with('/'));
    let mut loader = String::new();
    for file in libraries.chain([path.trim()]) {
        let name = Path::new(file).file_name().unwrap();
        std::fs::copy(file, dir.join(name)).unwrap();
        if name.to_str().unwrap().starts_with("ld-") {
            loader = format!("/mnt/tools/{}", name.to_str().unwrap());
        }
    }
    format!("{loader} --library-path /mnt/tools /mnt/tools/{program}")
}

/// Has Debian's kernel write an image: names in a folded directory, and the trees of all rows. It
/// boots a kernel that `scripts/guest` downloads, so it does nothing but where
/// `scripts/guest-suites` asks for it.
#[test]
fn files_of_debian_are_decrypted_and_encrypted() {
    if std::env::var_os("EXTANT_GUEST").is_none() {
        return;
    }
    let files = TempDir::new("guest").unwrap();
    let tools = files.join("tools");
    std::fs::create_dir(&tools).unwrap();
    let (xfs_io, chattr) = (bring("xfs_io", &tools), bring("chattr", &tools));
    std::fs::write(tools.join("key"), key_bytes()).unwrap();
    let args = "-b 4096 -O encrypt,casefold,stable_inodes,^metadata_csum -d";
    let args = format!("{args} {}", files.path().display());
    let image = Image::of_mib(64).args(&args).make().unwrap();

    let identifier = MasterKey::new(&key_bytes()).unwrap().identifier();
    let mut text = format!(
        "set -e\nmount -t ext4 /dev/vda /mnt\nexport XFS_IO='{xfs_io}'\n\
         $XFS_IO -r -c add_enckey /mnt </mnt/tools/key\n\
         $XFS_IO -r -c 'add_enckey -d {DESCRIPTOR}' /mnt </mnt/tools/key\n\
         mkdir /mnt/folded\n{chattr} +F /mnt/folded\n\
         $XFS_IO -r -c 'set_encpolicy -c 1 -n 4 -f 0 -v 2 {identifier}' /mnt/folded\n\
         for number in $(seq 20); do : >/mnt/folded/name-$number; done\n\
         mkdir /mnt/folded/crowd\n\
         for number in $(seq 400); do : >/mnt/folded/crowd/name-$number; done\n"
    );
    text += &script("/mnt", &OF_XTS);
    text += &script("/mnt", &OF_OTHERS);
    text += "umount /mnt\n";
    let path = files.join("script");
    std::fs::write(&path, text).unwrap();
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/guest");
    Cmd::new(guest).arg(image.path()).arg(&path).ok().unwrap();

    judge(&image, &OF_XTS);
    judge(&image, &OF_OTHERS);
    let raw = Raw::of(&image);
    let key = MasterKey::new(&key_bytes()).unwrap();
    let dir = raw.node(raw.ino("folded"));
    let cipher = key.names(&dir.context, dir.ino, &raw.uuid()).unwrap();
    let all = raw.entries(&dir);
    assert_eq!(all.len(), 21);
    let mut crowd = 0;
    for (stored, entry) in all {
        let name = cipher.decrypt(&stored).unwrap();
        assert_eq!(cipher.dir_hash(&name), entry.hash);
        match name.as_slice() {
            b"crowd" => crowd = entry.ino,
            name => assert!(name.starts_with(b"name-")),
        }
    }
    judge_index(&image, crowd);
}

/// Both checkers look at the index of a directory whose entries have their hashes: as it is, and
/// with another hash of the first name of a leaf.
fn judge_index(image: &Image, dir: u32) {
    let is_clean = || {
        let device = FileDevice::open(image.path(), OpenMode::ReadOnly).unwrap();
        let report = check(Arc::new(device), &CheckOptions::default()).unwrap();
        (report.is_clean(), image.fsck_clean().is_ok(), report)
    };
    assert!(matches!(is_clean(), (true, true, _)), "{:?}", is_clean());
    let blocks = image.debugfs(&format!("blocks <{dir}>")).unwrap();
    assert!(blocks.split_whitespace().count() > 3, "an index and leaves");
    let leaf: u64 = blocks.split_whitespace().nth(1).unwrap().parse().unwrap();
    let turn = |hash: &mut [u8]| hash.iter_mut().for_each(|byte| *byte ^= 0xff);
    image.patch(leaf * 4096 + 8 + 16, 4, turn).unwrap();
    assert!(matches!(is_clean(), (false, false, _)), "{:?}", is_clean());
    image.patch(leaf * 4096 + 8 + 16, 4, turn).unwrap();
}
