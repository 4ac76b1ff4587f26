//! Operations of a workload, by the names that they are printed with.
//!
//! There are two directories, `A` and `B`, with two names each, `x` and `y`.

use std::fmt;
use std::str::FromStr;

/// One of the four names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(pub(crate) u8);

impl Name {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self(0), Self(1), Self(2), Self(3)];

    /// The directory that it is in.
    pub(crate) fn dir(self) -> Object {
        Object::Dir(self.0 / 2)
    }

    /// The name within the directory.
    pub(crate) fn last(self) -> &'static str {
        ["x", "y"][usize::from(self.0 % 2)]
    }

    /// The path.
    pub(crate) fn path(self) -> &'static str {
        ["A/x", "A/y", "B/x", "B/y"][usize::from(self.0)]
    }

    fn mirrored(self) -> Self {
        Self((self.0 + 2) % 4)
    }
}

/// An object that can be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Object {
    /// `A` or `B`.
    Dir(u8),
    /// Target of a name.
    At(Name),
}

impl Object {
    /// The path.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Dir(dir) => ["A", "B"][usize::from(dir)],
            Self::At(name) => name.path(),
        }
    }

    fn mirrored(self) -> Self {
        match self {
            Self::Dir(dir) => Self::Dir(1 - dir),
            Self::At(name) => Self::At(name.mirrored()),
        }
    }
}

/// Kind of an operation on one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    Creat,
    Mkdir,
    Mknod,
    Symlink,
    Unlink,
    Rmdir,
    /// A write in the middle, across the border of two blocks.
    Write,
    Append,
    /// A write of two whole blocks from the beginning on.
    Overwrite,
    /// A write of two whole blocks past the cache.
    Direct,
    /// Stores to a mapping.
    Map,
    TruncateDown,
    TruncateToNothing,
    TruncateUp,
    Allocate,
    AllocateKeep,
    Punch,
    Zero,
    ZeroKeep,
    Collapse,
    Insert,
    /// An attribute that there is gets another value.
    SetAttr,
    /// A new one, too large for the inode.
    SetLargeAttr,
    RemoveAttr,
    Chattr,
}

/// Verbs and what they are called.
pub(crate) const VERBS: [(Verb, &str); 25] = [
    (Verb::Creat, "creat"),
    (Verb::Mkdir, "mkdir"),
    (Verb::Mknod, "mknod"),
    (Verb::Symlink, "symlink"),
    (Verb::Unlink, "unlink"),
    (Verb::Rmdir, "rmdir"),
    (Verb::Write, "write"),
    (Verb::Append, "append"),
    (Verb::Overwrite, "overwrite"),
    (Verb::Direct, "direct"),
    (Verb::Map, "map"),
    (Verb::TruncateDown, "truncate-down"),
    (Verb::TruncateToNothing, "truncate-to-nothing"),
    (Verb::TruncateUp, "truncate-up"),
    (Verb::Allocate, "allocate"),
    (Verb::AllocateKeep, "allocate-keep"),
    (Verb::Punch, "punch"),
    (Verb::Zero, "zero"),
    (Verb::ZeroKeep, "zero-keep"),
    (Verb::Collapse, "collapse"),
    (Verb::Insert, "insert"),
    (Verb::SetAttr, "setxattr"),
    (Verb::SetLargeAttr, "setxattr-large"),
    (Verb::RemoveAttr, "removexattr"),
    (Verb::Chattr, "chattr"),
];

/// Kind of an operation on two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Pair {
    Link,
    Rename,
    NoReplace,
    Exchange,
    Copy,
}

/// Pairs and what they are called.
pub(crate) const PAIRS: [(Pair, &str); 5] = [
    (Pair::Link, "link"),
    (Pair::Rename, "rename"),
    (Pair::NoReplace, "rename-noreplace"),
    (Pair::Exchange, "exchange"),
    (Pair::Copy, "copy"),
];

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    One(Verb, Name),
    Two(Pair, Name, Name),
}

