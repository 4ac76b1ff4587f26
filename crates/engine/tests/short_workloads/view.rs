//! A recovered volume, read as a whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use extant_engine::{Error, FileKind, Node as Handle, Volume};

use crate::model::{Kind, LARGE, Model, SMALL, TARGET, attr_value};
use crate::ops::Name;

/// The flag that chattr turns, as lsattr shows it.
pub(crate) const NODUMP: u32 = 0x40;

/// An object as it is found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    pub(crate) links: u64,
    pub(crate) nodump: bool,
    pub(crate) attrs: BTreeMap<String, Vec<u8>>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) space: u64,
    pub(crate) target: Vec<u8>,
}

/// All names below the root, with the inode numbers that they lead to, and all objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) names: BTreeMap<String, u64>,
    pub(crate) objects: BTreeMap<u64, Found>,
    /// Links of `A` and `B`.
    pub(crate) dir_links: [u64; 2],
}

impl View {
    /// Reads a volume through the engine.
    pub(crate) fn of(volume: &Volume) -> Result<Self, String> {
        let mut view = Self::default();
        let root = volume.root().map_err(|error| format!("root: {error}"))?;
        view.read_dir(volume, &root, "")?;
        for (nth, dir) in ["A", "B"].into_iter().enumerate() {
            let ino = view.names.remove(dir).ok_or(format!("{dir} is gone"))?;
            let found = view.objects.remove(&ino);
            view.dir_links[nth] = found.map_or(0, |found| found.links);
        }
        if let Some(ino) = view.names.remove("lost+found") {
            view.objects.remove(&ino);
        }
        Ok(view)
    }

    fn read_dir(&mut self, volume: &Volume, dir: &Handle, prefix: &str) -> Result<(), String> {
        let mut entries = Vec::new();
        let listed = volume.readdir(dir, 0, &mut |entry| {
            entries.push(entry.name.to_vec());
            true
        });
        listed.map_err(|error| format!("listing /{prefix}: {error}"))?;
        for name in entries {
            if name == b"." || name == b".." {
                continue;
            }
            let path = format!("{prefix}{}", String::from_utf8_lossy(&name));
            let node = volume.lookup(dir, &name);
            let node = node.map_err(|error| format!("{path} is listed, but: {error}"))?;
            let ino = u64::from(node.ino().get());
            if self.names.insert(path.clone(), ino).is_some() {
                return Err(format!("{path} is listed twice"));
            }
            if let Entry::Vacant(entry) = self.objects.entry(ino) {
                let found = read(volume, &node).map_err(|error| format!("{path}: {error}"))?;
                entry.insert(found);
            }
            if node.kind() == FileKind::Directory {
                self.read_dir(volume, &node, &format!("{path}/"))?;
            }
        }
        Ok(())
    }

    /// Returns why this is not what the model has.
    pub(crate) fn mismatch(&self, model: &Model) -> Option<String> {
        let mut inodes = BTreeMap::new();
        let mut directories = [2, 2];
        for name in Name::ALL {
            let path = name.path();
            let found = self.names.get(path);
            match (model.at(name), found) {
                (None, None) => {}
                (None, Some(_)) => return Some(format!("{path} is there")),
                (Some(_), None) => return Some(format!("{path} is not there")),
                (Some((id, node)), Some(ino)) => {
                    if *inodes.entry(id).or_insert(*ino) != *ino {
                        return Some(format!("{path} is another object"));
                    }
                    if node.kind == Kind::Dir {
                        directories[usize::from(name.0 / 2)] += 1;
                    }
                }
            }
        }
        let known = Name::ALL.map(Name::path);
        if let Some(other) = self.names.keys().find(|path| !known.contains(&&***path)) {
            return Some(format!("{other} is there"));
        }
        if self.dir_links != directories {
            let (found, wanted) = (self.dir_links, directories);
            return Some(format!("links of A and B: {found:?}, not {wanted:?}"));
        }
        let mut distinct: Vec<&u64> = inodes.values().collect();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != inodes.len() {
            return Some("two objects are one".into());
        }
        inodes.iter().find_map(|(id, ino)| {
            let (node, found) = (model.nodes.get(id)?, self.objects.get(ino)?);
            let path = model.links(*id).next().map_or("", Name::path);
            let links = match node.kind {
                Kind::Dir => 2,
                _ => model.links(*id).count() as u64,
            };
            if node.kind != found.kind {
                return Some(format!("{path} is a {:?}", found.kind));
            }
            if links != found.links {
                return Some(format!("{path} has {} links, not {links}", found.links));
            }
            if node.nodump != found.nodump {
                return Some(format!("{path} has the flag: {}", found.nodump));
            }
            if node.kind == Kind::Symlink && found.target != TARGET.as_bytes() {
                return Some(format!("{path} leads to {:02x?}", found.target));
            }
            let attrs = node.attrs.iter();
            let attrs = attrs.map(|(key, seed)| ((*key).to_owned(), attr_value(key, *seed)));
            if found.attrs != attrs.collect() {
                let lens = found.attrs.iter().map(|(key, value)| (key, value.len()));
                let lens: Vec<_> = lens.collect();
                return Some(format!("{path} has the attributes {lens:?}"));
            }
            let mismatch = match node.kind {
                Kind::File => node.content.mismatch(&found.bytes, found.space),
                _ => None,
            };
            mismatch.map(|why| format!("{path}: {why}"))
        })
    }
}

fn read(volume: &Volume, node: &Handle) -> Result<Found, Error> {
    let attr = volume.getattr(node)?;
    let kind = match node.kind() {
        FileKind::Regular => Kind::File,
        FileKind::Directory => Kind::Dir,
        FileKind::Symlink => Kind::Symlink,
        _ => Kind::Fifo,
    };
    let mut found = Found {
        kind,
        links: u64::from(attr.nlink),
        nodump: attr.flags & NODUMP != 0,
        attrs: BTreeMap::new(),
        bytes: Vec::new(),
        space: attr.blocks * 512,
        target: Vec::new(),
    };
    if matches!(kind, Kind::File | Kind::Dir) {
        for key in [SMALL, LARGE] {
            match volume.getxattr(node, key.as_bytes()) {
                Ok(value) => drop(found.attrs.insert(key.to_owned(), value)),
                Err(Error::NoAttribute) => {}
                Err(error) => return Err(error),
            }
        }
    }
    if kind == Kind::File {
        found.bytes = vec![0; usize::try_from(attr.size).unwrap_or(0)];
        let read = volume.read(node, 0, &mut found.bytes)?;
        found.bytes.truncate(read);
    }
    if kind == Kind::Symlink {
        found.target = volume.readlink(node)?;
    }
    Ok(found)
}
