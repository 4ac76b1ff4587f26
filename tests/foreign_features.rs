//! Volumes with features that few have: what Linux puts there, Extant shows as Linux does, and the
//! other way. Where Extant does not write a feature, it leaves the image as it was.

use extant_testkit::odd::{self, Limits};
use extant_testkit::tree::Compare;
use extant_testkit::{
    Cmd, Context, Image, LoopDevice, Mount, Need, Result, Subject, TempDir, Tree, content, ensure,
    need, report, tools,
};
use rustix::fs::{XattrFlags, removexattr, setxattr};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("setfacl"),
];

/// Both checkers find nothing wrong with an image.
fn is_sound(image: &Image) -> Result<()> {
    Cmd::new("e2fsck").arg("-fn").arg(image.path()).ok()?;
    Cmd::new(tools::extant()?)
        .arg("check")
        .arg(image.path())
        .ok()?;
    Ok(())
}

/// Has each side fill a volume: the other shows the same, changes it, and both find it sound.
fn written_both_ways(args: &str, fill: impl Fn(&Mount) -> Result<()>) -> Result<()> {
    for (writer, reader) in [
        (Subject::Ext4, Subject::Extant),
        (Subject::Extant, Subject::Ext4),
    ] {
        let image = Image::of_mib(64).args(args).make()?;
        let mount = writer.mount(image.path(), "")?;
        fill(&mount)?;
        mount.unmount()?;
        is_sound(&image)?;
        let mut trees = Vec::new();
        for side in [writer, reader] {
            let mount = side.mount(image.path(), "ro")?;
            trees.push(Tree::take(mount.dir())?);
            mount.unmount()?;
        }
        let one_image = Compare {
            one_image: true,
            ..Compare::default()
        };
        trees[0].expect_equal(&trees[1], one_image)?;
        report(&format!("{args}: {} entries", trees[0].len()));

        let mount = reader.mount(image.path(), "")?;
        let mut left = Vec::new();
        for (number, entry) in std::fs::read_dir(mount.dir())?.enumerate() {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            match number % 3 {
                0 if kind.is_file() => std::fs::remove_file(path)?,
                1 if kind.is_file() => {
                    let mut bytes = std::fs::read(&path)?;
                    bytes.extend_from_slice(&content::fill(7, 0, number * 5));
                    let mut file = std::fs::File::options().append(true).open(&path)?;
                    file.write_all(&content::fill(7, 0, number * 5))?;
                    left.push((path, bytes));
                }
                0 if kind.is_dir() => std::fs::remove_dir_all(path)?,
                1 if kind.is_dir() => {
                    let added = path.join("added");
                    std::fs::write(&added, "by the other side")?;
                    left.push((added, b"by the other side".to_vec()));
                }
                _ => {}
            }
        }
        let names: Vec<_> = left
            .iter()
            .map(|(path, _)| path.strip_prefix(mount.dir()).map(Path::to_owned))
            .collect();
        mount.unmount()?;
        is_sound(&image)?;
        let mount = writer.mount(image.path(), "ro")?;
        for (name, (_, bytes)) in names.into_iter().zip(&left) {
            let name = name.map_err(std::io::Error::other)?;
            ensure!(std::fs::read(mount.join(&name))? == *bytes, "{name:?}");
        }
        mount.unmount()?;
    }
    Ok(())
}

fn oddities(mount: &Mount) -> Result<()> {
    odd::make(&mount.join("odd"), Limits::ext4(1024, 256), 200)
}

fn index(len: u64) -> Result<usize> {
    Ok(usize::try_from(len)?)
}

fn set_attribute(file: &Path, name: &str, value: &[u8]) -> Result<()> {
    Ok(setxattr(file, name, value, XattrFlags::CREATE)?)
}

