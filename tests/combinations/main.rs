//! Volumes of random combinations of features, made by either side: a storm by Extant, which Linux
//! shows as it was, and one by Linux, which Extant shows; both checkers judge after each.
//!
//! `EXTANT_SEED` is the first combination, and `EXTANT_COMBINATIONS` says how many there are.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use extant_testkit::tree::Compare;
use extant_testkit::{
    Cmd, Context, Image, Mount, Need, Result, Rng, Subject, TempDir, Tree, content, encryption,
    ensure, need, report, tools,
};
use rustix::fs::{XattrFlags, removexattr, setxattr};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("xfs_io"),
];

/// Features that a combination adds or leaves out, with the chance of each in a hundred. The kernel
/// mounts all of them: few have the tables that fold names.
const SWITCHES: &[(&str, u64)] = &[
    ("inline_data", 40),
    ("bigalloc", 25),
    ("ea_inode", 30),
    ("meta_bg,^resize_inode", 25),
    ("large_dir", 25),
    ("orphan_file", 30),
    ("encrypt", 30),
    ("stable_inodes", 15),
    ("metadata_csum_seed", 25),
    ("^metadata_csum", 25),
    ("^64bit", 20),
    ("^resize_inode", 20),
    ("^flex_bg", 20),
    ("^has_journal", 15),
    ("sparse_super2,^resize_inode", 10),
    ("^extent,^64bit", 15),
    ("^huge_file", 15),
    ("^dir_nlink", 15),
    ("^extra_isize", 10),
    ("^large_file", 10),
    ("^dir_index", 15),
    ("^filetype", 10),
];

/// Operations of a storm.
const OPERATIONS: u32 = 120;

fn number(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Arguments of mke2fs and of `extant mkfs`.
fn arguments(rng: &mut Rng) -> String {
    let mut features = Vec::new();
    for (switch, chance) in SWITCHES {
        if rng.chance(*chance) {
            features.push(*switch);
        }
    }
    if features.contains(&"^metadata_csum") {
        features.retain(|feature| *feature != "metadata_csum_seed");
        if rng.chance(50) {
            features.push("uninit_bg");
        }
    }
    if features
        .iter()
        .any(|feature| feature.starts_with("meta_bg"))
    {
        features.retain(|feature| !feature.starts_with("sparse_super2"));
    }
    let clusters = features.contains(&"bigalloc");
    if clusters {
        features.retain(|feature| !feature.contains("^extent"));
    }
    let block = 1024 << rng.below(3);
    let inode = 256 << rng.below(if block == 1024 { 3 } else { 2 });
    let mut args = format!("-b {block} -I {inode} -N 2000");
    if !features.is_empty() {
        args += &format!(" -O {}", features.join(","));
    }
    if clusters {
        args += &format!(" -C {}", block << rng.between(1, 6));
    }
    if rng.chance(40) {
        args += &format!(" -g {}", (rng.between(2, 16) * 512).min(block * 8));
    }
    args
}

/// A key of encrypted files, and the directory that it encrypts where a volume has any.
struct Key {
    dir: TempDir,
    name: &'static str,
}

impl Key {
    const BYTES: [u8; 64] = *b"sixty-four bytes that are the master key of all the combinations";

    fn new() -> Result<Self> {
        let dir = TempDir::new("combinations")?;
        fs::write(dir.join("key"), Self::BYTES)?;
        let name = "secret";
        Ok(Self { dir, name })
    }

    /// Mounts an image, with the key if it has encrypted files; the first mount makes their
    /// directory.
    fn mount(&self, side: Subject, image: &Image, options: &str, args: &str) -> Result<Mount> {
        let mount = side.mount(image.path(), options)?;
        if !args.contains("encrypt") {
            return Ok(mount);
        }
        if side == Subject::Ext4 {
            encryption::add_key(mount.dir(), &Self::BYTES)?;
            return Ok(mount);
        }
        let key = || Cmd::new(tools::extant().unwrap_or_default()).arg("key");
        let file = self.dir.join("key");
        key().arg("add").arg(mount.dir()).arg(&file).ok()?;
        let secret = mount.dir().join(self.name);
        if !secret.exists() {
            fs::create_dir(&secret)?;
            key()
                .args(["encrypt", "--key"])
                .arg(&file)
                .arg(&secret)
                .ok()?;
        }
        Ok(mount)
    }
}

/// Makes a volume; `None` if these arguments make none.
fn volume(args: &str, by_extant: bool) -> Result<Option<Image>> {
    let image = Image::of_mib(48);
    if !by_extant {
        return Ok(image.args(args).make().ok());
    }
    // An image of the same size, made again.
    let image = image.args("-b 1024").make()?;
    let made = Cmd::new(tools::extant()?).args(["mkfs", "-q", "-F"]);
    let made = made.args(args.split_whitespace()).arg(image.path()).run()?;
    Ok((made.code == Some(0)).then_some(image))
}

/// The files and directories below `top`, and a name for the next.
struct Storm<'a> {
    rng: &'a mut Rng,
    by: &'static str,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    names: u32,
    longest: usize,
}

