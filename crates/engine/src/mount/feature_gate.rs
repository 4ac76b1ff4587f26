//! The feature gate: the features that are read, written and refused.
//!
//! `docs/COMPATIBILITY.md` lists every bit; a test compares the two.

use extant_disk::features::{Compat, FeatureSets, Incompat, RoCompat};

use crate::types::error::{Error, Result};

/// The decision of the gate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Verdict {
    /// Why the mount can only be read-only: the names of the features, and conflicts between
    /// features.
    pub(super) read_only: Vec<String>,
    /// Why a mount that asks to write is refused, as by Linux.
    pub(super) unwritable: Option<String>,
}

/// Judges `features`.
///
/// # Errors
/// [`Error::UnsupportedFeature`] names every feature that forbids even reading.
pub(super) fn judge(features: &FeatureSets) -> Result<Verdict> {
    if features.has_incompat(Incompat::JOURNAL_DEV) {
        return Err(Error::UnsupportedFeature(
            "journal_dev (this device is an external journal, not a file system)".into(),
        ));
    }
    let unknown = features.incompat.difference(Incompat::SUPPORTED);
    if !unknown.is_empty() {
        return Err(Error::UnsupportedFeature(list(unknown.names())));
    }
    let foreign = features.ro_compat.difference(RoCompat::SUPPORTED);
    let mut read_only: Vec<String> = foreign.names().map(|name| name.to_string()).collect();
    if features.has_ro_compat(RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM) {
        read_only.push("metadata_csum together with uninit_bg".into());
    }
    if features.has_ro_compat(RoCompat::BIGALLOC) && !features.has_incompat(Incompat::EXTENTS) {
        read_only.push("bigalloc without extent".into());
    }
    if features.has_compat(Compat::RESIZE_INODE) && features.has_incompat(Incompat::META_BG) {
        read_only.push("meta_bg together with resize_inode".into());
    }
    if features.has_compat(Compat::RESIZE_INODE)
        && !features.has_ro_compat(RoCompat::SPARSE_SUPER)
        && !features.has_compat(Compat::SPARSE_SUPER2)
    {
        read_only.push("resize_inode without sparse_super".into());
    }
    // A volume that asks to be read only is mounted so, whatever the mount asks for.
    let unwritable = foreign.difference(RoCompat::READONLY);
    Ok(Verdict {
        read_only,
        unwritable: (!unwritable.is_empty()).then(|| why_unwritable(unwritable)),
    })
}

/// The reason why a volume with `features` is not mounted to be written.
fn why_unwritable(features: RoCompat) -> String {
    let way = match features.contains(RoCompat::SHARED_BLOCKS) {
        true => "; extant fix --unshare gives each file blocks of its own",
        false => "",
    };
    let names = list(features.names());
    format!("{names}: with it the volume is only mounted read-only (ro){way}")
}

fn list(names: impl Iterator<Item = extant_disk::features::FeatureName>) -> String {
    names
        .map(|name| name.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unknown_incompat_feature_is_named() {
        let features = FeatureSets {
            incompat: Incompat::EXTENTS
                | Incompat::COMPRESSION
                | Incompat::from_bits_retain(1 << 29),
            ..FeatureSets::default()
        };
        let error = judge(&features).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unsupported feature: compression, FEATURE_I29"
        );
    }

    #[test]
    fn unknown_ro_compat_features_make_it_read_only() {
        let plain = FeatureSets {
            incompat: Incompat::EXTENTS,
            ..FeatureSets::default()
        };
        let features = FeatureSets {
            ro_compat: RoCompat::SHARED_BLOCKS | RoCompat::REPLICA | RoCompat::SPARSE_SUPER,
            ..plain
        };
        let verdict = judge(&features).unwrap();
        assert_eq!(verdict.read_only, ["replica", "shared_blocks"]);
        let why = verdict.unwritable.unwrap();
        assert!(why.starts_with("replica, shared_blocks: "), "{why}");
        assert!(why.ends_with("extant fix --unshare gives each file blocks of its own"));
        let asked = FeatureSets {
            ro_compat: RoCompat::READONLY,
            ..plain
        };
        let verdict = judge(&asked).unwrap();
        assert_eq!((verdict.read_only.len(), verdict.unwritable), (1, None));
        assert_eq!(judge(&plain).unwrap(), Verdict::default());
        // ext2 and ext3: all files have block maps.
        assert_eq!(judge(&FeatureSets::default()).unwrap(), Verdict::default());
    }

    /// The rows of a table in the document: feature name and its verdict.
    fn row<'a>(page: &'a str, name: &str) -> &'a str {
        page.lines()
            .find(|line| line.starts_with(&format!("| `{name}` |")))
            .and_then(|line| line.split('|').nth(3))
            .map(str::trim)
            .unwrap_or_else(|| panic!("{name} has no row"))
    }

    #[test]
    fn the_document_says_what_the_gate_does() {
        let page = include_str!("../../../../docs/COMPATIBILITY.md");
        for (_, name) in Compat::NAMED {
            assert!(["full", "ignored"].contains(&row(page, name)), "{name}");
        }
        for (bit, name) in Incompat::NAMED {
            let verdict = if Incompat::SUPPORTED.contains(*bit) {
                "full"
            } else {
                "refused"
            };
            assert_eq!(row(page, name), verdict, "{name}");
        }
        for (bit, name) in RoCompat::NAMED {
            let verdict = if RoCompat::SUPPORTED.contains(*bit) {
                "full"
            } else {
                "read-only"
            };
            assert_eq!(row(page, name), verdict, "{name}");
        }
    }
}