/// Descriptors that lie in the groups they are about, of all groups and of those behind a table:
/// each side reads what the other wrote.
#[test]
fn meta_bg() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for (size, args, first) in [
        (64, "-b 1024 -g 256", "0"),
        (32, "-b 1024 -g 256 -N 4096", "1"),
        (32, "-b 1024 -g 256 -O ^64bit,uninit_bg,^metadata_csum", "3"),
        (256, "-O ^flex_bg -E packed_meta_blocks=0", "0"),
    ] {
        let image = Image::of_mib(size).make()?;
        Cmd::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-O", "meta_bg,^resize_inode"])
            .args(args.split_whitespace())
            .arg(image.path())
            .env("MKE2FS_FIRST_META_BG", first)
            .ok()?;
        let sides = [Subject::Ext4, Subject::Extant];
        for (number, writer) in (0..4).zip(sides.into_iter().cycle()) {
            let mount = writer.mount(image.path(), "")?;
            odd::make(
                &mount.join(format!("odd{number}")),
                Limits::ext4(1024, 256),
                100,
            )?;
            let written = Tree::take(mount.dir())?;
            mount.unmount()?;
            is_sound(&image).context(|| format!("{args}, by {writer:?}"))?;
            let reader = sides[(number + 1) % 2];
            let mount = reader.mount(image.path(), "ro")?;
            written.expect_equal(&Tree::take(mount.dir())?, Compare::default())?;
            mount.unmount()?;
        }
        report(&format!("meta_bg from {first} on: written by both, {args}"));
    }
    Ok(())
}

/// An index of three levels, written by either side: the other lists and finds every name, and no
/// other.
#[test]
fn large_dir() -> Result<()> {
    /// More names of 250 bytes than an index of two levels has room for in blocks of 1 KiB.
    const NAMES: u32 = 36_000;
    if !need(NEEDS) {
        return Ok(());
    }
    let name = |number: u32| format!("{number:0>250}");
    for (writer, reader) in [
        (Subject::Ext4, Subject::Extant),
        (Subject::Extant, Subject::Ext4),
    ] {
        let image = Image::of_mib(256).args("-O large_dir -b 1024").make()?;
        let mount = writer.mount(image.path(), "")?;
        let dir = mount.join("many");
        std::fs::create_dir(&dir)?;
        std::fs::write(dir.join(name(0)), "one of many")?;
        for number in 1..NAMES {
            std::fs::hard_link(dir.join(name(0)), dir.join(name(number)))?;
        }
        mount.unmount()?;
        let index = image.debugfs("htree_dump /many")?;
        ensure!(
            index.contains("Indirect levels: 2"),
            "{} bytes",
            index.len()
        );
        is_sound(&image)?;

        let mount = reader.mount(image.path(), "")?;
        let dir = mount.join("many");
        let mut listed = Vec::new();
        for entry in std::fs::read_dir(&dir)? {
            listed.push(entry?.file_name().into_string());
        }
        listed.sort_unstable();
        ensure!(listed.len() == NAMES as usize, "{} names", listed.len());
        for (number, listed) in (0..).zip(listed) {
            ensure!(listed == Ok(name(number)), "{listed:?}");
            if number % 97 == 0 {
                let text = std::fs::read_to_string(dir.join(name(number)))?;
                ensure!(text == "one of many", "{number}: {text}");
            }
        }
        ensure!(!dir.join(name(NAMES)).exists(), "a name that is not there");
        for number in (0..NAMES).step_by(53) {
            std::fs::remove_file(dir.join(name(number)))?;
        }
        mount.unmount()?;
        is_sound(&image)?;
    }
    Ok(())
}

/// Lengths of values: in an inode, in a block, and in inodes of their own.
const VALUES: [u64; 4] = [10, 3000, 5000, 60_000];

/// Files with values of attributes, half of which others have as well, and links of all lengths.
fn long_values(mount: &Mount) -> Result<()> {
    oddities(mount)?;
    for number in 0..20 {
        let file = mount.join(format!("file{number}"));
        std::fs::write(&file, format!("{number}"))?;
        for len in VALUES {
            // Every second file has the same values.
            let value = content::fill(number % 2, len, index(len)?);
            set_attribute(&file, &format!("user.of-{len}"), &value)?;
        }
        let link = mount.join(format!("link{number}"));
        std::os::unix::fs::symlink("x".repeat(index(number)? * 5 + 1), link)?;
    }
    Ok(())
}