impl Storm<'_> {
    fn name(&mut self) -> PathBuf {
        self.names += 1;
        let pad = "-".repeat(self.rng.index(3) * self.rng.index(80));
        let dir = &self.dirs[self.rng.index(self.dirs.len())];
        dir.join(format!("{}{}{pad}", self.by, self.names))
    }

    fn file(&mut self) -> Option<PathBuf> {
        let count = self.files.len();
        (count > 0).then(|| self.files[self.rng.index(count)].clone())
    }

    fn len(&mut self) -> usize {
        let most = [80, 200, 3000, 70_000][self.rng.index(4)];
        self.rng.index(most)
    }

    fn bytes(&mut self) -> Vec<u8> {
        let (seed, len) = (self.rng.next_u64(), self.len());
        content::fill(seed, 0, len)
    }

    /// Does one operation. Lack of space and attributes that do not fit are answers too.
    fn step(&mut self) -> std::io::Result<()> {
        let what = self.rng.below(16);
        if what < 4 || self.files.is_empty() {
            let (path, bytes) = (self.name(), self.bytes());
            fs::write(&path, bytes)?;
            self.files.push(path);
            return Ok(());
        }
        let Some(file) = self.file() else {
            return Ok(());
        };
        match what {
            4 => {
                let dir = self.name();
                fs::create_dir(&dir)?;
                self.dirs.push(dir);
            }
            5 => File::options()
                .append(true)
                .open(&file)?
                .write_all(&self.bytes())?,
            6 => {
                let (at, bytes) = (self.len() as u64, self.bytes());
                File::options()
                    .write(true)
                    .open(&file)?
                    .write_all_at(&bytes, at)?;
            }
            7 => {
                let len = self.len() as u64;
                File::options().write(true).open(&file)?.set_len(len)?;
            }
            8 | 9 => {
                let to = self.name();
                fs::rename(&file, &to)?;
                self.files.retain(|path| *path != file);
                self.files.push(to);
            }
            10 => {
                let to = self.name();
                fs::hard_link(&file, &to)?;
                self.files.push(to);
            }
            11 => {
                let link = self.name();
                symlink("x".repeat(1 + self.rng.index(300)), link)?;
            }
            12 => {
                fs::remove_file(&file)?;
                self.files.retain(|path| *path != file);
            }
            13 => {
                let name = format!("user.of{}", self.rng.below(3));
                let _ = removexattr(&file, name.as_str());
            }
            _ => {
                let name = format!("user.of{}", self.rng.below(3));
                let len = self.rng.index(self.longest);
                // Some are equal.
                let value = content::fill(self.rng.below(3), 0, len);
                setxattr(&file, name.as_str(), &value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }
}

/// Changes what is below `top`, as the seed says.
fn storm(top: &Path, by: &'static str, longest: usize, rng: &mut Rng) -> Result<()> {
    let (mut files, mut dirs, mut ahead) = (Vec::new(), vec![top.to_owned()], vec![top.to_owned()]);
    while let Some(dir) = ahead.pop() {
        for entry in fs::read_dir(dir)? {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            if kind.is_dir() && !path.ends_with("lost+found") {
                dirs.push(path.clone());
                ahead.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    dirs.sort();
    let names = 0;
    let mut storm = Storm {
        rng,
        by,
        files,
        dirs,
        names,
        longest,
    };
    for at in 0..OPERATIONS {
        match storm.step() {
            // Nothing enters or leaves an encrypted directory with its names.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::StorageFull | ErrorKind::CrossesDevices
                ) => {}
            other => other.context(|| format!("operation {at} by {by}"))?,
        }
    }
    Ok(())
}

/// Both checkers find nothing wrong.
fn is_sound(image: &Image) -> Result<()> {
    Cmd::new("e2fsck").arg("-fn").arg(image.path()).ok()?;
    Cmd::new(tools::extant()?)
        .arg("check")
        .arg(image.path())
        .ok()?;
    Ok(())
}

/// The tree of the volume as `side` shows it.
fn shown_by(side: Subject, image: &Image, (key, args): (&Key, &str)) -> Result<Tree> {
    let mount = key.mount(side, image, "ro", args)?;
    let tree = Tree::take(mount.dir())?;
    mount.unmount()?;
    Ok(tree)
}

fn one(seed: u64, key: &Key) -> Result<Option<String>> {
    let mut rng = Rng::new(seed);
    let (args, by_extant) = (arguments(&mut rng), rng.chance(50));
    let told = format!("seed {seed}: {args}, made by Extant: {by_extant}");
    let Some(image) = volume(&args, by_extant).context(|| told.clone())? else {
        return Ok(None);
    };
    let values = args.contains("ea_inode");
    let longest = if values { 60_000 } else { 700 };
    let sides = [(Subject::Extant, "extant"), (Subject::Ext4, "linux")];
    for (at, (side, name)) in sides.into_iter().enumerate() {
        let other = sides[1 - at].0;
        let done = (|| {
            is_sound(&image)?;
            let mount = key.mount(side, &image, "", &args)?;
            storm(mount.dir(), name, longest, &mut rng)?;
            mount.unmount()?;
            if values && side == Subject::Ext4 {
                // Linux 6.18 counts the users of a value in a shared block more than once.
                image.fsck_repair()?;
            }
            is_sound(&image)?;
            let one_image = Compare {
                one_image: true,
                ..Compare::default()
            };
            let how = (key, &*args);
            let shown = shown_by(side, &image, how)?;
            shown.expect_equal(&shown_by(other, &image, how)?, one_image)
        })();
        done.context(|| format!("{told}: {name}"))?;
    }
    Ok(Some(args))
}

#[test]
fn random_combinations_of_features() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let (first, count) = (number("EXTANT_SEED", 1), number("EXTANT_COMBINATIONS", 4));
    let key = Key::new()?;
    let (mut made, mut wrong) = (0, Vec::new());
    for seed in first..first + count {
        match one(seed, &key) {
            Ok(Some(_)) => made += 1,
            Ok(None) => {}
            Err(error) => wrong.push(error.to_string()),
        }
    }
    report(&format!(
        "{made} of {count} combinations of features were volumes"
    ));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    ensure!(made * 2 > count, "only {made} of {count} were volumes");
    Ok(())
}
