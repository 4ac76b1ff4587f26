//! The features of a new volume: the list of `-O`, and which features go together.

use extant_disk::features::{Compat, FeatureSets, Incompat, RoCompat};

use crate::error::{Error, Result};

/// One change of the features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FeatureEdit {
    /// All features are taken away.
    None,
    /// These are added.
    Add(FeatureSets),
    /// These are taken away.
    Remove(FeatureSets),
}

/// Features that are made: those of the format that Extant reads and writes.
const MADE: FeatureSets = FeatureSets {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::SIXTY_FOUR_BIT)
        .union(Incompat::MMP)
        .union(Incompat::JOURNAL_DEV)
        .union(Incompat::FLEX_BG)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::EA_INODE)
        .union(Incompat::LARGEDIR),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// Reads a list as `-O` takes it: names, separated by commas, `^` before those to take away, `none`
/// to take all away.
///
/// # Errors
/// A name that is not known, or a feature that is not made.
pub fn parse_features(list: &str) -> Result<Vec<FeatureEdit>> {
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(parse_one).collect()
}

fn parse_one(word: &str) -> Result<FeatureEdit> {
    if word == "none" {
        return Ok(FeatureEdit::None);
    }
    let (name, remove) = match word.strip_prefix(['^', '-']) {
        Some(name) => (name, true),
        None => (word.strip_prefix('+').unwrap_or(word), false),
    };
    let sets = named(name).ok_or_else(|| Error::BadFeature {
        name: name.to_owned(),
        why: "there is no feature of this name",
    })?;
    if remove {
        return Ok(FeatureEdit::Remove(sets));
    }
    let made = MADE.compat.contains(sets.compat)
        && MADE.incompat.contains(sets.incompat)
        && MADE.ro_compat.contains(sets.ro_compat);
    if !made {
        return Err(Error::BadFeature {
            name: name.to_owned(),
            why: "volumes with it are not made",
        });
    }
    Ok(FeatureEdit::Add(sets))
}

/// The feature called `name`, or by one of the older names of mke2fs.
fn named(name: &str) -> Option<FeatureSets> {
    let name = match name {
        "extents" => "extent",
        "uninit_groups" | "gdt_csum" => "uninit_bg",
        other => other,
    };
    let mut sets = FeatureSets::default();
    if let Some((bit, _)) = Compat::NAMED.iter().find(|(_, known)| *known == name) {
        sets.compat = *bit;
    } else if let Some((bit, _)) = Incompat::NAMED.iter().find(|(_, known)| *known == name) {
        sets.incompat = *bit;
    } else {
        let (bit, _) = RoCompat::NAMED.iter().find(|(_, known)| *known == name)?;
        sets.ro_compat = *bit;
    }
    Some(sets)
}

/// Returns whether `edits` ask for a journal on a device of its own.
pub(crate) fn ask_for_journal(edits: &[FeatureEdit]) -> bool {
    edited(FeatureSets::default(), edits).has_incompat(Incompat::JOURNAL_DEV)
}

/// The features of a journal on a device of its own: of `base` with `edits` what such a one has.
pub(crate) fn resolve_journal(base: FeatureSets, edits: &[FeatureEdit]) -> Result<FeatureSets> {
    let sets = edited(base, edits);
    if !sets.has_incompat(Incompat::JOURNAL_DEV) {
        return Err(Error::Conflict("a journal of its own needs journal_dev"));
    }
    Ok(FeatureSets {
        incompat: Incompat::JOURNAL_DEV,
        ro_compat: sets.ro_compat & RoCompat::METADATA_CSUM,
        ..FeatureSets::default()
    })
}

/// `base` with `edits`, checked.
pub(crate) fn resolve(base: FeatureSets, edits: &[FeatureEdit]) -> Result<FeatureSets> {
    let mut sets = edited(base, edits);
    if sets.metadata_csum() {
        // Its checksums take the place of the older ones.
        sets.ro_compat -= RoCompat::GDT_CSUM;
    }
    check(&sets)?;
    Ok(sets)
}

