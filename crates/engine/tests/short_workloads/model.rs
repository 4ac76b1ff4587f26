//! A volume in the abstract: names, objects and their contents, and what an operation makes of
//! them.

use std::collections::BTreeMap;

use extant_testkit::content;

use crate::content::{Change, Content, Habits};
use crate::ops::{Name, Object, Op, Pair, Persist, Verb};

/// An object that names lead to.
pub(crate) type Id = u32;

/// Kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    File,
    Dir,
    Fifo,
    Symlink,
}

/// The attribute that both files begin with, and one that is too large for the inode.
pub(crate) const SMALL: &str = "user.small";
pub(crate) const LARGE: &str = "user.large";

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// The flag that chattr turns.
    pub(crate) nodump: bool,
    /// Attributes: the seed of the value.
    pub(crate) attrs: BTreeMap<&'static str, u64>,
    pub(crate) content: Content,
}

/// The target of each symbolic link.
pub(crate) const TARGET: &str = "../A/x";

/// The value of an attribute.
pub(crate) fn attr_value(key: &str, seed: u64) -> Vec<u8> {
    content::fill(0xa77 + seed, 0, if key == LARGE { 300 } else { 24 })
}

/// Objects by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Model {
    pub(crate) habits: Habits,
    pub(crate) names: [Option<Id>; 4],
    pub(crate) nodes: BTreeMap<Id, Node>,
}

/// An operation in terms of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// Objects whose inode the operation changes in the journal, and whether fdatasync waits for
    /// that as well. Directories `A` and `B` are among them.
    pub(crate) touched: Vec<(Touched, bool)>,
    /// A change of the bytes of a file.
    pub(crate) change: Option<(Id, Change)>,
}

/// An object as durability knows it: it may have lost its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Touched {
    Dir(u8),
    Node(Id),
}

impl Model {
    /// The volume that workloads begin with: a file in each directory.
    pub(crate) fn start(habits: Habits) -> Self {
        let mut model = Self {
            habits,
            names: [None; 4],
            nodes: BTreeMap::new(),
        };
        for (at, name) in [(1, Name(0)), (2, Name(2))] {
            let file = Node {
                kind: Kind::File,
                nodump: false,
                attrs: [(SMALL, u64::from(at))].into(),
                content: Content::durable(&Self::start_bytes(name, habits.block), habits),
            };
            model.nodes.insert(at, file);
            model.names[usize::from(name.0)] = Some(at);
        }
        model
    }

    /// Bytes of a file at the start.
    pub(crate) fn start_bytes(name: Name, block: usize) -> Vec<u8> {
        content::fill(0x57a + u64::from(name.0), 0, 6 * block + 300)
    }

    /// The object with that name.
    pub(crate) fn at(&self, name: Name) -> Option<(Id, &Node)> {
        let id = self.names[usize::from(name.0)]?;
        Some((id, self.nodes.get(&id)?))
    }

