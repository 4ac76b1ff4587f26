//! A store in memory, and the requests to it as values.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::requests::{Children, Marks};

pub(super) fn key_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Objects by their paths, each with the time at which it was stored.
#[derive(Clone, Hash, Default, Debug)]
pub(super) struct Shelf(pub(super) BTreeMap<Arc<str>, (Arc<[u8]>, u64)>);

#[derive(Clone, Hash, Debug)]
pub(super) enum Sent {
    Get(Arc<str>),
    Look(Arc<str>),
    Put(Arc<str>, Arc<[u8]>),
    Create(Arc<str>, Arc<[u8]>),
    Remove(Arc<str>),
    Children(Arc<str>),
    /// A page of a listing, behind an object.
    Page(Arc<str>, String),
    Walk(Arc<str>),
}

#[derive(Clone, Hash, Debug)]
pub(super) enum Answer {
    Got(Option<(Arc<[u8]>, Marks)>),
    Looked(Option<Marks>),
    Done,
    Created(bool),
    Listed(Children),
    Walked(Vec<(String, Marks)>),
}

impl Shelf {
    pub(super) fn key(&self) -> u64 {
        key_of(self)
    }

    /// The same whenever the objects were stored.
    pub(super) fn contents_key(&self) -> u64 {
        let contents: Vec<_> = self
            .0
            .iter()
            .map(|(path, (bytes, _))| (path, bytes))
            .collect();
        key_of(&contents)
    }

    fn marks(&self, path: &str) -> Option<Marks> {
        let (content, modified) = self.0.get(path)?;
        Some(Marks {
            bytes: content.len() as u64,
            modified: *modified,
        })
    }

    /// Objects below a folder, by their paths from there.
    fn below(&self, folder: &str) -> Vec<(String, Marks)> {
        let mut found = Vec::new();
        for path in self.0.keys() {
            let rest = path.strip_prefix(folder);
            if let Some(rest) = rest.and_then(|rest| rest.strip_prefix('/')) {
                found.push((rest.to_owned(), self.marks(path).unwrap()));
            }
        }
        found
    }

    fn children(&self, folder: &str) -> Children {
        let mut children = Children::default();
        for (path, marks) in self.below(folder) {
            match path.split_once('/') {
                None => children.objects.push((path, marks)),
                Some((folder, _)) => {
                    if children.folders.last().is_none_or(|last| last != folder) {
                        children.folders.push(folder.to_owned());
                    }
                }
            }
        }
        children
    }

    pub(super) fn carry_out(&mut self, sent: &Sent, now: u64) -> Answer {
        // No call asks when a version was stored.
        let now_at = |path: &str| if path.starts_with("names/") { 0 } else { now };
        match sent {
            Sent::Get(path) => {
                let marks = self.marks(path);
                Answer::Got(marks.map(|marks| (Arc::clone(&self.0[path].0), marks)))
            }
            Sent::Look(path) => Answer::Looked(self.marks(path)),
            Sent::Put(path, content) => {
                self.0
                    .insert(Arc::clone(path), (Arc::clone(content), now_at(path)));
                Answer::Done
            }
            Sent::Create(path, content) => {
                let is_free = !self.0.contains_key(path);
                if is_free {
                    self.0
                        .insert(Arc::clone(path), (Arc::clone(content), now_at(path)));
                }
                Answer::Created(is_free)
            }
            Sent::Remove(path) => {
                self.0.remove(path);
                Answer::Done
            }
            Sent::Children(folder) => Answer::Listed(self.children(folder)),
            Sent::Page(folder, behind) => {
                let mut page = self.children(folder);
                page.objects.retain(|(name, _)| name > behind);
                page.objects.truncate(1);
                Answer::Listed(page)
            }
            Sent::Walk(folder) => Answer::Walked(self.below(folder)),
        }
    }
}
