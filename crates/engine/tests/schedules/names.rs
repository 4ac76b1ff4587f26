//! Calls on names and attributes.

use extant_engine::{Error, Node, RenameFlags, Volume, XattrMode};

use crate::model::{Part, Value};
use crate::program::{FILES, Op};
use crate::world::{Done, Outcome, World, done, name};

/// The attribute that calls set.
const ATTR: &[u8] = b"user.a";
/// Times that a value is repeated in an attribute that needs a block of its own.
const BIG: usize = 350;

/// The value of a file's attribute, 0 for none.
pub(crate) fn attr_of(volume: &Volume, node: &Node) -> Outcome<extant_engine::Result<Value>> {
    match volume.getxattr(node, ATTR) {
        Ok(bytes) if bytes.chunks(2).all(|pair| pair == &bytes[..2]) => {
            Ok(Ok(Value::from_le_bytes([bytes[0], bytes[1]])))
        }
        Ok(bytes) => Err(format!("a torn attribute: {bytes:?}")),
        Err(Error::NoAttribute) => Ok(Ok(0)),
        Err(error) => Ok(Err(error)),
    }
}

impl World {
    pub(crate) fn call_named(&self, op: Op, number: usize) -> Outcome<Done> {
        let none = |name| vec![Part::Name(name, None)];
        let (root, volume) = (&self.root, &self.volume);
        match op {
            Op::Lookup(from) => {
                let found = match self.lookup(from)? {
                    Ok(found) => found,
                    Err(error) => return self.refused(&error),
                };
                done(vec![Part::Name(from, found)], format!("{found:?}"))
            }
            Op::Rename(from, to) => self.rename(from, to, RenameFlags::empty()),
            Op::Exchange(from, to) => self.rename(from, to, RenameFlags::EXCHANGE),
            Op::Link(file, to) => {
                match volume.link(&self.files[file], root, &name(to), &self.cred) {
                    Ok(()) => done(vec![Part::Link(file, to)], ""),
                    Err(Error::Exists) => {
                        let taken = (0..FILES).map(|file| Part::Name(to, Some(file)));
                        Ok(Done {
                            parts: Vec::new(),
                            ordered: false,
                            failed: false,
                            text: format!("exists, one of {}", taken.count()),
                        })
                    }
                    Err(Error::NotFound) => done(vec![Part::Links(file, 0)], "no names"),
                    Err(error) => self.refused(&error),
                }
            }
            Op::Unlink(from) => match volume.unlink(root, &name(from)) {
                Ok(()) => done(vec![Part::Unlink(from)], ""),
                Err(Error::NotFound) => done(none(from), "not found"),
                Err(error) => self.refused(&error),
            },
            Op::Links(file) => match volume.getattr(&self.files[file]) {
                Ok(attr) => {
                    let links = usize::try_from(attr.nlink).unwrap();
                    done(vec![Part::Links(file, links)], format!("{links}"))
                }
                Err(error) => self.refused(&error),
            },
            Op::SetAttr(file) => self.set_attr(file, number, 1),
            Op::BigAttr(file) => self.set_attr(file, number, BIG),
            Op::RemoveAttr(file) => match volume.removexattr(&self.files[file], ATTR, &self.cred) {
                Ok(()) => done(vec![Part::SetAttr(file, 0)], ""),
                Err(Error::NoAttribute) => done(vec![Part::Attr(file, 0)], "none"),
                Err(error) => self.refused(&error),
            },
            Op::GetAttr(file) => {
                let value = match attr_of(volume, &self.files[file])? {
                    Ok(value) => value,
                    Err(error) => return self.refused(&error),
                };
                done(vec![Part::Attr(file, value)], format!("{value}"))
            }
            other => Err(format!("{other:?} is no call on names")),
        }
    }

    /// Sets the attribute of a file to a value of this call, `times` over.
    pub(crate) fn set_attr(&self, file: usize, number: usize, times: usize) -> Outcome<Done> {
        let value = Value::try_from(number).unwrap();
        let bytes = value.to_le_bytes().repeat(times);
        let (node, mode) = (&self.files[file], XattrMode::Either);
        match self.volume.setxattr(node, ATTR, &bytes, mode, &self.cred) {
            Ok(()) => done(vec![Part::SetAttr(file, value)], format!("{value}")),
            Err(error) => self.refused(&error),
        }
    }

    /// The file that a name leads to.
    fn lookup(&self, from: usize) -> Outcome<extant_engine::Result<Option<usize>>> {
        match self.volume.lookup(&self.root, &name(from)) {
            Ok(node) => {
                let file = self.files.iter().position(|file| file.ino() == node.ino());
                let file = file.ok_or("a name leads to no file of the program")?;
                Ok(Ok(Some(file)))
            }
            Err(Error::NotFound) => Ok(Ok(None)),
            Err(error) => Ok(Err(error)),
        }
    }

    pub(crate) fn rename(&self, from: usize, to: usize, flags: RenameFlags) -> Outcome<Done> {
        let (old, new, root) = (name(from), name(to), &self.root);
        let exchanges = flags == RenameFlags::EXCHANGE;
        match self
            .volume
            .rename(root, &old, root, &new, flags, &self.cred)
        {
            Ok(()) if exchanges => done(vec![Part::Exchange(from, to)], ""),
            Ok(()) => done(vec![Part::Rename(from, to)], ""),
            // With an exchange any of both may be missing.
            Err(Error::NotFound) if exchanges => done(Vec::new(), "not found"),
            Err(Error::NotFound) => done(vec![Part::Name(from, None)], "not found"),
            Err(error) => self.refused(&error),
        }
    }
}