/// Values of attributes in inodes of their own, some of them shared, written by either side: the
/// other shows the same, changes and removes them.
#[test]
fn ea_inode() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-O ea_inode", "-O ea_inode,^metadata_csum -b 1024"] {
        for (writer, reader) in [
            (Subject::Ext4, Subject::Extant),
            (Subject::Extant, Subject::Ext4),
        ] {
            let image = Image::of_mib(64).args(args).make()?;
            let mount = writer.mount(image.path(), "")?;
            long_values(&mount)?;
            mount.unmount()?;
            if writer == Subject::Ext4 {
                // Linux 6.18 counts the users of a value in a shared block more than once.
                image.fsck_repair()?;
            }
            is_sound(&image)?;
            let mount = writer.mount(image.path(), "ro")?;
            let written = Tree::take(mount.dir())?;
            mount.unmount()?;

            // To write, it would change times of access.
            let mount = reader.mount(image.path(), "ro")?;
            let one_image = Compare {
                one_image: true,
                ..Compare::default()
            };
            written.expect_equal(&Tree::take(mount.dir())?, one_image)?;
            mount.unmount()?;
            let mount = reader.mount(image.path(), "")?;
            for number in 0..20 {
                let file = mount.join(format!("file{number}"));
                let [_, _, middle, long] = VALUES.map(|len| format!("user.of-{len}"));
                match number % 5 {
                    0 => std::fs::remove_file(&file)?,
                    1 => removexattr(&file, long.as_str())?,
                    2 => setxattr(&file, middle.as_str(), &[7; 9000], XattrFlags::REPLACE)?,
                    3 => setxattr(&file, long.as_str(), &[7; 9000], XattrFlags::REPLACE)?,
                    _ => {}
                }
            }
            mount.unmount()?;
            if reader == Subject::Ext4 {
                image.fsck_repair()?;
            }
            is_sound(&image)?;
        }
    }
    Ok(())
}

/// Files, directories and links inside of their inodes, and those that have grown out.
#[test]
fn inline_data() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in [
        "-O inline_data",
        "-O inline_data,^metadata_csum,^has_journal -I 1024",
        "-O inline_data -b 1024 -I 512",
        "-O inline_data,^extent,^64bit -b 2048",
    ] {
        written_both_ways(args, |linux| {
            if args.contains("-I 512") {
                oddities(linux)?;
            }
            for len in (0..400).step_by(9) {
                let bytes = content::fill(len, 0, index(len)?);
                std::fs::write(linux.join(format!("file{len}")), bytes)?;
            }
            for entries in (0..40).step_by(3) {
                let dir = linux.join(format!("dir{entries}"));
                std::fs::create_dir(&dir)?;
                for entry in 0..entries {
                    let path = dir.join(format!("{entry}"));
                    match entry % 3 {
                        0 => std::fs::create_dir(path)?,
                        1 => std::os::unix::fs::symlink("..", path)?,
                        _ => std::fs::write(path, "inside")?,
                    }
                }
                if entries % 2 == 0 {
                    let _ = std::fs::remove_file(dir.join("2"));
                }
            }
            let file = linux.join("with attributes");
            std::fs::write(&file, "short")?;
            set_attribute(&file, "user.one", &[1; 20])?;
            let sparse = std::fs::File::create(linux.join("sparse"))?;
            sparse.set_len(100)?;
            Ok(())
        })?;
    }
    Ok(())
}

/// Names in encrypted directories, and targets of links there, as those without the key see them.
#[test]
fn encrypt() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let shape = |mount: &Mount| -> Result<String> {
        let find = Cmd::new("find").arg(mount.dir());
        // The size of a link is that of its text for Linux, and that of its bytes here.
        let find = find.args(["-printf", "%P %y %m %n %l\n"]).ok()?;
        let mut lines: Vec<&str> = find.out.lines().collect();
        lines.sort_unstable();
        Ok(lines.join("\n"))
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("encrypted.py");
    for args in ["-O encrypt", "-O encrypt,^dir_index -b 1024"] {
        let image = Image::of_mib(64).args(args).make()?;
        let linux = Subject::Ext4.mount(image.path(), "")?;
        oddities(&linux)?;
        Cmd::new("python3").arg(&script).arg(linux.dir()).ok()?;
        linux.unmount()?;
        is_sound(&image)?;
        let linux = Subject::Ext4.mount(image.path(), "ro")?;
        let by_linux = shape(&linux)?;
        linux.unmount()?;
        let mount = Subject::Extant.mount(image.path(), "ro")?;
        let shown = shape(&mount)?;
        ensure!(shown == by_linux, "Linux:\n{by_linux}\nshown:\n{shown}");
        let secret = mount.join("secret");
        let files = Cmd::new("find").arg(&secret).args(["-type", "f"]).ok()?;
        let first = files.out.lines().next().expect("an encrypted file");
        let read = std::fs::read(first).map_err(|error| error.raw_os_error());
        ensure!(read == Err(Some(126)), "{first}: {read:?}");
        mount.unmount()?;
        report(&format!(
            "encrypt: {} entries as by Linux",
            shown.lines().count()
        ));
    }
    Ok(())
}

