//! Extended attributes of all files, each distinct set once, in the form that ext4 stores.

use std::collections::HashMap;

use extant_disk::acl::Acl;
use extant_disk::file_kind::FileKind;
use extant_disk::xattr::{Fit, XATTR_NAME_MAX, XattrName, XattrSet};

/// Most bytes of all distinct sets together.
const MAX_BYTES: usize = 256 << 20;

/// The attribute with a file's capabilities.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Attributes as sources have them: names and values.
pub(crate) type Named = Vec<(Vec<u8>, Vec<u8>)>;

/// A set of attributes; the first is the empty one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct SetId(pub(crate) u32);

/// A set, divided between the inode and a block.
#[derive(Debug, Default)]
pub(crate) struct Divided {
    pub(crate) area: XattrSet,
    pub(crate) block: XattrSet,
}

/// All sets.
#[derive(Debug)]
pub(crate) struct AttrStore {
    sets: Vec<Divided>,
    known: HashMap<Vec<u8>, SetId>,
    bytes: usize,
    /// Bytes behind an inode's fixed fields.
    area: usize,
    block_size: usize,
}

/// Outcome of adding a file's attributes.
pub(crate) struct StoredAttrs {
    pub(crate) set: SetId,
    /// The permissions that an access ACL stands for.
    pub(crate) mode: u16,
    /// Attributes that ext4 does not store.
    pub(crate) left_out: Vec<Vec<u8>>,
}

impl AttrStore {
    pub(crate) fn new(area: usize, block_size: usize) -> Self {
        Self {
            sets: vec![Divided::default()],
            known: HashMap::new(),
            bytes: 0,
            area,
            block_size,
        }
    }

    /// The set of `id`.
    pub(crate) fn get(&self, id: SetId) -> &Divided {
        &self.sets[id.0 as usize]
    }

    /// The attributes of a set, in their stored form.
    fn stored(&self, id: SetId) -> Named {
        let Divided { area, block } = self.get(id);
        let all = area.iter().chain(block.iter());
        let named = all.filter_map(|(name, value)| Some((name.full()?, value.to_vec())));
        named.collect()
    }

    /// The set of `id` without the attribute `left_out`.
    ///
    /// # Errors
    /// There is no room for one more set.
    pub(crate) fn without(&mut self, id: SetId, left_out: &[u8]) -> Result<SetId, String> {
        let all = self.stored(id);
        let left = all.iter().filter(|(name, _)| name != left_out);
        let mut left: Vec<_> = left
            .filter_map(|(name, value)| Some((XattrName::parse(name)?, value.clone())))
            .collect();
        left.sort();
        self.intern(&left)
    }

    /// Keeps the attributes of a file of mode `mode`, over those of `base`.
    ///
    /// # Errors
    /// The reason why they cannot be stored, in words.
    pub(crate) fn store(
        &mut self,
        base: SetId,
        named: &Named,
        mode: u16,
    ) -> Result<StoredAttrs, String> {
        let mut stored_attrs = StoredAttrs {
            set: base,
            mode,
            left_out: Vec::new(),
        };
        if named.is_empty() {
            return Ok(stored_attrs);
        }
        let older = self.stored(base);
        let mut stored = Vec::new();
        for (name, value) in named {
            let Some(parsed) = XattrName::parse(name).filter(|n| n.rest.len() <= XATTR_NAME_MAX)
            else {
                stored_attrs.left_out.push(name.clone());
                continue;
            };
            let value = match is_acl(&parsed) {
                false => Some(value.clone()),
                true => stored_acl(&parsed, value, &mut stored_attrs.mode)
                    .map_err(|what| format!("{}: {what}", String::from_utf8_lossy(name)))?,
            };
            stored.extend(value.map(|value| (parsed, value)));
        }
        for (name, value) in &older {
            let replaced = named.iter().any(|(newer, _)| newer == name);
            if let Some(name) = XattrName::parse(name).filter(|_| !replaced) {
                stored.push((name, value.clone()));
            }
        }
        stored.sort();
        stored.dedup_by(|one, other| one.0 == other.0);
        stored_attrs.set = self.intern(&stored)?;
        Ok(stored_attrs)
    }

