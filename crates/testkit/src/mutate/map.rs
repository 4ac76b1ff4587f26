//! Map of the structures of an image.

use super::bytes::part;
use super::geometry::{Geometry, LogFormat};
use super::walk::{Found, Kind, walk};

/// The structures of an image, found once and good for many mutations of copies of it.
#[derive(Clone, Debug)]
pub struct Map {
    pub(super) geometry: Option<Geometry>,
    pub(super) log: Option<LogFormat>,
    pub(super) found: Vec<Found>,
    pub(super) kinds: Vec<Kind>,
}

impl Map {
    /// Finds the structures of `image`.
    pub fn of(image: &[u8]) -> Map {
        let (geometry, mut found) = walk(image);
        found.sort_by_key(|f| (f.kind, f.at));
        let mut kinds: Vec<Kind> = found.iter().map(|f| f.kind).collect();
        kinds.dedup();
        let log = found
            .iter()
            .find(|f| f.kind == Kind::JournalSuper)
            .map(|f| LogFormat::of(image, f.at));
        Map {
            geometry,
            log,
            found,
            kinds,
        }
    }

    /// The structures, sorted by kind and place.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// The kinds that there are, sorted.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Leaves structures of these kinds only, for mutations that go for one part of the format.
    /// Keeps all if there is none.
    #[must_use]
    pub fn only(mut self, kinds: &[Kind]) -> Map {
        if self.kinds.iter().any(|kind| kinds.contains(kind)) {
            self.found.retain(|f| kinds.contains(&f.kind));
            self.kinds.retain(|kind| kinds.contains(kind));
        }
        self
    }

    pub(super) fn of_kind(&self, kind: Kind) -> &[Found] {
        let from = self.found.partition_point(|f| f.kind < kind);
        let to = self.found.partition_point(|f| f.kind <= kind);
        self.found.get(from..to).unwrap_or_default()
    }
}

/// The bytes of a structure.
pub(super) fn bytes_of<'a>(image: &'a [u8], found: &Found) -> &'a [u8] {
    part(image, found.at, found.len)
}