/// `base` with `edits`.
fn edited(base: FeatureSets, edits: &[FeatureEdit]) -> FeatureSets {
    let mut sets = base;
    for edit in edits {
        match edit {
            FeatureEdit::None => sets = FeatureSets::default(),
            FeatureEdit::Add(more) => {
                sets.compat |= more.compat;
                sets.incompat |= more.incompat;
                sets.ro_compat |= more.ro_compat;
            }
            FeatureEdit::Remove(less) => {
                sets.compat -= less.compat;
                sets.incompat -= less.incompat;
                sets.ro_compat -= less.ro_compat;
            }
        }
    }
    sets
}

fn check(sets: &FeatureSets) -> Result<()> {
    let refuse = |why| Err(Error::Conflict(why));
    if sets.has_incompat(Incompat::JOURNAL_DEV) {
        return refuse("journal_dev makes a journal, and no file system");
    }
    let sparse = sets.has_ro_compat(RoCompat::SPARSE_SUPER);
    if sets.has_compat(Compat::RESIZE_INODE) && !sparse {
        return refuse("resize_inode needs sparse_super: take ^resize_inode as well");
    }
    if sets.has_compat(Compat::RESIZE_INODE) && sets.has_incompat(Incompat::META_BG) {
        return refuse("meta_bg leaves no table to grow: take ^resize_inode as well");
    }
    if sets.has_incompat(Incompat::CSUM_SEED) && !sets.metadata_csum() {
        return refuse("metadata_csum_seed needs metadata_csum");
    }
    if sets.has_incompat(Incompat::SIXTY_FOUR_BIT) && !sets.has_incompat(Incompat::EXTENTS) {
        return refuse("64bit needs extent: take ^64bit as well");
    }
    if sets.has_ro_compat(RoCompat::BIGALLOC) && !sets.has_incompat(Incompat::EXTENTS) {
        return refuse("bigalloc needs extent: block maps have no clusters");
    }
    if sets.has_compat(Compat::ORPHAN_FILE) && !sets.has_compat(Compat::HAS_JOURNAL) {
        return refuse("orphan_file needs has_journal");
    }
    if sets.has_compat(Compat::FAST_COMMIT) && !sets.has_compat(Compat::HAS_JOURNAL) {
        return refuse("fast_commit needs has_journal");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_order() {
        let edits = parse_features("none,extent,^extents, filetype").unwrap();
        let sets = resolve(MADE, &edits).unwrap();
        assert_eq!(sets.names().count(), 1);
        assert!(sets.has_incompat(Incompat::FILETYPE));
    }

    #[test]
    fn unknown_and_unmade_features_are_refused() {
        for (list, why) in [
            ("bogus", "feature bogus: there is no feature of this name"),
            ("snapshot", "feature snapshot: volumes with it are not made"),
        ] {
            assert_eq!(parse_features(list).unwrap_err().to_string(), why);
        }
        assert!(parse_features("^snapshot").is_ok());
    }

    #[test]
    fn bad_combinations_are_refused() {
        let all = FeatureSets {
            compat: Compat::HAS_JOURNAL,
            ..FeatureSets::default()
        };
        for list in [
            "resize_inode",
            "sparse_super,resize_inode,meta_bg",
            "metadata_csum_seed",
            "64bit",
            "bigalloc",
            "^has_journal,orphan_file",
        ] {
            let edits = parse_features(list).unwrap();
            let refused = resolve(all, &edits);
            assert!(matches!(refused, Err(Error::Conflict(_))), "{list}");
        }
    }

    #[test]
    fn the_newer_checksums_replace_the_older() {
        let edits = parse_features("uninit_bg,metadata_csum").unwrap();
        let sets = resolve(FeatureSets::default(), &edits).unwrap();
        assert_eq!(sets.ro_compat, RoCompat::METADATA_CSUM);
    }
}