    /// The set of `id`, with the permissions of `mode` in its ACL if it has one.
    ///
    /// # Errors
    /// There is no room for one more set.
    pub(crate) fn chmod(&mut self, id: SetId, mode: u16) -> Result<SetId, String> {
        let Divided { area, block } = self.get(id);
        let name = XattrName::ACL_ACCESS;
        let Some(stored) = area.get(&name).or_else(|| block.get(&name)) else {
            return Ok(id);
        };
        let mut acl = Acl::from_stored(stored).map_err(|error| error.to_string())?;
        acl.chmod(mode);
        let name = name.full().expect("the index of ACLs has a prefix");
        let named = vec![(name, acl.to_posix())];
        Ok(self.store(id, &named, mode)?.set)
    }

    fn intern(&mut self, stored: &[(XattrName<'_>, Vec<u8>)]) -> Result<SetId, String> {
        if stored.is_empty() {
            return Ok(SetId::default());
        }
        let mut key = Vec::new();
        for (name, value) in stored {
            key.push(name.index.raw());
            for part in [name.rest, value] {
                let len = u32::try_from(part.len()).map_err(|error| error.to_string())?;
                key.extend_from_slice(&len.to_le_bytes());
                key.extend_from_slice(part);
            }
        }
        if let Some(&id) = self.known.get(&key) {
            return Ok(id);
        }
        self.bytes += 2 * key.len() + 128;
        if self.bytes > MAX_BYTES {
            return Err(format!(
                "extended attributes that differ take more than {MAX_BYTES} bytes"
            ));
        }
        let divided = self.divide(stored)?;
        let id = u32::try_from(self.sets.len()).map_err(|error| error.to_string())?;
        self.sets.push(divided);
        self.known.insert(key, SetId(id));
        Ok(SetId(id))
    }

    /// All into the inode if they fit; else all into a block; else what fits of each.
    fn divide(&self, stored: &[(XattrName<'_>, Vec<u8>)]) -> Result<Divided, String> {
        let mut all = XattrSet::default();
        for (name, value) in stored {
            all.set(name, value);
        }
        let mut divided = Divided::default();
        if all.fits_area(self.area) == Fit::Fits {
            divided.area = all;
            return Ok(divided);
        }
        if all.fits_block(self.block_size) == Fit::Fits {
            divided.block = all;
            return Ok(divided);
        }
        for (name, value) in stored {
            let mut area = divided.area.clone();
            area.set(name, value);
            if area.fits_area(self.area) == Fit::Fits {
                divided.area = area;
                continue;
            }
            divided.block.set(name, value);
            if divided.block.fits_block(self.block_size) == Fit::TooLarge {
                let size = self.block_size;
                return Err(format!(
                    "extended attributes that do not fit a block of {size} bytes"
                ));
            }
        }
        Ok(divided)
    }
}

fn is_acl(name: &XattrName<'_>) -> bool {
    *name == XattrName::ACL_ACCESS || *name == XattrName::ACL_DEFAULT
}

/// The stored form of an ACL; `None` where the permissions say as much. An access ACL changes them.
fn stored_acl(
    name: &XattrName<'_>,
    value: &[u8],
    mode: &mut u16,
) -> Result<Option<Vec<u8>>, String> {
    let kind = FileKind::from_mode(*mode);
    let access = *name == XattrName::ACL_ACCESS;
    if kind == Some(FileKind::Symlink) || (!access && kind != Some(FileKind::Directory)) {
        return Err("only directories have default ACLs, and links none at all".to_owned());
    }
    let acl = Acl::from_posix(value).map_err(|error| error.to_string())?;
    if acl.is_empty() {
        return Ok(None);
    }
    acl.validate().map_err(|error| error.to_string())?;
    if !access {
        return Ok(Some(acl.to_stored()));
    }
    let (changed, plain) = acl.mode(*mode);
    *mode = changed;
    Ok((!plain).then(|| acl.to_stored()))
}
