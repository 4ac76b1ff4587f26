//! The file systems that are compared, each mounted the way that suits it best.

use extant_testkit::{Image, Mount, Need, Result, Subject, TempDir, tools};

/// One of the compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Extant through FUSE.
    Extant,
    /// fuse2fs.
    Fuse2fs,
    /// Linux's ext4 through a loop device.
    Ext4,
    /// libfuse's pass-through over tmpfs.
    Passthrough,
}

/// Generous caching: the strongest the example offers.
const PASSTHROUGH: &str = "writeback,cache=always,timeout=86400,clone_fd";

impl Variant {
    pub(super) const ALL: [Variant; 4] = [
        Variant::Extant,
        Variant::Fuse2fs,
        Variant::Ext4,
        Variant::Passthrough,
    ];

    /// Its name, as DESIGN's tables have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Extant => "mount",
            Variant::Fuse2fs => "fuse2fs",
            Variant::Ext4 => "kernel-ext4",
            Variant::Passthrough => "passthrough",
        }
    }

    pub(super) fn named(name: &str) -> Option<Variant> {
        Self::ALL.into_iter().find(|v| v.name() == name)
    }

    pub(super) fn is_fuse(self) -> bool {
        self != Variant::Ext4
    }

    pub(super) fn describe(self) -> String {
        match self {
            Variant::Extant => "extant mount, no options, image in RAM".into(),
            Variant::Fuse2fs => "fuse2fs, no options, image in RAM".into(),
            Variant::Ext4 => "Linux's ext4 on a loop device, no options, image in RAM".into(),
            Variant::Passthrough => format!("passthrough_ll over tmpfs, -o {PASSTHROUGH}"),
        }
    }

    /// Why it cannot be measured here.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Variant::Extant => tools::extant().err().map(|e| e.to_string()),
            Variant::Fuse2fs => Need::Tool("fuse2fs").missing(),
            Variant::Ext4 => None,
            Variant::Passthrough => tools::passthrough_ll().err().map(|e| e.to_string()),
        }
    }

    /// A fresh file system of this kind, of `mib` MiB.
    pub(super) fn fresh(self, mib: u64) -> Result<Fresh> {
        Ok(match self {
            Variant::Passthrough => Fresh {
                variant: self,
                image: None,
                dir: Some(TempDir::new("source")?),
            },
            _ => Fresh {
                variant: self,
                image: Some(Image::of_mib(mib).make()?),
                dir: None,
            },
        })
    }
}

/// A file system that is not mounted yet, or not any more.
#[derive(Debug)]
pub(super) struct Fresh {
    variant: Variant,
    image: Option<Image>,
    dir: Option<TempDir>,
}

impl Fresh {
    /// Mounts it.
    pub(super) fn mount(&self) -> Result<Mount> {
        let subject = match self.variant {
            Variant::Extant => Subject::Extant,
            Variant::Fuse2fs => Subject::Fuse2fs,
            Variant::Ext4 => Subject::Ext4,
            Variant::Passthrough => {
                let dir = self
                    .dir
                    .as_ref()
                    .ok_or_else(|| extant_testkit::Error::new("no source"))?;
                return Mount::passthrough(dir.path(), PASSTHROUGH);
            }
        };
        let image = self
            .image
            .as_ref()
            .ok_or_else(|| extant_testkit::Error::new("no image"))?;
        subject.mount(image.path(), "")
    }

    /// Every image must be clean afterwards: speed at any price is not measured.
    pub(super) fn check(&self) -> Result<()> {
        self.image.as_ref().map_or(Ok(()), Image::fsck_clean)
    }
}