/// A journal on another device, which is not asked for, and which is given.
#[test]
fn external_journal() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let log = Image::of_mib(16).args("-O journal_dev -b 4096").make()?;
    let device = LoopDevice::over(log.path(), 512)?;
    let args = format!("-b 4096 -J device={}", device.path().display());
    let image = Image::of_mib(64).args(&args).make()?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    oddities(&linux)?;
    linux.unmount()?;
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    let by_linux = Tree::take(linux.dir())?;
    linux.unmount()?;
    let one_image = Compare {
        one_image: true,
        ..Compare::default()
    };
    for options in ["ro", "ro,noload"] {
        let mount = Subject::Extant.mount(image.path(), options)?;
        by_linux.expect_equal(&Tree::take(mount.dir())?, one_image)?;
        mount.unmount()?;
    }
    let place = format!("{}:/new", image.path().display());
    let refused = Cmd::new(tools::extant()?).arg("mkdir").arg(place).run()?;
    ensure!(
        refused.code == Some(1) && refused.err.contains("another device"),
        "{}",
        refused.describe()
    );
    // Given by its path, it is written.
    let given = format!("journal_path={}", device.path().display());
    let mount = Subject::Extant.mount(image.path(), &given)?;
    std::fs::write(mount.join("written here"), [5; 9000])?;
    let by_extant = Tree::take(mount.dir())?;
    mount.unmount()?;
    let linux = Subject::Ext4.mount(image.path(), &format!("ro,{given}"))?;
    by_extant.expect_equal(&Tree::take(linux.dir())?, Compare::default())?;
    linux.unmount().map(drop)
}

/// An index by folded names as e2fsprogs makes it, as few kernels have the tables: names are listed
/// as they are written, and found in any spelling.
#[test]
fn casefold() -> Result<()> {
    /// In several leaves of an index.
    const NAMES: u32 = 1000;
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(64)
        .args("-O casefold -E encoding=utf8 -b 1024")
        .make()?;
    let name = |number: u32| format!("Name-of-Ä-{number}");
    let source = TempDir::new("casefold")?;
    let empty = source.join("empty");
    std::fs::write(&empty, "")?;
    let mut script = String::from("mkdir /folded\nset_inode_field /folded flags 0x40080000\n");
    for number in 0..NAMES {
        script += &format!("write {} /folded/{}\n", empty.display(), name(number));
    }
    let commands = source.join("commands");
    std::fs::write(&commands, script)?;
    let debugfs = Cmd::new("debugfs").args(["-w", "-f"]).arg(&commands);
    debugfs.arg(image.path()).ok()?;
    let index = Cmd::new("e2fsck").args(["-fyD"]).arg(image.path()).run()?;
    ensure!(index.code == Some(0), "{}", index.describe());
    let flags = image.debugfs("stat /folded")?;
    ensure!(flags.contains("Flags: 0x40081000"), "{flags}");

    is_sound(&image)?;
    let mount = Subject::Extant.mount(image.path(), "ro")?;
    let folded = mount.join("folded");
    let mut listed = Vec::new();
    for entry in std::fs::read_dir(&folded)? {
        listed.push(entry?.file_name().into_string());
    }
    listed.sort_unstable();
    let mut expected: Vec<_> = (0..NAMES).map(|number| Ok(name(number))).collect();
    expected.sort_unstable();
    ensure!(listed == expected, "{} names", listed.len());
    for number in (0..NAMES).step_by(50) {
        let name = name(number);
        for spelled in [name.to_uppercase(), name.to_lowercase(), name] {
            ensure!(folded.join(&spelled).exists(), "{spelled}");
        }
    }
    ensure!(
        !folded.join(name(NAMES)).exists(),
        "a name that is not there"
    );
    mount.unmount()?;
    Ok(())
}