impl Op {
    /// Every operation on every name.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let ones = VERBS.iter().flat_map(|(verb, _)| {
            let names = Name::ALL.into_iter();
            names.map(move |name| Self::One(*verb, name))
        });
        let twos = PAIRS.iter().flat_map(|(pair, _)| {
            let firsts = Name::ALL.into_iter();
            firsts.flat_map(move |first| {
                let others = Name::ALL.into_iter().filter(move |other| *other != first);
                // An exchange is the same from both sides.
                let both = *pair != Pair::Exchange;
                others
                    .filter(move |other| both || first < *other)
                    .map(move |other| Self::Two(*pair, first, other))
            })
        });
        ones.chain(twos)
    }

    fn mirrored(self) -> Self {
        match self {
            Self::One(verb, name) => Self::One(verb, name.mirrored()),
            Self::Two(pair, first, second) => {
                let (mut first, mut second) = (first.mirrored(), second.mirrored());
                if pair == Pair::Exchange && first > second {
                    std::mem::swap(&mut first, &mut second);
                }
                Self::Two(pair, first, second)
            }
        }
    }
}

/// How a step makes something durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Persist {
    Fsync(Object),
    Fdatasync(Object),
    Sync,
}

/// A step of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Step {
    Do(Op),
    Persist(Persist),
}

impl Step {
    /// The same in the other directories.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Do(op) => Self::Do(op.mirrored()),
            Self::Persist(Persist::Fsync(object)) => {
                Self::Persist(Persist::Fsync(object.mirrored()))
            }
            Self::Persist(Persist::Fdatasync(object)) => {
                Self::Persist(Persist::Fdatasync(object.mirrored()))
            }
            Self::Persist(Persist::Sync) => self,
        }
    }
}

/// Steps, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Workload(pub(crate) Vec<Step>);

impl Workload {
    /// The one that stands for this and for its mirror image.
    pub(crate) fn is_first_of_its_kind(&self) -> bool {
        let mirrored: Vec<Step> = self.0.iter().map(|step| step.mirrored()).collect();
        self.0 <= mirrored
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |of: &Verb| {
            VERBS
                .iter()
                .find(|(verb, _)| verb == of)
                .map_or("", |v| v.1)
        };
        let pair = |of: &Pair| {
            PAIRS
                .iter()
                .find(|(pair, _)| pair == of)
                .map_or("", |p| p.1)
        };
        match self {
            Self::Do(Op::One(of, name)) => write!(f, "{} {}", verb(of), name.path()),
            Self::Do(Op::Two(of, first, second)) => {
                write!(f, "{} {} {}", pair(of), first.path(), second.path())
            }
            Self::Persist(Persist::Fsync(object)) => write!(f, "fsync {}", object.path()),
            Self::Persist(Persist::Fdatasync(object)) => write!(f, "fdatasync {}", object.path()),
            Self::Persist(Persist::Sync) => write!(f, "sync"),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.0.iter().map(Step::to_string).collect();
        write!(f, "{}", steps.join(", "))
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = |path: &str| Name::ALL.into_iter().find(|name| name.path() == path);
        let object = |path: &str| {
            let dirs = [Object::Dir(0), Object::Dir(1)].into_iter();
            let mut all = dirs.chain(Name::ALL.map(Object::At));
            all.find(|object| object.path() == path)
        };
        let step = match words[..] {
            ["sync"] => Some(Self::Persist(Persist::Sync)),
            ["fsync", path] => object(path).map(|o| Self::Persist(Persist::Fsync(o))),
            ["fdatasync", path] => object(path).map(|o| Self::Persist(Persist::Fdatasync(o))),
            [verb, path] => {
                let verb = VERBS.iter().find(|(_, known)| *known == verb);
                let both = verb.zip(name(path));
                both.map(|((verb, _), name)| Self::Do(Op::One(*verb, name)))
            }
            [pair, first, second] => {
                let pair = PAIRS.iter().find(|(_, known)| *known == pair);
                let names = name(first).zip(name(second));
                pair.zip(names)
                    .map(|((pair, _), (first, second))| Self::Do(Op::Two(*pair, first, second)))
            }
            _ => None,
        };
        step.ok_or_else(|| format!("{text} is no step"))
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let steps = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self(steps))
    }
}

#[test]
fn a_workload_is_named_by_what_it_prints() {
    for op in Op::all() {
        let steps = vec![
            Step::Do(op),
            Step::Persist(Persist::Fdatasync(Object::Dir(1))),
            Step::Persist(Persist::Fsync(Object::At(Name(3)))),
            Step::Persist(Persist::Sync),
        ];
        let workload = Workload(steps);
        assert_eq!(workload.to_string().parse(), Ok(workload));
    }
    assert!("creat A".parse::<Workload>().is_err());
}