    /// The names of an object.
    pub(crate) fn links(&self, id: Id) -> impl Iterator<Item = Name> + '_ {
        let names = Name::ALL.into_iter();
        names.filter(move |name| self.names[usize::from(name.0)] == Some(id))
    }

    /// The object of a step that makes something durable, if there is one that can be opened.
    pub(crate) fn object(&self, object: Object) -> Option<Touched> {
        match object {
            Object::Dir(dir) => Some(Touched::Dir(dir)),
            Object::At(name) => {
                let (id, node) = self.at(name)?;
                // Of several names one will do.
                let first = self.links(id).next() == Some(name);
                let opens = matches!(node.kind, Kind::File | Kind::Dir);
                (first && opens).then_some(Touched::Node(id))
            }
        }
    }

    /// Every step that makes something durable now.
    pub(crate) fn persists(&self) -> Vec<(Persist, Option<Touched>)> {
        let dirs = [Object::Dir(0), Object::Dir(1)].into_iter();
        let objects = dirs.chain(Name::ALL.map(Object::At));
        let mut all = Vec::new();
        for object in objects {
            if let Some(touched) = self.object(object) {
                all.push((Persist::Fsync(object), Some(touched)));
                all.push((Persist::Fdatasync(object), Some(touched)));
            }
        }
        all.push((Persist::Sync, None));
        all
    }

    /// Does the operation, number `nth` of its workload. `None` if it would fail: nothing is done
    /// then.
    pub(crate) fn apply(&mut self, op: Op, nth: usize) -> Option<Effect> {
        let mut next = self.clone();
        for node in next.nodes.values_mut() {
            node.content = node.content.next();
        }
        let effect = match op {
            Op::One(verb, name) => next.one(verb, name, nth),
            Op::Two(pair, first, second) => next.two(pair, first, second),
        }?;
        if let Some((id, change)) = &effect.change {
            next.nodes.get_mut(id)?.content.change(change, self.habits);
        }
        *self = next;
        Some(effect)
    }

    fn one(&mut self, verb: Verb, name: Name, nth: usize) -> Option<Effect> {
        match verb {
            Verb::Creat => self.make(name, Kind::File, nth),
            Verb::Mkdir => self.make(name, Kind::Dir, nth),
            Verb::Mknod => self.make(name, Kind::Fifo, nth),
            Verb::Symlink => self.make(name, Kind::Symlink, nth),
            Verb::Unlink | Verb::Rmdir => {
                let (id, node) = self.at(name)?;
                if (node.kind == Kind::Dir) != (verb == Verb::Rmdir) {
                    return None;
                }
                self.names[usize::from(name.0)] = None;
                self.forget(id);
                Some(touched([(dir_of(name), true), (Touched::Node(id), false)]))
            }
            Verb::SetAttr | Verb::SetLargeAttr | Verb::RemoveAttr | Verb::Chattr => {
                let (id, node) = self.at(name)?;
                if !matches!(node.kind, Kind::File | Kind::Dir) {
                    return None;
                }
                let node = self.nodes.get_mut(&id)?;
                match verb {
                    Verb::SetAttr => drop(node.attrs.insert(SMALL, 10 + nth as u64)),
                    Verb::SetLargeAttr => drop(node.attrs.insert(LARGE, 10 + nth as u64)),
                    Verb::RemoveAttr => drop(node.attrs.remove(SMALL)?),
                    _ => node.nodump ^= true,
                }
                Some(touched([(Touched::Node(id), false)]))
            }
            _ => {
                let (id, node) = self.at(name)?;
                if node.kind != Kind::File {
                    return None;
                }
                let len = node.content.len();
                let change = change_of(verb, len, nth, self.habits.block)?;
                Some(Effect {
                    touched: match change.moves_map(len) {
                        true => vec![(Touched::Node(id), true)],
                        false => Vec::new(),
                    },
                    change: Some((id, change)),
                })
            }
        }
    }

    fn two(&mut self, pair: Pair, first: Name, second: Name) -> Option<Effect> {
        let block = self.habits.block;
        let (id, node) = self.at(first)?;
        let kind = node.kind;
        let there = self.at(second).map(|(id, node)| (id, node.kind));
        let dirs = [(dir_of(first), true), (dir_of(second), true)];
        match pair {
            Pair::Link => {
                if kind == Kind::Dir || there.is_some() {
                    return None;
                }
                self.names[usize::from(second.0)] = Some(id);
                Some(touched([dirs[1], (Touched::Node(id), false)]))
            }
            Pair::Rename | Pair::NoReplace => {
                if let Some((there, of)) = there {
                    let fits = (kind == Kind::Dir) == (of == Kind::Dir);
                    // Two names of one file: nothing happens.
                    if pair == Pair::NoReplace || !fits || there == id {
                        return None;
                    }
                }
                self.names[usize::from(first.0)] = None;
                self.names[usize::from(second.0)] = Some(id);
                let mut all = vec![dirs[0], dirs[1], (Touched::Node(id), false)];
                if let Some((there, _)) = there {
                    self.forget(there);
                    all.push((Touched::Node(there), false));
                }
                Some(Effect {
                    touched: all,
                    change: None,
                })
            }
            Pair::Exchange => {
                let (there, _) = there.filter(|(there, _)| *there != id)?;
                self.names.swap(usize::from(first.0), usize::from(second.0));
                let nodes = [(Touched::Node(id), false), (Touched::Node(there), false)];
                Some(touched([dirs[0], dirs[1], nodes[0], nodes[1]]))
            }
            Pair::Copy => {
                let (to, of) = there.filter(|(there, _)| *there != id)?;
                let mut bytes = node.content.bytes();
                if (kind, of) != (Kind::File, Kind::File) || bytes.is_empty() {
                    return None;
                }
                bytes.truncate(3 * block);
                let len = self.nodes.get(&to)?.content.len();
                let change = Change::Copy {
                    pos: 2 * block,
                    bytes,
                };
                Some(Effect {
                    touched: match change.moves_map(len) {
                        true => vec![(Touched::Node(to), true)],
                        false => Vec::new(),
                    },
                    change: Some((to, change)),
                })
            }
        }
    }

    /// A new object.
    fn make(&mut self, name: Name, kind: Kind, nth: usize) -> Option<Effect> {
        if self.at(name).is_some() {
            return None;
        }
        let id = 10 + Id::try_from(nth).ok()?;
        let node = Node {
            kind,
            nodump: false,
            attrs: BTreeMap::new(),
            content: Content::default(),
        };
        self.nodes.insert(id, node);
        self.names[usize::from(name.0)] = Some(id);
        Some(touched([(dir_of(name), true), (Touched::Node(id), true)]))
    }

    /// An object has lost a name.
    fn forget(&mut self, id: Id) {
        if self.links(id).next().is_none() {
            self.nodes.remove(&id);
        }
    }
}