/// A file of `data` as fs-verity has it on disk: the Merkle tree and the descriptor, which fsverity
/// makes, behind the data.
fn protected(data: &[u8], block: usize, args: &str) -> Result<Vec<u8>> {
    let dir = TempDir::new("verity")?;
    let [file, tree, descriptor] = ["file", "tree", "descriptor"].map(|name| dir.join(name));
    std::fs::write(&file, data)?;
    let made = Cmd::new("fsverity").arg("digest").arg(&file);
    let made = made.arg(format!("--out-merkle-tree={}", tree.display()));
    let made = made.arg(format!("--out-descriptor={}", descriptor.display()));
    made.args(args.split_whitespace()).ok()?;
    let descriptor = std::fs::read(descriptor)?;
    let mut bytes = data.to_vec();
    bytes.resize(data.len().next_multiple_of(1 << 16), 0);
    bytes.extend(std::fs::read(tree)?);
    bytes.resize(bytes.len().next_multiple_of(block), 0);
    bytes.extend(&descriptor);
    bytes.resize((bytes.len() + 4).next_multiple_of(block) - 4, 0);
    bytes.extend(u32::try_from(descriptor.len())?.to_le_bytes());
    Ok(bytes)
}

/// Adds one to a byte of a file's block on the device.
fn alter(image: &Image, file: &str, block: u64, size: u64) -> Result<()> {
    let found = image.debugfs(&format!("bmap {file} {block}"))?;
    let at = found.trim().parse::<u64>()? * size + 7;
    let mut device = std::fs::File::options();
    let device = device.read(true).write(true).open(image.path())?;
    let mut byte = [0];
    device.read_exact_at(&mut byte, at)?;
    Ok(device.write_all_at(&[byte[0].wrapping_add(1)], at)?)
}

/// Files that fs-verity protects are read as they were, and never as anything else.
#[test]
fn verity() -> Result<()> {
    if !need(NEEDS) || !need(&[Need::Tool("fsverity")]) {
        return Ok(());
    }
    const SIZES: [u64; 6] = [0, 1, 4096, 4097, 600 << 10, (2 << 20) + 5];
    for (args, block, how) in [
        ("-O verity -b 4096", 4096, ""),
        (
            "-O verity -b 4096",
            4096,
            "--hash-alg=sha512 --block-size=1024 --salt=0badcafe",
        ),
        ("-O verity -b 1024", 1024, "--block-size=1024"),
    ] {
        let image = Image::of_mib(64).args(args).make()?;
        let source = TempDir::new("protected")?;
        let mut script = String::new();
        let data = |len: u64| -> Result<Vec<u8>> {
            let mut data = content::fill(len, 0, index(len)?);
            if let Some(hole) = data.get_mut(65536..131_072) {
                hole.fill(0);
            }
            Ok(data)
        };
        for len in SIZES {
            let file = source.join(format!("{len}"));
            std::fs::write(&file, protected(&data(len)?, index(block)?, how)?)?;
            script += &format!("write {} /{len}\n", file.display());
            script += &format!("set_inode_field /{len} size {len}\n");
            script += &format!("set_inode_field /{len} flags 0x180000\n");
        }
        let commands = source.join("commands");
        std::fs::write(&commands, script)?;
        let debugfs = Cmd::new("debugfs").args(["-w", "-f"]).arg(&commands);
        debugfs.arg(image.path()).ok()?;
        is_sound(&image)?;

        let mount = Subject::Extant.mount(image.path(), "ro")?;
        for len in SIZES {
            let path = mount.join(format!("{len}"));
            ensure!(std::fs::read(&path)? == data(len)?, "{len} bytes: {how}");
            let direct = Cmd::new("dd").arg(format!("if={}", path.display()));
            let direct = direct.args(["iflag=direct", "bs=64K", "status=none", "of=/dev/null"]);
            direct.ok()?;
        }
        mount.unmount()?;

        // Two blocks of data, and the tree.
        let len = SIZES[5];
        let tree = len.next_multiple_of(1 << 16) / block;
        for (at, hurt) in [(0, 0), (300 << 10, 300 << 10), (tree * block, 0)] {
            alter(&image, &format!("/{len}"), at / block, block)?;
            let mount = Subject::Extant.mount(image.path(), "ro")?;
            let file = std::fs::File::open(mount.join(format!("{len}")))?;
            let mut page = vec![0; 4096];
            let read = file.read_exact_at(&mut page, hurt);
            let errno = read.as_ref().err().and_then(std::io::Error::raw_os_error);
            ensure!(errno == Some(5), "byte {at}: {read:?}");
            if at < tree * block {
                file.read_exact_at(&mut page, 200 << 10)?;
                ensure!(page == data(len)?[200 << 10..][..4096], "the rest is whole");
            }
            drop(file);
            mount.unmount()?;
        }
        report(&format!("verity: {} files, {args} {how}", SIZES.len()));
    }
    Ok(())
}
