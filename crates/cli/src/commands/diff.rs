//! `extant diff`: what differs between two trees.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::Filesystem;
use extant::sides::{FileTree, HostTree, VolumeTree};
use serde_json::{Value as Json, json};

use crate::args::Diff;
use crate::compare::{self, Archive, CompareRules, Comparison, Difference, Side, Top, Value};
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::{ImagePath, Operand};
use crate::output::{Output, device_numbers, enter, kind_word, lossy, time_word};

/// Exit status when something differs, and when something could not be compared: diff(1)'s.
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;
/// The position of the magic number of ext2, ext3 and ext4, which is in little-endian order.
const MAGIC_AT: u64 = 1024 + 56;
const MAGIC: [u8; 2] = 0xef53_u16.to_le_bytes();

pub(crate) fn run(args: &Diff) -> Outcome {
    let mut failures = Failures::of("diff");
    let differences = compare_operands(args, &mut failures);
    let differences = failures.note(differences);
    match (failures.outcome(), differences) {
        (Outcome::Done, Some(0)) => Outcome::Done,
        (Outcome::Done, Some(_)) => Outcome::Status(DIFFERENT, None),
        _ => Outcome::Status(TROUBLE, None),
    }
}

/// Compares both operands. Returns the number of differences that were met.
fn compare_operands(args: &Diff, failures: &mut Failures) -> Result<u64, Failure> {
    let sides = [named(&args.left)?, named(&args.right)?];
    let mut images = Images::read().shared_by(sides.iter().filter_map(Operand::image));
    let differences = compare(args, &sides, &mut images, failures);
    failures.note(images.close());
    differences
}

/// The side that `operand` names: a file of the host that has a file system in it stands for that.
fn named(operand: &Operand) -> Result<Operand, Failure> {
    Ok(match operand {
        Operand::Host(path) if is_image(path).at(path.display())? => {
            Operand::Image(ImagePath::root(path.clone()))
        }
        other => other.clone(),
    })
}

/// Compares the sides, which share the memory of `images`.
fn compare(
    args: &Diff,
    [left, right]: &[Operand; 2],
    images: &mut Images,
    failures: &mut Failures,
) -> Result<u64, Failure> {
    let left = Operated::open(left, images)?;
    let right = Operated::open(right, images)?;
    let (ours, theirs) = (left.tree(), right.tree());
    let (our_prefix, their_prefix) = (left.prefix(), right.prefix());
    let rules = CompareRules {
        times: !args.no_times,
        owners: !args.no_owners,
        xattrs: !args.no_xattrs,
        ignore: &args.ignore,
    };
    let mut show = Show {
        out: Output::new(),
        names: [args.left.to_string(), args.right.to_string()],
        json: args.json,
        quiet: args.quiet,
        differences: 0,
        failures,
        broken: Ok(()),
    };
    let left = Top {
        tree: &*ours,
        prefix: &our_prefix,
        path: left.path(),
    };
    let right = Top {
        tree: &*theirs,
        prefix: &their_prefix,
        path: right.path(),
    };
    Comparison::new(left, right, rules, &mut show).run();
    show.broken?;
    show.out.finish()?;
    Ok(show.differences)
}

/// One operand, with its image or its archive open.
enum Operated {
    Host(PathBuf),
    Image(Rc<Filesystem>, ImagePath),
    Archive(Archive),
}

impl Operated {
    fn open(operand: &Operand, images: &mut Images) -> Result<Operated, Failure> {
        match operand {
            Operand::Image(at) => Ok(Operated::Image(images.of(at)?, at.clone())),
            Operand::Host(path) => match path.is_file() {
                true => Ok(match Archive::open(path).at(path.display())? {
                    Some(archive) => Operated::Archive(archive),
                    None => Operated::Host(path.clone()),
                }),
                false => Ok(Operated::Host(path.clone())),
            },
        }
    }

    fn tree<'a>(&'a self) -> Box<dyn FileTree<'a> + 'a> {
        match self {
            Operated::Image(fs, _) => Box::new(VolumeTree(fs)),
            Operated::Host(_) => Box::new(HostTree),
            Operated::Archive(archive) => Box::new(archive),
        }
    }

    /// The part of a path in messages that names the image or the archive.
    fn prefix(&self) -> String {
        match self {
            Operated::Image(_, at) => format!("{}:", at.image.display()),
            Operated::Host(_) => String::new(),
            Operated::Archive(archive) => format!("{}:", archive.path().display()),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Operated::Host(path) => path,
            Operated::Image(_, at) => &at.path,
            Operated::Archive(_) => Path::new("/"),
        }
    }
}