fn dir_of(name: Name) -> Touched {
    Touched::Dir(name.0 / 2)
}

fn touched<const N: usize>(touched: [(Touched, bool); N]) -> Effect {
    Effect {
        touched: touched.into(),
        change: None,
    }
}

/// The change that a verb makes to a file of `len` bytes.
fn change_of(verb: Verb, len: usize, nth: usize, block: usize) -> Option<Change> {
    let write = |pos: usize, len: usize| {
        Some(Change::Write {
            pos,
            bytes: content::fill(0x10 + nth as u64, pos as u64, len),
        })
    };
    match verb {
        Verb::Write => write(block + 100, block),
        Verb::Append => write(len, 700),
        Verb::Overwrite => write(0, 2 * block),
        Verb::Direct => write(2 * block, 2 * block),
        Verb::Map => (len >= 2 * block).then(|| write(block / 2, 300))?,
        Verb::TruncateDown => (len > block + 333).then_some(Change::Resize { len: block + 333 }),
        Verb::TruncateToNothing => (len > 0).then_some(Change::Resize { len: 0 }),
        Verb::TruncateUp => Some(Change::Resize {
            len: len + 2 * block + 77,
        }),
        Verb::Allocate => Some(Change::Allocate {
            range: 4 * block..10 * block,
            grow: true,
        }),
        Verb::AllocateKeep => Some(Change::Allocate {
            range: 8 * block..12 * block,
            grow: false,
        }),
        Verb::Punch => Some(Change::Punch {
            range: block + 200..3 * block + 200,
        }),
        Verb::Zero => Some(Change::Zero {
            range: 5 * block + 10..9 * block,
            grow: true,
        }),
        Verb::ZeroKeep => Some(Change::Zero {
            range: block + 100..3 * block + 100,
            grow: false,
        }),
        Verb::Collapse => (len > 3 * block).then_some(Change::Collapse {
            range: block..3 * block,
        }),
        Verb::Insert => (len > block).then_some(Change::Insert {
            range: block..3 * block,
        }),
        _ => None,
    }
}