/// Returns whether a file of the host stands for the file system in it: a block device, or a file
/// with the magic number.
fn is_image(path: &Path) -> std::io::Result<bool> {
    let metadata = std::fs::metadata(path)?;
    if metadata.file_type().is_block_device() {
        return Ok(true);
    }
    if !metadata.is_file() {
        return Ok(false);
    }
    let mut magic = [0; 2];
    match File::open(path)?.read_exact_at(&mut magic, MAGIC_AT) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| magic == MAGIC),
    }
}

/// Prints what is found.
struct Show<'f> {
    out: Output,
    names: [String; 2],
    json: bool,
    quiet: bool,
    differences: u64,
    failures: &'f mut Failures,
    /// The failure of standard output, if it did not take everything.
    broken: Result<(), Failure>,
}

impl compare::Report for Show<'_> {
    fn difference(&mut self, below: &Path, found: &Difference) -> bool {
        self.differences += 1;
        if self.quiet {
            return false;
        }
        let shown = match self.json {
            true => {
                let mut line = json!({ "differs": found.word() });
                enter(&mut line, "path", &path(below));
                details(&mut line, found);
                self.out.text(format!("{line}\n"))
            }
            false => self.line(below, found),
        };
        self.broken = shown;
        self.broken.is_ok() && !self.out.closed()
    }

    fn failure(&mut self, failure: Failure) {
        self.failures.note::<()>(Err(failure));
    }
}

impl Show<'_> {
    fn line(&mut self, below: &Path, found: &Difference) -> Result<(), Failure> {
        let [left, right] = &self.names;
        let only = |side: &Side| match side {
            Side::Left => format!("only in {left}"),
            Side::Right => format!("only in {right}"),
        };
        let what = match found {
            Difference::Only(side) => only(side),
            Difference::Content(at) => format!("content differs from byte {at} on"),
            Difference::XattrOnly(side, name) => format!("xattr {} {}", lossy(name), only(side)),
            Difference::Xattr(name) => format!("xattr {} differs", lossy(name)),
            _ => match found.values() {
                Some((left, right)) => {
                    format!("{} {}, {}", found.word(), text(&left), text(&right))
                }
                None => format!("{} differs", found.word()),
            },
        };
        self.out.name(OsStr::from_bytes(&path(below)))?;
        self.out.text(": ")?;
        self.out.name(OsStr::new(&what))?;
        self.out.text("\n")
    }
}

/// A path as it is shown: the top is a dot.
fn path(below: &Path) -> Vec<u8> {
    match below.as_os_str().as_bytes() {
        b"" => b".".to_vec(),
        below => [b"./", below].concat(),
    }
}

/// Adds what differs, for programs.
fn details(line: &mut Json, found: &Difference) {
    match found {
        Difference::Content(at) => line["byte"] = Json::from(*at),
        Difference::XattrOnly(_, name) | Difference::Xattr(name) => enter(line, "name", name),
        _ => {}
    }
    let Some((left, right)) = found.values() else {
        return;
    };
    for (key, value) in [("left", left), ("right", right)] {
        match value {
            Value::Number(number) => line[key] = Json::from(number),
            Value::Time(time) => line[key] = json!({ "secs": time.secs, "nanos": time.nanos }),
            Value::Device(rdev) => {
                let (major, minor) = device_numbers(rdev);
                line[key] = json!({ "major": major, "minor": minor });
            }
            Value::Bytes(bytes) => enter(line, key, &bytes),
            Value::Nothing => line[key] = Json::Null,
            value @ (Value::Kind(_) | Value::Mode(_)) => line[key] = Json::from(text(&value)),
        }
    }
}

/// A value for people.
fn text(value: &Value) -> String {
    match value {
        Value::Kind(kind) => kind_word(*kind).to_owned(),
        Value::Mode(perm) => format!("{perm:04o}"),
        Value::Number(number) => number.to_string(),
        Value::Time(time) => time_word(*time),
        Value::Device(rdev) => {
            let (major, minor) = device_numbers(*rdev);
            format!("{major}:{minor}")
        }
        Value::Bytes(bytes) => lossy(bytes).into_owned(),
        Value::Nothing => "none".to_owned(),
    }
}
